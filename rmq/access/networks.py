"""Networks that a key lists, and whether hosts are within them."""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from rmq.config.option import shorten_text
from rmq.core.errors import BadValue

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOOPBACK: Final[tuple[Network, ...]] = (
    ipaddress.IPv4Network("127.0.0.0/8"),
    ipaddress.IPv6Network("::1/128"),
)
ADDRESSES: Final = 256
"""Number of parsed addresses in the cache: parsing costs as much as all other steps of
a check.
"""


def parse_networks(key: str, text: str) -> tuple[Network, ...]:
    """Parse the addresses and networks of a key; commas separate them."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    try:
        return tuple(ipaddress.ip_network(word, strict=False) for word in words)
    except ValueError as error:
        raise BadValue(
            key,
            shorten_text(text),
            f"{error}; write addresses and networks, for example 10.0.0.7,10.1.0.0/16",
        ) from error


def are_within(hosts: Iterable[str], allowed: tuple[Network, ...]) -> bool:
    """Return whether each of the hosts is in one of the networks."""
    return all(any(_is_within(host, network) for network in allowed) for host in hosts)


def _is_within(host: str, network: Network) -> bool:
    address = _parse_address(host)
    return address is not None and address in network


@lru_cache(ADDRESSES)
def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an address, without its zone; None for another text."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
