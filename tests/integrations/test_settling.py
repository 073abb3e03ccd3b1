"""Acks and dead letters of one process, with threads and lost connections."""

import signal
import threading

import pytest

from tests.integrations.test_forks import exit_code_of_child
from tests.waiting import wait_until


@pytest.fixture
def reader(read, name):
    return read(name)


def dead_letters(broker, name):
    return {each.body for each in broker.messages(f"%DLQ%{name}")}


def test_a_dead_letter_without_a_connection_is_sent_after_it(broker, reader, name):
    broker.send(name, b"bad")
    found = reader.receive(5)
    reader.link.drop()
    reader.move_to_dead_letters(found.tag)
    assert reader.receive(1.0) is None
    assert dead_letters(broker, name) == {b"bad"}
    assert len(reader) == 0


def test_a_dead_letter_without_an_answer_is_sent_again(broker, reader, name):
    broker.send(name, b"bad")
    found = reader.receive(5)
    reader.move_to_dead_letters(found.tag)
    reader.link.drop()
    assert reader.settler.is_waiting
    assert reader.receive(1.0) is None
    assert dead_letters(broker, name) == {b"bad"}
    assert len(reader) == 0


def test_a_message_that_was_given_back_is_no_dead_letter(broker, reader, name):
    broker.send(name, b"good")
    found = reader.receive(5)
    reader.link.drop()
    reader.move_to_dead_letters(found.tag)
    reader.give_back([found.tag])
    assert reader.receive(0.2) is None
    assert dead_letters(broker, name) == set()


def test_threads_settle_after_a_loss_of_the_connection(broker, reader, name):
    """A message that is settled meanwhile would be in no table of the leases."""
    broker.send(name, b"x")
    found = reader.receive(5)
    thread = threading.Thread(target=reader.ack, args=(found.tag,))
    with reader.link.lock:
        thread.start()
        thread.join(0.05)
        is_held = reader.settler.leases.find(found.tag) is not None
    thread.join()
    assert is_held
    wait_until(lambda: reader.receive(0.05) is None and not reader.settler.is_waiting)


def test_a_fork_in_the_middle_of_a_renewal_takes_nothing_from_the_parent(
    broker, reader, name
):
    broker.send(name, b"x")
    found = reader.receive(5)
    lease = reader.settler.leases.find(found.tag)
    before = lease.handle
    lease.expires_s -= reader.visibility_s / 2
    reader.settler.renew()
    assert lease.is_changing

    def end():
        signal.alarm(10)  # kills a child that waits
        reader.close()
        return 7

    assert exit_code_of_child(end) == 7
    assert reader.receive(0.1) is None
    assert not lease.is_changing
    assert lease.handle != before
    reader.ack(found.tag)
    wait_until(lambda: reader.receive(0.05) is None and not reader.settler.is_waiting)
    assert len(reader) == 0
