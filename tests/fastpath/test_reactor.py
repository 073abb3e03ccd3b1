"""The reactor over real sockets, polled by hand."""

import gc
import os
import select
import socket
import struct
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath import EventKind, Reactor, Watermark
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, decode, encode

BUFFER_START = 16 * 1024
RECEIVE_BYTES = 256 * 1024
OUTBOX_PAUSE = 256 * 1024
POLLS = 20_000
WITHIN_ONE_RECEIVE = 1_300
"""Smallest frames that one receive takes; one poll hands over fewer."""


class Wire:
    """A reactor and its peers; closes what a test leaves open."""

    def __init__(self, **options):
        self.reactor = Reactor(**options)
        self.peers = []

    def connect(self, listener=0):
        """Return (token, the peer's socket)."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(5)
        self.peers.append(theirs)
        return self.reactor.add(ours.detach(), listener), theirs

    def take(self, now_ms=0):
        """Poll until nothing is ready; everything that was handed over."""
        taken = []
        for _ in range(POLLS):
            if not self.reactor.poll(now_ms):
                return taken
            if self.reactor.has_events:
                taken += self.reactor.take_events()
                self.reactor.flush()
        raise AssertionError("the reactor does not come to rest")

    def close(self):
        for peer in self.peers:
            peer.close()


@pytest.fixture
def wire():
    wire = Wire()
    yield wire
    wire.close()


def frame(size=0, opaque=0):
    command = Command.request(105, body=bytes(size))
    command.opaque = opaque
    return encode(command)


def tiny(number):
    """The smallest frame that the framing allows, with a body to know it by."""
    return struct.pack(">iIi", 8, 0, number)


def fill(peer):
    """Send until the socket takes no more; how much it took."""
    peer.setblocking(False)
    sent = 0
    try:
        while True:
            sent += peer.send(b"x" * 65536)
    except BlockingIOError:
        return sent


def is_readable(descriptor):
    return bool(select.select([descriptor], [], [], 0)[0])


def test_a_frame_comes_out_and_its_answer_goes_back(wire):
    token, peer = wire.connect()
    peer.sendall(frame())
    assert is_readable(wire.reactor.epfd)
    assert wire.take() == [(EventKind.FRAME, token, frame())]
    assert wire.reactor.send(token, b"answer")
    assert peer.recv(100) == b"answer"
    assert not is_readable(wire.reactor.epfd)


def test_answers_of_a_batch_leave_with_one_flush(wire):
    token, peer = wire.connect()
    peer.sendall(frame() * 3)
    wire.reactor.poll(0)
    for _, answered, _ in wire.reactor.take_events():
        wire.reactor.send(answered, b"abc")
    assert not is_readable(peer), "nothing leaves before the flush"
    wire.reactor.flush()
    assert peer.recv(100) == b"abc" * 3
    assert wire.reactor.pending_size(token) == 0


def test_counters(wire):
    token, peer = wire.connect()
    peer.sendall(frame() * 2)
    wire.take()
    wire.reactor.send(token, b"12345")
    counted = wire.reactor.statistics()
    assert (counted.connections, counted.frames, counted.declined) == (1, 2, 2)
    assert (counted.bytes_in, counted.bytes_out) == (2 * len(frame()), 5)
    assert counted.polls == wire.reactor.polls > 0
    assert wire.reactor.close(token)
    assert wire.reactor.statistics().connections == 0


# -- framing


def test_one_byte_at_a_time(wire):
    token, peer = wire.connect()
    taken = []
    for position in range(2 * len(frame(5))):
        peer.sendall((frame(5) * 2)[position : position + 1])
        taken += wire.take()
    assert taken == [(EventKind.FRAME, token, frame(5))] * 2


def fed(stream, cuts, **options):
    """Feed a stream in pieces; (frames, how it ended) of the reactor."""
    wire, taken = Wire(**options), []
    token, peer = wire.connect()
    start = 0
    for end in [*sorted(cuts), len(stream)]:
        peer.sendall(stream[start:end])
        taken += wire.take()
        if any(kind != EventKind.FRAME for kind, _, _ in taken):
            break  # nobody reads any more: more could fill the socket
        start = end
    wire.close()
    assert {number for _, number, _ in taken} <= {token}
    frames = [item for kind, _, item in taken if kind == EventKind.FRAME]
    ends = [kind for kind, _, _ in taken[len(frames) :]]
    return frames, ends


cut_streams = st.lists(
    st.one_of(
        st.builds(frame, st.integers(0, 40_000), st.integers(0, 2**31 - 1)),
        st.binary(max_size=24),
        st.builds(
            lambda length, word: struct.pack(">iI", length, word),
            st.integers(-5, 30) | st.integers(2**20, 2**31 - 1),
            st.integers(0, 40) | st.integers(0, 2**32 - 1),
        ),
    ),
    max_size=6,
).map(b"".join)
cut_places = st.lists(st.floats(0, 1), max_size=8)


@settings(deadline=None)
@given(st.lists(st.integers(0, 40_000), max_size=6), cut_places)
def test_commands_cut_anywhere_are_those_of_the_sans_io_decoder(sizes, places):
    stream = b"".join(map(frame, sizes, range(len(sizes))))
    cuts = [int(place * len(stream)) for place in places]
    frames, ends = fed(stream, cuts)
    assert list(map(decode, frames)) == FrameDecoder().feed(stream)
    assert not ends


@settings(deadline=None)
@given(cut_streams, cut_places)
def test_any_stream_cut_anywhere_is_framed_as_by_the_model(stream, places):
    cuts = [int(place * len(stream)) for place in places]
    frames, ends = fed(stream, cuts, max_frame_size=100_000)
    assert (frames, len(ends)) == framed_slowly(stream, 100_000)


def framed_slowly(stream, max_frame_size):
    """Return (frames, 1 if the stream is lost behind them)."""
    frames = []
    while len(stream) >= 4:
        (length,) = struct.unpack_from(">i", stream)
        if not 4 <= length <= max_frame_size:
            return frames, 1
        if len(stream) >= 8:
            (word,) = struct.unpack_from(">I", stream, 4)
            if word & 0xFFFFFF > length - 4:
                return frames, 1
        if len(stream) < 4 + length:
            break
        frames.append(stream[: 4 + length])
        stream = stream[4 + length :]
    return frames, 0


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (struct.pack(">i", 16 * 1024 * 1024 + 1), EventKind.FRAME_TOO_LARGE),
        (struct.pack(">i", -1), EventKind.FRAME_TOO_LARGE),
        (b"GET / HTTP/1.1\r\n", EventKind.FRAME_TOO_LARGE),
        (struct.pack(">i", 3), EventKind.FRAME_TOO_SMALL),
        (bytes(4), EventKind.FRAME_TOO_SMALL),
        (struct.pack(">iI", 100, 97), EventKind.HEADER_TOO_LARGE),
        (struct.pack(">iI", 16 << 20, 0xFFFFFF), EventKind.HEADER_TOO_LARGE),
    ],
)
def test_lying_lengths_end_the_connection_before_memory_is_taken(wire, start, kind):
    token, peer = wire.connect()
    peer.sendall(start)
    assert wire.take() == [(kind, token, None)]
    assert wire.reactor.statistics().buffer_bytes <= BUFFER_START
    peer.sendall(frame())
    assert wire.take() == [], "it is not read any more"


def test_the_largest_frame_passes(wire):
    token, peer = wire.connect()
    length = 16 * 1024 * 1024
    data = struct.pack(">iI", length, 0) + bytes(length - 4)
    peer.setblocking(False)
    sent, taken = 0, []
    while sent < len(data):
        sent += peer.send(data[sent : sent + RECEIVE_BYTES])
        taken += wire.take()
    assert taken == [(EventKind.FRAME, token, data)]
    assert wire.reactor.statistics().buffer_bytes == 0


def test_good_frames_before_a_bad_one_are_answered(wire):
    token, peer = wire.connect()
    peer.sendall(frame() + struct.pack(">i", -1))
    wire.reactor.poll(0)
    kinds = [kind for kind, _, _ in wire.reactor.take_events()]
    assert kinds == [EventKind.FRAME, EventKind.FRAME_TOO_LARGE]
    wire.reactor.send(token, b"answer")
    wire.reactor.close(token)
    wire.reactor.flush()
    assert peer.recv(100) == b"answer"


# -- limits


def test_an_idle_connection_holds_no_buffer(wire):
    token, peer = wire.connect()
    peer.sendall(frame(60_000))
    assert len(wire.take()) == 1
    wire.reactor.send(token, bytes(60_000))
    peer.recv(1 << 20)
    wire.take()
    assert wire.reactor.statistics().buffer_bytes == 0


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


def test_frames_sent_before_the_end_are_all_handed_over(wire):
    count = 15_000
    _, peer = wire.connect()
    peer.sendall(tiny(7) * count)
    peer.close()
    taken = wire.take()
    assert [kind for kind, _, _ in taken[-1:]] == [EventKind.PEER_CLOSED]
    assert len(taken) == count + 1


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
    assert wire.reactor.bytes_in <= (1 << 20) + RECEIVE_BYTES


def test_unknown_listener_is_refused(wire):
    with pytest.raises(ValueError, match="listener 8"):
        wire.connect(listener=8)


# -- slow readers


def test_a_connection_that_does_not_read_is_not_read(wire):
    token, peer = wire.connect()
    wire.reactor.send(token, bytes(4 << 20))
    assert wire.reactor.pending_size(token) > 0
    peer.sendall(frame())
    assert wire.take() == []
    received = 0
    taken = []
    while received < 4 << 20:
        received += len(peer.recv(1 << 20))
        taken += wire.take()
    assert taken == [(EventKind.FRAME, token, frame())]
    assert wire.reactor.statistics().buffer_bytes == 0


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


def test_draining_the_outbox_outside_a_batch_wakes_the_owner(wire):
    token, peer = wire.connect()
    peer.sendall(tiny(1) * WITHIN_ONE_RECEIVE)
    wire.reactor.poll(0)
    first = len(wire.reactor.take_events())
    wire.reactor.send(token, bytes(OUTBOX_PAUSE + (1 << 20)))
    wire.reactor.flush()
    assert wire.take() == []
    peer.setblocking(False)
    while wire.reactor.pending_size(token):
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
    assert wire.reactor.is_open(token), "until the owner closes it"
    assert wire.reactor.close(token)
    assert not wire.reactor.close(token)


def test_a_reset_is_told():
    wire = Wire()
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    ours.setblocking(False)
    token = wire.reactor.add(ours.detach())
    linger = struct.pack("ii", 1, 0)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    peer.close()
    assert wire.take() == [(EventKind.CONNECTION_BROKEN, token, None)]


def test_a_failed_send_outside_a_batch_wakes_the_owner(wire):
    token, peer = wire.connect()
    wire.reactor.send(token, bytes(4 << 20))
    peer.close()
    wire.reactor.send(token, b"x")
    assert is_readable(wire.reactor.epfd)
    assert [kind for kind, _, _ in wire.take()] == [EventKind.CONNECTION_BROKEN]


def test_an_old_token_finds_nothing(wire):
    token, peer = wire.connect()
    descriptor = wire.reactor.descriptor(token)
    wire.reactor.close(token)
    assert peer.recv(1) == b""
    other, other_peer = wire.connect()
    assert wire.reactor.descriptor(other) == descriptor, "the kernel reuses numbers"
    assert token != other
    assert not wire.reactor.send(token, b"x")
    assert not wire.reactor.hold(token, b"x", 0, 0, b"")
    assert not wire.reactor.is_open(token)
    assert wire.reactor.descriptor(token) == -1
    assert not is_readable(other_peer)


def test_what_was_noted_about_a_closed_connection_does_not_reach_the_next(wire):
    token, peer = wire.connect()
    peer.sendall(frame() + struct.pack(">i", -1))
    wire.reactor.poll(0)
    assert wire.reactor.has_events
    wire.reactor.close(token)
    other, _ = wire.connect()
    assert wire.reactor.take_events() == []
    wire.reactor.flush()
    assert wire.reactor.is_open(other)
    assert wire.take() == []


def test_frames_left_behind_by_a_closed_connection_are_forgotten(wire):
    token, peer = wire.connect()
    peer.sendall(tiny(0) * 3_000)
    wire.reactor.poll(0)
    wire.reactor.take_events()
    wire.reactor.close(token)
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
    assert wire.reactor.idle_since(999, 0) == [early]
    peer.sendall(frame())
    wire.take(2_000)
    assert wire.reactor.idle_since(1_000, 0) == [late]
    wire.reactor.poll(3_000)
    wire.reactor.send(late, b"x")
    assert wire.reactor.idle_since(2_000, 0) == [early]
    assert wire.reactor.idle_since(5_000, 1) == [elsewhere]


def test_a_frame_that_comes_too_slowly_makes_its_connection_idle(wire):
    token, peer = wire.connect()
    data = frame()
    for number, byte in enumerate(data[:-1]):
        peer.sendall(bytes([byte]))
        wire.take(1_000 + number)
    assert wire.reactor.idle_since(999, 0) == []
    assert wire.reactor.idle_since(1_000, 0) == [token]
    peer.sendall(data[-1:])
    assert len(wire.take(2_000)) == 1
    assert wire.reactor.idle_since(1_900, 0) == []
    assert wire.reactor.buffer_bytes == 0


def test_a_connection_of_a_quiet_reactor_is_not_born_idle(wire):
    wire.reactor.poll(0)
    wire.reactor.expire_held(200_000)
    wire.connect()
    assert wire.reactor.idle_since(199_999, 0) == []


# -- held replies


@pytest.fixture
def durable(wire):
    durable = Watermark()
    wire.reactor.attach_watermark(durable)
    yield durable
    wire.reactor.detach_watermark()


def test_held_replies_leave_in_the_order_of_their_offsets(wire, durable):
    token, peer = wire.connect()
    for offset in (30, 10, 20, 10):
        assert wire.reactor.hold(token, b"%d " % offset, offset, 5_000, b"late")
    assert wire.reactor.held.count == 4
    assert not is_readable(peer)
    durable.advance(20)
    assert is_readable(wire.reactor.epfd)
    wire.take()
    assert peer.recv(100) == b"10 10 20 "
    durable.advance(30)
    wire.take()
    assert peer.recv(100) == b"30 "
    assert wire.reactor.held.count == 0


def test_what_is_durable_already_leaves_at_once(wire, durable):
    durable.advance(100)
    wire.take()
    token, peer = wire.connect()
    assert wire.reactor.hold(token, b"now", 100, 5_000, b"late")
    assert peer.recv(100) == b"now"


def test_within_a_batch_it_leaves_with_the_flush(wire, durable):
    durable.advance(100)
    token, peer = wire.connect()
    peer.sendall(frame())
    wire.reactor.poll(0)
    wire.reactor.take_events()
    wire.reactor.hold(token, b"now", 100, 5_000, b"late")
    assert not is_readable(peer)
    wire.reactor.flush()
    assert peer.recv(100) == b"now"


def test_a_held_reply_that_is_too_late_says_so(wire, durable):
    token, peer = wire.connect()
    wire.reactor.hold(token, b"done", 10, 5_000, b"late")
    wire.reactor.hold(token, b"done", 20, 9_000, b"later")
    assert wire.reactor.expire_held(4_999) == []
    assert wire.reactor.held.count == 2
    wire.reactor.expire_held(5_000)
    assert peer.recv(100) == b"late"
    durable.advance(20)
    wire.take()
    assert peer.recv(100) == b"done"


def test_what_became_durable_in_time_is_not_late(wire, durable):
    token, peer = wire.connect()
    wire.reactor.hold(token, b"done", 10, 5_000, b"late")
    durable.advance(10)
    wire.reactor.expire_held(6_000)
    assert peer.recv(100) == b"done"


def test_how_long_a_held_reply_took_is_counted(wire, durable):
    token, peer = wire.connect()
    begun_ns = time.monotonic_ns() - 50_000_000
    wire.reactor.hold(token, b"a", 10, 5_000, b"late", 10, begun_ns)
    wire.reactor.hold(token, b"b", 20, 5_000, b"late", 10, begun_ns)
    wire.reactor.hold(token, b"c", 10, 5_000, b"late")
    assert wire.reactor.rpc_times.rows() == []
    durable.advance(10)
    wire.take()
    wire.reactor.expire_held(5_000)
    assert peer.recv(100) == b"aclate"
    rows = {row.response: row for row in wire.reactor.rpc_times.rows()}
    assert rows.keys() == {0, 10}
    for row in rows.values():
        assert (row.code, sum(row.counts)) == (10, 1)
        assert 50 <= row.sum_ms < 5_000


def test_held_replies_of_a_closed_connection_vanish(wire, durable):
    token, _ = wire.connect()
    wire.reactor.hold(token, b"done", 10, 5_000, b"late")
    wire.reactor.hold(token, b"done", 20, 5_000, b"late")
    wire.reactor.close(token)
    _, other_peer = wire.connect()
    durable.advance(10)
    wire.take()
    wire.reactor.expire_held(5_000)
    assert wire.reactor.held.count == 0
    assert not is_readable(other_peer)


def test_without_a_watermark_replies_wait_for_their_deadline(wire):
    token, peer = wire.connect()
    wire.reactor.hold(token, b"done", 0, 5_000, b"late")
    wire.take()
    assert not is_readable(peer)
    wire.reactor.expire_held(5_000)
    assert peer.recv(100) == b"late"


@pytest.mark.slow
def test_held_replies_are_bounded(wire, durable):
    token, _ = wire.connect()
    chunk, held = bytes(64 << 20), 0
    while wire.reactor.hold(token, chunk, 10, 5_000, b""):
        held += 1
    assert held == 4
    assert wire.reactor.held.count == 4


def test_held_replies_die_with_the_reactor(durable, wire):
    token, _ = wire.connect()
    assert wire.reactor.hold(token, b"done", 10, 5_000, b"late")


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 60)) | st.integers(0, 60),
        max_size=40,
    )
)
def test_every_held_reply_is_answered_exactly_once(steps):
    """(offset, deadline) holds a reply; a number is the new offset and the time."""
    wire, durable = Wire(), Watermark()
    wire.reactor.attach_watermark(durable)
    token, peer = wire.connect()
    expected, held, now = [], [], 0
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            offset, deadline = step
            done, late = b"d%d " % number, b"l%d " % number
            wire.reactor.hold(token, done, offset, deadline, late)
            held.append((offset, number, deadline, done, late))
        else:
            now = max(now, step)
            durable.advance(step)
        reached = sorted(item for item in held if item[0] <= durable.value)
        expected += [item[3] for item in reached]
        held = [item for item in held if item not in reached]
        overdue = sorted(item for item in held if item[2] <= now)
        expected += [item[4] for item in overdue]
        held = [item for item in held if item not in overdue]
        wire.take(now)
        wire.reactor.expire_held(now)
    assert wire.reactor.held.count == len(held)
    wire.reactor.close(token)
    assert received_all(peer) == b"".join(expected)
    wire.close()


def received_all(peer):
    data = b""
    while piece := peer.recv(65536):
        data += piece
    return data


def test_frames_that_take_long_are_handed_over_one_by_one():
    """Others are served in between; when Python is quick again it gets many."""
    wire = Wire()
    _, peer = wire.connect()
    handed = []
    peer.sendall(frame(1) * 640)
    while wire.reactor.poll(0):
        handed.append(len(wire.reactor.take_events()))
        if len(handed) < 10:
            time.sleep(0.002 * handed[-1])
        wire.reactor.flush()
    assert sum(handed) == 640
    assert handed[0] == handed[-2] == 16
    assert handed[9] == 1
    wire.close()


def test_a_busy_poll_takes_what_comes_a_little_later():
    """Half a frame is work without an event: the poll stays for the other half."""
    wire = Wire(busy_poll_us=5_000_000)
    _, peer = wire.connect()
    data = frame(100)
    peer.sendall(data[:50])
    later = threading.Timer(0.02, peer.sendall, [data[50:]])
    later.start()
    assert wire.reactor.poll(0)
    later.join()
    assert wire.reactor.has_events
    assert wire.reactor.spins == 1
    wire.close()


def test_a_busy_poll_looks_again_after_work_that_took_longer_than_it_waits():
    """One round does not get to all of 300 connections, and takes more than 50 us."""
    wire = Wire(busy_poll_us=50)
    try:
        for _ in range(300):
            wire.connect()[1].sendall(frame(100)[:50])
        assert wire.reactor.poll(0)
        assert wire.reactor.spins > 0
    finally:
        wire.close()


def test_a_poll_in_a_hurry_serves_what_is_there_and_waits_for_nothing():
    wire = Wire(busy_poll_us=5_000_000)
    _, peer = wire.connect()
    peer.sendall(frame(100)[:50])
    wire.reactor.hurry()
    began = time.monotonic()
    assert wire.reactor.poll(0)
    assert time.monotonic() - began < 1
    assert wire.reactor.bytes_in == 50
    wire.close()


def test_a_busy_poll_ends_and_others_follow_less_often():
    wire = Wire(busy_poll_us=20_000)
    _, peer = wire.connect()
    times = []
    for byte in frame(100)[:24]:
        peer.sendall(bytes([byte]))
        began, used = time.monotonic(), time.thread_time()
        assert wire.reactor.poll(0)
        times.append((time.monotonic() - began, time.thread_time() - used))
    assert not wire.reactor.has_events
    assert wire.reactor.spins == 0
    assert min(elapsed for elapsed, _ in times[:8]) > 0.02
    assert sum(used > 0.01 for _, used in times[8:]) < 8
    wire.close()


def test_a_poll_sleeps_for_the_disk_and_answers_what_it_gave():
    wire, durable = Wire(busy_poll_us=50), Watermark()
    wire.reactor.attach_watermark(durable)
    token, peer = wire.connect()
    wire.reactor.hold(token, b"done", 10, 5_000, b"late")
    began, used = time.monotonic(), time.thread_time()
    for _ in range(20):
        assert not wire.reactor.poll(0)
    assert time.monotonic() - began > 0.02
    assert time.thread_time() - used < 0.01
    durable.advance(10)
    assert wire.reactor.poll(0)
    assert peer.recv(100) == b"done"
    assert not wire.reactor.poll(0)
    wire.close()


def test_what_peers_send_ends_the_sleep_for_the_disk():
    wire = Wire(busy_poll_us=50)
    wire.reactor.attach_watermark(Watermark())
    token, peer = wire.connect()
    wire.reactor.hold(token, b"done", 10, 5_000, b"late")
    peer.sendall(frame())
    assert wire.reactor.poll(0)
    assert wire.reactor.has_events
    assert wire.reactor.held.count == 1
    wire.close()
