"""A scrape of a node after traffic, compared with a scrape of Java 5.5.0."""

import json
import re
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from rmq.container.pages import families
from rmq.observe.metrics.java import Requests, _watermark_samples
from rmq.protocol.bodies.heartbeat import HeartbeatData
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.properties import encode_properties
from rmq.store.durability import RefusalKind
from rmq.testing import RawClient, running_node
from tests.http.test_server import ask

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
JAVA = {
    name: (kind, set(labels.split(",")))
    for line in (HERE / "java-5.5.0.txt").read_text().splitlines()
    for name, kind, labels in [line.split(" ")]
}
NAMES = set((HERE / "java-5.5.0-names.txt").read_text().split())
"""What the classes of Java's broker register, with the exporter's units; tiered storage
is a store of its own."""

SETTINGS = {
    "metricsExporterType": "PROM",
    "metricsPromExporterPort": "0",
    "metricsLabel": "zone:north",
    "rmq.onceWindowMs": "60000",
}
NOT_IN_THE_SCRAPE = {
    "rocketmq_producer_connections": {"language", "version", "protocol_type"},
    "rocketmq_consumer_connections": {
        "language", "version", "protocol_type", "consumer_group", "consume_mode",
        "is_system",
    },
    "rocketmq_commit_messages_total": {"topic"},
    "rocketmq_rollback_messages_total": {"topic"},
    "rocketmq_half_messages": {"topic"},
    "rocketmq_timer_enqueue_total": {"topic"},
    "rocketmq_timer_dequeue_total": {"topic"},
    "rocketmq_timing_messages": {"topic"},
    "rocketmq_send_to_dlq_messages_total": {"topic", "consumer_group", "is_system"},
    "rocketmq_finish_message_latency_milliseconds": {"topic"},
    "rocketmq_topic_create_execution_time_milliseconds": {
        "invocation_status", "is_system",
    },
}  # fmt: skip
"""Java's tools had left when Java was scraped; the labels are those of its source."""


def not_served():
    """Names of the table in the document, which has a reason for each."""
    text = (ROOT / "docs/operate/operations.md").read_text()
    rows = re.findall(r"^\| (`rocketmq_[^|]*) \| ([^|]+) \|$", text, re.MULTILINE)
    names = [re.findall(r"`(\w+)`", row) for row, _reason in rows]
    return {name for row in names for name in row} & NAMES


class Scrape:
    """Values by name and labels, kinds by name, as Prometheus reads them."""

    def __init__(self, text):
        self.kinds = {}
        self.values = {}
        for family in text_string_to_metric_families(text):
            total = "_total" * (family.type == "counter")  # the parser takes it off
            assert family.name + total not in self.kinds
            self.kinds[family.name + total] = family.type
            for sample in family.samples:
                found = self.values.setdefault(sample.name, [])
                found.append((sample.labels, sample.value))

    def value(self, name, **labels):
        (value,) = [
            value
            for found, value in self.values[name]
            if labels.items() <= found.items()
        ]
        return value


