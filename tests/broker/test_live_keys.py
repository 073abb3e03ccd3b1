"""Keys that may change while a node runs, each changed over the wire and seen to work.

Those of the store that are read anew in each round of their task are tested with it.
"""

import json
import time
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from rmq.protocol.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.properties import encode_properties
from rmq.testing import RawClient, running_node
from tests.waiting import until

FORBIDDEN = 16
SUSPENDS, SUBSCRIBES = 2, 4
"""Flags of a pull."""


class Caller:
    """A node and a connection to each of its servers."""

    def __init__(self, node, broker, namesrv):
        self.node, self._broker, self._namesrv = node, broker, namesrv
        self.pushed = broker.pushed

    async def ask(self, code, body=b"", to="broker", **fields):
        texts = {name: str(value) for name, value in fields.items()}
        request = Command(code, texts, body, language="JAVA", version=513)
        link = self._broker if to == "broker" else self._namesrv
        return await link.call(request)

    async def change(self, to="broker", **keys):
        code = 25 if to == "broker" else 318
        text = "".join(f"{key}={value}\n" for key, value in keys.items())
        answer = await self.ask(code, text.encode(), to)
        assert answer.code == 0, answer.remark
        shown = (await self.ask(code + 1, to=to)).body.decode().splitlines()
        assert {f"{key}={value}" for key, value in keys.items()} <= set(shown)

    async def make_topic(self, name, attributes="", order="false"):
        return await self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC, topic=name, defaultTopic="TBW102",
            readQueueNums=1, writeQueueNums=1, perm=6, topicSysFlag=0, order=order,
            topicFilterType="SINGLE_TAG", attributes=attributes,
        )  # fmt: skip

    async def send(self, topic, **properties):
        return await self.ask(
            RequestCode.SEND_MESSAGE, b"body", producerGroup="P", topic=topic,
            defaultTopic="TBW102", defaultTopicQueueNums=1, queueId=0, sysFlag=0,
            bornTimestamp=int(time.time() * 1_000), flag=0,
            properties=encode_properties(properties),
        )  # fmt: skip

    async def pull(self, topic, group="G", flags=SUBSCRIBES, offset=0, **more):
        fields = {"subscription": "*"} | more
        return await self.ask(
            RequestCode.PULL_MESSAGE, consumerGroup=group, topic=topic, queueId=0,
            queueOffset=offset, maxMsgNums=32, sysFlag=flags, commitOffset=0,
            suspendTimeoutMillis=20_000, subVersion=0, **fields,
        )  # fmt: skip

    async def queue_permission(self, topic):
        answer = await self.ask(
            105, to="namesrv", topic=topic, acceptStandardJsonOnly="true"
        )
        return answer.code == 0 and json.loads(answer.body)["queueDatas"][0]["perm"]


@asynccontextmanager
async def calling(folder, **settings):
    async with (
        running_node(folder, settings) as node,
        RawClient.connect(node.address) as broker,
        RawClient.connect(node.name_servers[0]) as namesrv,
    ):
        yield Caller(node, broker, namesrv)


@pytest.fixture
async def caller(tmp_path):
    async with calling(tmp_path) as caller:
        yield caller


async def test_the_permission_of_a_broker_is_announced_at_once(caller):
    await caller.make_topic("T")

    async def is_told(permission):
        return await caller.queue_permission("T") == permission

    await until(partial(is_told, 6))
    for permission in (4, 2, 6):
        await caller.change(brokerPermission=permission)
        await until(partial(is_told, permission), limit_s=2)


async def test_a_broker_that_may_not_be_read_refuses_pulls_at_once(caller):
    await caller.send("T")
    for _ in range(3):  # the later ones are served by compiled code
        assert (await caller.pull("T")).code == 0
    assert caller.node.server.native_counts()
    await caller.change(brokerPermission=2)
    answer = await caller.pull("T")
    assert (answer.code, answer.ext_fields["forbiddenType"]) == (FORBIDDEN, "1")
    await caller.change(brokerPermission=6)
    assert (await caller.pull("T")).code == 0


