"""Checkpoints: which messages groups have popped and not acked.

A POP takes messages of a queue from `next` on and leaves a checkpoint: its offsets, one
bit for each that is not acked. The group's committed offset in the queue is the start
of the oldest checkpoint that neither has ended nor is kept in the log: after a kill, or
on the next master of a group with a controller, these messages are popped again, and no
message disappears.

States: in memory only; *written* as a `ck` record whose end is `stored_end`; *ended*,
when all is acked or stored again in the retry topic. A written or revived one counts
when disk and group have its record.
Limits: MAX_CHECKPOINTS, MAX_OF_QUEUE; what is beyond them is written at once and left
to the log.
"""

import heapq
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from rmq.plugin import BrokerContext, RequestRejected
from rmq.plugin.native import AckMarks, AckTable

MAX_CHECKPOINTS: Final = 200_000
MAX_OF_QUEUE: Final = 20_000
SLACK: Final = 1_000
"""Ended checkpoints that a heap may hold besides as many as it needs."""

GroupQueue = tuple[str, str, int]
"""Topic, group, queue."""

Key = tuple[str, str, int, int, int]
"""Topic, group, queue, start and time of the POP."""


class PopQueue(msgspec.Struct, eq=False):
    """What a group knows of a queue."""

    topic: str
    group: str
    queue_id: int
    next_offset: int
    """Where the next POP reads."""

    open: list[tuple[int, int, "Checkpoint"]] = msgspec.field(default_factory=list)
    """Checkpoints by start, for the committed offset; ended ones go lazily."""

    count: int = 0
    is_gone: bool = False
    """Whether its topic or group was deleted, or its offset set by a tool."""


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
    """Its messages are in the log before: what is at their offsets after that is of a
    topic that was made again. Times do not tell that: clocks are set back."""

    suspend: bool = False
    retries: int = 0
    stored_end: int = 0
    """End of the record in the log; 0: it is not written."""

    acked: list[int] = msgspec.field(default_factory=list)
    """Offsets acked since it was written, of which the log does not know."""

    is_adopted: bool = False
    """Whether it comes from the log: of an earlier run, or of a Java broker."""

    is_done: bool = False

    @property
    def due_ms(self) -> int:
        """When what is not acked becomes visible again."""
        return self.pop_ms + self.invisible_ms

    @property
    def key(self) -> Key:
        """By which acks find it."""
        queue = self.queue
        return queue.topic, queue.group, queue.queue_id, self.start, self.pop_ms

    @property
    def is_written(self) -> bool:
        """Whether the log has it."""
        return self.marks.is_written

    @property
    def is_acked(self) -> bool:
        """Whether no message is open."""
        return not self.marks.open


