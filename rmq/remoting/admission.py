"""Admission: limits the number of connections, and evicts silent ones for new ones.

A connection has one descriptor. A *silent* connection has not sent a whole frame yet.
If there is no room, in total or for an address, the connection that has been silent
longest is evicted. So silent connections block no client. If there is no silent
connection, the new connection is refused. A connection that has sent a frame is never
evicted.

Active connections cannot use up all room either: no address gets more than half of the
free room. So one address gets half of all, and n addresses together get n/(n+1). An
IPv6 address counts as its /64, because a machine may use all of it. The addresses of
this machine have neither limit: a balancer without PROXY headers may run there.
"""

import logging
import resource
from collections.abc import Callable
from typing import NamedTuple

from rmq.core.logs import SparseLog, caused_by
from rmq.protocol.hosts import network_of
from rmq.remoting.loop_clock import now_ms

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

OWN_ADDRESSES = ("127.0.0.1", "::1")

SLOT_LIMIT = 1 << 20
"""Maximum number of connections that the reactor can number."""

SILENT_GRACE_MS = 1_000
"""Age below which a silent connection is evicted only if the server has no room at
all.
"""


class AdmissionStatistics(NamedTuple):
    """Connections that are open, and sums since the start."""

    connections: int
    limit: int
    evicted: int
    refused: int


class Admitted:
    """An accepted connection until its end; objects compare by identity.

    Shares are counted per `address`, see `network_of`.
    """

    __slots__ = ("address", "close", "since_ms", "token")

    def __init__(self, address: str, close: Callable[[], object]) -> None:
        self.address = network_of(address)
        self.close = close
        self.since_ms = 0
        self.token: int | None = None


class _Address:
    """The connections of one address; silent ones in the order of their accept."""

    __slots__ = ("count", "silent")

    def __init__(self) -> None:
        self.count = 0
        self.silent: dict[Admitted, None] = {}


class Admission:
    """Every accepted connection of a server. Belongs to the trio thread."""

    def __init__(
        self,
        has_spoken: Callable[[int], bool],
        *,
        max_connections: int = 0,
        max_per_address: int = 0,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        """`has_spoken(token)` returns whether a complete frame has arrived. A limit of
        0 means the default limit.
        """
        self.limit = max_connections or default_limit()
        self.limit_per_address = max_per_address or max(1, self.limit // 2)
        self._has_spoken = has_spoken
        self._clock_ms = clock_ms
        self._admitted: set[Admitted] = set()
        self._addresses: dict[str, _Address] = {}
        self._silent: dict[Admitted, None] = {}
        self._evicted = self._refused = 0

    def admit(self, address: str, close: Callable[[], object]) -> Admitted | None:
        """Add a connection, which `close` ends; None if there is no room for it."""
        admitted = Admitted(address, close)
        if not (self._has_room_at(admitted) and self._has_room()):
            self._refused += 1
            return None
        self._enter(admitted)
        return admitted

    def remove_connection(self, admitted: Admitted) -> None:
        """Remove a connection that ended; a second call has no effect.

        `close` and the connection refer to each other. Without the reset, both would
        wait for a garbage collection, and a half handshake has 50 KiB.
        """
        if admitted in self._admitted:
            admitted.close = _close_nothing
            self._uncount_connection(admitted)

    def _uncount_connection(self, admitted: Admitted) -> None:
        self._admitted.remove(admitted)
        self._silent.pop(admitted, None)
        known = self._addresses[admitted.address]
        known.count -= 1
        known.silent.pop(admitted, None)
        if not known.count:
            del self._addresses[admitted.address]

    def rename(self, admitted: Admitted, address: str) -> bool:
        """Count a connection for the address in its PROXY header. If that address has
        no room, remove the connection and return False.
        """
        if admitted not in self._admitted:
            return False
        self._uncount_connection(admitted)
        admitted.address = network_of(address)
        if not self._has_room_at(admitted):
            self._refused += 1
            admitted.close = _close_nothing
            return False
        self._enter(admitted)
        return True

    def is_admitted(self, admitted: Admitted) -> bool:
        """Return whether a connection was neither removed nor evicted."""
        return admitted in self._admitted

    def evict(self) -> bool:
        """Close the connection that has been silent longest; False without one."""
        return self._evict_from(self._silent, "there are too many connections")

    def statistics(self) -> AdmissionStatistics:
        """Return the counters."""
        return AdmissionStatistics(
            len(self._admitted), self.limit, self._evicted, self._refused
        )

    def _has_room(self) -> bool:
        while len(self._admitted) >= self.limit:
            if not self.evict():
                return False
        return True

    def _has_room_at(self, admitted: Admitted) -> bool:
        known = self._addresses.get(admitted.address)
        if known is None or admitted.address in OWN_ADDRESSES:
            return True
        while known.count >= self.limit_per_address:
            if not self._evict_from(
                known.silent, "its address has too many connections"
            ):
                return False
        while (over := self._over_share(known)) > 0:
            if not (
                self._evict_from(
                    known.silent, "its address has used its share of connections"
                )
                or self._evict_stale(over)
            ):
                return False
        return True

    def _over_share(self, known: _Address) -> int:
        """Return the number of connections above the limit of an address, if it had one
        more.
        """
        free = self.limit - len(self._admitted)
        return known.count + 1 - free

    def _evict_stale(self, needed: int) -> bool:
        """Close the connection that has been silent longest, unless it is new. False if
        there are fewer silent connections than `needed`: to close them would make no
        room.
        """
        if needed > len(self._silent):
            return False
        oldest = next(iter(self._silent))
        before_ms = self._clock_ms() - SILENT_GRACE_MS
        return oldest.since_ms <= before_ms and self.evict()

    def _evict_from(self, silent: dict[Admitted, None], reason: str) -> bool:
        while silent:
            admitted = next(iter(silent))
            self._silent.pop(admitted, None)
            self._addresses[admitted.address].silent.pop(admitted, None)
            if admitted.token is not None and self._has_spoken(admitted.token):
                continue  # it has sent a frame since the last check
            logger.warning(
                "closing %s: the peer has sent no whole request, and %s",
                admitted.address,
                reason,
                extra=caused_by(admitted.address),
            )
            self._evicted += 1
            close = admitted.close
            self.remove_connection(admitted)
            close()
            return True
        return False

    def _enter(self, admitted: Admitted) -> None:
        admitted.since_ms = self._clock_ms()
        self._admitted.add(admitted)
        self._silent[admitted] = None
        known = self._addresses.setdefault(admitted.address, _Address())
        known.count += 1
        known.silent[admitted] = None


def _close_nothing() -> None:
    """Do nothing: this is `close` of a connection that has ended."""


def default_limit() -> int:
    """Return three quarters of the process's descriptors; files of the store need the
    rest.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return SLOT_LIMIT
    return max(1, min(hard * 3 // 4, SLOT_LIMIT))
