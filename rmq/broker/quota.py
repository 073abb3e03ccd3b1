"""Quota: how much of a table is taken, in all and by each peer.

A peer is an address of the network; what the broker itself or an admin tool adds has
none.  No peer may have more than is left: one alone gets half of a table at most, and
there is room for the next one whatever others have taken.
"""

from collections import Counter

from rmq.errors import RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.remoting.connection import Connection


class Quota:
    """A limit, and who has how much of it."""

    def __init__(self, limit: int, what: str, advice: str) -> None:
        """Name what is counted, and what a reader of the refusal can do."""
        self.limit = limit
        self.taken = 0
        self._what = what
        self._advice = advice
        self._of_peer: Counter[str] = Counter()

    def check(self, peer: str = "", count: int = 1) -> None:
        """RequestRejected if `count` more do not fit, or not for this peer."""
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
        """Count what was added; RequestRejected if it does not fit."""
        self.check(peer, count)
        self.add(peer, count)

    def give_back(self, peer: str = "", count: int = 1) -> None:
        """Count what was removed; `peer` is the one that took it."""
        self.add(peer, -count)

    def add(self, peer: str, count: int) -> None:
        """Count a change that is allowed anyway, because it was checked or loaded."""
        self.taken += count
        assert self.taken >= 0, f"{self._what}: more was removed than added"
        if peer:
            self._of_peer[peer] += count
            assert self._of_peer[peer] >= 0, f"{self._what}: not taken by {peer}"
            if not self._of_peer[peer]:
                del self._of_peer[peer]


class NamedQuota(Quota):
    """A quota whose entries have names; it knows which peer made each of them."""

    def __init__(self, limit: int, what: str, advice: str) -> None:
        super().__init__(limit, what, advice)
        self._made_by: dict[str, str] = {}

    def enter(self, name: str, peer: str = "") -> None:
        """Count a new entry; RequestRejected if it does not fit."""
        self.take(peer)
        if peer:
            self._made_by[name] = peer

    def leave(self, name: str) -> None:
        """Count that an entry was removed."""
        self.give_back(self._made_by.pop(name, ""))

    def maker(self, name: str) -> str:
        """Return the peer that made an entry, empty if none did since the start."""
        return self._made_by.get(name, "")


def host_of(address: str) -> str:
    """Return the host of `host:port`; empty for a text that is no address."""
    return address.rpartition(":")[0]


def peer_of(connection: Connection) -> str:
    """Return the address of a connection's peer, without the port."""
    return host_of(connection.remote_address)
