"""The PROXY protocol header that a load balancer puts before a connection's bytes.

Version 1: `PROXY TCP4 source destination sourceport destinationport CRLF`, at most 107
bytes.  Version 2: 12 bytes of signature, u8 version and command, u8 family, u16 size,
then addresses (HAProxy's proxy-protocol.txt, sections 2.1 and 2.2).
"""

import ipaddress
import struct
from typing import NamedTuple

from rmq.core.errors import RemoteProtocolError

V1_START = b"PROXY "
V2_START = b"\r\n\r\n\x00\r\nQUIT\n"
V1_LIMIT = 107
V2_LIMIT = 16 + 536
PEEK_SIZE = V2_LIMIT
MAX_PORT = 65_535

_V2_HEAD = struct.Struct(">12sBBH")
_PORTS = struct.Struct(">HH")
_ADDRESS_SIZES = {0x11: 4, 0x21: 16}


class ProxyHeader(NamedTuple):
    """Size of the header, and the client's address if it contains one."""

    size: int
    source: tuple[str, int] | None


def may_begin(data: bytes) -> bool:
    """Return whether these first bytes could begin a header."""
    return any(
        start.startswith(data[: len(start)]) for start in (V1_START, V2_START) if data
    )


def parse(data: bytes) -> ProxyHeader | None:
    """Read a header; None if more bytes are needed."""
    if data.startswith(V1_START):
        return _parse_v1(data)
    if data.startswith(V2_START):
        return _parse_v2(data)
    if may_begin(data) and len(data) < len(V2_START):
        return None
    raise RemoteProtocolError(f"{data[:16]!r} begins no PROXY header")


def _parse_v1(data: bytes) -> ProxyHeader | None:
    line, end, _ = data[:V1_LIMIT].partition(b"\r\n")
    if not end:
        if len(data) >= V1_LIMIT:
            raise RemoteProtocolError("a PROXY line does not end")
        return None
    words = line.decode("ascii", "replace").split(" ")
    size = len(line) + 2
    if words[1:2] == ["UNKNOWN"]:
        return ProxyHeader(size, None)
    try:
        _, _, source, _, port, _ = words
        # A zone has a meaning on the balancer's machine only, and may be any text.
        address = ipaddress.ip_address(source.partition("%")[0])
        return ProxyHeader(size, (str(address), _parse_port(port)))
    except ValueError:
        raise RemoteProtocolError(f"the PROXY line {line!r} names no address") from None


def _parse_port(text: str) -> int:
    """Read a port; a port that does not fit into a record would end the whole
    server.
    """
    if not 0 <= int(text) <= MAX_PORT:
        raise ValueError(text)
    return int(text)


def _parse_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < _V2_HEAD.size:
        return None
    _, command, family, size = _V2_HEAD.unpack_from(data)
    total = _V2_HEAD.size + size
    if command >> 4 != 2 or total > V2_LIMIT:
        raise RemoteProtocolError(
            f"a PROXY header of version {command >> 4} and {total} bytes"
        )
    if len(data) < total:
        return None
    width = _ADDRESS_SIZES.get(family)
    if command & 0xF != 1 or width is None:
        return ProxyHeader(total, None)
    if size < 2 * width + _PORTS.size:
        raise RemoteProtocolError(f"a PROXY header with {size} bytes of addresses")
    start = _V2_HEAD.size
    source = ipaddress.ip_address(data[start : start + width])
    port, _ = _PORTS.unpack_from(data, start + 2 * width)
    return ProxyHeader(total, (str(source), port))