async def get(node, path):
    server = type("Address", (), {"port": node.http_port})
    answer = await ask(server, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = answer.partition("\r\n\r\n")
    return head.partition("\r\n")[0].partition(" ")[2], body


def request(code, body=b"", **fields):
    command = Command.request(code, body=body)
    command.ext_fields = fields
    return command


SEND = {
    "producerGroup": "P", "topic": "T", "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0",
    "bornTimestamp": "1800000000000", "flag": "0", "properties": "",
    "reconsumeTimes": "0",
}  # fmt: skip
PULL = {
    "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0",
    "maxMsgNums": "2", "sysFlag": "4", "commitOffset": "0",
    "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
}  # fmt: skip
HEARTBEAT = {
    "clientID": "c",
    "producerDataSet": [{"groupName": "P"}],
    "consumerDataSet": [
        {
            "groupName": "G", "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [{"topic": "T", "subString": "*"}],
        }
    ],
}  # fmt: skip


async def send_transactions(client):
    """One is committed, one rolled back, one stays open."""
    for end in (8, 12, None):
        properties = encode_properties({"TRAN_MSG": "true", "PGROUP": "P"})
        fields = SEND | {"topic": "X", "properties": properties}
        sent = await client.call(request(RequestCode.SEND_MESSAGE, b"half", **fields))
        assert sent.code == 0, sent.remark
        if end is None:
            continue
        message_id = sent.ext_fields["msgId"]
        ended = request(
            RequestCode.END_TRANSACTION,
            producerGroup="P",
            tranStateTableOffset=sent.ext_fields["queueOffset"],
            commitLogOffset=str(int(message_id[-16:], 16)),
            commitOrRollback=str(end),
            msgId=message_id,
        )
        assert (await client.call(ended)).code == 0


async def make_topics_and_groups(client):
    """One of each is made, and a topic that nobody may have is not."""
    topic = {
        "topic": "Made", "defaultTopic": "TBW102", "readQueueNums": "1",
        "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    assert (await client.call(request(code, **topic))).code == 0
    assert (
        await client.call(request(code, **topic | {"topic": "TBW102"}))
    ).code == ResponseCode.INVALID_PARAMETER
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert (await client.call(request(code, b'{"groupName":"Made"}'))).code == 0


async def send_timed_messages(client):
    """One is delivered, and one waits."""
    for time in ("0", "3600"):
        properties = encode_properties({"TIMER_DELAY_SEC": time})
        fields = SEND | {"topic": "Later", "properties": properties}
        sent = await client.call(request(RequestCode.SEND_MESSAGE, b"later", **fields))
        assert sent.code == 0, sent.remark


async def give_up_a_message(client):
    back = request(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        offset="0", group="G", delayLevel="-1", originTopic="T",
    )  # fmt: skip
    answer = await client.call(back)
    assert answer.code == 0, answer.remark


@pytest.fixture
async def scrape(tmp_path):
    """Five messages in, two of them out, one committed; transactions, a dead letter."""
    async with running_node(tmp_path, SETTINGS) as node:
        node.broker.context.topics.update(
            TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)
        )
        async with RawClient.connect(node.address) as client:
            heartbeat = HeartbeatData.from_value(HEARTBEAT).encode()
            await client.call(request(RequestCode.HEART_BEAT, heartbeat))
            for _ in range(5):
                sent = await client.call(
                    request(RequestCode.SEND_MESSAGE, b"hello", **SEND)
                )
                assert sent.code == 0, sent.remark
            pulled = await client.call(request(RequestCode.PULL_MESSAGE, **PULL))
            assert pulled.code == 0, pulled.remark
            commit = request(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup="G", topic="T", queueId="0", commitOffset="1",
            )  # fmt: skip
            assert (await client.call(commit)).code == 0
            await send_timed_messages(client)
            await send_transactions(client)
            await give_up_a_message(client)
            for _ in range(2):
                again = {**SEND, "topic": "Once", "properties": "UNIQ_KEY\x01K\x02"}
                sent = await client.call(
                    request(RequestCode.SEND_MESSAGE, b"hello", **again)
                )
                assert sent.code == 0, sent.remark
            await make_topics_and_groups(client)
            status, body = await get(node, "/metrics")
        assert status == "200 OK"
        yield Scrape(body)


async def test_numbers_are_those_of_the_traffic(scrape):
    is_t = {"topic": "T", "is_system": "false"}
    assert (
        scrape.value("rocketmq_messages_in_total", message_type="normal", **is_t) == 5
    )
    assert scrape.value("rocketmq_throughput_in_total", topic="T") > 5 * 90
    assert scrape.value("rmq_sends_stored_once_total", topic="Once") == 1
    assert scrape.value("rocketmq_messages_out_total", consumer_group="G", **is_t) == 2
    assert scrape.value("rocketmq_throughput_out_total", consumer_group="G") > 2 * 90
    assert scrape.value("rocketmq_consumer_lag_messages", consumer_group="G") == 4
    assert scrape.value("rocketmq_consumer_lag_latency_milliseconds", topic="T") >= 0
    assert scrape.value("rocketmq_producer_connections", language="python") == 1
    online = {"consumer_group": "G", "consume_mode": "push"}
    assert scrape.value("rocketmq_consumer_connections", **online) == 1
    assert scrape.value("rocketmq_broker_permission") == 6
    assert scrape.value("rocketmq_storage_size_bytes", storage_medium="disk") > 450
    ends = 1 + 1  # a commit, and the note of a roll-back
    assert scrape.value("rmq_put_messages_total") == 5 + 2 + 3 + ends + 1 + 1
    assert scrape.value("rmq_store_writable") == 1
    assert scrape.value("rmq_name_server_registered") == 1
    assert scrape.value("rmq_connections") >= 2


async def test_what_is_handed_out_is_in_flight_until_it_is_committed(scrape):
    of_g = {"consumer_group": "G", "topic": "T", "is_retry": "false"}
    assert scrape.value("rocketmq_consumer_inflight_messages", **of_g) == 1
    assert scrape.value("rocketmq_consumer_ready_messages", **of_g) == 3
    name = "rocketmq_consumer_queueing_latency_milliseconds"
    assert scrape.value(name, **of_g) >= 0


async def test_transactions_and_dead_letters(scrape):
    assert scrape.value("rocketmq_commit_messages_total", topic="X") == 1
    assert scrape.value("rocketmq_rollback_messages_total", topic="X") == 1
    assert scrape.value("rocketmq_half_messages", topic="X") == 1
    dead = {"topic": "T", "consumer_group": "G"}
    assert scrape.value("rocketmq_send_to_dlq_messages_total", **dead) == 1


async def test_timed_messages(scrape):
    assert scrape.value("rocketmq_timing_messages", topic="Later") == 1
    assert scrape.value("rocketmq_timer_enqueue_total", topic="Later") == 1
    name = "rocketmq_timer_message_snapshot"
    assert scrape.value(name, timer_bound_s="900") == 0
    assert scrape.value(name, timer_bound_s="3600") == 1


async def test_histograms(scrape):
    of_t = {"topic": "T", "message_type": "normal"}
    size = "rocketmq_message_size"
    assert scrape.value(f"{size}_bucket", le="1024.0", **of_t) == 5
    assert scrape.value(f"{size}_bucket", le="+Inf", **of_t) == 5
    assert scrape.value(f"{size}_count", **of_t) == 5
    assert scrape.value(f"{size}_sum", **of_t) == scrape.value(
        "rocketmq_throughput_in_total", topic="T"
    )
    rpc = "rocketmq_rpc_latency_milliseconds"
    sends = {"request_code": "send_message", "response_code": "success"}
    assert scrape.value(f"{rpc}_count", **sends) == 12
    assert scrape.value(f"{rpc}_bucket", le="3000.0", **sends) == 12
    assert 0 < scrape.value(f"{rpc}_sum", **sends) < 8_000
    pulls = {"request_code": "pull_message", "result": "success"}
    assert scrape.value(f"{rpc}_count", **pulls) == 1
    flushes = scrape.value("rmq_log_flush_seconds_count")
    assert scrape.value("rmq_log_flush_seconds_bucket", le="+Inf") == flushes


async def test_times_of_creations_and_ages_of_commits(scrape):
    topic = "rocketmq_topic_create_execution_time_milliseconds"
    made = {"invocation_status": "success", "is_system": "false"}
    assert scrape.value(f"{topic}_count", **made) == 1
    assert scrape.value(f"{topic}_bucket", le="5000.0", **made) == 1
    refused = {"invocation_status": "failure", "is_system": "true"}
    assert scrape.value(f"{topic}_count", **refused) == 1
    group = "rocketmq_consumer_group_create_execution_time_milliseconds"
    assert scrape.value(f"{group}_count", invocation_status="success") == 1
    commit = "rocketmq_finish_message_latency_milliseconds"
    assert scrape.value(f"{commit}_count", topic="X") == 1


async def test_nobody_waits(scrape):
    found = scrape.values["rocketmq_processor_watermark"]
    names = {labels["processor"] for labels, _ in found}
    assert names == {
        "send", "async_put", "pull", "lite_pull", "query_message", "client_manager",
        "heartbeat", "transaction", "consumer_manager", "admin", "reply",
    }  # fmt: skip
    assert not any(value for _, value in found)


def test_watermarks_are_those_of_the_requests_that_wait():
    waiting = {10: 2, 36: 1, 11: 4, 307: 8, 99_999: 16}
    samples = _watermark_samples(Requests([], waiting, 32))
    found = {sample.labels["processor"]: sample.value for sample in samples}
    wanted = {"send": 3, "pull": 4, "admin": 24, "async_put": 32}
    assert found == dict.fromkeys(found, 0) | wanted


def test_the_scrape_has_registered_names():
    assert JAVA.keys() < NAMES


async def test_what_is_not_served_stands_in_the_document(scrape):
    of_java = {name for name in scrape.kinds if name.startswith("rocketmq_")}
    assert NAMES - of_java == not_served()
    assert of_java <= NAMES


async def test_names_kinds_and_labels_are_those_of_java(scrape):
    wanted = JAVA.keys() - not_served()
    assert len(wanted) > 12
    for name in wanted:
        kind, labels = JAVA[name]
        assert scrape.kinds[name] == kind, name
        part = name + "_count" * (kind == "histogram")
        for found, _ in scrape.values[part]:
            assert found.keys() == labels | {"zone"}, name
            assert found["zone"] == "north"


async def test_every_name_is_javas_or_begins_with_rmq(scrape):
    own = {name for name in scrape.kinds if name.startswith("rmq_")}
    assert len(own) > 25
    assert scrape.kinds.keys() - own - JAVA.keys() == NOT_IN_THE_SCRAPE.keys()
    base = {"cluster", "node_id", "node_type", "otel_scope_name", "zone"}
    for name, labels in NOT_IN_THE_SCRAPE.items():
        part = name + "_count" * (scrape.kinds[name] == "histogram")
        for found, _ in scrape.values[part]:
            assert found.keys() == labels | base


OF_A_PAIR = {"rmq_replica_lag_bytes", "rmq_replica_bytes_per_second", "rmq_following"}
"""Of a master with slaves, and of a slave: tests/cluster/test_pair.py."""

OF_A_GROUP = {
    "rmq_group_epoch", "rmq_group_master", "rmq_sync_set_absent", "rmq_sync_set_size",
    "rmq_unconfirmed_bytes",
}  # fmt: skip
"""Of brokers with a controller: tests/cluster/test_membership.py."""


async def test_every_metric_of_the_dashboard_is_served(scrape):
    text = (ROOT / "conf/grafana-dashboard.json").read_text()
    titles = [panel["title"] for panel in json.loads(text)["panels"]]
    assert len(set(titles)) == len(titles) > 10
    named = set(re.findall(r"(?:rocketmq|rmq)_\w+", text))
    assert len(named) > 15
    named -= OF_A_PAIR
    assert not {name.removesuffix("_bucket") for name in named} - scrape.kinds.keys()


async def test_every_metric_that_the_documents_name_is_served(scrape):
    text = (ROOT / "docs/operate/operations.md").read_text()
    of_brokers = r"`((?:rocketmq|rmq)_(?!controller_)\w+)"
    named = set(re.findall(of_brokers, text))
    assert len(named) > 10
    of_container = {each.name for each in families({})}
    elsewhere = not_served() | of_container | OF_A_PAIR | OF_A_GROUP
    assert not named - scrape.kinds.keys() - elsewhere


async def test_readiness_says_why_not(tmp_path):
    async with running_node(tmp_path, SETTINGS) as node:
        assert await get(node, "/healthz") == ("200 OK", "alive\n")
        assert await get(node, "/readyz") == ("200 OK", "ready\n")
        node.broker.context.store.durability.refuse(
            RefusalKind.WRITE_FAILED, "writing it failed"
        )
        status, body = await get(node, "/readyz")
        assert status.startswith("503")
        assert body == "writing it failed\n"
        node.is_stopping = True
        assert "a stop is in progress" in (await get(node, "/readyz"))[1]
        assert (await get(node, "/healthz"))[0] == "200 OK"


async def test_without_a_name_server_a_broker_is_not_ready(tmp_path):
    settings = SETTINGS | {"namesrvAddr": "127.0.0.1:1"}
    async with running_node(tmp_path, settings) as node:
        status, body = await get(node, "/readyz")
    assert status.startswith("503")
    assert "name server 127.0.0.1:1: cannot connect" in body


async def test_nothing_is_served_unless_asked_for(tmp_path):
    async with running_node(tmp_path) as node:
        assert node.http_port == 0
        assert not node.broker.config.metric_labels()
        await trio.lowlevel.checkpoint()
