"""UnconsumedLog: keeps the files of the log that some groups have not consumed.

`rmq.keepUnconsumed` lists the groups. The cleaner calls `find_min_offset` before it
deletes a file. The committed offset of a group that pops is at or before its first
message without an ack. For a group without offsets, the broker keeps the topic with the
group's name, so a task queue without workers keeps its tasks.
"""

from rmq.plugin import BrokerContext, QueueOffset


class UnconsumedLog:
    """The log that the listed groups still need."""

    def __init__(self, broker: BrokerContext) -> None:
        self._config = broker.config
        self._topics = broker.topics
        self._offsets = broker.offsets
        self._messages = broker.messages

    def find_min_offset(self) -> int | None:
        """Return the physical offset of the first message to keep; None if there is
        none.
        """
        found: list[int] = []
        for group in self._config.kept_groups():
            for topic in {*self._offsets.topics_of(group), group}:
                found += self._find_first(group, topic)
        return min(found, default=None)

    def _find_first(self, group: str, topic: str) -> list[int]:
        """Return the physical offset of the next message of each queue of a topic."""
        config = self._topics.get(topic)
        if config is None:
            return []
        messages, found = self._messages, []
        for queue_id in range(config.read_queue_nums):
            committed = self._offsets.query(group, topic, queue_id)
            offset = QueueOffset(max(committed, messages.min_offset(topic, queue_id)))
            physical = messages.physical_at(topic, queue_id, offset)
            if physical >= 0:
                found.append(physical)
        return found
