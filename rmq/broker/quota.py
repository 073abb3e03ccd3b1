"""Quota: the used size of a table, in total and for each peer.

A peer is an IPv4 address or a /64 of IPv6, see `network_of`.  Entries of the broker
itself or of an admin tool have no peer.
A peer may have as many entries as are still free. So a single peer gets at most half of
a table, and there is always room for the next peer. A peer that has added ADDED_AT_ONCE
entries in a `NamedQuota` with a clock may add ADDED_PER_S per second.
"""

from collections import Counter

from rmq.core.address import host_of
from rmq.core.clock import Clock
from rmq.core.errors import RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.hosts import network_of
from rmq.remoting.connection import Connection

ADDED_AT_ONCE = 5_000
"""Number of entries that a peer may add without a pause: more than any client has
groups.
"""

ADDED_PER_S = 50
"""Number of further entries per second that a peer may add: they need a few
milliseconds of each second.
"""

MAX_ADDERS = 10_000
"""Maximum number of peers with a recorded pace; one more peer resets all paces."""


class Quota:
    """A limit, and the share of each peer."""

    def __init__(self, limit: int, what: str, advice: str) -> None:
        """A refusal names the counted things, `what`, and ends with `advice`."""
        self.limit = limit
        self.used = 0
        self._what = what
        self._advice = advice
        self._of_peer: Counter[str] = Counter()

    def has_room(self, peer: str = "", count: int = 1) -> bool:
        """Return whether there is room for `count` more of this peer."""
        has = self._of_peer[peer] if peer else 0
        return has + count <= self.limit - self.used

    def check_room(self, peer: str = "", count: int = 1) -> None:
        """RequestRejected if there is no room for `count` more of this peer."""
        if self.has_room(peer, count):
            return
        left = self.limit - self.used
        if count > left:
            raise self._limit_error(f"this broker has {self.used} of {self.limit}")
        raise self._limit_error(
            f"{peer} has {self._of_peer[peer]} and this broker {self.used} of "
            f"{self.limit}"
        )

    def _limit_error(self, finding: str) -> RequestRejected:
        return RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"{finding} {self._what}: {self._advice}"
        )

    def reserve(self, peer: str = "", count: int = 1) -> None:
        """Count added entries; RequestRejected if there is no room for them."""
        self.check_room(peer, count)
        self.add(peer, count)

    def give_back(self, peer: str = "", count: int = 1) -> None:
        """Count removed entries; `peer` had added them."""
        self.add(peer, -count)

    def add(self, peer: str, count: int) -> None:
        """Count entries that were checked or loaded; negative: removed entries."""
        self.used += count
        assert self.used >= 0, f"{self._what}: more was removed than added"
        if peer:
            self._of_peer[peer] += count
            assert self._of_peer[peer] >= 0, f"{self._what}: not taken by {peer}"
            if not self._of_peer[peer]:
                del self._of_peer[peer]


class _Pace:
    """A token bucket: the number of entries that a peer may add now."""

    __slots__ = ("_left", "_seen_ms")

    def __init__(self, left: float, now_ms: int) -> None:
        self._left = left
        self._seen_ms = now_ms

    def allow_entry(self, now_ms: int) -> bool:
        """Take a token; False if there is less than one token."""
        since_s = max(0, now_ms - self._seen_ms) / 1000
        self._left = min(ADDED_AT_ONCE, self._left + since_s * ADDED_PER_S)
        self._seen_ms = now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True


class NamedQuota(Quota):
    """A quota of named entries, with the peer that added each entry."""

    def __init__(
        self, limit: int, what: str, advice: str, clock: Clock | None = None
    ) -> None:
        """`clock`: limit also the rate at which each peer adds entries."""
        super().__init__(limit, what, advice)
        self._creators: dict[str, str] = {}
        self._clock = clock
        self._paces: dict[str, _Pace] = {}

    def add_entry(self, name: str, peer: str = "") -> None:
        """Count a new entry; RequestRejected if there is no room for it."""
        self.check_room(peer)
        if peer:
            if self._clock is not None:
                self._check_pace(peer, self._clock.steady_ms())
            self._creators[name] = peer
        self.add(peer, 1)

    def _check_pace(self, peer: str, now_ms: int) -> None:
        """RequestRejected if a peer adds entries too fast."""
        pace = self._paces.get(peer)
        if pace is None:
            if len(self._paces) >= MAX_ADDERS:
                self._paces.clear()
            pace = self._paces[peer] = _Pace(ADDED_AT_ONCE, now_ms)
        if not pace.allow_entry(now_ms):
            raise RequestRejected(
                ResponseCode.SYSTEM_BUSY,
                f"{peer} added {ADDED_AT_ONCE} {self._what}; now it may add "
                f"{ADDED_PER_S} per second: try again later",
            )

    def remove_entry(self, name: str) -> None:
        """Count a removed entry."""
        self.give_back(self._creators.pop(name, ""))

    def creator_of(self, name: str) -> str:
        """Return the peer that added an entry; empty for an entry from a file."""
        return self._creators.get(name, "")


def peer_at(address: str) -> str:
    """Return the peer of "host:port"; empty for another text."""
    return network_of(host_of(address))


def peer_of(connection: Connection) -> str:
    """Return the peer of a connection."""
    return network_of(connection.source_host)
