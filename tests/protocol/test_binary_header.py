import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import LocalProtocolError, RemoteProtocolError
from rmq.protocol.binary_header import decode_binary_header, encode_binary_header
from rmq.protocol.codes import RequestCode, SerializeType
from rmq.protocol.command import Command


def pair(name, value):
    return struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value


def header(pairs=b"", remark=b"", code=10):
    fixed = struct.pack(">hbhii", code, 0, 513, 7, 0)
    sizes = struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(pairs))
    return fixed + sizes + pairs


def read(data):
    return decode_binary_header(data, b"")


def command(**fields):
    return Command(serialize_type=SerializeType.ROCKETMQ, **fields)


def test_layout():
    written = encode_binary_header(
        command(code=10, ext_fields={"k": "value"}, remark="r", opaque=7,
                language="JAVA", version=513)
    )  # fmt: skip
    assert written == header(pair(b"k", b"value"), b"r")


def test_names_and_values_that_are_empty_do_not_exist():
    data = header(pair(b"", b"v") + pair(b"k", b"") + pair(b"a", b"1"))
    assert read(data).ext_fields == {"a": "1"}


def test_the_later_of_two_pairs_counts():
    assert read(header(pair(b"k", b"1") + pair(b"k", b"2"))).ext_fields == {"k": "2"}
    assert read(header(pair(b"k", b"1") + pair(b"k", b""))).ext_fields == {}


def test_an_empty_remark_does_not_exist():
    assert read(header()).remark is None


def test_negative_codes_survive():
    assert read(encode_binary_header(command(code=-1000))).code == -1000


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, 32_768, -32_769])
def test_codes_that_do_not_fit_are_not_written(code):
    with pytest.raises(LocalProtocolError, match=str(int(code))):
        encode_binary_header(command(code=code))


def test_names_that_do_not_fit_are_not_written():
    with pytest.raises(LocalProtocolError, match="40000 bytes"):
        encode_binary_header(command(code=1, ext_fields={"k" * 40_000: "v"}))


def test_languages():
    for language, number in [("PYTHON", 3), (9, 9), ("KLINGON", 7), (None, 7)]:
        written = encode_binary_header(command(code=1, language=language))
        assert read(written).language == number


@pytest.mark.parametrize("size", [-1, 100, 2**31 - 1])
@pytest.mark.parametrize("offset", [13, 17])
def test_sizes_that_lie(offset, size):
    data = bytearray(header())
    data[offset : offset + 4] = struct.pack(">i", size)
    with pytest.raises(RemoteProtocolError):
        read(bytes(data))


def test_a_pair_longer_than_the_pairs():
    data = header(pair(b"k", b"value")[:-1])
    with pytest.raises(RemoteProtocolError, match="announces"):
        read(data)


def test_bytes_that_are_no_text():
    with pytest.raises(RemoteProtocolError):
        read(header(pair(b"k", b"\xff")))


@given(st.binary(max_size=80))
def test_noise(noise):
    with contextlib.suppress(RemoteProtocolError):
        read(noise)


@given(st.binary(max_size=60))
def test_noise_where_pairs_should_be(noise):
    try:
        fields = read(header(noise)).ext_fields
    except RemoteProtocolError:
        pass
    else:
        assert all(name and value for name, value in fields.items())
