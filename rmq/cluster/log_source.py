"""LogSource: the requests of a fetcher to the broker whose log it copies."""

from typing import NamedTuple, Protocol

from rmq.core.offsets import PhysicalOffset


class LogBounds(NamedTuple):
    """Begin and end of the master's log."""

    oldest: int
    end: PhysicalOffset
    serves_records: bool = False
    """Whether `fetch_record` answers with any record, as Java does.

    rmq answers only with records that have a queue entry; other records must be read
    over the HA port.
    """


class LogSource(Protocol):
    """A master, or a slave from which a master recovers its log."""

    async def find(self) -> str:
        """Return the HA address; empty while it is unknown."""

    async def find_bounds(self) -> LogBounds:
        """Ask the broker for the bounds of its log; PeerError if it does not answer."""

    async def fetch_record(self, offset: PhysicalOffset) -> bytes | None:
        """Ask for the record at an offset; None if there is no record, PeerError
        without an answer.
        """

    async def awaits_slaves(self) -> bool:
        """Ask whether the broker acknowledges only messages that slaves have; PeerError
        without an answer.
        """
