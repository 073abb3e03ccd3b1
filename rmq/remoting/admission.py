"""Admission: how many connections there may be, and which one leaves for the next.

Limits count descriptors: a plain connection has one, one with TLS three, as it is
decrypted over a socket pair. A *silent* guest has not sent one whole frame yet. When
room is short, in all or for an address, the guest that has been silent longest leaves:
somebody who opens connections and says nothing keeps nobody out. Without a silent guest
the newcomer is refused. The limit of an address does not hold for loopback.
"""

import ipaddress
import logging
import resource
from collections.abc import Callable
from typing import NamedTuple

from rmq.logs import SparseLog, caused_by

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

SLOT_LIMIT = 1 << 20
"""Connections that the reactor can number."""

TLS_DESCRIPTORS = 2
"""Descriptors of a connection with TLS beyond its own."""


class AdmissionStatistics(NamedTuple):
    """Descriptors in use, and sums since the start."""

    descriptors: int
    limit: int
    evicted: int
    refused: int


class Guest:
    """One connection from its accept to its end; it compares by identity."""

    __slots__ = ("address", "close", "descriptors", "token")

    def __init__(self, address: str, close: Callable[[], object]) -> None:
        self.address = address
        self.close = close
        self.descriptors = 1
        self.token: int | None = None


class _Address:
    """What one address has; silent guests in the order of their coming."""

    __slots__ = ("descriptors", "silent")

    def __init__(self) -> None:
        self.descriptors = 0
        self.silent: dict[Guest, None] = {}


class Admission:
    """Every accepted connection of a server. Belongs to the trio thread."""

    def __init__(
        self,
        has_spoken: Callable[[int], bool],
        *,
        max_connections: int = 0,
        max_per_address: int = 0,
    ) -> None:
        """`has_spoken` tells of a token whether a whole frame came. 0: by default."""
        self.limit = max_connections or default_limit()
        self.limit_per_address = max_per_address or max(1, self.limit // 2)
        self._has_spoken = has_spoken
        self._guests: set[Guest] = set()
        self._addresses: dict[str, _Address] = {}
        self._silent: dict[Guest, None] = {}
        self._descriptors = self._evicted = self._refused = 0

    def admit(self, address: str, close: Callable[[], object]) -> Guest | None:
        """Take in a connection that `close` ends; None if there is no room for it."""
        guest = Guest(address, close)
        if not (self._has_room_at(guest) and self._has_room(1)):
            self._refused += 1
            return None
        self._guests.add(guest)
        self._silent[guest] = None
        self._descriptors += 1
        self._enter(guest)
        return guest

    def leave(self, guest: Guest) -> None:
        """Forget a connection that ended; it may be called again."""
        if guest not in self._guests:
            return
        self._guests.remove(guest)
        self._silent.pop(guest, None)
        self._descriptors -= guest.descriptors
        self._exit(guest)

    def rename(self, guest: Guest, address: str) -> bool:
        """Count a connection for the address that its PROXY header names."""
        self._exit(guest)
        guest.address = address
        has_room = self._has_room_at(guest)
        self._enter(guest)
        self._refused += not has_room
        return has_room

    def enlarge(self, guest: Guest, descriptors: int) -> bool:
        """Let a connection take more descriptors, if there is room for them."""
        if not self._has_room(descriptors) or guest not in self._guests:
            self._refused += 1
            return False
        guest.descriptors += descriptors
        self._descriptors += descriptors
        self._addresses[guest.address].descriptors += descriptors
        return True

    def evict(self) -> bool:
        """End the connection that has been silent longest; False without one."""
        return self._evict_from(self._silent, "room is short")

    def statistics(self) -> AdmissionStatistics:
        """Return a picture of the counters."""
        return AdmissionStatistics(
            self._descriptors, self.limit, self._evicted, self._refused
        )

    def _has_room(self, descriptors: int) -> bool:
        while self._descriptors + descriptors > self.limit:
            if not self.evict():
                return False
        return True

    def _has_room_at(self, guest: Guest) -> bool:
        known = self._addresses.get(guest.address)
        if known is None or _is_loopback(guest.address):
            return True
        while known.descriptors + guest.descriptors > self.limit_per_address:
            if not self._evict_from(known.silent, "its address has too many"):
                return False
        return True

    def _evict_from(self, silent: dict[Guest, None], reason: str) -> bool:
        while silent:
            guest = next(iter(silent))
            self._silent.pop(guest, None)
            self._addresses[guest.address].silent.pop(guest, None)
            if guest.token is not None and self._has_spoken(guest.token):
                continue  # it was not looked at since it spoke
            logger.warning(
                "closing %s: it has sent no whole request, and %s",
                guest.address,
                reason,
                extra=caused_by(guest.address),
            )
            self._evicted += 1
            self.leave(guest)
            guest.close()
            return True
        return False

    def _enter(self, guest: Guest) -> None:
        known = self._addresses.setdefault(guest.address, _Address())
        known.descriptors += guest.descriptors
        if guest in self._silent:
            known.silent[guest] = None

    def _exit(self, guest: Guest) -> None:
        known = self._addresses[guest.address]
        known.descriptors -= guest.descriptors
        known.silent.pop(guest, None)
        if not known.descriptors:
            del self._addresses[guest.address]


def default_limit() -> int:
    """Return three quarters of the descriptors: the rest is for the store's files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return SLOT_LIMIT
    return max(1, min(hard * 3 // 4, SLOT_LIMIT))


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
