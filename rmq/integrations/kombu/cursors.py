"""Cursors: the positions of this process in its ephemeral queues.

The first declaration in a process counts, whichever connection makes it: a queue for
results is declared on one connection and read on another.
"""

import os
from typing import Final

MAX_QUEUES: Final = 10_000
"""Maximum number of queues that are kept: programs do not always delete their
queues.
"""


class Cursors:
    """For each queue, the next offset of each topic that it reads."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, int]] = {}

    def __contains__(self, queue: str) -> bool:
        return queue in self._queues

    def get(self, queue: str) -> dict[str, int] | None:
        """Return the offsets of a queue by topic; None if it is not ephemeral."""
        return self._queues.get(queue)

    def add(self, queue: str, offsets: dict[str, int]) -> None:
        """Declare a queue; the oldest is forgotten if there are too many."""
        while len(self._queues) >= MAX_QUEUES:
            del self._queues[next(iter(self._queues))]
        self._queues[queue] = offsets

    def remove(self, queue: str) -> bool:
        """Forget a queue; return whether it was known."""
        return self._queues.pop(queue, None) is not None


_cursors: dict[object, Cursors] = {}


def cursors_of(place: object) -> Cursors:
    """Return the cursors of this process for name servers and a namespace."""
    key = os.getpid(), place
    if key not in _cursors:
        _cursors[key] = Cursors()
    return _cursors[key]
