"""Bytes through a reactor: what is a frame, in which order, how much is kept."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.reactor.connections import EventKind
from rmq.protocol.frames import FrameDecoder, decode
from tests.fastpath.wire import Wire, frame, tiny

BUFFER_START = 16 * 1024
RECEIVE_BYTES = 256 * 1024


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
        (struct.pack(">iI", 2 << 20, (1 << 20) + 1), EventKind.HEADER_TOO_LARGE),
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
    wire.reactor.connections.close(token)
    wire.reactor.flush()
    assert peer.recv(100) == b"answer"


def test_an_idle_connection_holds_no_buffer(wire):
    token, peer = wire.connect()
    peer.sendall(frame(60_000))
    assert len(wire.take()) == 1
    wire.reactor.send(token, bytes(60_000))
    peer.recv(1 << 20)
    wire.take()
    assert wire.reactor.statistics().buffer_bytes == 0


def test_frames_sent_before_the_end_are_all_handed_over(wire):
    count = 15_000
    _, peer = wire.connect()
    peer.sendall(tiny(7) * count)
    peer.close()
    taken = wire.take()
    assert [kind for kind, _, _ in taken[-1:]] == [EventKind.PEER_CLOSED]
    assert len(taken) == count + 1
