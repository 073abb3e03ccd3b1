"""The bytes between master and replica, in any pieces."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.cluster.wire import (
    FRAME_LIMIT,
    FrameReader,
    ReportReader,
    encode_head,
    encode_report,
)
from rmq.core.errors import RemoteProtocolError

OFFSETS = st.integers(0, 2**63 - 1)


def pieces_of(data, cuts):
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


def test_a_report_is_the_end_of_a_log():
    assert encode_report(0x0102030405060708) == bytes(range(1, 9))


def test_a_head_is_an_offset_and_a_size():
    assert encode_head(0x0102030405060708, 0x090A0B0C) == bytes(range(1, 13))


@given(offsets=st.lists(OFFSETS), cuts=st.lists(st.integers(0, 1000)))
def test_reports_come_in_any_pieces(offsets, cuts):
    reader, found = ReportReader(), []
    for piece in pieces_of(b"".join(map(encode_report, offsets)), cuts):
        found += reader.feed(piece)
    assert found == offsets


def test_a_negative_report_is_none():
    with pytest.raises(RemoteProtocolError, match="-5"):
        ReportReader().feed(encode_report(-5))


@given(
    frames=st.lists(st.tuples(st.integers(0, 2**62), st.binary(max_size=50))),
    cuts=st.lists(st.integers(0, 1000)),
)
def test_frames_come_in_any_pieces(frames, cuts):
    data = b"".join(encode_head(at, len(body)) + body for at, body in frames)
    reader, found = FrameReader(), []
    for piece in pieces_of(data, cuts):
        for offset, part in reader.feed(memoryview(piece)):
            if part and found and found[-1][1] and sum(_end(found[-1])) == offset:
                found[-1] = found[-1][0], found[-1][1] + bytes(part)
            else:
                found.append((offset, bytes(part)))
    assert joined(found) == joined(frames)


def _end(piece):
    return piece[0], len(piece[1])


def joined(pieces):
    """Merge pieces that continue each other, as a log does."""
    merged = []
    for offset, body in pieces:
        if body and merged and merged[-1][1] and sum(_end(merged[-1])) == offset:
            merged[-1] = merged[-1][0], merged[-1][1] + body
        else:
            merged.append((offset, body))
    return merged


@pytest.mark.parametrize(
    ("offset", "size"), [(0, -1), (0, FRAME_LIMIT + 1), (-1, 5), (-(2**63), -(2**31))]
)
def test_a_frame_that_cannot_be_is_refused(offset, size):
    with pytest.raises(RemoteProtocolError, match=str(size)):
        FrameReader().feed(memoryview(encode_head(offset, size)))
