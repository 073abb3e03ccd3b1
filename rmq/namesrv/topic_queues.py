"""TopicQueues: the broker names that have each topic, and the number of queues.

All topics of one layout share a `QueueData`, which is replaced and never changed. 1,000
brokers with 2,000 topics each take 55 MB.
Belongs to the trio thread; memory only.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from rmq.namesrv.rules import rejection_of
from rmq.protocol.bodies.route import QueueData
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.flags import PERM_READ_WRITE, PERM_WRITE

MAX_TOPICS = 1_000_000
MAX_QUEUE_DATAS = 2_500_000
"""Maximum number of pairs of topic and broker name, up to 150 bytes each. There is room
for 1,000 brokers of 2,000 topics, and for the topics of every broker.
"""

Shapes = dict[tuple[int, int, int, int], QueueData]
"""The layouts of one broker name by queues, permission and flag."""


class TopicQueues:
    """The queues of topics by broker name, and the mappings of static topics as brokers
    sent them.
    """

    def __init__(self) -> None:
        self.on_change: list[Callable[[str], None]] = []
        """Callbacks for each topic whose queues or mappings changed."""

        self._topics: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, Any]] = {}
        self._count = 0

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._topics)

    def queues(self, topic: str) -> Mapping[str, QueueData]:
        """Return the queues of a topic by broker name."""
        return self._topics.get(topic, {})

    def mappings_of(self, topic: str) -> dict[str, Any] | None:
        """Return the mappings of a static topic by broker name."""
        return self._mappings.get(topic)

    def of_brokers(self, names: AbstractSet[str]) -> list[str]:
        """Return the topics that any of these broker names has."""
        return [t for t, queues in self._topics.items() if names & queues.keys()]

    def topics_with_flag(self, is_meant: Callable[[int], bool]) -> list[str]:
        """Return the topics with a system flag that `is_meant` accepts."""
        return [
            topic
            for topic, queues in self._topics.items()
            if is_meant(next(iter(queues.values())).topic_sys_flag)
        ]

    def check_room(self, topics: AbstractSet[str], broker_name: str) -> None:
        """Refuse topics of a broker name that would make a table too large."""
        # a difference of two views would look at each topic of the table
        new = sum(topic not in self._topics for topic in topics)
        if len(self._topics) + new > MAX_TOPICS:
            raise rejection_of(f"more than {MAX_TOPICS} topics would be registered")
        if self._count + len(topics) > MAX_QUEUE_DATAS:
            known = sum(broker_name in self.queues(topic) for topic in topics)
            if self._count + len(topics) - known > MAX_QUEUE_DATAS:
                raise rejection_of(
                    f"more than {MAX_QUEUE_DATAS} topics of brokers would be registered"
                )

    def put(self, topic: str, data: QueueData) -> None:
        """Set the queues of a topic on a broker name."""
        assert data.broker_name is not None, topic
        queues = self._topics.setdefault(topic, {})
        before = queues.get(data.broker_name)
        queues[data.broker_name] = data
        self._count += before is None
        if before != data:
            self._notify_changed(topic)

    def put_mapping(self, topic: str, broker_name: str, mapping: object) -> None:
        """Set a broker's mapping of a static topic."""
        self._mappings.setdefault(topic, {})[broker_name] = mapping
        self._notify_changed(topic)

    def remove(self, topic: str, broker_name: str) -> None:
        """Remove the queues of a topic on a broker name, if there are any."""
        queues = self._topics.get(topic, {})
        if queues.pop(broker_name, None) is None:
            return
        self._count -= 1
        assert self._count >= 0, topic
        if not queues:
            del self._topics[topic]
        self._notify_changed(topic)

    def keep_only(self, broker_name: str, wanted: AbstractSet[str]) -> None:
        """Remove all topics of a broker name except the wanted ones."""
        for topic in self.of_brokers({broker_name}):
            if topic not in wanted:
                self.remove(topic, broker_name)

    def remove_broker(self, broker_name: str) -> None:
        """Remove queues and mappings of a broker name without addresses."""
        self.keep_only(broker_name, frozenset())
        for topic in [t for t, m in self._mappings.items() if broker_name in m]:
            del self._mappings[topic][broker_name]
            if not self._mappings[topic]:
                del self._mappings[topic]

    def set_writable(self, broker_name: str, *, writable: bool) -> int:
        """Add or remove the write permission of a broker's topics; return their number.

        The caller runs the callbacks, because all topics changed.
        """
        count = 0
        replaced: dict[int, tuple[QueueData, QueueData]] = {}
        for queues in self._topics.values():
            data = queues.get(broker_name)
            if data is None:
                continue
            if id(data) not in replaced:
                perm = PERM_READ_WRITE if writable else data.perm & ~PERM_WRITE
                replaced[id(data)] = data, msgspec.structs.replace(data, perm=perm)
            queues[broker_name] = replaced[id(data)][1]
            count += 1
        return count

    def _notify_changed(self, topic: str) -> None:
        for listener in self.on_change:
            listener(topic)


def queue_data(
    name: str, config: TopicConfig, shapes: Shapes, *, is_acting: bool
) -> QueueData:
    """Return the queues of a topic; one object for each layout in `shapes`."""
    perm = config.perm & ~PERM_WRITE if is_acting else config.perm
    shape = (
        config.read_queue_nums,
        config.write_queue_nums,
        perm,
        config.topic_sys_flag,
    )
    data = shapes.get(shape)
    if data is None:
        data = shapes[shape] = QueueData(
            broker_name=name,
            read_queue_nums=shape[0],
            write_queue_nums=shape[1],
            perm=perm,
            topic_sys_flag=shape[3],
        )
    return data
