"""Machine: growth of the log, faults, clocks of senders, new dead letters."""

import resource
from bisect import bisect_left
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rmq.core.address import host_of
from rmq.core.errors import RecordDamaged
from rmq.core.measure import GrowthRate
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.protocol import properties as names
from rmq.protocol.hosts import host_text
from rmq.protocol.topics import DLQ_PREFIX, RETRY_PREFIX
from rmq.store.results import Boundary

if TYPE_CHECKING:
    from rmq.observe.broker_view import BrokerView
    from rmq.observe.findings import Disk

HOUR_MS: Final = 3_600_000
STEP_MS: Final = 60_000
LEAST_GROWTH_MS: Final = 600_000
"""Minimum time of growth for a forecast of days."""

LATELY_MS: Final = 30_000
LEAST_LATELY_MS: Final = 7_000
MAX_HOSTS: Final = 100
"""Maximum number of senders' hosts whose clocks are compared; above it the host that
was seen longest ago is removed.
"""

SKEWS_KEPT: Final = 3
SKEW_MS: Final = 600_000
"""Time after which a silent sender is removed."""

SAMPLED_QUEUES: Final = 20
"""Number of newest messages that one sample reads: 0.4 ms."""

SAMPLED_SIZE: Final = 64 * 1024
DEAD_NOTES: Final = 60
MAX_DEAD: Final = 1_000
"""Maximum number of groups whose dead letters of the last hour are counted."""

MAX_RESENT: Final = 10_000
"""Maximum number of dead letters that one request sends again."""

OLD_BIRTHS: Final = (
    names.REAL_TOPIC, names.DELAY, names.RECONSUME_TIME, names.RETRY_TOPIC,
    names.TRAN_MSG,
)  # fmt: skip
"""Properties of messages that are stored long after their birth for a good reason."""


class LogGrowth:
    """The end of the log over the last hour, and pages read from the disk."""

    def __init__(self) -> None:
        self._hour = GrowthRate(HOUR_MS, STEP_MS, LEAST_GROWTH_MS)
        self._lately = GrowthRate(LATELY_MS, 0, LEAST_LATELY_MS)
        self._faults = GrowthRate(1, 0, 1)
        """Page faults per second between the last two samples."""

        self._oldest: tuple[int, int] = -1, 0

    @property
    def faults_per_s(self) -> float:
        """Pages that this process read from the disk."""
        return self._faults.per_second() or 0.0

    def shift_times(self, step_ms: int) -> None:
        """Move all samples, because the clock was set."""
        for rate in self._hour, self._lately, self._faults:
            rate.shift_times(step_ms)

    def sample(self, broker: "BrokerView", now_ms: int) -> None:
        """Take a sample."""
        end = broker.store.log.end_offset
        self._hour.sample(now_ms, end)
        self._lately.sample(now_ms, end)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        self._faults.sample(now_ms, faults)

    def disk_usage(self, broker: "BrokerView", now_ms: int) -> "Disk":
        """Return the facts about the disk of the log."""
        # imported on use: the first sample comes seconds after the start
        from rmq.observe.findings import Disk

        usage = broker.store.disk.least_used()
        config = broker.store_config
        return Disk(
            total=usage.used + usage.free,
            used=usage.used,
            early_ratio=config.disk_max_used_ratio / 100,
            refuse_ratio=config.disk_warning_ratio / 100,
            growth_per_hour=_per_hour(self._hour),
            lately_per_hour=_per_hour(self._lately),
            kept_ms=self.kept_ms(broker, now_ms),
            reserved_ms=config.reserved_hours * HOUR_MS,
        )

    def kept_ms(self, broker: "BrokerView", now_ms: int) -> int | None:
        """Return the age of the oldest message, which is read once for each file."""
        start = broker.store.statistics().min_physical_offset
        if start < 0:
            return None
        if start != self._oldest[0]:
            self._oldest = start, broker.store.log.store_ms_at(PhysicalOffset(start))
        stored_ms = self._oldest[1]
        return max(0, now_ms - stored_ms) if stored_ms > 0 else None


def _per_hour(rate: GrowthRate) -> float | None:
    per_second = rate.per_second()
    return None if per_second is None else per_second * 3_600


