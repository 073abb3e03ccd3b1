"""The address that the broker advertises to clients, and the reason for it."""

import fcntl
import ipaddress
import socket
import struct
from typing import NamedTuple

from rmq.config.broker import BrokerConfig
from rmq.core.address import is_address
from rmq.core.errors import BadValue

_SIOCGIFADDR = 0x8915


class Advertised(NamedTuple):
    """An address, the reason for it, and whether a connection may get another one."""

    address: str
    reason: str
    is_guess: bool


def choose_address(config: BrokerConfig, port: int) -> Advertised:
    """Return the configured address, or the only address on which the broker listens,
    or a guess.

    The embedded name server may replace a guess by the address at which a client has
    reached this process.
    """
    if config.advertise:
        if not is_address(config.advertise):
            raise BadValue("rmq.advertise", config.advertise, "write host:port")
        return Advertised(config.advertise, "it was set with --advertise", False)
    if config.broker_ip1:
        return Advertised(f"{config.broker_ip1}:{port}", "brokerIP1 sets it", False)
    bound = config.bind_address
    if bound not in ("0.0.0.0", "::", ""):
        return Advertised(
            f"{bound}:{port}", f"the broker listens on {bound} only", False
        )
    host = _own_address()
    reason = "this machine's address; brokerIP1 changes it"
    return Advertised(f"{host}:{port}", reason, True)


def _own_address() -> str:
    """Return the first public IPv4 address or the last private one, as Java does."""
    private = "127.0.0.1"
    for _, name in socket.if_nameindex():
        address = _interface_address(name)
        if address is None or address.is_loopback:
            continue
        if not address.is_private:
            return str(address)
        private = str(address)
    return private


def _interface_address(name: str) -> ipaddress.IPv4Address | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", name.encode()[:15])
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
        except OSError:
            return None
    return ipaddress.IPv4Address(answer[20:24])
