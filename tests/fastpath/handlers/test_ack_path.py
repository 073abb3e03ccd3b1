"""Compiled acks alone: what they tell, and how many of one poll."""

import pytest

from rmq._fastpath.handlers.ack_path import AckPath
from rmq._fastpath.handlers.ack_table import AckMarks, AckTable
from rmq._fastpath.log.queue_tail import TailSet
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from tests.fastpath.wire import Wire

ACK = 200_051
TOLD_LIMIT = 64


@pytest.fixture
def told():
    return []


@pytest.fixture
def tails():
    return TailSet()


@pytest.fixture
def table(tails, told):
    return AckTable(tails, told.extend, TOLD_LIMIT)


@pytest.fixture
def wire(table):
    wire = Wire()
    wire.reactor.natives.register(0, ACK, AckPath(table, "b", 513))
    yield wire
    wire.close()


def key(start):
    return "T", "G", 0, start, 5


def ack(start, offset):
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": "0", "offset": str(offset),
        "extraInfo": f"{start} 5 60000 0 0 b 0 {offset}",
    }  # fmt: skip
    return encode(Command(ACK, fields, opaque=offset, flag=2, version=513))


def play(wire, peer, *frames):
    """Return how many frames were left to Python."""
    peer.sendall(b"".join(frames))
    left = 0
    while wire.reactor.poll(0):
        left += len(wire.reactor.take_events())
    return left


def test_only_the_last_ack_of_a_checkpoint_is_told(wire, table, told):
    _, peer = wire.connect()
    marks = AckMarks((7, 9, 11), 0b111)
    table.add(key(7), marks)
    assert play(wire, peer, ack(7, 9), ack(7, 9), ack(7, 7)) == 0
    assert (told, marks.open_offsets()) == ([], [11])
    assert play(wire, peer, ack(7, 11)) == 0
    assert (told, marks.open) == ([(key(7), 11)], 0)
    assert play(wire, peer, ack(7, 11)) == 1


def test_every_ack_of_a_written_checkpoint_is_told(wire, table, told):
    _, peer = wire.connect()
    table.add(key(7), AckMarks((7, 9, 11), 0b110, is_written=True))
    assert play(wire, peer, ack(7, 9), ack(7, 7), ack(7, 9)) == 0
    assert told == [(key(7), 9)]


def test_a_batch_that_is_full_leaves_the_rest_of_the_poll_to_python(wire, table, told):
    """A poll brings 100 acks, each the last of its checkpoint."""
    _, peer = wire.connect()
    for number in range(100):
        table.add(key(number), AckMarks((number,), 1))
    peer.sendall(b"".join(ack(number, number) for number in range(100)))
    has_polled = wire.reactor.poll(0)
    assert has_polled
    assert told == [(key(number), number) for number in range(TOLD_LIMIT)]
    left = len(wire.reactor.take_events())
    assert left  # once one frame is Python's, those after it are
    assert wire.reactor.natives.counts()[0, ACK][1]["too much"] == 1
    while wire.reactor.poll(0):
        left += len(wire.reactor.take_events())
    assert len(told) + left == 100


def test_what_was_forgotten_is_left_to_python(wire, table, tails):
    _, peer = wire.connect()
    marks = [AckMarks((number, 99), 0b11) for number in range(5)]
    for number, each in enumerate(marks):
        table.add(key(number), each)
    assert play(wire, peer, ack(1, 1)) == 0
    table.remove(marks[1])
    assert len(table) == 4
    assert play(wire, peer, ack(1, 99)) == 1
    tails.log_start = 100
    assert play(wire, peer, ack(2, 2)) == 1
    again = AckMarks((50,), 1)
    table.add(key(50), again)
    assert len(table) == 1
    assert [play(wire, peer, ack(n, n)) for n in (3, 50)] == [1, 0]
    table.remove(marks[3])
    table.remove(again)
    table.unregister_all()
    assert len(table) == 0


def test_marks_have_a_limit():
    marks = AckMarks(tuple(range(64)), 2**64 - 1)
    assert marks.open_offsets() == list(marks.offsets) == list(range(64))
    is_cleared = marks.clear(63)
    assert is_cleared
    is_cleared = marks.clear(63)
    assert not is_cleared
    is_cleared = marks.clear(64)
    assert not is_cleared
    with pytest.raises(ValueError, match="65 offsets"):
        AckMarks(tuple(range(65)), 1)
