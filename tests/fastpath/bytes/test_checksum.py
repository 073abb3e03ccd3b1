import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.bytes.checksum import body_crc, crc32

PATTERN = bytes((i * 131 + i // 251) % 256 for i in range(5_100))


@pytest.mark.parametrize("tables_only", [False, True])
def test_every_length_up_to_5000_as_zlib(tables_only):
    for size in range(5_001):
        data = PATTERN[:size]
        assert crc32(data, tables_only=tables_only) == zlib.crc32(data), size


@pytest.mark.parametrize("tables_only", [False, True])
@pytest.mark.parametrize("size", [1, 15, 16, 63, 64, 65, 127, 129, 4_999])
def test_every_alignment_as_zlib(size, tables_only):
    view = memoryview(PATTERN)
    for start in range(64):
        part = view[start : start + size]
        assert crc32(part, tables_only=tables_only) == zlib.crc32(part), start


@given(data=st.binary(max_size=8_192))
def test_any_bytes_as_zlib(data):
    assert crc32(data) == crc32(data, tables_only=True) == zlib.crc32(data)


def test_large_data_without_the_gil_as_zlib():
    data = PATTERN * 40
    assert crc32(data) == zlib.crc32(data)


def test_body_crc_has_no_sign_bit():
    data = next(d for d in (bytes([i]) for i in range(256)) if zlib.crc32(d) >> 31)
    assert body_crc(data) == zlib.crc32(data) & 0x7FFFFFFF


def test_takes_any_contiguous_buffer_and_nothing_else():
    assert crc32(bytearray(b"abc")) == zlib.crc32(b"abc")
    with pytest.raises(TypeError):
        crc32("abc")
    with pytest.raises(TypeError):
        crc32(None)
