"""Compiled acks alone: what they report, and how many of one poll."""

import pytest

from rmq._fastpath.handlers.ack_path import AckPath
from rmq._fastpath.handlers.checkpoint import Checkpoint, PopQueue
from rmq._fastpath.handlers.checkpoint_table import CheckpointTable
from rmq._fastpath.log.queue_tail import TailSet
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from tests.fastpath.wire import Wire

ACK = 200_051
BATCH_LIMIT = 64


@pytest.fixture
def reported():
    return []


@pytest.fixture
def tails():
    return TailSet()


@pytest.fixture
def table(tails, reported):
    table = CheckpointTable(
        tails,
        on_acks=reported.extend,
        on_touched=lambda queues: None,
        on_wake=lambda at_ms: None,
        clock_ms=lambda: 5,
        steady_ms=lambda: 5,
        batch_limit=BATCH_LIMIT,
    )
    table.is_buffered = True
    return table


@pytest.fixture
def wire(table):
    wire = Wire()
    wire.reactor.natives.register(0, ACK, AckPath(table, "b", 513))
    yield wire
    wire.close()


QUEUE = PopQueue("T", "G", 0, 0)


def add(table, *offsets, queue=QUEUE, **more):
    """Add a checkpoint of these offsets."""
    checkpoint = Checkpoint(queue, offsets[0], 5, 60_000, 0, offsets, 0, **more)
    table.add(checkpoint)
    return checkpoint


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


def test_the_last_ack_ends_a_checkpoint(wire, table, reported):
    _, peer = wire.connect()
    checkpoint = add(table, 7, 9, 11)
    assert play(wire, peer, ack(7, 9), ack(7, 9), ack(7, 7)) == 0
    assert (checkpoint.open_offsets(), checkpoint.is_done) == ([11], False)
    assert play(wire, peer, ack(7, 11)) == 0
    assert (checkpoint.open, checkpoint.is_done, table.count) == (0, True, 0)
    assert play(wire, peer, ack(7, 11)) == 1
    assert reported == []


def test_every_ack_of_a_written_checkpoint_is_reported(wire, table, reported):
    _, peer = wire.connect()
    checkpoint = add(table, 7, 9, 11, bits=0b110, is_written=True)
    assert play(wire, peer, ack(7, 9), ack(7, 7), ack(7, 9)) == 0
    assert reported == [(checkpoint, 9)]
    assert not checkpoint.is_done


def test_a_batch_that_is_full_leaves_the_rest_of_the_poll_to_python(wire, table):
    """A poll brings 100 acks, each the last of its checkpoint."""
    _, peer = wire.connect()
    for number in range(100):
        add(table, number)
    peer.sendall(b"".join(ack(number, number) for number in range(100)))
    has_polled = wire.reactor.poll(0)
    assert has_polled
    assert table.count == 100 - BATCH_LIMIT
    left = len(wire.reactor.take_events())
    assert left  # after the first frame for Python all others are for Python
    assert wire.reactor.natives.counts()[0, ACK][1]["too much"] == 1
    while wire.reactor.poll(0):
        left += len(wire.reactor.take_events())
    assert table.count == left


def test_acks_of_an_earlier_term_are_left_to_python(wire, table, tails):
    _, peer = wire.connect()
    checkpoints = [add(table, number, 99) for number in range(5)]
    assert play(wire, peer, ack(1, 1)) == 0
    table.end(checkpoints[1])
    assert table.count == 4
    assert play(wire, peer, ack(1, 99)) == 1
    tails.log_start = 100
    assert play(wire, peer, ack(2, 2)) == 1
    add(table, 50)
    assert [play(wire, peer, ack(n, n)) for n in (3, 50)] == [1, 0]
    add(table, 51)
    table.unregister_all()
    assert play(wire, peer, ack(51, 51)) == 1
    assert table.count == 5


def test_a_checkpoint_has_a_limit():
    checkpoint = Checkpoint(QUEUE, 0, 5, 60_000, 0, tuple(range(64)), 0)
    assert checkpoint.open_offsets() == list(checkpoint.offsets) == list(range(64))
    is_cleared = checkpoint.clear(63)
    assert is_cleared
    is_cleared = checkpoint.clear(63)
    assert not is_cleared
    is_cleared = checkpoint.clear(64)
    assert not is_cleared
    with pytest.raises(ValueError, match="65 offsets"):
        Checkpoint(QUEUE, 0, 5, 60_000, 0, tuple(range(65)), 0)
