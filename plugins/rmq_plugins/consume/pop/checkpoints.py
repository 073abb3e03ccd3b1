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

import heapq
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from rmq.plugin import BrokerContext, RequestRejected
from rmq.plugin.native import AckMarks, AckTable, PopPosition

MAX_CHECKPOINTS: Final = 200_000
MAX_OF_QUEUE: Final = 20_000
SLACK: Final = 1_000
"""Maximum number of ended checkpoints in a heap."""

GroupQueue = tuple[str, str, int]
"""Topic, group, queue."""

Key = tuple[str, str, int, int, int]
"""Topic, group, queue, start and time of the POP."""


class PopQueue(PopPosition):
    """The progress of a group in a queue; compiled POPs move its `next_offset`.

    It is gone after its topic or group was deleted, or a tool has reset its offset.
    """

    __slots__ = ("count", "group", "open", "queue_id", "topic")

    def __init__(
        self,
        topic: str,
        group: str,
        queue_id: int,
        next_offset: int,
        *,
        is_gone: bool = False,
    ) -> None:
        self.topic = topic
        self.group = group
        self.queue_id = queue_id
        self.next_offset = next_offset
        self.is_gone = is_gone
        self.open: list[tuple[int, int, Checkpoint]] = []
        """Heap of checkpoints by start, for the committed offset; some have ended."""

        self.count = 0


class Checkpoint(msgspec.Struct, eq=False):
    """Messages of one POP of a queue."""

    queue: PopQueue
    start: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    marks: AckMarks
    """Its messages, and which of them are neither acked nor revived."""

    log_end: int
    """End of the log at the POP. A later record with the same queue offset belongs to a
    topic that was deleted and created again. Times prove nothing: clocks are set back.
    """

    suspend: bool = False
    retries: int = 0
    stored_end: int = 0
    """End of its record in the log; 0 without a record."""

    acked: list[int] = msgspec.field(default_factory=list)
    """Offsets whose acks are not in the log yet, of a written checkpoint."""

    is_adopted: bool = False
    """Whether it comes from a record of an earlier run or of a Java broker."""

    is_done: bool = False

    @property
    def due_ms(self) -> int:
        """The time at which messages without an ack become visible again."""
        return self.pop_ms + self.invisible_ms

    @property
    def key(self) -> Key:
        """The key by which acks find it."""
        queue = self.queue
        return queue.topic, queue.group, queue.queue_id, self.start, self.pop_ms

    @property
    def is_written(self) -> bool:
        """Whether the log has its record."""
        return self.marks.is_written

    @property
    def is_acked(self) -> bool:
        """Whether all its messages are acked or revived."""
        return not self.marks.open


