"""Producers against a real broker, under asyncio and trio."""

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq.client import (
    Client,
    ClientClosed,
    Message,
    MessageQueue,
    NameServerUnreachable,
    NoRoute,
    Producer,
    SendFailed,
    SendManyFailed,
    SendRefused,
    SendStatus,
)
from rmq.client.packing import Packer
from rmq.client.sender import Sender
from rmq.core.errors import ConfigError, ConnectFailed
from tests.waiting import wait_until


def stored(broker, topic):
    return [each.body for each in broker.messages(topic)]


def test_a_send_gives_the_place(broker, loop):
    topic = f"send-{loop.name}"

    async def scenario():
        async with Producer(broker.name_server) as producer:
            message = Message(topic, b"apples", tags="fruit", keys=["42", "43"])
            result = await producer.send(message)
            assert result.status is SendStatus.SEND_OK
            assert result.queue.topic == topic
            return result

    result = loop(scenario)
    (record,) = broker.messages(topic)
    assert record.offset_msg_id == result.offset_msg_id
    assert record.properties["UNIQ_KEY"] == result.msg_id
    assert record.properties["KEYS"] == "42 43"
    assert (record.queue_id, record.queue_offset) == (
        result.queue.queue_id,
        result.queue_offset,
    )


def test_the_route_of_a_new_topic_changes_no_turn(broker, loop):
    """The first send knows only where its topic would be made."""
    topics = [f"turn-{loop.name}-{number}" for number in range(8)]

    async def scenario():
        async with Producer(broker.name_server) as producer:
            return [await four_with_a_refresh(producer, topic) for topic in topics]

    async def four_with_a_refresh(producer, topic):
        first = await producer.send(Message(topic, b"x"))
        await producer.client.refresh(topic)
        more = [await producer.send(Message(topic, b"x")) for _ in range(3)]
        return sorted(each.queue.queue_id for each in [first, *more])

    assert loop(scenario) == [[0, 1, 2, 3]] * 8


def test_many_sends_go_to_all_queues(broker, loop):
    topic = f"queues-{loop.name}"
    broker.create_topic(topic, 4)

    async def scenario():
        async with Producer(broker.name_server) as producer:
            results = [await producer.send(Message(topic, b"x")) for _ in range(8)]
            return [each.queue.queue_id for each in results]

    assert sorted(loop(scenario)) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_list_keeps_its_order_and_leaves_in_batches(broker, loop):
    topic = f"many-{loop.name}"
    broker.create_topic(topic, 2)
    bodies = [b"%d" % number for number in range(250)]

    async def scenario():
        async with Producer(broker.name_server, batch_messages=100) as producer:
            return await producer.send_many(Message(topic, each) for each in bodies)

    results = loop(scenario)
    places = {
        (each.queue_id, each.queue_offset): each for each in broker.messages(topic)
    }
    for body, result in zip(bodies, results, strict=True):
        record = places[result.queue.queue_id, result.queue_offset]
        assert record.body == body
        assert record.properties["UNIQ_KEY"] == result.msg_id
        assert record.offset_msg_id == result.offset_msg_id


def test_a_key_keeps_its_order(broker, loop):
    topic = f"key-{loop.name}"
    broker.create_topic(topic, 4)

    async def scenario():
        async with Producer(broker.name_server) as producer:
            async with anyio.create_task_group() as tasks:
                for key in "abc":
                    tasks.start_soon(send_all, producer, key)
            many = [Message(topic, b"many%d" % i) for i in range(20)]
            results = await producer.send_many(many, key="a")
            assert len({each.queue for each in results}) == 1
            offsets = [each.queue_offset for each in results]
            assert offsets == sorted(offsets)

    async def send_all(producer, key):
        deliveries = [
            await producer.enqueue(Message(topic, f"{key}{i}".encode()), key=key)
            for i in range(30)
        ]
        for delivery in deliveries:
            await delivery

    loop(scenario)
    for key in b"abc":
        of_key = [each for each in broker.messages(topic) if each.body[0] == key]
        assert len({each.queue_id for each in of_key}) == 1
        assert [int(each.body[1:]) for each in of_key] == list(range(30))