class SenderClocks:
    """The milliseconds by which the clocks of senders are ahead, from new messages."""

    def __init__(self) -> None:
        self._skews: dict[str, tuple[int, deque[int]]] = {}
        """By host: the time of its last message, and the last differences."""

    def sample(self, broker: "BrokerView", touched: dict[tuple[str, int], int]) -> None:
        """Read the newest message of some queues."""
        for (topic, queue_id), end in list(touched.items())[:SAMPLED_QUEUES]:
            queue = broker.store.queues.get(topic, queue_id)
            is_own = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
            if queue is None or is_own or broker.topics.is_system(topic):
                continue
            if not queue.min_offset <= end - 1 < queue.next_offset:
                continue
            offset, size, _ = queue.entry_at(QueueOffset(end - 1))
            if size > SAMPLED_SIZE:
                continue
            message = None
            with suppress(RecordDamaged):
                message = broker.store.reads.message_at(PhysicalOffset(offset))
            if message is None or any(
                name in message.properties for name in OLD_BIRTHS
            ):
                continue
            host = host_of(host_text(message.born_host))
            stored_ms = message.store_timestamp
            self._add_skew(host, stored_ms, message.born_timestamp - stored_ms)

    def _add_skew(self, host: str, stored_ms: int, ahead_ms: int) -> None:
        _, known = self._skews.pop(host, (0, deque[int](maxlen=SKEWS_KEPT)))
        known.append(ahead_ms)
        if len(self._skews) >= MAX_HOSTS:
            del self._skews[next(iter(self._skews))]
        self._skews[host] = stored_ms, known

    def clock_skews(self, now_ms: int) -> list[tuple[str, int]]:
        """Return hosts with the minimum difference of their last messages.

        A single message may be late for other reasons.
        """
        return [
            (host, min(known, key=abs))
            for host, (stored_ms, known) in self._skews.items()
            if len(known) > 1 and now_ms - stored_ms < SKEW_MS
        ]


class DeadLetters:
    """New dead letters of the last hour, by group, without letters that were sent
    again.
    """

    def __init__(self) -> None:
        self._ends: dict[str, deque[tuple[int, int]]] = {}
        self._resent: dict[str, list[int]] = {}
        """Offsets of the last hour, in order; with gaps for resent messages."""

    def sample(
        self,
        broker: "BrokerView",
        touched: dict[tuple[str, int], int],
        now_ms: int,
    ) -> None:
        """Record the ends of the queues that grew."""
        for (topic, _), end in touched.items():
            if not topic.startswith(DLQ_PREFIX):
                continue
            group = topic.removeprefix(DLQ_PREFIX)
            ends = self._ends.get(group)
            if ends is None:
                if len(self._ends) >= MAX_DEAD:
                    continue
                since = now_ms - HOUR_MS
                first = broker.store.reads.offset_by_time(
                    topic, 0, since, Boundary.LOWER
                )
                ends = self._ends[group] = deque([(now_ms, first)], DEAD_NOTES)
            if now_ms - ends[-1][0] >= STEP_MS or len(ends) == 1:
                ends.append((now_ms, end))
            else:
                ends[-1] = ends[-1][0], end

    def shift_times(self, step_ms: int) -> None:
        """Move all ends, because the clock was set."""
        for group, ends in self._ends.items():
            moved = ((at_ms + step_ms, end) for at_ms, end in ends)
            self._ends[group] = deque(moved, DEAD_NOTES)

    def exclude_resent(self, group: str, resent: set[int]) -> None:
        """Remove dead letters that were sent again; at most `MAX_RESENT` with gaps."""
        ends = self._ends.get(group)
        if ends is None:
            return
        first, known = ends[0][1], resent.union(self._resent.get(group, ()))
        while first in known:
            first += 1
        self._ends[group] = deque(
            [(ms, max(first, end)) for ms, end in ends], DEAD_NOTES
        )
        self._resent[group] = sorted(each for each in known if each > first)[
            :MAX_RESENT
        ]

    def of_hour(self, now_ms: int) -> list[tuple[str, int]]:
        """Return groups and the number of their new dead letters."""
        found = []
        for group, ends in list(self._ends.items()):
            while len(ends) > 1 and ends[1][0] < now_ms - HOUR_MS:
                ends.popleft()
            if ends[-1][0] < now_ms - HOUR_MS:
                del self._ends[group]
                self._resent.pop(group, None)
            else:
                resent = self._resent.get(group, ())
                settled = bisect_left(resent, ends[-1][1])
                settled -= bisect_left(resent, ends[0][1])
                found.append((group, ends[-1][1] - ends[0][1] - settled))
        return found
