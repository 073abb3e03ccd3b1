"""Fork: the place where the logs of a replica and its master part, and what to do.

Records up to there are equal, those after it are not: a record has its own offset, its
place in its queue, its store time and a checksum, so that one equal record proves all
before it.  Binary search, because of two logs of 256 MiB about 20 records are compared.

A replica cuts what its master does not have only if nobody was promised that it stays:

* the master's log is the beginning of this one: the master has lost the rest.  Never.
* the logs went on differently, and the master acknowledges what replicas have: what is
  here may be acknowledged.  Never.
* the logs went on differently, and the master waits for nobody: whoever made this
  broker's master the master has decided.  Cut, unless it is very much.

`rmq.replicaMayDiscard` allows the first two.  What is cut stays in a file.  Without an
equal record there is nothing to cut to: `rmq.replicaReseed` allows to set the whole log
aside, and to begin with an empty one; with a master that has less, only both together.
No I/O.
"""

from collections.abc import Generator
from typing import NamedTuple

from rmq.cluster.upstream import Bounds

KEY = "rmq.replicaMayDiscard=true"
RESEED_KEY = "rmq.replicaReseed=true"


def equal_count(count: int) -> Generator[int, bool, int]:
    """Return how many of the first of `count` records are equal.

    Yields the number of a record to compare; is sent whether it is equal.
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if (yield middle):
            low = middle + 1
        else:
            high = middle
    return low


class Fork(NamedTuple):
    """Where the logs part, and where both end."""

    offset: int
    """End of the last equal record; -1 if none was found."""

    end: int
    """Of the replica's log."""

    bounds: Bounds
    searched: int
    """Bytes before the end in which it was looked for."""

    def goes_on(self, bounds: Bounds) -> bool:
        """Whether it is still there, by the present bounds of the master's log."""
        was_ahead = self.offset >= self.bounds.end
        return self.bounds == bounds or (
            not was_ahead and bounds.end > self.offset >= bounds.oldest
        )

    @property
    def has_nothing_equal(self) -> bool:
        """Whether no end is known at which this log could go on as the master's."""
        return self.end < self.bounds.oldest or self.offset < 0

    def begins_anew(self, *, may_reseed: bool, may_discard: bool) -> bool:
        """Whether the replica sets its whole log aside.

        A master that ends before it may have lost its disk: then this log is the last.
        """
        is_shorter = self.bounds.end < self.end
        return self.has_nothing_equal and may_reseed and (may_discard or not is_shorter)

    def refusal(self, *, is_promised: bool, may_discard: bool) -> str:
        """Return why nothing is cut; empty if the replica cuts at `offset`.

        `is_promised`: the master acknowledges what replicas have.
        """
        master, extra = self.bounds.end, self.end - self.offset
        keys = f"{KEY} and {RESEED_KEY}" if master < self.end else RESEED_KEY
        advice = f"set {keys} here for one start, which keeps this log in aside/"
        if self.end < self.bounds.oldest:
            return (
                f"this log ends at {self.end}, the oldest message of the master is at "
                f"{self.bounds.oldest}: begin with an empty log here; {advice}"
            )
        if self.offset < 0:
            return (
                f"the last {self.searched} bytes have no record of the master's log, "
                f"which ends at {master}: keep this log, and begin with an empty one "
                f"here; {advice}"
            )
        if may_discard:
            return ""
        if self.offset >= master:
            return (
                f"this log ends at {self.end}, the master's at {master}, so that this "
                "broker has what the master lost: make it the master; or set "
                f"{KEY} here, which cuts {extra} bytes and keeps them in cut/"
            )
        if is_promised:
            return (
                f"the logs part at {self.offset}; {extra} bytes after it are here "
                f"only, and may have been acknowledged: set {KEY} here, which cuts "
                "them and keeps them in cut/, or make this broker the master"
            )
        return ""
