"""Connections of the reactor: slow readers, their end, tokens, idle ones."""

import gc
import os
import socket
import struct

import pytest

from rmq._fastpath.reactor.connections import EventKind
from tests.fastpath.wire import Wire, frame, is_readable, tiny

OUTBOX_PAUSE = 256 * 1024
SEND_BYTES = 512 * 1024


# -- slow readers

WITHIN_ONE_RECEIVE = 1_300
"""Smallest frames that one receive takes; one poll hands over fewer."""


def test_a_connection_that_does_not_read_is_not_read(wire):
    token, peer = wire.connect()
    wire.reactor.send(token, bytes(4 << 20))
    assert wire.reactor.connections.pending_size(token) > 0
    peer.sendall(frame())
    assert wire.take() == []
    received = 0
    taken = []
    while received < 4 << 20:
        received += len(peer.recv(1 << 20))
        taken += wire.take()
    assert taken == [(EventKind.FRAME, token, frame())]
    assert wire.reactor.statistics().buffer_bytes == 0


def test_a_long_answer_leaves_in_parts(wire):
    """The socket would take more at once, but others would wait meanwhile."""
    token, peer = wire.connect()
    wire.reactor.send(token, bytes(2 << 20))
    assert wire.reactor.connections.pending_size(token) >= (2 << 20) - SEND_BYTES
    received = 0
    while received < 2 << 20:
        received += len(peer.recv(1 << 20))
        wire.take()
    assert received == 2 << 20


def test_frames_wait_while_the_outbox_is_full(wire):
    """What was received before the outbox filled up stays until it drains."""
    token, peer = wire.connect()
    peer.sendall(tiny(1) * WITHIN_ONE_RECEIVE)
    wire.reactor.poll(0)
    first = wire.reactor.take_events()
    assert len(first) < WITHIN_ONE_RECEIVE
    wire.reactor.send(token, bytes(4 << 20))
    wire.reactor.flush()
    assert wire.take() == []
    taken, received = len(first), 0
    while received < 4 << 20:
        received += len(peer.recv(1 << 20))
        taken += len(wire.take())
    assert taken == WITHIN_ONE_RECEIVE


def test_an_outbox_that_empties_between_polls_wakes_the_owner(wire):
    token, peer = wire.connect()
    peer.sendall(tiny(1) * WITHIN_ONE_RECEIVE)
    wire.reactor.poll(0)
    first = len(wire.reactor.take_events())
    wire.reactor.send(token, bytes(OUTBOX_PAUSE + (1 << 20)))
    wire.reactor.flush()
    assert wire.take() == []
    peer.setblocking(False)
    while wire.reactor.connections.pending_size(token):
        peer.recv(1 << 20)
        wire.reactor.send(token, b"x")
    assert is_readable(wire.reactor.epfd)
    assert first + len(wire.take()) == WITHIN_ONE_RECEIVE


@pytest.mark.slow
def test_a_reader_that_is_far_too_slow_is_given_up(wire):
    token, _ = wire.connect()
    chunk = bytes(16 << 20)
    sent = 0
    while wire.reactor.send(token, chunk):
        sent += len(chunk)
    assert 128 << 20 <= sent <= 160 << 20
    assert [kind for kind, _, _ in wire.take()] == [EventKind.READER_TOO_SLOW]


# -- the end of connections


def test_the_end_of_a_peer_is_told_once(wire):
    token, peer = wire.connect()
    peer.close()
    assert wire.take() == [(EventKind.PEER_CLOSED, token, None)]
    assert wire.take() == []
    assert not is_readable(wire.reactor.epfd)
    assert wire.reactor.connections.is_open(token), "until the owner closes it"
    is_closed = wire.reactor.connections.close(token)
    assert is_closed
    is_closed = wire.reactor.connections.close(token)
    assert not is_closed


def test_a_reset_is_told():
    wire = Wire()
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    ours.setblocking(False)
    token = wire.reactor.connections.add(ours.detach())
    linger = struct.pack("ii", 1, 0)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    peer.close()
    assert wire.take() == [(EventKind.CONNECTION_BROKEN, token, None)]


def test_a_failed_send_between_polls_wakes_the_owner(wire):
    token, peer = wire.connect()
    wire.reactor.send(token, bytes(4 << 20))
    peer.close()
    wire.reactor.send(token, b"x")
    assert is_readable(wire.reactor.epfd)
    assert [kind for kind, _, _ in wire.take()] == [EventKind.CONNECTION_BROKEN]


def test_an_old_token_finds_nothing(wire):
    token, peer = wire.connect()
    descriptor = wire.reactor.connections.descriptor_of(token)
    wire.reactor.connections.close(token)
    assert peer.recv(1) == b""
    other, other_peer = wire.connect()
    assert wire.reactor.connections.descriptor_of(other) == descriptor, (
        "the kernel reuses numbers"
    )
    assert token != other
    is_sent = wire.reactor.send(token, b"x")
    assert not is_sent
    assert not wire.reactor.hold_reply(token, b"x", 0, 0, b"")
    assert not wire.reactor.connections.is_open(token)
    assert wire.reactor.connections.descriptor_of(token) == -1
    assert not is_readable(other_peer)


