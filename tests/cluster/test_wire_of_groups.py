"""The dialect with epochs: bytes of two Java 5.5.0 brokers, and any cuts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.cluster.wire import (
    AckReader,
    Epoch,
    Handshake,
    Lineage,
    LineageReader,
    PartReader,
    encode_ack,
    encode_handshake,
    encode_lineage,
    encode_part_head,
)
from rmq.core.errors import RemoteProtocolError

FROM_SLAVE = bytes.fromhex(
    "00000001000000000000000000000001"
    "000000020000000000000b04"
    "000000020000000000000eb0"
)  # fmt: skip
"""Of a Java slave that had been the master: handshake, what it kept, what it got."""

LINEAGE = bytes.fromhex(
    "00000001000000180000000000000eb000000002"
    "000000010000000000000000000000020000000000000b04"
)
"""What its new master answers: two epochs."""

HEARTBEAT = bytes.fromhex(
    "00000002000000000000000000000b04000000020000000000000b040000000000000eb0"
)
PART_HEAD = bytes.fromhex(
    "00000002000003ac0000000000000b04000000020000000000000b040000000000000eb0"
)
SECOND = Epoch(2, 0xB04)


def test_a_java_slave_is_understood():
    reader = AckReader()
    assert reader.feed(FROM_SLAVE) == [Handshake(1), 0xB04, 0xEB0]
    assert reader.handshake == Handshake(1)
    assert encode_handshake(Handshake(1)) + encode_ack(0xB04) + encode_ack(0xEB0) == (
        FROM_SLAVE
    )


def test_a_java_master_is_understood():
    lineage = Lineage(0xEB0, (Epoch(1, 0), SECOND))
    reader = LineageReader()
    found = reader.feed(LINEAGE[:30])
    assert found is None
    assert reader.feed(LINEAGE[30:] + HEARTBEAT) == lineage
    assert reader.rest == HEARTBEAT
    assert encode_lineage(lineage) == LINEAGE
    [part] = PartReader().feed(memoryview(HEARTBEAT))
    assert (part.offset, bytes(part.data)) == (0xB04, b"")
    assert (part.epoch, part.confirmed) == (SECOND, 0xEB0)
    assert encode_part_head(0xB04, 0, SECOND, 0xEB0) == HEARTBEAT
    assert encode_part_head(0xB04, 0x3AC, SECOND, 0xEB0) == PART_HEAD


def test_all_of_a_handshake():
    handshake = Handshake(3, wants_newest_file=True, is_learner=True)
    text = encode_handshake(handshake)
    assert text.hex() == "00000001000100010000000000000003"
    assert AckReader().feed(text + text) == [handshake, handshake]


def test_a_master_without_epochs():
    text = encode_lineage(Lineage(0, ()))
    assert text.hex() == "00000001000000000000000000000000ffffffff"
    assert LineageReader().feed(text) == Lineage(0, ())


def test_only_the_newest_epochs_fit():
    epochs = tuple(Epoch(number, number) for number in range(1, 1_101))
    found = LineageReader().feed(encode_lineage(Lineage(5_000, epochs)))
    assert found.epochs == epochs[-1_000:]


@given(st.integers(1, 40))
def test_any_pieces_from_a_slave(size):
    reader = AckReader()
    found = []
    for at in range(0, len(FROM_SLAVE), size):
        found += reader.feed(FROM_SLAVE[at : at + size])
    assert found == [Handshake(1), 0xB04, 0xEB0]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=8), st.integers(1, 200))
def test_any_pieces_from_a_master(sizes, cut):
    data, offset, whole = b"", 7, b""
    for size in sizes:
        body = bytes(i % 251 for i in range(size))
        data += encode_part_head(offset, size, SECOND, offset) + body
        whole += body
        offset += size
    reader = PartReader()
    parts = []
    for at in range(0, len(data), cut):
        parts += reader.feed(memoryview(data[at : at + cut]))
    assert b"".join(part.data for part in parts) == whole
    expected = 7
    for part in parts:
        assert part.offset == expected
        assert part.epoch == SECOND
        expected += len(part.data)
    assert sum(not len(part.data) for part in parts) == sizes.count(0)


@pytest.mark.parametrize(
    "data",
    [
        encode_ack(5),  # without a handshake
        encode_handshake(Handshake(1)) + encode_ack(-5),
        encode_handshake(Handshake(0)),
        encode_handshake(Handshake(1)) + encode_handshake(Handshake(2)),
        bytes(16),
        (1 << 33).to_bytes(8, "big") * 2,  # of the first dialect
    ],
)
def test_what_no_slave_sends(data):
    with pytest.raises(RemoteProtocolError):
        AckReader().feed(data)


@pytest.mark.parametrize(
    "data",
    [
        LINEAGE[:4] + (25).to_bytes(4, "big") + LINEAGE[8:],
        LINEAGE[:4] + (12_012).to_bytes(4, "big") + LINEAGE[8:],
        LINEAGE[:16] + (3).to_bytes(4, "big") + LINEAGE[20:],
        b"\0\0\0\2" + LINEAGE[4:],
        encode_lineage(Lineage(9, (Epoch(2, 0), Epoch(1, 5)))),
        encode_lineage(Lineage(9, (Epoch(1, 5), Epoch(2, 5)))),
        encode_lineage(Lineage(-1, ())),
    ],
)
def test_what_no_master_answers(data):
    with pytest.raises(RemoteProtocolError):
        LineageReader().feed(data)


@pytest.mark.parametrize(
    "head",
    [
        encode_part_head(0, -1, SECOND, 0),
        encode_part_head(0, (16 << 20) + 1, SECOND, 0),
        encode_part_head(-1, 1, SECOND, 0),
        encode_part_head(0, 1, Epoch(-1, 0), 0),
        b"\0\0\0\7" + PART_HEAD[4:],
    ],
)
def test_what_no_master_sends(head):
    with pytest.raises(RemoteProtocolError):
        PartReader().feed(memoryview(head))


def test_a_java_master_with_an_empty_log_says_that_it_is_there():
    [part] = PartReader().feed(memoryview(encode_part_head(-1, 0, Epoch(1, 0), 0)))
    assert not part.data
