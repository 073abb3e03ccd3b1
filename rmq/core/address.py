"""Addresses of processes, written `host:port`.

Java writes the host of IPv6 without brackets and splits at the last colon, so both
forms are read. A broker serves its fast port and its HA port at fixed distances from
its main port, unless keys set them.

A source of addresses is one of:

* `host:port`: the address itself;
* `dns://host:port`: every address that DNS has for the host;
* `http://host/path` or `https://…`: an address server, whose page has addresses.
"""

import ipaddress
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from rmq.core.errors import ConfigError

FAST_PORT_DISTANCE: Final = 2
"""The fast port is the main port minus this."""

HA_PORT_DISTANCE: Final = 1
"""The HA port is the main port plus this."""

DNS: Final = "dns://"
PAGES: Final = ("http://", "https://")


class Address(NamedTuple):
    """A host without brackets and a port, as sockets take them."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Split `host:port` at the last colon; ValueError for any other text."""
        if not is_address(text):
            raise ValueError(f"{text!r} is not HOST:PORT")
        return cls(host_of(text), int(text.rpartition(":")[2]))

    def __str__(self) -> str:
        """Return `host:port`, with brackets around the host of IPv6."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else self.java_text

    @property
    def java_text(self) -> str:
        """The text as Java's processes write it: never with brackets."""
        return f"{self.host}:{self.port}"


def host_of(text: str) -> str:
    """Return the host of `host:port` without brackets; empty without a colon."""
    return text.rpartition(":")[0].strip("[]")


def is_address(text: str) -> bool:
    """Return whether the text is `host:port`."""
    return host_of(text) != "" and text.rpartition(":")[2].isdecimal()


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address of this host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_lookup(source: str) -> bool:
    """Return whether a source of addresses needs a lookup."""
    return source.startswith((DNS, *PAGES))


def check_source(source: str) -> None:
    """Raise ConfigError for a text that is no source of addresses."""
    if not source.startswith(PAGES):
        if not is_address(source.removeprefix(DNS)):
            raise ConfigError(f"{source!r} is not HOST:PORT")
        return
    try:
        parts = urlsplit(source)
        is_valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(f"{source!r} is not http://HOST:PORT/PATH")
