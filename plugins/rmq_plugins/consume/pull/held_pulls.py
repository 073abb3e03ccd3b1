"""Pulls that wait for messages. Known in Java as `PullRequestHoldService`.

A pull that finds no message waits for its queue. The pull ends when a matching message
arrives, at its deadline, when its connection closes, or when the broker stops. The
owner decides the answer: `resume` runs the pull again.

Cost: an arrival reads the new entries of a queue once, and runs only the pulls that
match one of their tags codes. Woken pulls go into one deque; a turn runs pulls from it
for TURN_NS. No step iterates over all waiting pulls.
Limits: `HeldPullLimits` and `MAX_SIZE`; `hold_pull` refuses more.
Callers are on the trio thread.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from rmq.plugin import Alarm, Connection, QueueKey, QueueOffset
from rmq.protocol.command import Command
from rmq.protocol.headers.pull import PullMessageRequestHeader

MAX_SIZE: Final = 256 * 1024 * 1024
"""Maximum bytes of all pulls together, as `HeldPull.size` counts them."""

FIELD_SIZE: Final = 64
"""Bytes of a field in addition to its characters."""

CODE_SIZE: Final = 320
"""Bytes of a tags code in the table of its queue."""

MAX_SUSPEND_MS: Final = 600_000
"""Limit of the time to wait; clients request 15 to 30 seconds."""

TICK_MS: Final = 100
"""Resolution of deadlines, which are rounded up: pulls end in groups."""

TURN_NS: Final = 500_000
"""Time of one turn; a pull takes 20 to 50 us. Other tasks run between turns."""

MAX_TESTED: Final = 8_192
"""Maximum number of entries of one arrival whose tags codes are read (0.5 ms); a larger
arrival wakes all pulls of the queue.
"""

ANY_TAG_BELOW: Final = -(1 << 31)
"""A tags code below this number is not a hash: Java stores an address in its place, and
all filters match.
"""

K = TypeVar("K")


class HeldPullLimits(NamedTuple):
    """Limits of waiting pulls: in all, and for one connection, group and queue."""

    total: int
    per_connection: int
    per_group: int
    per_queue: int


class HeldPull(msgspec.Struct, eq=False):
    """A pull that waits for a message."""

    request: Command
    header: PullMessageRequestHeader
    connection: Connection
    deadline_ms: int
    tag_codes: tuple[int, ...] | None = None
    """Codes that match; None: every message may match."""

    tested_offset: int = 0
    """No entry from its queue offset up to this one has one of the codes."""

    size: int = 0
    """Rough size in bytes."""

    is_waiting: bool = False
    """Whether new messages wake the pull; False after the first wake-up."""

    is_done: bool = False

    def __post_init__(self) -> None:
        fields = self.request.ext_fields
        texts = sum(map(len, fields)) + sum(map(len, fields.values()))
        self.size = (
            texts
            + FIELD_SIZE * len(fields)
            + len(self.request.body)
            + CODE_SIZE * len(self.tag_codes or ())
        )

    @property
    def queue(self) -> QueueKey:
        """Topic and queue whose messages wake the pull."""
        return self.header.read_topic, self.header.queue_id

    @property
    def tick(self) -> int:
        """The first tick at or after the deadline of the pull."""
        return -(-self.deadline_ms // TICK_MS)


Pulls = dict[HeldPull, None]


class QueueAccess(NamedTuple):
    """The calls of `HeldPulls` into the store."""

    end: Callable[[str, int], int]
    """Return the offset after the last message that readers see."""

    tag_codes: Callable[[str, int, QueueOffset, QueueOffset], set[int]]
    """Return the tags codes of the entries in [first, end)."""

    watch: Callable[[QueueKey, bool], None]
    """Called with True before the first pull of a queue waits, False after the last."""


class _Queue(msgspec.Struct):
    """The pulls of one queue, by the tags codes that wake them."""

    tested_offset: int
    """The offset up to which entries were tested for the pulls in `by_code`."""

    count: int = 0
    """Pulls that wait or run soon."""

    untagged: Pulls = msgspec.field(default_factory=dict)
    by_code: dict[int, Pulls] = msgspec.field(default_factory=dict)

    def add(self, pull: HeldPull) -> None:
        """Let arrivals wake a pull."""
        pull.is_waiting = True
        if pull.tag_codes is None:
            self.untagged[pull] = None
            return
        for code in pull.tag_codes:
            self.by_code.setdefault(code, {})[pull] = None

    def remove(self, pull: HeldPull) -> None:
        """Let no arrival wake a pull; a second call has no effect."""
        pull.is_waiting = False
        self.untagged.pop(pull, None)
        for code in pull.tag_codes or ():
            pulls = self.by_code.get(code, {})
            pulls.pop(pull, None)
            if not pulls:
                self.by_code.pop(code, None)

    def take_woken(self, codes: Iterable[int]) -> Pulls:
        """Remove and return the pulls that entries with these codes wake."""
        tagged = {pull: None for code in codes for pull in self.by_code.get(code, ())}
        woken = self.untagged | tagged
        self.untagged = {}
        for pull in woken:
            self.remove(pull)
        return woken


Resume = Callable[[HeldPull, bool], Command | None]
"""Runs a held pull again; None: the pull waits longer, but never after its deadline."""


class HeldPullStatistics(NamedTuple):
    """Counts of held pulls by their state."""

    waiting: int
    queues: int
    held: int
    refused: int
    woken: int
    expired: int
    dropped: int


class HeldPulls:
    """All pulls that wait, by queue, connection and deadline."""

    def __init__(
        self,
        resume: Resume,
        queues: QueueAccess,
        limits: Callable[[], HeldPullLimits],
        now_ms: Callable[[], int],
        timer_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._resume = resume
        self._access = queues
        self._limits = limits
        self._now_ms = now_ms
        self._timer_ns = timer_ns
        self._by_queue: dict[QueueKey, _Queue] = {}
        self._by_connection: dict[Connection, Pulls] = {}
        self._by_tick: dict[int, Pulls] = {}
        self._count_by_group: Counter[str] = Counter()
        self._to_run: deque[HeldPull] = deque()
        self._last_tick = 0
        self.is_stopping = False
        """Whether the broker stops: no pull may wait any more."""

        self._waiting = self._size = self._held = self._refused = 0
        self._woken = self._expired = self._dropped = 0
        self.alarm = Alarm(now_ms)
        """Wakes the task that calls `sweep` and `run_turn`."""

    def hold_pull(self, pull: HeldPull) -> bool:
        """Hold a pull; False without room, or while the broker stops."""
        assert not pull.is_done, f"a pull of {pull.queue} was answered already"
        if self.is_stopping or not self._has_room(pull):
            self._refused += 1
            return False
        queue = self._by_queue.get(pull.queue)
        if queue is None:
            queue = self._by_queue[pull.queue] = _Queue(self._access.end(*pull.queue))
            self._access.watch(pull.queue, True)
        queue.count += 1
        self._by_connection.setdefault(pull.connection, {})[pull] = None
        self._count_by_group[pull.header.consumer_group] += 1
        self._waiting += 1
        self._size += pull.size
        self._held += 1
        self._register(pull)
        return True

    def _has_room(self, pull: HeldPull) -> bool:
        limits, queue = self._limits(), self._by_queue.get(pull.queue)
        return (
            self._waiting < limits.total
            and len(self._by_connection.get(pull.connection, ()))
            < limits.per_connection
            and self._count_by_group[pull.header.consumer_group] < limits.per_group
            and (queue is None or queue.count < limits.per_queue)
            and self._size + pull.size <= MAX_SIZE
        )

    def on_arrivals(self, queues: Mapping[QueueKey, int]) -> None:
        """Wake the pulls of queues with new messages, and run these pulls for a first
        turn.
        """
        if not self._by_queue:
            return
        woken: list[HeldPull] = []
        for key, end in queues.items():
            queue = self._by_queue.get(key)
            if queue is not None:
                woken += self._find_woken(key, queue, end)
        if woken:
            self._run_soon(woken)

    def sweep(self) -> None:
        """End the pulls after their deadlines."""
        tick = self._now_ms() // TICK_MS
        if tick == self._last_tick:
            return
        self._last_tick = tick
        due = [each for each in self._by_tick if each <= tick]
        self._run_soon(pull for each in due for pull in self._by_tick.pop(each))

    def drop(self, connection: Connection) -> None:
        """Remove the pulls of a closed connection."""
        self._run_soon(self._by_connection.pop(connection, ()))

    def end_all(self) -> None:
        """Answer every pull and hold no more, because the broker stops."""
        self.is_stopping = True
        for pulls in list(self._by_connection.values()):
            self._to_run.extend(pulls)
        while self._to_run:
            self.run_turn()

    @property
    def has_more(self) -> bool:
        """Whether woken pulls wait for the next turn."""
        return bool(self._to_run)

    def set_alarm(self) -> None:
        """Set the alarm to the next deadline."""
        if self._by_tick:
            self.alarm.wake_at(min(self._by_tick) * TICK_MS)

    def run_turn(self) -> None:
        """Run woken pulls for one turn."""
        until_ns = self._timer_ns() + TURN_NS
        while self._to_run:
            pull = self._to_run.popleft()
            if not pull.is_done:
                self._run(pull)
            if self._timer_ns() >= until_ns:
                break

    def statistics(self) -> HeldPullStatistics:
        """Return the present counts."""
        return HeldPullStatistics(
            waiting=self._waiting,
            queues=len(self._by_queue),
            held=self._held,
            refused=self._refused,
            woken=self._woken,
            expired=self._expired,
            dropped=self._dropped,
        )

    def _find_woken(self, key: QueueKey, queue: _Queue, end: int) -> Iterable[HeldPull]:
        """Return the pulls that an arrival wakes; its entries are read once."""
        first, queue.tested_offset = queue.tested_offset, end
        codes: Iterable[int] = ()
        if queue.by_code:
            is_known = 0 <= end - first <= MAX_TESTED
            entries = QueueOffset(first), QueueOffset(end)
            codes = self._access.tag_codes(*key, *entries) if is_known else ()
            if not is_known or min(codes, default=0) < ANY_TAG_BELOW:
                codes = list(queue.by_code)
        woken = queue.take_woken(codes)
        for pull in woken:
            pull.tested_offset = min(first, end)
        return woken

    def _run_soon(self, pulls: Iterable[HeldPull]) -> None:
        """Append pulls to the pulls that run soon; if no other pulls wait there, run a
        turn now.
        """
        is_first = not self._to_run
        self._to_run.extend(pulls)
        if self._to_run and is_first:
            self.run_turn()
        if self._to_run:
            self.alarm.wake_at(0)

    def _run(self, pull: HeldPull) -> None:
        if pull.connection not in self._by_connection:
            self._dropped += 1
            self._remove(pull)
            return
        if pull.is_waiting:
            tested = self._by_queue[pull.queue].tested_offset
            pull.tested_offset = min(tested, self._access.end(*pull.queue))
        is_over = self.is_stopping or pull.deadline_ms <= self._now_ms()
        answer = self._resume(pull, is_over)
        if answer is None:
            assert not is_over, f"a pull of {pull.queue} must end"
            self._register(pull)
            return
        self._expired += is_over
        self._woken += not is_over
        self._remove(pull)
        if pull.connection.is_open:
            pull.connection.send_nowait(answer)

    def _register(self, pull: HeldPull) -> None:
        """Let arrivals and the deadline wake a pull."""
        self._by_queue[pull.queue].add(pull)
        self._by_tick.setdefault(pull.tick, {})[pull] = None
        self.alarm.wake_at(pull.tick * TICK_MS)

    def _remove(self, pull: HeldPull) -> None:
        """Remove a pull from all tables, and the entries that become empty."""
        assert not pull.is_done, "a pull was removed twice"
        pull.is_done = True
        queue = self._by_queue[pull.queue]
        queue.remove(pull)
        queue.count -= 1
        if not queue.count:
            del self._by_queue[pull.queue]
            self._access.watch(pull.queue, False)
        group = pull.header.consumer_group
        self._count_by_group[group] -= 1
        if not self._count_by_group[group]:
            del self._count_by_group[group]
        _discard(self._by_connection, pull.connection, pull)
        _discard(self._by_tick, pull.tick, pull)
        self._waiting -= 1
        self._size -= pull.size
        assert bool(self._waiting) == bool(self._by_queue), "the tables differ"


def _discard(table: dict[K, Pulls], key: K, pull: HeldPull) -> None:
    pulls = table.get(key)
    if pulls is not None:
        pulls.pop(pull, None)
        if not pulls:
            del table[key]