class Checkpoints:
    """The queues and checkpoints of all groups."""

    def __init__(self, broker: BrokerContext, acks: AckTable) -> None:
        self._offsets = broker.offsets
        self._config = broker.config
        self._acks = acks
        self._positions = broker.positions
        self.queues: dict[GroupQueue, PopQueue] = {}
        self._queues_by_name: dict[str, set[GroupQueue]] = {}
        """By the name of a topic, and by that of a group."""

        self.by_key: dict[Key, Checkpoint] = {}
        self.is_stopping = False
        self.due: list[tuple[int, int, Checkpoint]] = []
        self._serial = 0
        self._delayed_commits: dict[PopQueue, None] = {}
        """Queues whose committed offset waits for disk and group."""

        self.on_due: Callable[[int], None] = lambda _at_ms: None
        broker.topics.on_change.append(self._topic_changed)
        broker.groups.on_change.append(self._group_changed)
        self._groups = broker.groups

    # -- queues

    def find_queue(self, topic: str, group: str, queue_id: int) -> PopQueue | None:
        """Return what is known of a queue since the start; None if it is nothing."""
        return self.queues.get((topic, group, queue_id))

    def find_popped_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset after the last message that was popped, or -1."""
        queue = self.find_queue(topic, group, queue_id)
        return -1 if queue is None else queue.next_offset

    def begin_queue(
        self, topic: str, group: str, queue_id: int, offset: int
    ) -> PopQueue:
        """Begin to pop a queue at an offset."""
        place, queue = (
            (topic, group, queue_id),
            PopQueue(topic, group, queue_id, offset),
        )
        self.queues[place] = queue
        for name in (topic, group):
            self._queues_by_name.setdefault(name, set()).add(place)
        return queue

    def reset(self, queue: PopQueue, offset: int) -> PopQueue:
        """Go on at an offset that a tool set; the old checkpoints serve acks only."""
        queue.is_gone = True
        return self.begin_queue(queue.topic, queue.group, queue.queue_id, offset)

    def _topic_changed(self, name: str, topic: object) -> None:
        if name in self._queues_by_name:
            self._acks.unregister_all()
        if topic is None:
            self._drop_queues(name, 0)

    def _group_changed(self, name: str) -> None:
        if self._groups.get(name) is None:
            self._drop_queues(name, 1)

    def _drop_queues(self, name: str, part: int) -> None:
        """Forget the queues of a topic or group; their checkpoints end when due."""
        gone = [
            each for each in self._queues_by_name.get(name, ()) if each[part] == name
        ]
        for place in gone:
            self.queues.pop(place).is_gone = True
            for each in place[:2]:
                self._queues_by_name[each].discard(place)
                if not self._queues_by_name[each]:
                    del self._queues_by_name[each]

    # -- checkpoints

    @property
    def is_buffered(self) -> bool:
        """Whether checkpoints and acks may stay in memory for some time."""
        return self._config.enable_pop_buffer_merge and not self.is_stopping

    def stop_buffering(self) -> None:
        """Have everything written at once, because the broker stops."""
        self.is_stopping = True
        self._acks.unregister_all()

    @property
    def is_full(self) -> bool:
        """Whether no further one may stay in memory."""
        return len(self.by_key) >= MAX_CHECKPOINTS

    def is_taken(self, queue: PopQueue, start: int, pop_ms: int) -> bool:
        """Whether another checkpoint has this key: acks would meet the wrong one."""
        key = queue.topic, queue.group, queue.queue_id, start, pop_ms
        return key in self.by_key

    def add(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint until it ends."""
        assert checkpoint.key not in self.by_key, f"{checkpoint.key} is taken"
        self.by_key[checkpoint.key] = checkpoint
        if self.is_buffered and not checkpoint.queue.is_gone:
            self._acks.add(checkpoint.key, checkpoint.marks)
        self._serial += 1
        queue = checkpoint.queue
        queue.count += 1
        heapq.heappush(self.due, (checkpoint.due_ms, self._serial, checkpoint))
        if len(self.due) > 2 * len(self.by_key) + SLACK:
            self.due = [entry for entry in self.due if not entry[2].is_done]
            heapq.heapify(self.due)
        if not checkpoint.is_adopted:
            heapq.heappush(queue.open, (checkpoint.start, self._serial, checkpoint))
            if len(queue.open) > 2 * queue.count + SLACK:
                self._compact(queue)
        self.on_due(checkpoint.due_ms)

    def _compact(self, queue: PopQueue) -> None:
        """Remove ended checkpoints after an open one, which hold no offset."""
        kept = self._positions.stable.value
        queue.open = [
            entry
            for entry in queue.open
            if not (entry[2].is_done and entry[2].stored_end <= kept)
        ]
        heapq.heapify(queue.open)

    def hold_offset(self, checkpoint: Checkpoint) -> None:
        """Hold the committed offset for one that only the log has, until it is safe."""
        self._serial += 1
        entry = checkpoint.start, self._serial, checkpoint
        heapq.heappush(checkpoint.queue.open, entry)
        self.commit(checkpoint.queue)

    def postpone(self, at_ms: int, checkpoint: Checkpoint) -> None:
        """Look at a checkpoint again later."""
        self._serial += 1
        heapq.heappush(self.due, (at_ms, self._serial, checkpoint))
        self.on_due(at_ms)

    def take_due(self, now_ms: int) -> Checkpoint | None:
        """Remove and return one whose time is over; None if there is none."""
        while self.due and self.due[0][0] <= now_ms:
            checkpoint = heapq.heappop(self.due)[2]
            if not checkpoint.is_done:
                return checkpoint
        return None

    def next_due_ms(self) -> int | None:
        """Return when the next one is due."""
        while self.due and self.due[0][2].is_done:
            heapq.heappop(self.due)
        return self.due[0][0] if self.due else None

    def end(self, checkpoint: Checkpoint) -> None:
        """Forget a checkpoint: all is acked, or stored again."""
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
        """Move the group's committed offset as far as it may go."""
        if queue.is_gone:
            return
        kept = self._positions.stable.value
        heap = queue.open
        waits = False
        while heap:
            checkpoint = heap[0][2]
            if not (checkpoint.is_done or checkpoint.is_written):
                break
            if checkpoint.stored_end > kept:
                waits = True
                break
            heapq.heappop(heap)
        if waits:
            self._delayed_commits[queue] = None
        offset = heap[0][0] if heap else queue.next_offset
        if self._offsets.query(queue.group, queue.topic, queue.queue_id) != offset:
            with suppress(RequestRejected):  # the table is full: popped again later
                where = queue.group, queue.topic, queue.queue_id
                self._offsets.commit("a POP", *where, offset)

    @property
    def has_delayed_commits(self) -> bool:
        """Whether committed offsets wait for disk and group."""
        return bool(self._delayed_commits)

    def commit_delayed(self) -> None:
        """Move the offsets that waited for disk and group."""
        waiting, self._delayed_commits = self._delayed_commits, {}
        for queue in waiting:
            self.commit(queue)
