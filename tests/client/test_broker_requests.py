"""What brokers and tools ask of a consumer: 40, 220, 221, 307, 309."""

import itertools

import anyio
import anyio.to_thread
import pytest

from rmq.client import Consumer
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from rmq.protocol.headers.offsets import ResetOffsetRequestHeader

numbers = itertools.count()


@pytest.fixture
def topic(broker):
    name = f"steered-{next(numbers)}"
    broker.create_topic(name, 1)
    for number in range(5):
        broker.send(name, b"%d" % number)
    return name


def steered(broker, loop, topic, scenario, handler=None):
    """Run a scenario beside a consumer that has consumed all."""
    seen = []

    def handle(message):
        seen.append(message)
        if handler is not None:
            handler(message)

    async def ask(code, header):
        request = Command.request(code, header)
        return await anyio.to_thread.run_sync(broker.request, request)

    async def run():
        async with (
            Consumer(broker.name_server, f"g-{topic}", topic, start="first") as it,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(it.run, handle)
            while len(seen) < 5:  # noqa: ASYNC110 - a test
                await anyio.sleep(0.005)
            await scenario(it, ask, seen)
            it.stop()

    loop(run)


def test_running_info(broker, loop, topic):
    async def scenario(it, ask, _):
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=it.group, client_id=it.client.client_id
        )
        answer = await ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert answer.code == 0, answer.remark
        info = fastjson.load_json(answer.body)
        assert info["properties"]["PROP_CONSUMEORDERLY"] == "false"
        assert {each["topic"] for each in info["subscriptionSet"]} >= {topic}
        queues = [dict(each) for each in info["mqTable"]]
        assert {each["topic"] for each in queues} >= {topic}

    steered(broker, loop, topic, scenario)


def test_status(broker, loop, topic):
    async def scenario(it, ask, _):
        header = GetConsumerStatusRequestHeader(topic=topic, group=it.group)
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        answer = await ask(code, header)
        assert answer.code == 0, answer.remark
        (table,) = fastjson.load_json(answer.body)["consumerTable"].values()
        assert list(table.values()) == [5]

    steered(broker, loop, topic, scenario)


def test_a_tool_sets_the_offset_back(broker, loop, topic):
    async def scenario(it, ask, seen):
        header = ResetOffsetRequestHeader(
            group=it.group, topic=topic, timestamp=0, is_force=True
        )
        await it.commit()
        answer = await ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert answer.code == 0, answer.remark
        while len(seen) < 10:  # noqa: ASYNC110 - a test
            await anyio.sleep(0.005)
        assert [each.queue_offset for each in seen[5:]] == list(range(5))

    steered(broker, loop, topic, scenario)


@pytest.mark.parametrize(
    ("fails", "result"), [(False, "CR_SUCCESS"), (True, "CR_THROW_EXCEPTION")]
)
def test_a_message_is_consumed_directly(broker, loop, topic, fails, result):
    armed = []

    def handler(_):
        if armed:
            raise ValueError("no")

    async def scenario(it, ask, seen):
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=it.group,
            client_id=it.client.client_id,
            msg_id=seen[0].offset_msg_id,
            broker_name="broker-test",
            topic=topic,
        )
        if fails:
            armed.append(True)
        answer = await ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        assert answer.code == 0, answer.remark
        assert fastjson.load_json(answer.body)["consumeResult"] == result
        assert seen[-1].body == seen[0].body

    steered(broker, loop, topic, scenario, handler)
