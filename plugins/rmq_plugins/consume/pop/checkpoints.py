"""Checkpoints: the messages that groups have popped and not acked.

A POP reads a queue from `next_offset` on and adds a checkpoint: its offsets, and a bit
for each message without an ack. The group's committed offset in the queue is the start
of the oldest checkpoint that is still only in memory. After a kill, or on the next
master, the group pops the messages from this offset on again. No message is lost.

States: in memory only; *written* as a `ck` record that ends at `stored_end`; *ended*
when all messages are acked or stored again in the retry topic. A written or revived
checkpoint counts only below the stable position of the log.
Limits: MAX_CHECKPOINTS, MAX_OF_QUEUE; a checkpoint beyond them is written at once and
does not stay in memory.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

from rmq.plugin import BrokerContext, RequestRejected
from rmq.plugin.native import Checkpoint, CheckpointTable, PopQueue

MAX_CHECKPOINTS: Final = 200_000
MAX_OF_QUEUE: Final = 20_000

GroupQueue = tuple[str, str, int]
"""Topic, group, queue."""


class Checkpoints:
    """The queues and checkpoints of all groups."""

    def __init__(self, broker: BrokerContext, table: CheckpointTable) -> None:
        self._offsets = broker.offsets
        self._config = broker.config
        self._positions = broker.positions
        self.table = table
        table.limit, table.queue_limit = MAX_CHECKPOINTS, MAX_OF_QUEUE
        self.queues = table.queues
        self._queues_by_name: dict[str, set[GroupQueue]] = {}
        """Queues by the names of topics and of groups."""

        self.is_stopping = False
        self._delayed_commits: OrderedDict[PopQueue, None] = OrderedDict()
        """Queues whose committed offset waits for the stable position."""

        broker.topics.on_change.append(self._topic_changed)
        broker.groups.on_change.append(self._group_changed)
        self._groups = broker.groups
        self.config_changed(["enablePopBufferMerge"])

    # -- queues

    def find_queue(self, topic: str, group: str, queue_id: int) -> PopQueue | None:
        """Return a queue if the group has popped from it since the start, or None."""
        return self.queues.get((topic, group, queue_id))

    def find_popped_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset after the last message that was popped, or -1."""
        queue = self.find_queue(topic, group, queue_id)
        return -1 if queue is None else queue.next_offset

    def begin_queue(
        self, topic: str, group: str, queue_id: int, offset: int
    ) -> PopQueue:
        """Begin to pop a queue at an offset."""
        key = topic, group, queue_id
        queue = self.queues[key] = PopQueue(topic, group, queue_id, offset)
        for name in (topic, group):
            self._queues_by_name.setdefault(name, set()).add(key)
        return queue

    def reset(self, queue: PopQueue, offset: int) -> PopQueue:
        """Continue at an offset that a tool set; old checkpoints only serve acks."""
        queue.is_gone = True
        return self.begin_queue(queue.topic, queue.group, queue.queue_id, offset)

    def _topic_changed(self, name: str, topic: object) -> None:
        if name in self._queues_by_name:
            self.table.unregister_all()
        if topic is None:
            self._drop_queues(name, 0)

    def _group_changed(self, name: str) -> None:
        if self._groups.get(name) is None:
            # the topics of the messages may be deleted, too
            if name in self._queues_by_name:
                self.table.unregister_all()
            self._drop_queues(name, 1)

    def _drop_queues(self, name: str, part: int) -> None:
        """Remove the queues of a topic or group; their checkpoints end when due."""
        gone = [
            each for each in self._queues_by_name.get(name, ()) if each[part] == name
        ]
        for key in gone:
            self.queues.pop(key).is_gone = True
            for each in key[:2]:
                self._queues_by_name[each].discard(key)
                if not self._queues_by_name[each]:
                    del self._queues_by_name[each]

    # -- checkpoints

    @property
    def is_buffered(self) -> bool:
        """Whether checkpoints and acks may stay in memory for some time."""
        return self.table.is_buffered

    def config_changed(self, keys: Collection[str]) -> None:
        """Leave acks to Python if each ack must be written."""
        if "enablePopBufferMerge" in keys:
            is_buffered = self._config.enable_pop_buffer_merge and not self.is_stopping
            self.table.is_buffered = is_buffered
            self.table.unregister_all()

    def stop_buffering(self) -> None:
        """Let everything be written at once from now on, because the broker stops."""
        self.is_stopping = True
        self.table.is_buffered = False
        self.table.unregister_all()

    @property
    def is_full(self) -> bool:
        """Whether no more checkpoints may stay in memory."""
        return self.table.is_over_limit

    def has_too_many(self, queue: PopQueue, limit: int) -> bool:
        """Whether the group has more than `limit` messages of a queue without acks."""
        given = queue.next_offset - self._offsets.query(
            queue.group, queue.topic, queue.queue_id
        )
        return given > limit and queue.count_open() > limit

    def is_taken(self, queue: PopQueue, start: int, pop_ms: int) -> bool:
        """Whether another checkpoint has this key, so that acks would find the other
        checkpoint.
        """
        key = queue.topic, queue.group, queue.queue_id, start, pop_ms
        return self.find(*key) is not None

    def find(
        self, topic: str, group: str, queue_id: int, start: int, pop_ms: int
    ) -> Checkpoint | None:
        """Return a checkpoint in memory."""
        return self.table.find(topic, group, queue_id, start, pop_ms)

    def hold_offset(self, checkpoint: Checkpoint) -> None:
        """Hold the committed offset until the record of a checkpoint is stable.

        The checkpoint itself is only in the log.
        """
        self.table.hold_offset(checkpoint)
        self.commit(checkpoint.queue)

    def end(self, checkpoint: Checkpoint) -> None:
        """End a checkpoint whose messages are all acked or stored again."""
        if not checkpoint.is_done:
            self.table.end(checkpoint)
            self.commit(checkpoint.queue)

    # -- committed offsets

    def commit(self, queue: PopQueue) -> None:
        """Commit the group's offset: the start of the oldest checkpoint that is not
        stable in the log.
        """
        if queue.is_gone:
            return
        self.table.stable_end = stable_end = self._positions.stable.value
        if queue.drop_ended(stable_end):
            self._delayed_commits[queue] = None
        offset = queue.first_open
        if self._offsets.query(queue.group, queue.topic, queue.queue_id) != offset:
            # the table of offsets is full: after a kill more messages come again
            with suppress(RequestRejected):
                where = queue.group, queue.topic, queue.queue_id
                self._offsets.commit("a POP", *where, offset)

    @property
    def has_delayed_commits(self) -> bool:
        """Whether committed offsets wait for the stable position."""
        return bool(self._delayed_commits)

    def commit_delayed(self) -> Iterator[None]:
        """Commit the offsets that waited for the stable position, one at each step."""
        for _ in range(len(self._delayed_commits)):
            queue, _ = self._delayed_commits.popitem(last=False)
            self.commit(queue)
            yield