def test_linger_joins_messages(broker, loop):
    topic = f"linger-{loop.name}"

    async def scenario():
        async with Producer(broker.name_server, linger_ms=2) as producer:
            async with anyio.create_task_group() as tasks:
                for number in range(40):
                    tasks.start_soon(producer.send, Message(topic, b"%d" % number))
            deliveries = [
                await producer.enqueue(Message(topic, b"more")) for _ in range(10)
            ]
            await producer.flush()
            assert all(each.done() for each in deliveries)
            return deliveries[0].result()

    assert loop(scenario).status is SendStatus.SEND_OK
    assert len(stored(broker, topic)) == 50


def test_enqueue_and_flush(broker, loop):
    topic = f"enqueue-{loop.name}"
    called = []

    async def scenario():
        async with Producer(broker.name_server, max_pending=50) as producer:
            for number in range(200):
                delivery = await producer.enqueue(Message(topic, b"%d" % number))
                delivery.add_done_callback(called.append)
            await producer.flush()

    loop(scenario)
    assert len(called) == len(stored(broker, topic)) == 200


@pytest.mark.parametrize("linger_ms", [None, 5])
def test_a_callback_that_fails_stops_no_other_message(broker, loop, linger_ms, caplog):
    async def scenario():
        ended = []
        async with Producer(broker.name_server, linger_ms=linger_ms) as producer:
            for number in range(3):
                delivery = await producer.enqueue(Message("Calls", b"%d" % number))
                delivery.add_done_callback(lambda _: 1 / 0)
                delivery.add_done_callback(ended.append)
            await producer.flush()
        assert [each.done() for each in ended] == [True] * 3

    loop(scenario)
    assert caplog.text.count("a callback of a delivery failed") == 3


def test_leaving_the_block_sends_what_was_enqueued(broker, loop):
    topic = f"leaving-{loop.name}"

    async def scenario():
        async with Producer(broker.name_server, linger_ms=60_000) as producer:
            await producer.enqueue(Message(topic, b"late"))

    loop(scenario)
    assert stored(broker, topic) == [b"late"]


def test_oneway(broker, loop):
    topic = f"oneway-{loop.name}"

    async def scenario():
        async with Producer(broker.name_server) as producer:
            await producer.send_oneway(Message(topic, b"gone"))

    loop(scenario)
    wait_until(lambda: stored(broker, topic))
    assert stored(broker, topic) == [b"gone"]


def test_a_large_body_is_compressed(broker, loop):
    topic = f"large-{loop.name}"

    async def scenario():
        async with Producer(broker.name_server) as producer:
            await producer.send(Message(topic, bytes(10_000)))

    loop(scenario)
    (record,) = broker.messages(topic)
    assert len(record.body) < 100
    assert record.sys_flag & 0x701 == 0x301


def test_a_given_queue(broker, loop):
    topic = f"given-{loop.name}"
    broker.create_topic(topic, 4)
    queue = MessageQueue(topic, "broker-test", 2)

    async def scenario():
        async with Producer(broker.name_server) as producer:
            assert (
                await producer.send(Message(topic, b"x"), queue=queue)
            ).queue == queue
            results = await producer.send_many([Message(topic, b"x")] * 3, queue=queue)
            assert {each.queue for each in results} == {queue}
            with pytest.raises(NoRoute, match="is not writable"):
                await producer.send(
                    Message(topic, b"x"), queue=queue._replace(queue_id=9)
                )

    loop(scenario)


def test_a_refusal_names_code_and_remark(broker, loop):
    async def scenario():
        async with Producer(broker.name_server) as producer:
            await producer.send(Message("refused", b"x"))
            with pytest.raises(SendRefused, match="16 NO_PERMISSION") as caught:
                await producer.send(Message("SCHEDULE_TOPIC_XXXX", b"x"))
            assert caught.value.attempts >= 3
            assert not caught.value.may_be_stored
            await producer.send(Message("refused", b"x"))

    loop(scenario)


