"""A reader of durable queues for workers without kombu."""

import signal

import pytest

from rmq._fastpath.client.messages import SendResult
from rmq.core.errors import ConnectFailed
from rmq.integrations.names import Names
from rmq.integrations.queue_reader import QueueReader
from rmq.integrations.task_link import TaskLink
from tests.integrations.test_forks import exit_code_of_child
from tests.integrations.test_task_link import descriptors
from tests.waiting import wait_until


def bodies_of(reader, count):
    found = [reader.receive(5) for _ in range(count)]
    return found, [each.message.body for each in found]


def test_messages_are_received_and_acknowledged(broker, read, name):
    reader = read(name)
    for text in (b"a", b"b"):
        broker.send(name, text)
    found, bodies = bodies_of(reader, 2)
    assert sorted(bodies) == [b"a", b"b"]
    for each in found:
        reader.ack(each.tag)
    assert reader.receive(0.1) is None
    assert len(reader) == 0


def test_no_more_than_the_prefetch_is_held(broker, read, name):
    reader = read(name, prefetch_count=2)
    for number in range(3):
        broker.send(name, b"%d" % number)
    found, _ = bodies_of(reader, 2)
    assert reader.receive(0.1) is None
    reader.ack(found[0].tag)
    assert reader.receive(5).message.body == b"2"


def test_a_message_that_is_given_back_comes_again(broker, read, name):
    reader = read(name)
    broker.send(name, b"again")
    reader.give_back([reader.receive(5).tag])
    again = reader.receive(5)
    assert again.message.body == b"again"
    assert again.deliveries == 1


def test_a_dead_letter_does_not_come_again(broker, read, name):
    reader = read(name)
    broker.send(name, b"bad")
    reader.move_to_dead_letters(reader.receive(5).tag)
    assert reader.receive(0.2) is None
    assert [each.body for each in broker.messages(f"%DLQ%{name}")] == [b"bad"]


def test_close_gives_back_what_was_not_received(broker, read, name):
    first = read(name)
    for number in range(3):
        broker.send(name, b"%d" % number)
    taken = first.receive(5)
    first.ack(taken.tag)
    first.close()
    _, bodies = bodies_of(read(name), 2)
    assert sorted([taken.message.body, *bodies]) == [b"0", b"1", b"2"]


def test_several_queues_are_read(broker, read, name):
    reader = read(name, f"{name}-b")
    broker.send(f"{name}-b", b"second")
    found = reader.receive(5)
    assert (found.queue, found.message.body) == (f"{name}-b", b"second")


def test_a_lost_connection_costs_no_message(broker, read, name):
    reader = read(name)
    broker.send(name, b"before")
    found = reader.receive(5)
    reader.link.drop()
    reader.ack(found.tag)
    broker.send(name, b"after")
    assert reader.receive(5).message.body == b"after"
    assert reader.receive(0.1) is None
    assert len(reader) == 1


def test_a_reader_that_cannot_connect_leaves_no_socket(broker, name):
    link = TaskLink([broker.name_server], broker_name="unknown")
    before = descriptors()
    with pytest.raises(ConnectFailed, match="knows no master unknown"):
        QueueReader(link, Names(), [name], prefetch_count=1)
    wait_until(lambda: descriptors() <= before, limit_s=5)


def test_messages_that_have_arrived_are_held_although_the_connection_is_lost(
    broker, read, name
):
    reader = read(name)
    broker.send(name, b"here")
    assert reader.receive(0) is None  # begins a POP
    wait_until(lambda: reader.link.receive(0.1))
    reader.link.drop()
    assert reader.holds_messages
    reader.ack(reader.receive(5).tag)
    assert not reader.holds_messages


def test_a_fork_in_the_middle_of_a_renewal(broker, read, name):
    """The child gets no answer of its parent, and the parent misses none."""
    reader = read(name, visibility_s=10)
    broker.send(name, b"held")
    found = reader.receive(5)
    lease = reader.settler.leases.find(found.tag)
    before = lease.handle
    lease.expires_s -= 5  # it is due
    reader.settler.renew()

    def run():
        signal.alarm(10)
        is_sent = isinstance(reader.link.send(name, 0, b"of the child", {}), SendResult)
        reader.link.close()
        return 0 if is_sent and lease.handle == before else 1

    assert exit_code_of_child(run) == 0
    assert lease.handle == before  # the answer has not been read
    assert reader.receive(5).message.body == b"of the child"
    assert lease.handle != before
    reader.ack(found.tag)
    assert reader.receive(0.1) is None
    assert len(reader) == 1
