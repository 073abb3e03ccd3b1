"""The client for threads, against a real broker."""

import inspect
import itertools
import signal
import threading
from typing import get_type_hints

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, get_current_span

from rmq import client
from rmq.client import Message, SendManyFailed, SendStatus, blocking
from rmq.client.portal import WrongThread, get_portal
from rmq.protocol.records import plain_body
from rmq.protocol.topics import TRACE_TOPIC

numbers = itertools.count()


@pytest.fixture
def topic(broker):
    name = f"blocking-{next(numbers)}"
    broker.create_topic(name, 4)
    return name


@pytest.mark.parametrize("name", ["Client", "Producer", "Consumer"])
def test_options_are_those_of_the_asynchronous_class(name):
    original = inspect.signature(getattr(client, name), eval_str=True).parameters
    options = get_type_hints(getattr(blocking, f"{name}Options"))
    assert options == {
        each.name: each.annotation
        for each in original.values()
        if each.kind is each.KEYWORD_ONLY and each.name != "hooks"
    }


def test_methods_have_parameters_and_docstring_of_their_twins():
    ours, original = blocking.Producer.send, client.Producer.send
    assert inspect.signature(ours) == inspect.signature(original)
    assert ours.__doc__ == original.__doc__


def test_sends_and_receives(broker, topic):
    with (
        blocking.Producer(broker.name_server) as producer,
        blocking.Consumer(
            broker.name_server, f"g-{topic}", topic, start="first"
        ) as consumer,
    ):
        assert producer.send(Message(topic, b"one")).status is SendStatus.SEND_OK
        assert len(producer.send_many([Message(topic, b"more")] * 9)) == 9
        found = list(itertools.islice(consumer, 10))
        assert len({(each.queue, each.queue_offset) for each in found}) == 10
    with blocking.Consumer(broker.name_server, f"g-{topic}", topic) as consumer:
        assert sum(consumer.lag().values()) == 0


def test_enqueue_from_several_threads(broker, topic):
    with blocking.Producer(broker.name_server, max_pending=50) as producer:

        def work():
            for number in range(100):
                last = producer.enqueue(Message(topic, b"%d" % number))
            assert last.result(5).msg_id

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    assert len(broker.messages(topic)) == 400


def test_failures_reach_the_thread(broker):
    with blocking.Producer(broker.name_server, attempts=1) as producer:
        delivery = producer.enqueue(Message("SCHEDULE_TOPIC_XXXX", b"x"))
        with pytest.raises(SendManyFailed):
            producer.flush()
        assert delivery.done()
        with pytest.raises(client.SendRefused):
            delivery.result()
        wrong = producer.enqueue(Message("T", b"x", properties={"a": "\x01"}))
        with pytest.raises(ValueError, match="separator"):
            wrong.result(5)


def test_handlers_run_in_threads(broker, topic):
    seen = []
    with (
        blocking.Producer(broker.name_server) as producer,
        blocking.Consumer(
            broker.name_server, f"g-{topic}", topic, start="first"
        ) as consumer,
    ):
        producer.send_many([Message(topic, b"x")] * 8)

        def handle(message):
            seen.append((message.queue_offset, threading.current_thread()))
            if len(seen) == 8:
                consumer.stop()

        consumer.run(handle, concurrency=3)
    assert threading.current_thread() not in {thread for _, thread in seen}


def test_deliveries_are_settled_from_any_thread(broker, topic):
    with (
        blocking.Producer(broker.name_server) as producer,
        blocking.Consumer(
            broker.name_server, f"g-{topic}", topic, start="first"
        ) as consumer,
    ):
        producer.send(Message(topic, b"x"))
        message = next(consumer.deliveries())
        is_acked = message.ack()
        assert is_acked
        is_acked = message.ack()
        assert not is_acked


def test_an_exception_of_the_block_leaves_it(broker, topic):
    with pytest.raises(KeyError), blocking.Producer(broker.name_server):
        raise KeyError


def test_hooks_see_the_context_of_the_thread(broker, topic):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer, seen = provider.get_tracer("test"), []

    def handle(message):
        seen.append(get_current_span().get_span_context().span_id)
        if len(seen) == 3:
            consumer.stop()

    hook = client.OpenTelemetry(provider)
    with (
        blocking.Client(broker.name_server, hooks=[hook]) as shared,
        blocking.Producer(shared) as producer,
        blocking.Consumer(shared, f"g-{topic}", topic, start="first") as consumer,
    ):
        with tracer.start_as_current_span("order") as order:
            producer.send(Message(topic, b"x"))
            producer.enqueue(Message(topic, b"x"))
            producer.send_many([Message(topic, b"x")])
        consumer.run(handle)
    spans = exporter.get_finished_spans()
    sent = [each for each in spans if each.kind is SpanKind.PRODUCER]
    worked = [each for each in spans if each.kind is SpanKind.CONSUMER]
    assert [each.parent.span_id for each in sent] == [order.context.span_id] * 3
    assert {each.parent.span_id for each in worked} == {
        each.context.span_id for each in sent
    }
    assert sorted(seen) == sorted(each.context.span_id for each in worked)


def test_traces_of_threads(broker, topic):
    with (
        blocking.MessageTrace(broker.name_server) as trace,
        blocking.Client(broker.name_server, hooks=[trace]) as shared,
        blocking.Producer(shared) as producer,
        blocking.Consumer(shared, f"g-{topic}", topic, start="first") as consumer,
    ):
        results = producer.send_many([Message(topic, b"x")] * 2)
        assert next(consumer).body == b"x"
    bodies = [plain_body(each).decode() for each in broker.messages(TRACE_TOPIC)]
    lines = "".join(bodies).split("\x02")
    kinds = {
        each.msg_id: [line.split("\x01")[0] for line in lines if each.msg_id in line]
        for each in results
    }
    assert sorted(map(len, kinds.values())) == [1, 3]
    assert ["Pub", "SubBefore", "SubAfter"] in kinds.values()


def test_a_call_from_the_thread_of_the_portal_is_refused():
    async def inside():
        get_portal().call(inside)

    with pytest.raises(WrongThread, match="must not block"):
        get_portal().call(inside)


def test_ctrl_c_ends_a_call_and_loses_nothing(broker):
    """In the main thread, where Python raises it, while the portal waits."""
    topic, main = "ctrl-c", threading.main_thread().ident
    if threading.get_ident() != main:
        pytest.skip("Python raises it in the main thread only")
    broker.create_topic(topic, 1)
    with (
        blocking.Producer(broker.name_server) as producer,
        blocking.Consumer(broker.name_server, "g-ctrl-c", topic) as consumer,
    ):
        for number in range(3):
            end = threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT])
            end.start()
            with pytest.raises(KeyboardInterrupt):
                next(consumer)
            end.join()
            producer.send(Message(topic, b"%d" % number))
            assert next(consumer).body == b"%d" % number