def test_a_message_that_was_sent_once_and_has_no_broker_may_be_stored(broker, loop):
    """Its first attempt had no answer; its broker has left the route."""
    packer = Packer(UniqueKeys(bytes(8), lambda: 10**12), lambda: 0, None, "zlib")
    packed = packer.pack(Message("left", b"x"))

    async def scenario():
        async with Client(broker.name_server) as client:
            options = {"attempts": None, "attempt_timeout_ms": 300, "is_sticky": True}
            sender = Sender(client, "G", **options)
            await sender.send(packed, 5_000)
            with pytest.raises(NoRoute):
                await sender.send(packed, 300, broker="gone")
            with pytest.raises(
                SendFailed, match="gone is offline; it may be stored"
            ) as caught:
                await sender.send(packed, 300, may_be_stored=True, broker="gone")
            assert caught.value.may_be_stored

    loop(scenario)


def test_some_of_many_fail(broker, loop):
    topic = f"some-{loop.name}"

    async def scenario():
        async with Producer(broker.name_server) as producer:
            messages = [Message(topic, b"good"), Message("SCHEDULE_TOPIC_XXXX", b"bad")]
            with pytest.raises(SendManyFailed) as caught:
                await producer.send_many(messages)
            good, bad = caught.value.results
            assert good.msg_id
            assert isinstance(bad, SendRefused)
            assert caught.value.exceptions == (bad,)
            part = caught.value.subgroup(SendRefused)
            assert part.results == [good, bad]

    loop(scenario)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"body": "text"}, "encode a text"),
        ({"keys": "one"}, "list of keys"),
        ({"keys": ["a b"]}, "has a blank"),
        ({"properties": {"UNIQ_KEY": "x"}}, "reserved"),
        ({"properties": {"a": ""}}, "drop empty"),
        ({"properties": {"a": 1}}, "'a' is 1: both must be texts"),
        ({"keys": [1]}, "1 is not a text"),
        ({"body": b""}, "is empty: brokers refuse it"),
        ({"topic": ""}, "give it a name"),
    ],
)
def test_what_cannot_be_a_message(arguments, text):
    with pytest.raises(ValueError, match=text):
        Message(**({"topic": "T", "body": b"x"} | arguments))


def test_what_cannot_be_sent(broker, loop):
    async def scenario():
        async with Producer(broker.name_server) as producer:
            for message in (
                Message("T", b"x", properties={"a": "\x01"}),
                Message("T", b"x", properties={"a": "\x02"}),
                Message("T", b"x", properties={"a": "x" * 40_000}),
                Message("T", bytes((4 << 20) + 1)),
            ):
                with pytest.raises(ValueError):  # noqa: PT011 - of several texts
                    await producer.send(message)
            for later in (
                {"delay": timedelta(0)},
                {"delay": 5},
                {"delay_level": "3"},
                {"queue": 3},
                {"delay_level": 19},
                {"deliver_at": datetime(2026, 1, 1)},
                {"delay_level": 1, "delay": timedelta(1)},
            ):
                with pytest.raises(ValueError):  # noqa: PT011 - of several texts
                    await producer.send(Message("T", b"x"), **later)

    loop(scenario)


def test_options_are_checked():
    with pytest.raises(ConfigError, match="max_pending"):
        Producer("127.0.0.1:9876", max_pending=0)
    with pytest.raises(ConfigError, match="HOST:PORT"):
        Producer("nowhere")
    with pytest.raises(ConfigError, match="empty"):
        Client("")


