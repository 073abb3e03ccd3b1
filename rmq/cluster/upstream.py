"""Upstream: what a replica can ask about the broker that it follows."""

from typing import NamedTuple, Protocol


class Bounds(NamedTuple):
    """Begin and end of the master's log."""

    oldest: int
    end: int
    tells_records: bool = False
    """Whether `record_at` answers with any record, as Java does.

    rmq answers with those that have a queue entry: its log itself must be read.
    """


class Upstream(Protocol):
    """A master, or a slave from which a master takes back what it lost."""

    async def find(self) -> str:
        """Return the HA address; empty while nobody knows one."""

    async def bounds(self) -> Bounds:
        """Ask for the bounds of its log; PeerError if it does not answer."""

    async def record_at(self, offset: int) -> bytes | None:
        """Ask for the record at an offset; PeerError, or None if none is there."""

    async def waits_for_replicas(self) -> bool:
        """Ask whether it acknowledges only what replicas have; PeerError."""
