"""Which queue a message goes to: by its key, or the next one.

After a failure another broker is chosen if there is one, as by Java's clients.
"""

from collections.abc import Sequence

from rmq._fastpath import java_hash
from rmq.client.core.routes import MessageQueue


def index_of_key(key: str, count: int) -> int:
    """Return the place of a key's queue. Known in Java as `SelectMessageQueueByHash`.

    Java takes the absolute value after the division; for any count that is the same.
    """
    return abs(java_hash(key)) % count


class QueueChoice:
    """One queue after another, from the place `first` on, of any size.

    `following` is the place of the next one: what the choice of a changed route begins
    with, so that the change itself sends nothing to one queue twice.
    """

    def __init__(self, queues: Sequence[MessageQueue], first: int) -> None:
        assert queues, "nothing to choose from"
        self._queues = queues
        self.following = first % len(queues)

    def next(self, avoid: str | None = None) -> int:
        """Return the place of the next queue; not on the broker `avoid` if possible."""
        if avoid is None:
            index = self.following
            self.following = (index + 1) % len(self._queues)
            return index
        for _ in self._queues:
            index = self.following
            self.following = (index + 1) % len(self._queues)
            if self._queues[index].broker != avoid:
                return index
        return self.next()
