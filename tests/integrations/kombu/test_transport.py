"""Publishing and consuming with kombu, against a broker."""

import datetime as dt
import itertools
import socket
import threading
import time

import kombu
import pytest
from kombu.asynchronous import Hub
from kombu.exceptions import ChannelError

from rmq.integrations import sources
from rmq.integrations.kombu import transport
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.groups import DeleteSubscriptionGroupRequestHeader
from tests.waiting import wait_until

numbers = itertools.count()


@pytest.fixture
def name():
    """The name of a new queue."""
    return f"queue-{next(numbers)}"


class Taken:
    """A consumer of queues that keeps its messages."""

    def __init__(self, connection, queues, **options):
        self.connection = connection
        self.channel = connection.channel()
        self.messages = []
        self.consumer = self.channel.Consumer(
            queues, callbacks=[self.take], accept=["json"], **options
        )
        self.consumer.consume()

    def take(self, body, message):
        self.messages.append(message)

    def wait(self, count, limit_s=5):
        """Drain until so many messages have come; return what they contain."""
        end_s = time.monotonic() + limit_s
        while len(self.messages) < count:
            left_s = end_s - time.monotonic()
            assert left_s > 0, f"{len(self.messages)} of {count} messages"
            try:
                self.connection.drain_events(timeout=min(left_s, 0.5))
            except TimeoutError:
                continue
        return [each.payload for each in self.messages]

    def drain(self, seconds=0.2):
        """Drain for a moment; return how many messages there are."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            try:
                self.connection.drain_events(timeout=left_s)
            except TimeoutError:
                break
        return len(self.messages)

    def ack_all(self):
        for each in self.messages:
            each.ack()
        self.messages.clear()


def publish(connection, queue, *bodies, **properties):
    with connection.Producer(serializer="json") as producer:
        for body in bodies:
            producer.publish(
                body,
                exchange=queue.exchange,
                routing_key=queue.routing_key,
                declare=[queue],
                **properties,
            )


def count_waiting(connection, name):
    declared = connection.default_channel.queue_declare(name, passive=True)
    return declared.message_count


def direct(name, **options):
    return kombu.Queue(name, kombu.Exchange(name), routing_key=name, **options)


def test_messages_arrive_in_order_and_are_acknowledged(connect, name):
    connection, queue = connect(), direct(name)
    publish(connection, queue, *range(40))
    taken = Taken(connection, [queue])
    assert taken.wait(40) == list(range(40))
    taken.ack_all()
    assert taken.drain() == 0
    assert count_waiting(connection, name) == 0


def test_a_message_has_its_headers_and_properties(connect, name):
    connection, queue = connect(), direct(name)
    publish(
        connection, queue, {"a": "ö"}, headers={"x": [1]}, correlation_id="c",
        reply_to="r", priority=2,
    )  # fmt: skip
    taken = Taken(connection, [queue])
    taken.wait(1)
    (message,) = taken.messages
    assert message.payload == {"a": "ö"}
    assert message.headers == {"x": [1]}
    assert message.properties["correlation_id"] == "c"
    assert message.properties["reply_to"] == "r"
    assert message.delivery_info["routing_key"] == name
    assert message.delivery_info["redelivered"] is False


def test_a_consumer_that_waits_is_woken(connect, name):
    queue = direct(name)
    reading, writing = connect(), connect()
    taken = Taken(reading, [queue])
    assert taken.drain(0.1) == 0
    publish(writing, queue, "now")
    begun_s = time.monotonic()
    assert taken.wait(1) == ["now"]
    assert time.monotonic() - begun_s < 0.2


def test_prefetch_limits_what_a_consumer_holds(connect, name):
    connection, queue = connect(), direct(name)
    publish(connection, queue, *range(8))
    taken = Taken(connection, [queue], prefetch_count=3)
    taken.wait(3)
    assert taken.drain() == 3
    assert count_waiting(connection, name) == 5
    taken.messages.pop(0).ack()
    taken.wait(3)
    assert [each.payload for each in taken.messages] == [1, 2, 3]


def test_two_consumers_with_prefetch_one_share_messages(connect, name):
    queue = direct(name)
    publish(connect(), queue, *range(6))
    both = [Taken(connect(), [queue], prefetch_count=1) for _ in range(2)]
    seen = []
    for taken in both * 3:
        seen += taken.wait(1)
        taken.ack_all()
    assert sorted(seen) == list(range(6))


def test_a_requeued_message_comes_again_as_redelivered(connect, name):
    connection, queue = connect(), direct(name)
    publish(connection, queue, "again")
    taken = Taken(connection, [queue], prefetch_count=1)
    taken.wait(1)
    taken.messages.pop().requeue()
    taken.wait(1)
    assert taken.messages[0].delivery_info["redelivered"] is True
    taken.ack_all()
    assert taken.drain() == 0


def test_a_rejected_message_does_not_come_again(connect, name):
    connection, queue = connect(), direct(name)
    publish(connection, queue, "bad", "good")
    taken = Taken(connection, [queue], prefetch_count=1)
    taken.wait(1)
    taken.messages.pop().reject()
    assert taken.wait(1) == ["good"]


def test_a_message_that_is_requeued_too_often_becomes_a_dead_letter(
    connect, broker, name
):
    connection, queue = connect(max_deliveries=3), direct(name)
    publish(connection, queue, "poison", "good")
    taken = Taken(connection, [queue], prefetch_count=1)
    seen = []
    while seen.count("poison") < 3 or "good" not in seen:
        seen += taken.wait(1)
        taken.messages.pop().requeue() if seen[-1] == "poison" else taken.ack_all()
    assert seen.count("poison") == 3
    assert taken.drain() == 0
    (dead,) = broker.messages(f"%DLQ%{name}")
    assert dead.body.endswith(b'"poison"')


def test_a_closed_consumer_gives_its_messages_back(connect, name):
    queue = direct(name)
    publish(connect(), queue, *range(4))
    first = connect()
    taken = Taken(first, [queue], prefetch_count=4)
    taken.wait(4)
    taken.messages[0].ack()
    first.release()
    others = Taken(connect(), [queue])
    assert sorted(others.wait(3)) == [1, 2, 3]
    assert all(each.delivery_info["redelivered"] for each in others.messages)


def test_larger_priorities_come_first(connect, name):
    connection = connect()
    queue = direct(name, max_priority=9)
    for priority in (0, 5, 9, 1):
        publish(connection, queue, priority, priority=priority)
    taken = Taken(connection, [queue], prefetch_count=1)
    seen = []
    for _ in range(4):
        seen += taken.wait(1)
        taken.ack_all()
    assert seen == [9, 5, 1, 0]


def test_a_task_with_an_eta_waits_in_the_broker(connect, name):
    connection, queue = connect(), direct(name)
    due = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1.4)
    publish(connection, queue, "later", headers={"eta": due.isoformat(), "task": "t"})
    publish(connection, queue, "now")
    taken = Taken(connection, [queue], prefetch_count=1)
    assert taken.wait(1) == ["now"]
    taken.ack_all()
    assert taken.wait(1) == ["later"]
    early_s = (due - dt.datetime.now(dt.UTC)).total_seconds()
    assert early_s < 1.1


def test_an_eta_beyond_the_longest_delay_goes_back_into_the_timer(connect, name):
    connection, queue = connect(max_delay_s=1), direct(name)
    due = dt.datetime.now(dt.UTC) + dt.timedelta(days=30)
    publish(connection, queue, "far", headers={"eta": due.isoformat(), "task": "t"})
    taken = Taken(connection, [queue], prefetch_count=1)
    assert taken.drain(1.6) == 0
    publish(connection, queue, "now")
    assert taken.wait(1) == ["now"]


def test_an_expired_message_is_dropped_and_an_expired_task_is_not(connect, name):
    connection, queue = connect(), direct(name)
    publish(connection, queue, "old", expiration=0.001)
    publish(connection, queue, "task", expiration=0.001, headers={"task": "t"})
    time.sleep(0.01)
    taken = Taken(connection, [queue])
    assert taken.wait(1) == ["task"]
    assert taken.drain() == 1


def test_purge_skips_what_waits_and_counts_it(connect, name):
    connection, queue = connect(), direct(name, max_priority=2)
    for priority in range(3):
        publish(connection, queue, *range(5), priority=priority)
    bound = queue(connection.default_channel)
    taken = Taken(connection, [queue], prefetch_count=2)
    taken.wait(2)
    assert bound.purge() == 13
    taken.ack_all()
    assert taken.drain() == 0
    publish(connection, queue, "new")
    assert taken.wait(1) == ["new"]


def test_purge_of_a_queue_that_nothing_has_read(connect, broker, name):
    connection, queue = connect(), direct(name)
    publish(connection, queue, *range(5))
    header = DeleteSubscriptionGroupRequestHeader(group_name=name)
    broker.request(Command.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header))
    bound = queue(connection.default_channel)
    bound.purge()
    assert bound.get() is None
    publish(connection, queue, "new")
    assert bound.get(no_ack=True).payload == "new"


def test_get_takes_one_message_at_a_time(connect, name):
    connection, queue = connect(), direct(name)
    publish(connection, queue, "a", "b")
    bound = queue(connection.default_channel)
    message = bound.get()
    assert message.payload == "a"
    message.requeue()
    assert [bound.get(no_ack=True).payload for _ in range(2)] == ["b", "a"]
    assert bound.get() is None


def test_a_fanout_reaches_every_queue_of_a_process(connect, name):
    exchange = kombu.Exchange(name, type="fanout", durable=False)
    queues = [kombu.Queue(f"{name}-{i}", exchange, auto_delete=True) for i in range(2)]
    taken = [Taken(connect(), [each], no_ack=True) for each in queues]
    with connect().Producer(exchange=exchange, serializer="json") as producer:
        producer.publish("all")
    assert [each.wait(1) for each in taken] == [["all"], ["all"]]


def test_a_direct_exchange_routes_by_key(connect, name):
    connection, exchange = connect(), kombu.Exchange(name, type="direct")
    queues = [kombu.Queue(f"{name}-{k}", exchange, routing_key=k) for k in "ab"]
    taken = [Taken(connect(), [each]) for each in queues]
    with connection.Producer(exchange=exchange, serializer="json") as producer:
        for key in "abca":
            producer.publish(key, routing_key=key)
    assert taken[0].wait(2) == ["a", "a"]
    assert taken[1].wait(1) == ["b"]


def test_a_topic_exchange_routes_by_pattern(connect, name):
    connection, exchange = connect(), kombu.Exchange(name, type="topic")
    patterns = ("stock.*", "#.nyse")
    queues = [
        kombu.Queue(f"{name}-{i}", exchange, routing_key=key)
        for i, key in enumerate(patterns)
    ]
    taken = [Taken(connect(), [each]) for each in queues]
    with connection.Producer(exchange=exchange, serializer="json") as producer:
        for key in ("stock.nyse", "stock.us.nyse", "stock.fr"):
            producer.publish(key, routing_key=key)
    assert taken[0].wait(2) == ["stock.nyse", "stock.fr"]
    assert taken[1].wait(2) == ["stock.nyse", "stock.us.nyse"]


def test_a_reply_queue_declared_on_one_connection_is_read_on_another(connect, name):
    queue = kombu.Queue(name, durable=False, auto_delete=True)
    caller = connect()
    queue(caller.default_channel).declare()
    with connect().Producer(serializer="json") as producer:
        producer.publish("result", routing_key=name)
    assert Taken(connect(), [queue], no_ack=True).wait(1) == ["result"]


def test_namespaces_do_not_see_each_other(connect, name):
    queue = direct(name)
    publish(connect("one"), queue, "mine")
    taken = Taken(connect("other"), [queue])
    assert taken.drain() == 0
    assert Taken(connect("one"), [queue]).wait(1) == ["mine"]


def test_a_message_of_another_program_is_delivered(connect, broker, name):
    connection, queue = connect(), direct(name)
    queue(connection.default_channel).declare()
    broker.send(name, b"from Java")
    message = queue(connection.default_channel).get()
    assert message.body == b"from Java"
    assert message.content_type == "application/data"


def test_without_create_topics_a_missing_topic_is_an_error(connect, name):
    connection = connect(create_topics=False)
    with pytest.raises(ValueError, match=r"rmq admin updateTopic -t queue-\d+ -r 3"):
        direct(name, max_priority=2)(connection.default_channel).declare()


def test_a_passive_declaration_of_a_missing_queue_is_an_error(connect, name):
    with pytest.raises(ChannelError, match="NOT_FOUND"):
        direct(name)(connect().default_channel).queue_declare(passive=True)


def test_a_large_message_is_refused_with_the_remedy(connect, name):
    connection, queue = connect(), direct(name)
    with pytest.raises(connection.channel_errors, match="maxMessageSize"):
        publish(connection, queue, "x" * (5 << 20))
    with pytest.raises(ChannelError, match="pass a reference"):
        publish(connection, queue, "x" * (17 << 20))
    publish(connection, queue, "small")
    assert queue(connection.default_channel).get(no_ack=True).payload == "small"


def test_drain_events_ends_in_time_without_a_message(connect, name):
    taken = Taken(connect(), [direct(name)])
    begun_s = time.monotonic()
    with pytest.raises(socket.timeout):
        taken.connection.drain_events(timeout=0.1)
    assert time.monotonic() - begun_s < 0.5


def test_one_free_place_is_used_although_others_are_busy(connect, name):
    connection, queue = connect(), direct(name)
    taken = Taken(connection, [queue], prefetch_count=8)
    publish(connection, queue, *range(7))
    taken.wait(7)
    publish(connection, queue, "eighth")
    assert taken.wait(8)[-1] == "eighth"


def test_a_held_message_is_renewed_while_its_owner_is_busy(connect, name):
    connection, queue = connect(visibility_timeout=5), direct(name)
    publish(connection, queue, "long")
    taken = Taken(connection, [queue], prefetch_count=1)
    taken.wait(1)
    settler = connection.transport.settler
    tag = taken.messages[0].delivery_tag
    before = settler.leases.find(tag).handle
    settler.renewed_s -= 4.0  # its owner is late, so the keeper renews
    settler.leases.find(tag).expires_s -= 3.0
    end_s = time.monotonic() + 2.5
    while settler.leases.find(tag).handle == before:
        assert time.monotonic() < end_s, "the keeper did nothing"
        time.sleep(0.05)
    taken.ack_all()
    assert taken.drain() == 0
    assert count_waiting(connection, name) == 0


def test_a_broker_that_is_away_at_the_start_is_an_error():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    connection = kombu.Connection(f"rmq://127.0.0.1:{port}//", connect_timeout=1)
    with pytest.raises(transport.Transport.connection_errors, match="refuses"):
        transport.Transport(connection).establish_connection()


def test_a_request_without_an_answer_ends_the_connection(connect, name, monkeypatch):
    connection, queue = connect(), direct(name)
    taken = Taken(connection, [queue])
    taken.drain(0.05)
    link, on_lost, ends = connection.transport.link, connection.transport.on_lost, []

    def count_end():
        ends.append(1)
        on_lost()

    monkeypatch.setattr(connection.transport, "on_lost", count_end)
    with monkeypatch.context() as patch:
        patch.setattr(sources, "LATEST_ANSWER_S", 0.0)
        taken.drain(0.05)
    assert ends
    publish(connect(), queue, "later")
    assert taken.wait(1) == ["later"]
    assert link.is_open


def test_an_answer_that_waits_at_a_loss_keeps_its_part_of_the_prefetch(connect, name):
    connection, queue = connect(), direct(name)
    publish(connection, queue, 1, 2)
    taken = Taken(connection, [queue], prefetch_count=1)
    transport = connection.transport
    wait_until(lambda: transport.link.receive(0.1))  # the answer to its POP
    transport.link.drop()
    transport.begin_requests()
    assert taken.drain(0.5) == 1
    taken.ack_all()
    assert taken.wait(1) == [2]


def test_a_delivery_before_the_loop_waits_ends_the_wait(connect, name):
    """A pool may have sent its tasks of this turn: they would wait for a second."""
    connection, hub = connect(), Hub()
    transport = connection.transport
    connection.register_with_event_loop(hub)
    hub.call_later(30, print)
    hub.run_once()

    def deliver(_):
        transport.delivered += 1

    transport.link.call_soon(deliver, None)
    begun_s = time.monotonic()
    hub.run_once()
    assert time.monotonic() - begun_s < 1
    transport.unregister_from_event_loop(connection.connection, hub)
    hub.close()


def test_the_loop_of_a_worker_in_a_thread_does_not_wait_long(connect, name):
    """No signal ends its wait: a worker in a test ended after ten seconds."""
    connection, hub = connect(), Hub()
    begun_s = time.monotonic()

    def work():
        connection.register_with_event_loop(hub)
        for _ in range(2):  # timers count from the first turn
            hub.run_once()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(5)
    assert time.monotonic() - begun_s < 2.5
    connection.transport.unregister_from_event_loop(connection.connection, hub)
    hub.close()