async def test_a_broker_that_may_not_be_written_refuses_orders_at_once(caller):
    """Java refuses sends to topics with an order only: others go by the routes."""
    await caller.make_topic("T", order="true")
    for _ in range(3):
        assert (await caller.send("T")).code == 0
    await caller.change(brokerPermission=4)
    for _ in range(2):
        assert (await caller.send("T")).code == FORBIDDEN
    await caller.change(brokerPermission=6)
    assert (await caller.send("T")).code == 0


async def test_topics_and_groups_come_by_themselves_only_if_they_may(caller):
    await caller.make_topic("T")
    await caller.change(autoCreateTopicEnable="false")
    assert (await caller.send("New")).code == ResponseCode.TOPIC_NOT_EXIST
    await caller.change(autoCreateSubscriptionGroup="false")
    assert (
        await caller.pull("T", "NewGroup")
    ).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    await caller.change(autoCreateTopicEnable="true")
    await caller.change(autoCreateSubscriptionGroup="true")
    assert (await caller.send("New")).code == 0
    assert (
        await caller.pull("T", "NewGroup", flags=SUBSCRIBES)
    ).code == ResponseCode.PULL_NOT_FOUND


async def test_transactions_are_refused_when_told(caller):
    assert (await caller.send("T", TRAN_MSG="true", PGROUP="P")).code == 0
    await caller.change(rejectTransactionMessage="true")
    assert (await caller.send("T", TRAN_MSG="true", PGROUP="P")).code == FORBIDDEN


@pytest.mark.slow
async def test_a_transaction_is_checked_by_the_new_limits(tmp_path):
    settings = {"transactionCheckInterval": "1000", "transactionTimeOut": "600000"}
    async with calling(tmp_path, **settings) as caller:
        data = HeartbeatData(
            client_id="C", producer_data_set=[ProducerData(group_name="P")]
        )
        await caller.ask(34, data.encode())
        await caller.send("T", TRAN_MSG="true", PGROUP="P")
        await trio.sleep(1.5)
        await caller.ask(31, topic="T", queueId=0)
        assert caller.pushed == [], "it is too young"
        await caller.change(transactionTimeOut=0, transactionCheckMax=1)

        async def is_asked():
            await caller.ask(31, topic="T", queueId=0)
            return caller.pushed

        await until(is_asked)
        assert {one.code for one in caller.pushed} == {39}
        await trio.sleep(2.5)
        await caller.ask(31, topic="T", queueId=0)
        assert len(caller.pushed) == 1, "one check was all"


@pytest.mark.slow
async def test_pulls_are_held_as_long_as_the_new_keys_say(tmp_path):
    async with calling(tmp_path) as caller:
        await caller.make_topic("T")
        await caller.change(longPollingEnable="false", shortPollingTimeMills=1)
        with trio.fail_after(1):
            answer = await caller.pull("T", flags=SUSPENDS | SUBSCRIBES)
        assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_selectors_are_taken_from_now_on(caller):
    await caller.send("T", a="1")
    select = {"subscription": "a = '1'", "expressionType": "SQL92"}
    refused = await caller.pull("T", **select)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    await caller.change(enablePropertyFilter="true")
    assert (await caller.pull("T", **select)).code == 0


async def test_mixed_topics_are_taken_from_now_on(caller):
    wanted = "+message.type=MIXED"
    assert (await caller.make_topic("Mixed", wanted)).code != 0
    await caller.change(enableMixedMessageType="true")
    assert (await caller.make_topic("Mixed", wanted)).code == 0


