"""Senders of a broker whose disk is slower than they are: read later, then refused."""

from rmq.protocol.codes import ResponseCode
from rmq.protocol.frames import FrameDecoder
from rmq.protocol.message import Message
from rmq.store.results import PutStatus
from tests.plugins.send.test_compiled_sends import PLAIN, request
from tests.plugins.sides import sides

__all__ = ["sides"]

BODY = b"x" * 3_000
COUNT = 220
"""More than the ring takes; the rest is no more than a socket takes."""

RING = {"tail_ring_bytes": 1 << 20, "max_message_size": 4_096}


def codes(side):
    """The response code of each request that has been answered."""
    return {
        opaque: FrameDecoder().feed(reply)[0].code
        for opaque, reply in side.replies.items()
    }


def filled(sides):
    """A side that was sent more than its ring takes while nobody writes it."""
    _, side = sides(**RING)
    for opaque in range(COUNT):
        side.play([request(PLAIN, opaque=opaque, body=BODY)])
    return side


def test_what_the_ring_cannot_take_waits_in_the_socket(sides):
    side = filled(sides)
    taken = len(side.replies)
    assert 180 < taken < 215
    assert set(codes(side).values()) == {ResponseCode.SUCCESS}
    assert side.reactor.connections.waiting_count == 1
    assert side.store.durability.is_writable
    assert side.store.log.writer.ring.free_size > 0, "for those who cannot wait"


def test_it_is_served_in_its_order_when_there_is_room(sides):
    side = filled(sides)
    for _ in range(5):
        side.store.log.writer.write_out()
        side.reactor.wake()
        side.play([b""])
    assert side.reactor.connections.waiting_count == 0
    assert sorted(side.replies) == list(range(COUNT))
    assert set(codes(side).values()) == {ResponseCode.SUCCESS}
    messages = side.store.reads.max_offset("T", 1)
    assert messages == COUNT


def test_after_the_limit_they_are_refused_with_the_disk_as_the_cause(sides):
    side = filled(sides)
    host = bytes(8)
    status = PutStatus.PUT_OK
    while status is PutStatus.PUT_OK:  # messages that no sender waits for
        message = Message("T", 0, BODY, 0, 0, 0, host)
        status = side.store.writes.put(message).status
    assert status is PutStatus.OS_PAGE_CACHE_BUSY
    for _ in range(COUNT):
        side.broker.clock.ms += 1_001
        side.reactor.wake()
        side.play([b""])
    found = codes(side)
    assert len(found) == COUNT
    busy = [opaque for opaque, code in found.items() if code != ResponseCode.SUCCESS]
    assert busy
    assert {found[opaque] for opaque in busy} == {ResponseCode.SYSTEM_BUSY}
    [reply] = FrameDecoder().feed(side.replies[busy[0]])
    assert reply.remark.startswith("[PC_SYNCHRONIZED]broker busy")
    assert "slower than the senders" in reply.remark


def test_the_writer_wakes_the_reactor_only_when_somebody_waits(sides):
    side = filled(sides)
    side.store.log.writer.wake_when_written(side.reactor.wake_fd)
    side.store.log.writer.write_out()
    before = len(side.replies)
    side.play([b""])
    assert len(side.replies) > before
