"""Acks: which replica has how much of the log, and how much enough of them have.

No I/O, no clock.  What a replica reports is checked here: it cannot have what it was
not sent, and what it had it has.

The first report of a connection counts for nobody: it asks where to begin.  Whether the
replica has the log before that is proven only by what it reports later, because a
replica reports more than it asked for when it has compared its last record.
"""

from collections.abc import Hashable

from rmq.core.errors import RemoteProtocolError


class Acks:
    """The acknowledged offsets of the connected replicas."""

    def __init__(self, needed: int) -> None:
        """`needed` replicas must have a message before its sender is answered."""
        assert needed >= 0, needed
        self._needed = needed
        self._offsets: dict[Hashable, int] = {}
        self._proven: dict[Hashable, int] = {}
        """Of those that have reported again."""

    def report(self, replica: Hashable, offset: int, *, sent: int) -> None:
        """Take a replica's report; RemoteProtocolError if it cannot be true.

        The replica was sent the log up to `sent`.
        """
        known = self._offsets.get(replica, 0)
        if offset > sent:
            raise RemoteProtocolError(
                f"it reported {offset}, but was sent the log up to {sent} only"
            )
        if offset < known:
            raise RemoteProtocolError(f"it reported {offset} after {known}")
        if replica in self._offsets:
            self._proven[replica] = offset
        self._offsets[replica] = offset

    def leave(self, replica: Hashable) -> None:
        """Forget a replica that is no longer connected."""
        self._offsets.pop(replica, None)
        self._proven.pop(replica, None)

    def of(self, replica: Hashable) -> int:
        """Return what a replica reported last; -1 if it has not reported yet."""
        return self._offsets.get(replica, -1)

    def replicated(self) -> int:
        """Return the offset up to which enough connected replicas have the log.

        It falls when one leaves; what enough had, enough had: the watermark that it
        moves does not fall.
        """
        if self._needed > len(self._proven) or not self._needed:
            return 0
        return sorted(self._proven.values(), reverse=True)[self._needed - 1]

    def is_in_sync(self, replica: Hashable, end: int, gap: int) -> bool:
        """Whether a replica has reported, and lacks less than `gap` bytes."""
        return self.of(replica) >= 0 and end - self.of(replica) < gap

    def in_sync(self, end: int, gap: int) -> int:
        """Count the replicas that lack less than `gap` bytes of the log."""
        return sum(end - offset < gap for offset in self._offsets.values())
