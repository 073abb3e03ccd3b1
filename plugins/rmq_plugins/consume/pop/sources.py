"""The queues that a group pops: queues of the topic and of its retry topic."""

from typing import NamedTuple

from rmq.plugin import BrokerContext
from rmq.protocol.topics import pop_retry_topic
from rmq_plugins.consume.pop.reading import PopReader


class Source(NamedTuple):
    """A queue to read, of the topic or its retry topic."""

    topic: str
    queue_id: int
    flag: str
    """In handles: 0 the topic, 1 and 2 the forms of retry topics."""


class PopSources:
    """Finds the queues of a POP."""

    def __init__(self, broker: BrokerContext, reader: PopReader) -> None:
        self._config = broker.config
        self._topics = broker.topics
        self._reader = reader

    def retry_topics(self, topic: str, group: str) -> dict[str, int]:
        """Return the retry topics that a group reads, with their flags in handles."""
        config = self._config
        forms = [1]
        if config.enable_retry_topic_v2:
            is_first_read = config.retrieve_message_from_pop_retry_topic_v1
            forms = [2, 1] if is_first_read else [2]
        return {pop_retry_topic(topic, group, form): form for form in forms}

    def order_queues(self, count: int, start: int) -> list[int]:
        """Return the queue ids of a topic in the order in which a POP reads them."""
        ids = range(count)
        if self._config.priority_order_asc:
            ids = ids[::-1]
        return [(queue_id + start) % count for queue_id in ids]

    def retry_sources(self, topic: str, group: str, start: int = 0) -> list[Source]:
        """Return the queues of the first retry topic that has messages.

        An answer has room for the queues of one retry topic.
        """
        for name, form in self.retry_topics(topic, group).items():
            config = self._topics.get(name)
            if config is None:
                continue
            sources = [
                Source(name, queue_id, str(form))
                for queue_id in self.order_queues(config.read_queue_nums, start)
            ]
            if any(self.count_remaining(each, group) for each in sources):
                return sources
        return []

    def count_remaining(self, source: Source, group: str) -> int:
        """Return the number of messages of a queue that a group has not popped."""
        position = self._reader.find_position(source.topic, group, source.queue_id)
        return self._reader.count_remaining(source.topic, source.queue_id, position)