def test_what_was_noted_about_a_closed_connection_does_not_reach_the_next(wire):
    token, peer = wire.connect()
    peer.sendall(frame() + struct.pack(">i", -1))
    wire.reactor.poll(0)
    assert wire.reactor.has_events
    wire.reactor.connections.close(token)
    other, _ = wire.connect()
    assert wire.reactor.take_events() == []
    wire.reactor.flush()
    assert wire.reactor.connections.is_open(other)
    assert wire.take() == []


def test_frames_left_behind_by_a_closed_connection_are_forgotten(wire):
    token, peer = wire.connect()
    peer.sendall(tiny(0) * 3_000)
    wire.reactor.poll(0)
    wire.reactor.take_events()
    wire.reactor.connections.close(token)
    wire.reactor.flush()
    other, other_peer = wire.connect()
    other_peer.sendall(frame())
    assert wire.take() == [(EventKind.FRAME, other, frame())]


def test_descriptors_are_closed_with_the_reactor():
    wire = Wire()
    descriptors = set(os.listdir("/proc/self/fd"))
    _, peer = wire.connect()
    del wire.reactor
    gc.collect()
    assert peer.recv(1) == b""
    wire.close()
    assert set(os.listdir("/proc/self/fd")) <= descriptors


# -- idle connections


def test_idle_connections_are_found_by_the_time_of_their_last_byte(wire):
    early, peer = wire.connect()
    wire.reactor.poll(1_000)
    late, _ = wire.connect()
    elsewhere, _ = wire.connect(listener=1)
    assert wire.reactor.connections.idle_since(999, 0) == [early]
    peer.sendall(frame())
    wire.take(2_000)
    assert wire.reactor.connections.idle_since(1_000, 0) == [late]
    wire.reactor.poll(3_000)
    wire.reactor.send(late, b"x")
    assert wire.reactor.connections.idle_since(2_000, 0) == [early]
    assert wire.reactor.connections.idle_since(5_000, 1) == [elsewhere]


def test_a_frame_that_comes_too_slowly_makes_its_connection_idle(wire):
    token, peer = wire.connect()
    data = frame()
    for number, byte in enumerate(data[:-1]):
        peer.sendall(bytes([byte]))
        wire.take(1_000 + number)
    assert wire.reactor.connections.idle_since(999, 0) == []
    assert wire.reactor.connections.idle_since(1_000, 0) == [token]
    peer.sendall(data[-1:])
    assert len(wire.take(2_000)) == 1
    assert wire.reactor.connections.idle_since(1_900, 0) == []
    assert wire.reactor.statistics().buffer_bytes == 0


def test_a_connection_of_a_quiet_reactor_is_not_born_idle(wire):
    wire.reactor.poll(0)
    wire.reactor.expire_held(200_000)
    wire.connect()
    assert wire.reactor.connections.idle_since(199_999, 0) == []


# -- memory that stalled connections hold


def half_frames(wire, count, size=20_000):
    """Begin `count` frames that never end; [(token, peer)]."""
    made = [wire.connect() for _ in range(count)]
    for _, peer in made:
        peer.sendall(frame(1 << 19)[:size])
    wire.take(0)
    return made


def test_stalled_frames_make_room_for_a_large_one():
    """All of the memory stood in half frames: who came with more was closed."""
    wire = Wire(max_buffer_bytes=1 << 20)
    stalled = half_frames(wire, 30)
    before = wire.reactor.statistics().buffer_bytes
    assert before > 1 << 19
    token, peer = wire.connect()
    peer.setblocking(False)
    whole, sent, taken = frame(900_000), 0, []
    while sent < len(whole):
        sent += peer.send(whole[sent : sent + 60_000])
        taken += wire.take(5_000)
    assert (EventKind.FRAME, token, whole) in taken
    ended = {token for kind, token, _ in taken if kind == EventKind.OUT_OF_MEMORY}
    assert ended <= {token for token, _ in stalled}
    assert wire.reactor.statistics().buffer_bytes <= before
    wire.close()


def test_a_frame_that_comes_byte_by_byte_is_stalled_too():
    wire = Wire(max_buffer_bytes=1 << 20)
    for second in range(1, 4):
        for _, peer in half_frames(wire, 30) if second == 1 else []:
            wire.peers.append(peer)
        for peer in wire.peers[:30]:
            peer.sendall(b"x")
        events = wire.take(second * 1_000)
        assert not events, "nobody ends while there is room"
    token, peer = wire.connect()
    peer.setblocking(False)
    whole, sent, taken = frame(700_000), 0, []
    while sent < len(whole):
        sent += peer.send(whole[sent : sent + 60_000])
        taken += wire.take(3_100)
    assert (EventKind.FRAME, token, whole) in taken
    wire.close()


def test_a_reader_that_stopped_makes_room_before_others():
    wire = Wire(max_buffer_bytes=4 << 20)
    slow, _ = wire.connect()
    wire.reactor.poll(0)
    wire.reactor.send(slow, bytes(1 << 20))
    token, _ = wire.connect()
    wire.reactor.poll(3_000)
    is_sent = wire.reactor.send(token, bytes(3_500_000))
    assert is_sent, "it is larger, and not stalled"
    assert (EventKind.READER_TOO_SLOW, slow, None) in wire.take(3_000)
    wire.close()
