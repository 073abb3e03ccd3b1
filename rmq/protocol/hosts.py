"""Hosts as a record stores them: 4 or 16 bytes of IP address and an i32 port."""

import socket
import struct
from contextlib import suppress
from typing import Final

from rmq.core.errors import LocalProtocolError

_PORT: Final = struct.Struct(">i")


def host_bytes(host: str, port: int) -> bytes:
    """Pack an IP address and a port as a record stores them: 8 or 20 bytes."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.inet_pton(family, host.partition("%")[0]) + _PORT.pack(port)
    except (OSError, struct.error) as error:
        raise LocalProtocolError(f"{host!r} port {port} is no address") from error


def host_text(packed: bytes) -> str:
    """Render a packed host as `ip:port`; the port follows the last colon."""
    if len(packed) not in (8, 20):
        raise LocalProtocolError(f"a packed host has 8 or 20 bytes, not {len(packed)}")
    family = socket.AF_INET if len(packed) == 8 else socket.AF_INET6
    (port,) = _PORT.unpack_from(packed, len(packed) - _PORT.size)
    return f"{socket.inet_ntop(family, packed[: -_PORT.size])}:{port}"


def network_of(host: str) -> str:
    """Return the network that counts as one peer: an IPv4 address, or a /64 of IPv6.

    A machine may use every address of its /64. Loopback, and a text that is no address,
    count as they are.
    """
    if ":" not in host or host == "::1":
        return host
    with suppress(OSError):
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        return socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8)) + "/64"
    return host
