"""dramatiq on rmq."""

import itertools
import os
import threading
import time

import pytest

dramatiq = pytest.importorskip("dramatiq")

from dramatiq.errors import QueueJoinTimeout, QueueNotFound  # noqa: E402
from dramatiq.middleware import Retries  # noqa: E402

from rmq.integrations import dramatiq as module  # noqa: E402
from rmq.integrations.dramatiq import DelayedMessages, RmqBroker  # noqa: E402
from rmq.integrations.task_link import Refused  # noqa: E402
from rmq.testing import BrokerThread  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with BrokerThread(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def broker(server):
    retries = Retries(min_backoff=50, max_backoff=100, max_retries=2)
    opened = RmqBroker(
        server.name_server,
        namespace=f"test-{next(numbers)}",
        middleware=[retries],
        max_priority=2,
    )
    yield opened
    opened.close()


@pytest.fixture
def worker(broker):
    running = dramatiq.Worker(broker, worker_threads=2, worker_timeout=50)
    running.start()
    yield running
    running.stop()


def test_actors_run(broker, worker):
    seen = []

    @dramatiq.actor(broker=broker)
    def put(number):
        seen.append(number)

    for number in range(10):
        put.send(number)
    broker.join("default", timeout=5_000)
    assert sorted(seen) == list(range(10))


def test_a_delayed_message_waits_in_the_broker(broker, worker):
    seen = []

    @dramatiq.actor(broker=broker)
    def put(begun_s):
        seen.append(time.time() - begun_s)

    put.send_with_options(args=(time.time(),), delay=600)
    assert broker.get_declared_delay_queues() == set()
    broker.join("default", timeout=10_000)
    assert seen[0] >= 0.6


def test_a_failed_message_is_tried_again_and_then_a_dead_letter(server, broker, worker):
    attempts = []

    @dramatiq.actor(broker=broker)
    def fail():
        attempts.append(1)
        raise ValueError("no")

    fail.send()
    end_s = time.monotonic() + 10
    topic = broker.names.dead_letters("default")
    while len(attempts) < 3 or not server.messages(topic):
        assert time.monotonic() < end_s, attempts
        time.sleep(0.02)
    broker.join("default", timeout=5_000)
    assert len(attempts) == 3


def test_larger_priorities_come_first(broker):
    @dramatiq.actor(broker=broker)
    def low(name):
        """Never run."""

    @dramatiq.actor(broker=broker, broker_priority=2)
    def high(name):
        """Never run."""

    low.send("low")
    high.send("high")
    low.send_with_options(args=("middle",), broker_priority=1)
    consumer = broker.consume("default", prefetch=1, timeout=1_000)
    order = []
    for _ in range(3):
        message = next(consumer)
        order.append(message.args[0])
        consumer.ack(message)
    consumer.close()
    assert order == ["high", "middle", "low"]


def test_messages_of_a_closed_consumer_come_again(broker):
    @dramatiq.actor(broker=broker)
    def nothing():
        """Never run."""

    nothing.send()
    first = broker.consume("default", timeout=2_000)
    message = next(first)
    first.requeue([message])
    first.close()
    second = broker.consume("default", timeout=2_000)
    assert next(second).message_id == message.message_id


def test_flush_empties_a_queue(broker):
    @dramatiq.actor(broker=broker)
    def nothing():
        """Never run."""

    nothing.send()
    broker.flush_all()
    assert next(broker.consume("default", timeout=100)) is None


def test_a_body_of_another_program_is_a_dead_letter(server, broker):
    broker.declare_queue("default")
    consumer = broker.consume("default", timeout=1_000)
    server.send(broker.names.topic("default"), b"from Java")
    assert next(consumer) is None
    assert next(consumer) is None
    (dead,) = server.messages(broker.names.dead_letters("default"))
    assert dead.body == b"from Java"


def test_queues_have_to_be_declared(broker):
    with pytest.raises(QueueNotFound):
        broker.consume("unknown")


def test_join_ends_in_time(broker):
    @dramatiq.actor(broker=broker)
    def nothing():
        """Never run."""

    nothing.send()
    with pytest.raises(QueueJoinTimeout):
        broker.join("default", timeout=50)


def test_delayed_messages_that_only_leave_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(module, "MAX_DELAYED", 3)
    delayed = DelayedMessages()
    for number in range(5):
        delayed.add(str(number), time.monotonic() + 60)
    assert len(delayed) == 3
    delayed.discard("4")
    delayed.discard("0")
    assert len(delayed) == 2


def test_a_delayed_message_that_is_overdue_is_forgotten():
    delayed = DelayedMessages()
    delayed.add("old", time.monotonic() - 1)
    delayed.add("new", time.monotonic() + 60)
    assert len(delayed) == 1


def test_join_does_not_wait_for_a_delayed_message_that_was_refused(broker):
    @dramatiq.actor(broker=broker)
    def nothing(text):
        """Never run."""

    with pytest.raises(Refused, match="msg body length limit"):
        nothing.send_with_options(args=("x" * (5 << 20),), delay=60_000)
    broker.join("default", timeout=0)


def test_threads_that_have_ended_leave_no_connection(broker):
    @dramatiq.actor(broker=broker)
    def nothing():
        """Never run."""

    nothing.send()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        thread = threading.Thread(target=nothing.send)
        thread.start()
        thread.join()
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, limit_s=5)


def test_join_waits_for_a_message_that_is_just_taken(broker, monkeypatch):
    """It was not waiting in the broker any more, and no consumer had it yet."""

    @dramatiq.actor(broker=broker)
    def nothing():
        """Never run."""

    nothing.send()
    consumer = broker.consume("default", timeout=2_000)
    count_waiting = module.Topics.count_waiting

    def take_then_count(*given):
        taken.append(next(consumer))
        return count_waiting(*given)

    taken = []
    with monkeypatch.context() as patch:
        patch.setattr(module.Topics, "count_waiting", take_then_count)
        with pytest.raises(QueueJoinTimeout):
            broker.join("default", timeout=0)
    consumer.ack(taken[0])
    broker.join("default", timeout=2_000)
    consumer.close()
