"""Message traces against a real broker, read back by `rmq admin queryMsgTraceById`."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from rmq.cli import main
from rmq.client import Client, Consumer, Message, MessageTrace, Producer
from rmq.client import message_trace as module
from rmq.protocol.records import plain_body
from rmq.protocol.topics import TRACE_TOPIC


def bodies(broker):
    return [plain_body(each).decode() for each in broker.messages(TRACE_TOPIC)]


def lines(broker, msg_id):
    """Return the lines about a message, split, from all that is stored."""
    text = "".join(bodies(broker))
    split = [line.split("\x01") for line in text.split("\x02")]
    return [line for line in split if msg_id in line]


def shown(broker, msg_id):
    """Return what the tool shows, by kind."""
    arguments = ["admin", "queryMsgTraceById", "-n", broker.name_server, "-i", msg_id]
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return {row["traceType"]: row for row in json.loads(result.stdout)}


def test_a_trace_shows_who_has_sent_and_consumed(broker, loop):
    topic = f"traced-{loop.name}"

    async def scenario():
        async with (
            MessageTrace(broker.name_server) as trace,
            Client(broker.name_server, hooks=[trace]) as client,
            Producer(client, group="makers") as producer,
        ):
            message = Message(topic, b"apples", tags="fruit", keys=["42", "43"])
            result = await producer.send(message)
            async with Consumer(client, "takers", topic, start="first") as consumer:
                await consumer.run(lambda _: consumer.stop())
            return result

    result = loop(scenario)
    sent, begun, ended = lines(broker, result.msg_id)
    cost_ms = int(sent[10])
    assert sent[:1] + sent[2:10] == [
        "Pub", "DefaultRegion", "makers", topic, result.msg_id, "fruit", "42 43",
        broker.address, "6",
    ]  # fmt: skip
    assert 0 <= cost_ms < 60_000
    assert sent[11:] == ["0", result.offset_msg_id, "true"]
    assert begun[0:1] + begun[3:4] + begun[5:] == [
        "SubBefore", "takers", result.msg_id, "0", "42 43",
    ]  # fmt: skip
    assert ended[:3] == ["SubAfter", begun[4], result.msg_id]
    assert ended[4:7] + ended[8:] == ["true", "42 43", "0", "takers"]
    rows = shown(broker, result.msg_id)
    assert {kind: row["group"] for kind, row in rows.items()} == {
        "Pub": "makers", "SubBefore": "takers", "SubAfter": "takers",
    }  # fmt: skip
    assert {row["id"] for row in rows.values()} == {result.msg_id}
    assert rows["Pub"]["topic"] == topic


def test_a_failed_handler_and_an_iterator(broker, loop):
    topic = f"twice-{loop.name}"

    async def scenario():
        async with (
            MessageTrace(broker.name_server) as trace,
            Client(broker.name_server, hooks=[trace]) as client,
            Producer(client) as producer,
        ):
            (result,) = await producer.send_many([Message(topic, b"x")])
            async with Consumer(client, f"f-{topic}", topic, start="first") as consumer:

                def fail(_):
                    consumer.stop()
                    raise KeyError("apples")

                await consumer.run(fail)
            async with Consumer(client, f"i-{topic}", topic, start="first") as consumer:
                await anext(consumer)
            return result.msg_id

    msg_id = loop(scenario)
    found = lines(broker, msg_id)
    assert [line[0] for line in found] == [
        "Pub", "SubBefore", "SubAfter", "SubBefore", "SubAfter",
    ]  # fmt: skip
    assert [(line[4], line[6]) for line in found if line[0] == "SubAfter"] == [
        ("false", "2"),
        ("true", "0"),
    ]
    assert found[1][7] == "null", "Java's reader needs a last field"


def test_lines_share_messages_and_those_of_the_topic_are_not_traced(broker, loop):
    topic = f"many-{loop.name}"

    async def scenario():
        async with (
            MessageTrace(broker.name_server) as trace,
            Client(broker.name_server, hooks=[trace]) as client,
            Producer(client) as producer,
        ):
            await producer.send(Message(TRACE_TOPIC, topic.encode()))
            rows = [Message(topic, b"x", keys=["k" * 400])] * 250
            return [each.msg_id for each in await producer.send_many(rows)]

    before = set(bodies(broker))
    msg_ids = loop(scenario)
    texts = [each for each in bodies(broker) if each not in before]
    assert sum(each.count("\x02") for each in texts) == 250
    assert texts.count(topic) == 1
    assert len(texts) == 1 + 3
    assert all(any(msg_id in text for text in texts) for msg_id in msg_ids)


def traced(broker, loop, *messages):
    """Trace sends that end at once; return the trace and the texts that it sent."""
    before = set(bodies(broker))

    async def scenario():
        async with MessageTrace(broker.name_server) as trace:
            _, after = trace.before_send("g", messages)
            result = SimpleNamespace(msg_id=loop.name, offset_msg_id="", status=0)
            after([result] * len(messages))
        return trace

    trace = loop(scenario)
    return trace, [each for each in bodies(broker) if each not in before]


def test_waiting_lines_have_a_limit(broker, loop, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    trace, texts = traced(broker, loop, *[Message("T", b"x")] * 5)
    assert trace.dropped == 2
    assert sum(text.count("\x02") for text in texts) == 3


@pytest.mark.parametrize("count", [1, 35])
def test_keys_fit_into_a_message(broker, loop, count):
    keys = [f"{number}" * 300 for number in range(count)]
    _, texts = traced(broker, loop, *[Message("T", b"x", keys=keys)] * 2)
    assert [text.count("\x02") for text in texts] == ([2] if count == 1 else [1, 1])