def test_the_variable_of_java(monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert Client().name_servers == ("a:1", "b:2")
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        Client()


def test_a_level_delays(broker, loop):
    topic = f"later-{loop.name}"

    async def scenario():
        async with Producer(broker.name_server) as producer:
            await producer.send(Message(topic, b"now"))
            await producer.send(Message(topic, b"level"), delay_level=1)

    loop(scenario)
    assert stored(broker, topic) == [b"now"]


def test_properties_for_a_later_delivery():
    packer = Packer(UniqueKeys(bytes(8), lambda: 10**12), lambda: 0, None, "zlib")
    when = datetime(2026, 1, 1, tzinfo=UTC)
    assert packer.delay_properties(None, None, None) is None
    assert packer.delay_properties(timedelta(seconds=2), None, None) == {
        "TIMER_DELAY_MS": "2000"
    }
    assert packer.delay_properties(None, when, None) == {
        "TIMER_DELIVER_MS": "1767225600000"
    }
    assert packer.delay_properties(None, None, 3) == {"DELAY": "3"}


def test_an_open_client_may_be_shared(broker, loop):
    async def scenario():
        async with (
            Client(broker.name_server) as client,
            Producer(client) as one,
            Producer(client, group="other") as two,
        ):
            await one.send(Message("shared", b"x"))
            await two.send(Message("shared", b"x"))
            assert len(client.connections) == 2  # name server and broker

    loop(scenario)


def test_a_closed_one_says_so(broker, loop):
    async def scenario():
        producer = Producer(broker.name_server)
        with pytest.raises(ClientClosed, match="not open"):
            await producer.send(Message("T", b"x"))
        async with producer:
            pass
        with pytest.raises(ClientClosed):
            await producer.send(Message("T", b"x"))
        with pytest.raises(ClientClosed, match="opened before"):
            await producer.__aenter__()

    loop(scenario)


def test_an_exception_of_the_block_leaves_it_as_it_is(broker, loop):
    async def scenario():
        with pytest.raises(KeyError):
            async with Producer(broker.name_server):
                raise KeyError("mine")
        with anyio.move_on_after(0.01) as scope:
            async with Producer(broker.name_server):
                await anyio.sleep_forever()
        assert scope.cancelled_caught

    loop(scenario)


def test_in_a_task_group(broker, loop):
    async def scenario():
        producer = Producer(broker.name_server)
        async with anyio.create_task_group() as tasks:
            await tasks.start(producer.serve)
            await producer.send(Message("serve", b"x"))
            tasks.cancel_scope.cancel()

    loop(scenario)


def test_for_frameworks_that_stop_in_another_task(broker):
    async def scenario():
        producer = await Producer(broker.name_server).start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(producer.send, Message("start", b"x"))
        await producer.aclose()

    anyio.run(scenario)


def test_nobody_listens(loop):
    async def scenario():
        async with Producer("127.0.0.1:1", timeout_ms=300) as producer:
            match = r"no name server of 127\.0\.0\.1:1 answers: cannot connect"
            with pytest.raises(NameServerUnreachable, match=match) as caught:
                await producer.send(Message("T", b"x"))
            error = caught.value.__cause__
            assert isinstance(error, ConnectFailed)
            assert isinstance(error.__cause__, OSError)

    loop(scenario)


def test_transactions(broker, loop):
    topic = f"transaction-{loop.name}"

    async def scenario():
        async with Producer(broker.name_server, group="payments") as producer:
            async with producer.transaction(Message(topic, b"paid")) as transaction:
                assert transaction.msg_id
            with pytest.raises(KeyError):
                async with producer.transaction(Message(topic, b"failed")):
                    raise KeyError
            async with producer.transaction(Message(topic, b"unwanted")) as transaction:
                transaction.rollback()

    loop(scenario)
    assert stored(broker, topic) == [b"paid"]


def test_namespaces(broker, loop):
    topic = f"spaced-{loop.name}"

    async def scenario():
        async with (
            Client(broker.name_server, namespace="tenant") as client,
            Producer(client) as producer,
        ):
            result = await producer.send(Message(topic, b"x"))
            assert result.queue.topic == topic

    loop(scenario)
    assert stored(broker, f"tenant%{topic}") == [b"x"]
