"""Divergence: the offset at which the logs of a slave and its master diverge, and the
action of the slave.

A record has its own offset, its queue offset, its store time and a checksum.  So one
equal record proves that all records before it are equal.  A binary search over two logs
of 256 MiB compares about 20 records.

A slave truncates messages that its master lacks only if no sender can have got an
answer:

* The master's log is the beginning of the slave's log: the master has lost messages.
  The slave truncates nothing.
* Both logs continue differently, and the master waits for slaves: these records may be
  acknowledged. The slave truncates nothing.
* Both logs continue differently, and the master waits for no slave: the operator has
  decided by the choice of the master. The slave truncates, up to a limit.

`rmq.replicaMayDiscard` allows to truncate in the first two cases, too. A file keeps the
truncated bytes. Without an equal record there is no offset to truncate to.
`rmq.replicaReseed` then allows to move the whole log to `aside/` and to start with an
empty log. If the master's log is shorter, both keys are needed. No I/O.
"""

from collections.abc import Generator
from typing import NamedTuple

from rmq.cluster.log_source import LogBounds
from rmq.core.offsets import PhysicalOffset

KEY = "rmq.replicaMayDiscard=true"
RESEED_KEY = "rmq.replicaReseed=true"


def count_equal(count: int) -> Generator[int, bool, int]:
    """Return the number of equal records at the start of `count` records.

    Yields the number of a record to compare; the caller sends whether it is equal.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if (yield middle):
            low = middle + 1
        else:
            high = middle
    return low


class Divergence(NamedTuple):
    """The offset where two logs diverge, and the ends of both."""

    offset: PhysicalOffset
    """End of the last equal record; -1 if none was found."""

    end: PhysicalOffset
    """End of the slave's log."""

    bounds: LogBounds
    searched_bytes: int
    """Number of bytes before the end that the search covered."""

    def is_still_valid(self, bounds: LogBounds) -> bool:
        """Whether the result holds for the current bounds of the master's log."""
        was_ahead = self.offset >= self.bounds.end
        return self.bounds == bounds or (
            not was_ahead and bounds.end > self.offset >= bounds.oldest
        )

    @property
    def has_nothing_equal(self) -> bool:
        """True: no truncation can make this log continue like the master's log."""
        return self.end < self.bounds.oldest or self.offset < 0

    def must_reseed(self, *, may_reseed: bool, may_discard: bool) -> bool:
        """Whether the slave moves its whole log to aside/.

        A master whose log ends earlier may have lost its disk: then this log is the
        last copy.
        """
        is_shorter = self.bounds.end < self.end
        return self.has_nothing_equal and may_reseed and (may_discard or not is_shorter)

    def cut_refusal(self, *, is_promised: bool, may_discard: bool) -> str:
        """Return the reason for which no bytes are truncated; empty if the slave
        truncates to `offset`.

        `is_promised`: the master waits for slaves before it acknowledges.
        """
        master, extra = self.bounds.end, self.end - self.offset
        keys = f"{KEY} and {RESEED_KEY}" if master < self.end else RESEED_KEY
        advice = (
            f"set {keys} here for one start: this broker then moves its log to aside/"
        )
        if self.end < self.bounds.oldest:
            return (
                f"this log ends at {self.end}, before the master's oldest message at "
                f"{self.bounds.oldest}: this broker must begin with an empty log; "
                f"{advice}"
            )
        if self.offset < 0:
            return (
                f"the last {self.searched_bytes} bytes of this log have no record of "
                f"the master's log, which ends at {master}: this broker must begin "
                f"with an empty log; {advice}"
            )
        if may_discard:
            return ""
        if self.offset >= master:
            return (
                f"this log ends at {self.end}, the master's at {master}: this broker "
                "has messages that the master lost. Make this broker the master; or "
                f"set {KEY} here: this broker then truncates {extra} bytes and saves "
                "them in cut/"
            )
        if is_promised:
            return (
                f"the logs differ from offset {self.offset} on; {extra} bytes after it "
                f"are on this broker only, and may have been acknowledged: set {KEY} "
                "here, and this broker truncates these bytes and saves them in cut/; "
                "or make this broker the master"
            )
        return ""
