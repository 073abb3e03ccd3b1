"""OpenTelemetry against a real broker: spans in memory, contexts in properties."""

import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from rmq.client import Client, Consumer, Message, OpenTelemetry, Producer, SendRefused
from rmq.core.errors import ConfigError


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def hook(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return OpenTelemetry(provider)


def spans(exporter, kind):
    return [each for each in exporter.get_finished_spans() if each.kind is kind]


def sends(exporter):
    return spans(exporter, SpanKind.PRODUCER)


def test_a_handler_is_the_child_of_the_send(broker, loop, exporter, hook):
    topic = f"process-{loop.name}"
    seen = []

    async def scenario():
        async with (
            Client(broker.name_server, hooks=[hook]) as client,
            Producer(client, group="makers") as producer,
        ):
            message = Message(topic, b"apples", tags="fruit", keys=["42"])
            result = await producer.send(message)
            async with Consumer(client, f"work-{topic}", topic, start="first") as it:

                async def book(message):
                    seen.append(get_current_span().get_span_context())
                    seen.append(message.properties["traceparent"])
                    it.stop()

                await it.run(book)
        return result

    result = loop(scenario)
    (sent,), (worked,) = sends(exporter), spans(exporter, SpanKind.CONSUMER)
    assert (sent.name, worked.name) == (f"send {topic}", f"process {topic}")
    assert worked.parent.span_id == sent.context.span_id
    assert worked.context.trace_id == sent.context.trace_id
    assert [each.context.span_id for each in worked.links] == [sent.context.span_id]
    assert seen[0] == worked.context
    assert seen[1].startswith(
        f"00-{sent.context.trace_id:032x}-{sent.context.span_id:016x}-"
    )
    assert dict(sent.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(result.queue.queue_id),
        "messaging.rocketmq.client_group": "makers",
        "messaging.message.id": result.msg_id,
        "messaging.message.body.size": 6,
        "messaging.rocketmq.message.tag": "fruit",
        "messaging.rocketmq.message.keys": ("42",),
    }
    assert worked.attributes["messaging.consumer.group.name"] == f"work-{topic}"
    assert worked.attributes["messaging.message.id"] == result.msg_id


def test_every_way_to_send_carries_its_context(broker, loop, exporter, hook):
    topic = f"ways-{loop.name}"
    broker.create_topic(topic, 1)

    async def scenario():
        async with (
            Client(broker.name_server, hooks=[hook]) as client,
            Producer(client) as producer,
        ):
            message = Message(topic, b"x", properties={"a": "b"})
            await producer.send(message, key="k")
            await producer.send_many([message, message])
            await producer.send_many([message, message], key="k")
            await producer.enqueue(message)
            await producer.flush()
            await producer.send_oneway(message)
            async with producer.transaction(message):
                pass

    loop(scenario)
    stored = broker.messages(topic)
    carried = [each.properties["traceparent"].split("-")[2] for each in stored]
    made = [f"{each.context.span_id:016x}" for each in sends(exporter)]
    assert len(made) == 7
    assert sorted(carried) == sorted([*made, made[1]])
    assert all(each.properties["a"] == "b" for each in stored)


def test_iterators_make_a_span_for_each_hand_out(broker, loop, exporter, hook):
    topic = f"receive-{loop.name}"
    broker.create_topic(topic, 1)

    async def scenario():
        async with (
            Client(broker.name_server, hooks=[hook]) as client,
            Producer(client) as producer,
        ):
            await producer.send_many([Message(topic, b"%d" % n) for n in range(3)])
            async with Consumer(client, f"look-{topic}", topic, start="first") as it:
                first = await anext(it)
                rest = await anext(it.batches(2, max_wait_ms=5_000))
        span = get_current_span(hook.context_of(first))
        return [first.msg_id, *(each.msg_id for each in rest)], span.get_span_context()

    msg_ids, context = loop(scenario)
    (sent,) = sends(exporter)
    assert sent.attributes["messaging.batch.message_count"] == 3
    assert context.span_id == sent.context.span_id
    received = spans(exporter, SpanKind.CLIENT)
    linked = [link for each in received for link in each.links]
    assert [each.attributes["messaging.message.id"] for each in linked] == msg_ids
    assert {each.context.span_id for each in linked} == {sent.context.span_id}


def test_failures_are_errors_of_their_spans(broker, loop, exporter, hook):
    topic = f"failures-{loop.name}"

    async def scenario():
        async with (
            Client(broker.name_server, hooks=[hook]) as client,
            Producer(client, max_message_bytes=1 << 30, compress_over=None) as producer,
        ):
            with pytest.raises(SendRefused):
                await producer.send(Message(topic, bytes(5 << 20)))
            await producer.send(Message(topic, b"x"))
            async with Consumer(client, f"fail-{topic}", topic, start="first") as it:

                async def fail(_):
                    it.stop()
                    raise KeyError("apples")

                await it.run(fail)

    loop(scenario)
    refused, _ = sends(exporter)
    (failed,) = spans(exporter, SpanKind.CONSUMER)
    assert refused.status.status_code is StatusCode.ERROR
    assert refused.attributes["error.type"] == "SendRefused"
    assert failed.attributes["error.type"] == "KeyError"
    assert [each.name for each in failed.events] == ["exception"]


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"opentelemetry-api"):
        OpenTelemetry()