class Checkpoints:
    """The queues and checkpoints of all groups."""

    def __init__(self, broker: BrokerContext, acks: AckTable) -> None:
        self._offsets = broker.offsets
        self._config = broker.config
        self._acks = acks
        self._positions = broker.positions
        self._clock = broker.clock
        self.queues: dict[GroupQueue, PopQueue] = {}
        self._queues_by_name: dict[str, set[GroupQueue]] = {}
        """Checkpoints by the names of topics and of groups."""

        self.by_key: dict[Key, Checkpoint] = {}
        self.is_stopping = False
        self.due: list[tuple[int, int, Checkpoint]] = []
        """Times are of the steady clock: somebody may set the other one."""

        self._serial = 0
        self._delayed_commits: dict[PopQueue, None] = {}
        """Queues whose committed offset waits for the stable position."""

        self.on_due: Callable[[int], None] = lambda _at_ms: None
        broker.topics.on_change.append(self._topic_changed)
        broker.groups.on_change.append(self._group_changed)
        self._groups = broker.groups

    # -- queues

    def find_queue(self, topic: str, group: str, queue_id: int) -> PopQueue | None:
        """Return a queue that the group has popped since the start, else None."""
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
            self._acks.unregister_all()
        if topic is None:
            self._drop_queues(name, 0)

    def _group_changed(self, name: str) -> None:
        if self._groups.get(name) is None:
            if name in self._queues_by_name:  # their topics may be deleted, too
                self._acks.unregister_all()
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
        return self._config.enable_pop_buffer_merge and not self.is_stopping

    def stop_buffering(self) -> None:
        """Let everything be written at once from now on, because the broker stops."""
        self.is_stopping = True
        self._acks.unregister_all()

    @property
    def is_full(self) -> bool:
        """Whether no more checkpoints may stay in memory."""
        return len(self.by_key) >= MAX_CHECKPOINTS

    def has_too_many(self, queue: PopQueue, limit: int) -> bool:
        """Whether the group has more than `limit` messages of a queue without acks."""
        given = queue.next_offset - self._offsets.query(
            queue.group, queue.topic, queue.queue_id
        )
        if given <= limit:
            return False
        return sum(entry[2].marks.open.bit_count() for entry in queue.open) > limit

    def is_taken(self, queue: PopQueue, start: int, pop_ms: int) -> bool:
        """Whether another checkpoint has this key, so that acks would find that one."""
        key = queue.topic, queue.group, queue.queue_id, start, pop_ms
        return key in self.by_key

    def add(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint, which stays until it ends."""
        assert checkpoint.key not in self.by_key, f"{checkpoint.key} is taken"
        self.by_key[checkpoint.key] = checkpoint
        if self.is_buffered and not checkpoint.queue.is_gone:
            self._acks.add(checkpoint.key, checkpoint.marks)
        self._serial += 1
        queue = checkpoint.queue
        queue.count += 1
        at_ms = self._clock.steady_ms() + self._find_left_ms(checkpoint)
        heapq.heappush(self.due, (at_ms, self._serial, checkpoint))
        if len(self.due) > 2 * len(self.by_key) + SLACK:
            self.due = [entry for entry in self.due if not entry[2].is_done]
            heapq.heapify(self.due)
        if not checkpoint.is_adopted:
            heapq.heappush(queue.open, (checkpoint.start, self._serial, checkpoint))
            if len(queue.open) > 2 * queue.count + SLACK:
                self._compact(queue)
        self.on_due(at_ms)

    def _find_left_ms(self, checkpoint: Checkpoint) -> int:
        """Return how long a checkpoint waits: never longer than its invisible time."""
        left_ms = checkpoint.due_ms - self._clock.now_ms()
        return max(0, min(left_ms, checkpoint.invisible_ms))

    def _compact(self, queue: PopQueue) -> None:
        """Remove ended checkpoints from anywhere in the heap of a queue."""
        stable_end = self._positions.stable.value
        queue.open = [
            entry
            for entry in queue.open
            if not (entry[2].is_done and entry[2].stored_end <= stable_end)
        ]
        heapq.heapify(queue.open)

    def hold_offset(self, checkpoint: Checkpoint) -> None:
        """Hold the committed offset until the record of a checkpoint is stable.

        The checkpoint itself is only in the log.
        """
        self._serial += 1
        entry = checkpoint.start, self._serial, checkpoint
        heapq.heappush(checkpoint.queue.open, entry)
        self.commit(checkpoint.queue)

    def delay_due(self, at_ms: int, checkpoint: Checkpoint) -> None:
        """Let a checkpoint be due again at a later time."""
        self._serial += 1
        heapq.heappush(self.due, (at_ms, self._serial, checkpoint))
        self.on_due(at_ms)

    def take_due(self, now_ms: int) -> Checkpoint | None:
        """Remove and return a due checkpoint from the heap; None without one."""
        while self.due and self.due[0][0] <= now_ms:
            checkpoint = heapq.heappop(self.due)[2]
            if not checkpoint.is_done:
                return checkpoint
        return None

    def next_due_ms(self) -> int | None:
        """Return the time of the next due checkpoint; None without one."""
        while self.due and self.due[0][2].is_done:
            heapq.heappop(self.due)
        return self.due[0][0] if self.due else None

    def end(self, checkpoint: Checkpoint) -> None:
        """End a checkpoint whose messages are all acked or stored again."""
        if checkpoint.is_done:
            return
        checkpoint.is_done = True
        checkpoint.queue.count -= 1
        self.by_key.pop(checkpoint.key, None)
        self._acks.remove(checkpoint.marks)
        self.commit(checkpoint.queue)

    def all(self) -> Iterator[Checkpoint]:
        """Yield every open checkpoint."""
        yield from self.by_key.values()

    # -- committed offsets

    def commit(self, queue: PopQueue) -> None:
        """Commit the group's offset: the start of the oldest checkpoint that counts."""
        if queue.is_gone:
            return
        stable_end = self._positions.stable.value
        heap = queue.open
        waits = False
        while heap:
            checkpoint = heap[0][2]
            if not (checkpoint.is_done or checkpoint.is_written):
                break
            if checkpoint.stored_end > stable_end:
                waits = True
                break
            heapq.heappop(heap)
        if waits:
            self._delayed_commits[queue] = None
        offset = heap[0][0] if heap else queue.next_offset
        if self._offsets.query(queue.group, queue.topic, queue.queue_id) != offset:
            with suppress(RequestRejected):  # the table is full: a kill repeats more
                where = queue.group, queue.topic, queue.queue_id
                self._offsets.commit("a POP", *where, offset)

    @property
    def has_delayed_commits(self) -> bool:
        """Whether committed offsets wait for the stable position."""
        return bool(self._delayed_commits)

    def commit_delayed(self) -> None:
        """Commit the offsets that waited for the stable position."""
        waiting, self._delayed_commits = self._delayed_commits, {}
        for queue in waiting:
            self.commit(queue)
