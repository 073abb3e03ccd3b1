"""The reactor over real sockets; each test calls its polls."""

import pytest

from rmq._fastpath.reactor.connections import EventKind
from tests.fastpath.wire import fill, frame, is_readable, tiny

BUFFER_START = 16 * 1024
RECEIVE_BYTES = 256 * 1024


def test_a_frame_comes_out_and_its_answer_goes_back(wire):
    token, peer = wire.connect()
    peer.sendall(frame())
    assert is_readable(wire.reactor.epfd)
    assert wire.take() == [(EventKind.FRAME, token, frame())]
    is_sent = wire.reactor.send(token, b"answer")
    assert is_sent
    assert peer.recv(100) == b"answer"
    assert not is_readable(wire.reactor.epfd)


def test_answers_leave_with_one_flush(wire):
    token, peer = wire.connect()
    peer.sendall(frame() * 3)
    wire.reactor.poll(0)
    for _, answered, _ in wire.reactor.take_events():
        wire.reactor.send(answered, b"abc")
    assert not is_readable(peer), "nothing leaves before the flush"
    wire.reactor.flush()
    assert peer.recv(100) == b"abc" * 3
    assert wire.reactor.connections.pending_size(token) == 0


def test_counters(wire):
    token, peer = wire.connect()
    peer.sendall(frame() * 2)
    wire.take()
    wire.reactor.send(token, b"12345")
    counted = wire.reactor.statistics()
    assert (counted.connections, counted.frames, counted.declined) == (1, 2, 2)
    assert (counted.bytes_in, counted.bytes_out) == (2 * len(frame()), 5)
    assert counted.polls == wire.reactor.statistics().polls > 0
    is_closed = wire.reactor.connections.close(token)
    assert is_closed
    assert wire.reactor.statistics().connections == 0


def test_frames_beyond_the_event_list_are_handed_over_in_order(wire):
    count = 30_000
    _, peer = wire.connect()
    stream = b"".join(map(tiny, range(count)))
    peer.setblocking(False)
    sent, taken = 0, []
    while len(taken) < count:
        if sent < len(stream):
            sent += peer.send(stream[sent : sent + 65536])
        taken += wire.take()
    assert [item for _, _, item in taken] == [tiny(n) for n in range(count)]


def test_a_flood_of_small_frames_does_not_fill_memory(wire):
    _, peer = wire.connect()
    peer.setblocking(False)
    flood, most = tiny(0) * 50_000, 0
    for _ in range(50):
        try:
            while True:
                peer.send(flood)
        except BlockingIOError:
            pass
        wire.reactor.poll(0)
        most = max(most, wire.reactor.statistics().buffer_bytes)
        wire.reactor.take_events()
        wire.reactor.flush()
    assert most <= 4 * RECEIVE_BYTES


def test_many_connections_share_a_poll(wire):
    ends = [wire.connect() for _ in range(40)]
    for _, peer in ends:
        peer.sendall(tiny(0) * 1_500)
    counts = dict.fromkeys((token for token, _ in ends), 0)
    wire.reactor.poll(0)
    wire.reactor.take_events()
    wire.reactor.flush()
    for _ in range(40):
        wire.reactor.poll(0)
        for _, token, _ in wire.reactor.take_events():
            counts[token] += 1
        wire.reactor.flush()
    assert all(counts.values()), "nobody waits for all the others"


def test_bytes_of_one_poll_are_bounded(wire):
    for _ in range(20):
        fill(wire.connect()[1])
    wire.reactor.poll(0)
    assert wire.reactor.statistics().bytes_in <= (1 << 20) + RECEIVE_BYTES


def test_unknown_listener_is_refused(wire):
    with pytest.raises(ValueError, match="listener 8"):
        wire.connect(listener=8)