async def test_offsets_are_reset_where_the_new_key_says(caller):
    await caller.send("T")
    fields = {"topic": "T", "group": "G", "timestamp": -1, "isForce": "true"}
    data = HeartbeatData(
        client_id="C",
        consumer_data_set=[
            ConsumerData(
                group_name="G",
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                consume_from_where="CONSUME_FROM_LAST_OFFSET",
                subscription_data_set=[SubscriptionData(topic="T", sub_string="*")],
            )
        ],
    )
    await caller.ask(34, data.encode())
    await caller.ask(15, consumerGroup="G", topic="T", queueId=0, commitOffset=0)
    await caller.change(useServerSideResetOffset="false")
    assert (await caller.ask(222, **fields)).code == 0
    await caller.ask(31, topic="T", queueId=0)
    assert 220 in {one.code for one in caller.pushed}, "the client was told"
    caller.pushed.clear()
    await caller.change(useServerSideResetOffset="true")
    assert (await caller.ask(222, **fields)).code == 0
    assert caller.pushed == []


async def test_replies_are_stored_only_if_the_new_key_says_so(caller):
    async def reply():
        properties = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "nobody"}
        return await caller.ask(
            324, b"body", producerGroup="P", topic="DefaultCluster_REPLY_TOPIC",
            defaultTopic="TBW102", defaultTopicQueueNums=1, queueId=0, sysFlag=0,
            bornTimestamp=0, flag=0, properties=encode_properties(properties),
        )  # fmt: skip

    assert (await reply()).ext_fields["msgId"] != "0"
    await caller.change(storeReplyMessageEnable="false")
    assert (await reply()).ext_fields["msgId"] == "0"


async def test_the_log_is_flushed_by_the_new_limits(tmp_path):
    settings = {
        "flushIntervalCommitLog": "10",
        "flushCommitLogLeastPages": "100000",
        "flushCommitLogThoroughInterval": "10000000",
    }
    async with calling(tmp_path, **settings) as caller:
        store = caller.node.broker.context.store

        async def is_durable():
            stats = store.statistics()
            return stats.durable_offset == stats.end_offset

        await caller.send("T")
        await trio.sleep(0.05)  # five rounds of the flush
        assert not await is_durable()
        await caller.change(flushCommitLogThoroughInterval=1)
        await until(is_durable)
        await caller.change(flushCommitLogThoroughInterval=10_000_000)
        await caller.send("T")
        await trio.sleep(0.05)  # five rounds of the flush
        assert not await is_durable()
        await caller.change(flushCommitLogLeastPages=0)
        await until(is_durable)


# -- the name server of a broker


async def test_the_name_server_reads_its_keys_from_the_settings_of_its_broker(tmp_path):
    async with calling(tmp_path, enableTopicList="false") as caller:
        lists = {"cluster": "DefaultCluster"}
        assert (
            await caller.ask(224, to="namesrv", **lists)
        ).code == ResponseCode.SYSTEM_ERROR
        await caller.change("namesrv", enableTopicList="true")
        assert (await caller.ask(224, to="namesrv", **lists)).code == 0


async def test_keys_of_both_are_kept_in_one_file(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("# mine\nenableAllTopicList=true\n")
    async with calling(tmp_path / "s", brokerConfigPath=str(path)) as caller:
        await caller.change("namesrv", enableAllTopicList="false")
        await caller.change(brokerPermission=4)
        assert (await caller.ask(206, to="namesrv")).code == ResponseCode.SYSTEM_ERROR
    lines = path.read_text().splitlines()
    assert lines == ["# mine", "enableAllTopicList=false", "brokerPermission=4"]


async def test_an_order_is_told_from_now_on(caller):
    await caller.make_topic("T")
    fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-test:1"}
    await caller.ask(100, to="namesrv", **fields)

    async def told():
        answer = await caller.ask(105, to="namesrv", topic="T")
        return b"broker-test:1" in answer.body

    async def known():
        return (await caller.ask(105, to="namesrv", topic="T")).code == 0

    with trio.fail_after(10):
        while not await known():  # noqa: ASYNC110 - over the wire
            await trio.sleep(0.01)
    assert not await told()
    await caller.change("namesrv", orderMessageEnable="true")
    assert await told()
