"""Pulls that wait for messages. Known in Java as `PullRequestHoldService`.

A pull that finds nothing is kept by its queue. It ends when a message arrives that it
takes, when its time is over (noticed at a sweep, so up to one sweep late), when its
connection closes, or when the broker stops. What it then answers is the business of the
one who holds it: `resume` runs the pull again.

Bounds: `MAX_PER_QUEUE`, `MAX_TOTAL` and `MAX_SIZE`; `hold` says no beyond them.
Called on the trio thread only.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from rmq.broker.context import Connection
from rmq.protocol.command import Command
from rmq.protocol.headers.pull import PullMessageRequestHeader

MAX_PER_QUEUE: Final = 10_000
"""A broadcast group holds one pull of each queue for each of its members."""

MAX_TOTAL: Final = 100_000
"""About 1 kB each; what Java's pull queue holds."""

MAX_SIZE: Final = 256 * 1024 * 1024
"""Characters of the fields and bodies of all pulls together."""

FIELD_SIZE: Final = 64
"""What a field takes besides its characters."""

MAX_SUSPEND_MS: Final = 600_000
"""Clients ask for 15 to 30 seconds; nobody holds a place for longer than this."""

QueueKey = tuple[str, int]


class HeldPull(msgspec.Struct, eq=False):
    """A pull in waiting; its header's queue offset moves past what did not match."""

    request: Command
    header: PullMessageRequestHeader
    connection: Connection
    deadline_ms: int
    size: int = 0

    def __post_init__(self) -> None:
        fields = self.request.ext_fields
        texts = sum(map(len, fields)) + sum(map(len, fields.values()))
        self.size = texts + FIELD_SIZE * len(fields) + len(self.request.body)

    @property
    def queue(self) -> QueueKey:
        """Topic and queue that it waits for."""
        return self.header.topic, self.header.queue_id


Resume = Callable[[HeldPull, bool], Command | None]
"""Runs a held pull again; None goes on waiting, which is no answer if it must end."""


Watch = Callable[[QueueKey, bool], None]
"""Is told when a queue begins or ends to have pulls in waiting."""


class HeldPullStatistics(NamedTuple):
    """How many pulls wait, and what became of the others."""

    waiting: int
    queues: int
    held: int
    refused: int
    woken: int
    expired: int
    dropped: int


class HeldPulls:
    """All pulls in waiting, by queue and by connection."""

    def __init__(self, resume: Resume, now_ms: Callable[[], int], watch: Watch) -> None:
        self._resume = resume
        self._watch = watch
        self._now_ms = now_ms
        self._by_queue: dict[QueueKey, dict[HeldPull, None]] = {}
        self._by_connection: dict[Connection, dict[HeldPull, None]] = {}
        self._is_over = False
        self._waiting = self._size = self._held = self._refused = 0
        self._woken = self._expired = self._dropped = 0

    def hold(self, pull: HeldPull) -> bool:
        """Keep a pull; False if there is no room, or the broker stops."""
        in_queue = self._by_queue.get(pull.queue, {})
        is_full = self._waiting >= MAX_TOTAL or len(in_queue) >= MAX_PER_QUEUE
        is_heavy = self._size + pull.size > MAX_SIZE
        if is_full or is_heavy or self._is_over:
            self._refused += 1
            return False
        assert pull not in in_queue, f"a pull of {pull.queue} is held already"
        self._by_queue.setdefault(pull.queue, in_queue)[pull] = None
        self._watch(pull.queue, True)
        self._by_connection.setdefault(pull.connection, {})[pull] = None
        self._waiting += 1
        self._size += pull.size
        self._held += 1
        return True

    def on_arrivals(self, queues: Mapping[QueueKey, int]) -> None:
        """Wake the pulls of queues whose visible end moved."""
        for key in queues:
            waiting = self._by_queue.get(key)
            if waiting is not None:
                self._wake(list(waiting))

    def sweep(self) -> None:
        """End the pulls whose time is over."""
        now_ms = self._now_ms()
        for waiting in list(self._by_queue.values()):
            over = [pull for pull in waiting if pull.deadline_ms <= now_ms]
            self._expired += len(over)
            self._end(over)

    def drop(self, connection: Connection) -> None:
        """Forget the pulls of a connection that closed."""
        pulls = self._by_connection.get(connection, {})
        self._dropped += len(pulls)
        for pull in list(pulls):
            self._remove(pull)

    def end_all(self) -> None:
        """Answer every pull and take no others, because the broker stops."""
        self._is_over = True
        for waiting in list(self._by_queue.values()):
            self._end(list(waiting))

    def statistics(self) -> HeldPullStatistics:
        """Return a picture of the counters."""
        return HeldPullStatistics(
            waiting=self._waiting,
            queues=len(self._by_queue),
            held=self._held,
            refused=self._refused,
            woken=self._woken,
            expired=self._expired,
            dropped=self._dropped,
        )

    def _wake(self, pulls: Iterable[HeldPull]) -> None:
        for pull in pulls:
            answer = self._resume(pull, False)
            if answer is not None:
                self._woken += 1
                self._answer(pull, answer)

    def _end(self, pulls: Iterable[HeldPull]) -> None:
        for pull in pulls:
            answer = self._resume(pull, True)
            assert answer is not None, f"a pull of {pull.queue} must end"
            self._answer(pull, answer)

    def _answer(self, pull: HeldPull, answer: Command) -> None:
        self._remove(pull)
        if pull.connection.is_open:
            pull.connection.send_nowait(answer)

    def _remove(self, pull: HeldPull) -> None:
        """Take a pull out of both tables; empty places go away."""
        in_queue = self._by_queue[pull.queue]
        del in_queue[pull]
        if not in_queue:
            del self._by_queue[pull.queue]
            self._watch(pull.queue, False)
        of_connection = self._by_connection[pull.connection]
        del of_connection[pull]
        if not of_connection:
            del self._by_connection[pull.connection]
        self._waiting -= 1
        self._size -= pull.size
        assert self._waiting >= 0, "a pull was removed twice"
        assert bool(self._waiting) == bool(self._by_queue), "the tables differ"
