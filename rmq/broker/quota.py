"""Quota: how much of a table is in use, in total and by each peer.

A peer is a network address; entries of the broker itself or an admin tool have no peer.
No peer may have more than what is still free: one alone gets at most half of a table,
and there is always room for the next one.
"""

from collections import Counter

from rmq.errors import RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.remoting.connection import Connection


class Quota:
    """A limit, and how much of it each peer has."""

    def __init__(self, limit: int, what: str, advice: str) -> None:
        """Set the names for refusals: `what` is counted, `advice` for the reader."""
        self.limit = limit
        self.taken = 0
        self._what = what
        self._advice = advice
        self._of_peer: Counter[str] = Counter()

    def check(self, peer: str = "", count: int = 1) -> None:
        """RequestRejected if there is no room for `count` more, or for this peer."""
        left = self.limit - self.taken
        if count > left:
            raise self._refusal(f"this broker has {self.taken} of {self.limit}")
        if peer and self._of_peer[peer] + count > left:
            raise self._refusal(
                f"{peer} has {self._of_peer[peer]} and this broker {self.taken} of "
                f"{self.limit}"
            )

    def _refusal(self, finding: str) -> RequestRejected:
        return RequestRejected(
            ResponseCode.SYSTEM_ERROR, f"{finding} {self._what}: {self._advice}"
        )

    def take(self, peer: str = "", count: int = 1) -> None:
        """Count added entries; RequestRejected if there is no room for them."""
        self.check(peer, count)
        self.add(peer, count)

    def give_back(self, peer: str = "", count: int = 1) -> None:
        """Count removed entries; `peer` is the one that added them."""
        self.add(peer, -count)

    def add(self, peer: str, count: int) -> None:
        """Count a change without a check: it was checked before, or loaded."""
        self.taken += count
        assert self.taken >= 0, f"{self._what}: more was removed than added"
        if peer:
            self._of_peer[peer] += count
            assert self._of_peer[peer] >= 0, f"{self._what}: not taken by {peer}"
            if not self._of_peer[peer]:
                del self._of_peer[peer]


class NamedQuota(Quota):
    """A quota whose entries have names; it knows which peer created each of them."""

    def __init__(self, limit: int, what: str, advice: str) -> None:
        super().__init__(limit, what, advice)
        self._made_by: dict[str, str] = {}

    def enter(self, name: str, peer: str = "") -> None:
        """Count a new entry; RequestRejected if there is no room for it."""
        self.take(peer)
        if peer:
            self._made_by[name] = peer

    def leave(self, name: str) -> None:
        """Count a removed entry."""
        self.give_back(self._made_by.pop(name, ""))

    def maker(self, name: str) -> str:
        """Return the peer that created an entry since the start, else empty."""
        return self._made_by.get(name, "")


def host_of(address: str) -> str:
    """Return the host of `host:port`; empty for a text that is no address."""
    return address.rpartition(":")[0]


def peer_of(connection: Connection) -> str:
    """Return the address of a connection's peer, without the port."""
    return host_of(connection.remote_address)
