"""TopicQueues: the broker names that have each topic, and the number of queues.

All topics of one layout share a `QueueData`, which is replaced and never changed. 1,000
brokers with 2,000 topics each take 55 MB.
When a broker leaves, its topics change in steps, because a walk over all topics takes
too long. The next registration of its name completes these steps first.
Belongs to the trio thread; memory only.
"""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec
import trio

from rmq.namesrv.rules import rejection_of
from rmq.protocol.bodies.route import QueueData
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.flags import PERM_READ_WRITE, PERM_WRITE

MAX_TOPICS = 1_000_000
MAX_QUEUE_DATAS = 2_500_000
"""Maximum number of pairs of topic and broker name, up to 150 bytes each. There is room
for 1,000 brokers of 2,000 topics, and for the topics of every broker.
"""

TOPICS_OF_WALK: Final = 500
"""Topics that a walk over all topics examines in one step: 1 ms if it removes each."""

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
        self._changes: dict[str, Iterator[object]] = {}
        """The steps that are left for broker names that lost a broker."""

        self._change_begun = trio.Event()

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

    def keep_only(self, broker_name: str, wanted: AbstractSet[str]) -> Iterator[None]:
        """Remove all topics of a broker name except the wanted ones; in steps."""
        for number, topic in enumerate(list(self._topics), 1):
            if number % TOPICS_OF_WALK == 0:
                yield
            if topic not in wanted:
                self.remove(topic, broker_name)

    def remove_broker(self, broker_name: str) -> None:
        """Remove queues and mappings of a broker name without addresses.

        Many queues are removed in steps, see `begin_change`.
        """
        for topic in [t for t, m in self._mappings.items() if broker_name in m]:
            del self._mappings[topic][broker_name]
            if not self._mappings[topic]:
                del self._mappings[topic]
        self.begin_change(broker_name, self.keep_only(broker_name, frozenset()))

    def set_writable(self, broker_name: str, *, writable: bool) -> Iterator[int | None]:
        """Add or remove the write permission of a broker's topics.

        Yield None after each step, and finally the number of topics. The caller runs
        the callbacks, because all topics changed.
        """
        count = 0
        replaced: dict[int, tuple[QueueData, QueueData]] = {}
        for number, topic in enumerate(list(self._topics), 1):
            if number % TOPICS_OF_WALK == 0:
                yield None
            queues = self._topics.get(topic, {})
            data = queues.get(broker_name)
            if data is None:
                continue
            if id(data) not in replaced:
                perm = PERM_READ_WRITE if writable else data.perm & ~PERM_WRITE
                replaced[id(data)] = data, msgspec.structs.replace(data, perm=perm)
            queues[broker_name] = replaced[id(data)][1]
            count += 1
        yield count

    # -- changes in steps

    def begin_change(self, broker_name: str, steps: Iterator[object]) -> None:
        """Take the first step of a change; `run_changes` takes the others.

        The change replaces an earlier one of the same broker name.
        """
        self._changes[broker_name] = steps
        if self._is_changing(broker_name):
            self._change_begun.set()

    def complete_change(self, broker_name: str) -> Iterator[None]:
        """Take the steps that are left for a broker name."""
        while self._is_changing(broker_name):
            yield

    def _is_changing(self, broker_name: str) -> bool:
        """Take a step of a broker name's change; False if the change is complete."""
        steps = self._changes.get(broker_name)
        if steps is None:
            return False
        for _ in steps:
            return True
        del self._changes[broker_name]
        return False

    async def run_changes(self) -> None:
        """Take the steps of all changes, until cancelled."""
        while True:
            await self._change_begun.wait()
            self._change_begun = trio.Event()
            for broker_name in list(self._changes):
                for _ in self.complete_change(broker_name):
                    await trio.lowlevel.checkpoint()

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
