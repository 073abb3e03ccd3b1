import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.core.errors import LocalProtocolError, RemoteProtocolError
from rmq.protocol.codes import SerializeType
from rmq.protocol.command import Command
from rmq.protocol.frames import MAX_FRAME_SIZE, FrameDecoder, decode, encode

i32 = st.integers(-(2**31), 2**31 - 1)
i16 = st.integers(-(2**15), 2**15 - 1)
names = st.text(min_size=1, max_size=10)
json_commands = st.builds(
    Command,
    code=i32,
    ext_fields=st.dictionaries(names, st.text(max_size=20), max_size=5),
    body=st.binary(max_size=100),
    remark=st.none() | st.text(max_size=20),
    opaque=i32,
    flag=i32,
    language=st.none() | st.sampled_from(["JAVA", "PYTHON", "GO"]) | st.integers(0, 13),
    version=i32,
    serialize_type=st.just(SerializeType.JSON),
)
binary_commands = st.builds(
    Command,
    code=i16,
    ext_fields=st.dictionaries(names, names, max_size=5),
    body=st.binary(max_size=100),
    remark=st.none() | names,
    opaque=i32,
    flag=i32,
    language=st.integers(-128, 127),
    version=i16,
    serialize_type=st.just(SerializeType.ROCKETMQ),
)
commands = json_commands | binary_commands


def model_decode_stream(stream):
    """Cut whole frames off the front, the slow and obvious way."""
    frames = []
    while len(stream) >= 4:
        (length,) = struct.unpack(">i", stream[:4])
        if len(stream) < 4 + length:
            break
        frames.append(decode(stream[: 4 + length]))
        stream = stream[4 + length :]
    return frames


@given(commands)
def test_round_trip(command):
    assert decode(encode(command)) == command


def buffered_size(decoder):
    return len(decoder._buffer)


def test_layout():
    frame = encode(Command(10, body=b"xyz", language="JAVA", version=513))
    header = (
        b'{"code":10,"flag":0,"language":"JAVA","opaque":0,'
        b'"serializeTypeCurrentRPC":"JSON","version":513}'
    )
    assert (
        frame == struct.pack(">II", 4 + len(header) + 3, len(header)) + header + b"xyz"
    )


@settings(max_examples=30)
@given(st.lists(commands, max_size=4), st.data())
def test_a_stream_may_be_cut_anywhere(sent, data):
    stream = b"".join(encode(command) for command in sent)
    stream += stream[: data.draw(st.integers(0, max(0, len(stream) - 1)))][:7]
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    decoder = FrameDecoder()
    received, start = [], 0
    for cut in [*sorted(cuts), len(stream)]:
        received += decoder.feed(stream[start:cut])
        start = cut
    assert received == sent == model_decode_stream(stream)


def test_byte_by_byte():
    sent = [Command(n, body=bytes(n), version=1) for n in range(3)]
    decoder = FrameDecoder()
    received = []
    for byte in b"".join(map(encode, sent)):
        received += decoder.feed(bytes([byte]))
    assert received == sent
    assert buffered_size(decoder) == 0


@given(st.binary(max_size=200))
def test_noise_is_refused_and_nothing_else(noise):
    decoder = FrameDecoder(max_frame_size=150)
    try:
        decoder.feed(noise)
    except RemoteProtocolError:
        assert buffered_size(decoder) == 0
    else:
        assert buffered_size(decoder) <= 154


@given(commands, st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_frame_is_read_or_refused(command, position, value):
    frame = bytearray(encode(command))
    frame[position % len(frame)] = value
    with contextlib.suppress(RemoteProtocolError):
        decode(bytes(frame))


@given(commands, st.integers(0, 10_000))
def test_a_frame_cut_short_is_refused(command, size):
    frame = encode(command)
    with pytest.raises(RemoteProtocolError):
        decode(frame[: size % len(frame)])


@pytest.mark.parametrize("length", [-1, 0, 3, MAX_FRAME_SIZE + 1, 2**31 - 1, -(2**31)])
def test_lengths_are_checked_before_anything_arrives(length):
    with pytest.raises(RemoteProtocolError, match=str(length)):
        FrameDecoder().feed(struct.pack(">i", length))


def test_a_header_longer_than_its_frame():
    with pytest.raises(RemoteProtocolError, match="header"):
        decode(struct.pack(">iI", 6, 3) + b"{}")


def test_an_unknown_serialisation():
    with pytest.raises(RemoteProtocolError, match="serialize type 9"):
        decode(struct.pack(">iI", 6, 9 << 24 | 2) + b"{}")


def test_a_broken_stream_stays_broken():
    decoder = FrameDecoder()
    with pytest.raises(RemoteProtocolError):
        decoder.feed(b"GET / HTTP/1.1\r\n")
    with pytest.raises(RemoteProtocolError, match="had an invalid frame"):
        decoder.feed(encode(Command(10)))


def test_a_frame_of_the_largest_size():
    empty = encode(Command(10))
    command = Command(10, body=bytes(MAX_FRAME_SIZE + 4 - len(empty)))
    frame = encode(command)
    assert len(frame) == MAX_FRAME_SIZE + 4
    assert FrameDecoder().feed(frame) == [command]
    command.body += b"x"
    with pytest.raises(LocalProtocolError, match="command 10 takes"):
        encode(command)
