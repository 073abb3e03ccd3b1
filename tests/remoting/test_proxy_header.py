"""PROXY headers: both versions, in pieces, and broken ones."""

import struct

import pytest

from rmq.core.errors import RemoteProtocolError
from rmq.remoting.proxy_header import V2_START, may_begin, parse

V1 = b"PROXY TCP4 10.1.2.3 10.0.0.1 40001 10911\r\n"
V2 = V2_START + struct.pack(
    ">BBH4s4sHH", 0x21, 0x11, 12, b"\n\1\2\3", b"\n\0\0\1", 40_001, 10_911
)
V2_LOCAL = V2_START + struct.pack(">BBH", 0x20, 0, 0)


@pytest.mark.parametrize("header", [V1, V2])
def test_each_beginning_waits_and_the_whole_is_read(header):
    for size in range(1, len(header)):
        assert may_begin(header[:size])
        assert parse(header[:size]) is None
    assert parse(header + b"rest") == (len(header), ("10.1.2.3", 40_001))


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", V2_LOCAL])
def test_a_header_may_name_nobody(header):
    assert parse(header + b"rest") == (len(header), None)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"PROXY TCP4 nowhere 10.0.0.1 1 2\r\n", "names no address"),
        (b"PROXY TCP4 10.1.2.3 10.0.0.1 x 2\r\n", "names no address"),
        (b"PROXY TCP4 10.1.2.3 10.0.0.1 65536 2\r\n", "names no address"),
        (b"PROXY TCP4 10.1.2.3 10.0.0.1 -1 2\r\n", "names no address"),
        (b"PROXY " + b"x" * 200, "does not end"),
        (V2_START + struct.pack(">BBH", 0x11, 0x11, 12), "version 1"),
        (V2_START + struct.pack(">BBH", 0x21, 0x11, 9_999), "10015 bytes"),
        (V2_START + struct.pack(">BBHI", 0x21, 0x11, 4, 0), "4 bytes of addresses"),
        (b"\0\0\0\x20", "begins no PROXY header"),
    ],
)
def test_a_broken_header_is_refused_with_its_reason(data, said):
    with pytest.raises(RemoteProtocolError, match=said):
        parse(data)
