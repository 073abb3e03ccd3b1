"""LiteQueues: the lite topics that exist, by parent topic.

One exists while its light message queue is in the store.  An index of its own, so that
a question about one parent topic does not walk over all queues of the store.
"""

from rmq.plugin import BrokerContext
from rmq.protocol.topics import split_lite_queue


class LiteQueues:
    """Names of queues; ends are those that readers see."""

    def __init__(self, broker: BrokerContext) -> None:
        self._messages = broker.messages
        self._of_parent: dict[str, dict[str, None]] = {}
        for name in broker.queues.topics():
            self.add(name)

    def add(self, name: str) -> None:
        """Note a queue, which may be new."""
        parts = split_lite_queue(name)
        if parts is not None:
            self._of_parent.setdefault(parts[0], {})[name] = None

    def drop(self, name: str) -> None:
        """Forget a queue that is deleted."""
        parts = split_lite_queue(name)
        if parts is None or parts[0] not in self._of_parent:
            return
        self._of_parent[parts[0]].pop(name, None)
        if not self._of_parent[parts[0]]:
            del self._of_parent[parts[0]]

    def parent_topics(self) -> list[str]:
        """Return the parent topics that have lite topics."""
        return list(self._of_parent)

    def queues_of(self, parent: str) -> list[str]:
        """Return the queues of the lite topics of a parent topic."""
        return list(self._of_parent.get(parent, ()))

    def count(self, parent: str) -> int:
        """Return how many lite topics a parent topic has."""
        return len(self._of_parent.get(parent, ()))

    def end(self, name: str) -> int:
        """Return the offset after the last message, 0 if there is no queue."""
        return self._messages.max_offset(name, 0)
