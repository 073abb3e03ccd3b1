"""Progress: the positions of groups and their rates, from samples.

A sample reads only pairs of topic and group that may have changed. The topic of such a
pair got messages since the last sample, or the group lagged then. Ten thousand quiet
topics cost nothing.  A pair uses memory only while it lags.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from rmq.protocol.bodies.heartbeat import MessageModel
from rmq.store.queues.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from rmq.observe.broker_view import BrokerView

MAX_PAIRS: Final = 100_000
"""Maximum number of pairs of topic and group that a sample looks at."""

MAX_QUEUES: Final = 20_000
"""Maximum number of pairs of a queue and a group that lags in it; about 400 bytes each.
"""

GROUPS_AT_ONCE: Final = 64
"""Number of groups that are skipped before the caller may pause: 0.03 ms."""

LEAST_RATE_MS: Final = 6_000
"""Minimum time of a rate: clients commit every 5 s."""

MAX_MARKS: Final = 6

PairKey = tuple[str, str]
"""Topic and group."""


class QueueProgress(msgspec.Struct):
    """The progress of a group in a queue, while messages wait there."""

    first_ms: int
    offset: int
    """Offset before which messages are consumed or, in a group that pops, fetched."""

    end: int
    base: int = -1
    """Without a commit: the offset from which on messages wait for the group."""

    still_since_ms: int = 0
    rate_ms: int = 0
    rate_offset: int = 0
    rate_end: int = 0
    done_per_s: float | None = None
    arriving_per_s: float | None = None
    marks: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Times with the end of the queue at that time; the waiting messages were stored
    before the first of these times.
    """

    @classmethod
    def start(cls, now_ms: int, offset: int, end: int) -> "QueueProgress":
        """Return the progress of a queue at its first sample."""
        return cls(
            now_ms, offset, end, still_since_ms=now_ms, rate_ms=now_ms,
            rate_offset=offset, rate_end=end,
        )  # fmt: skip

    @property
    def lag(self) -> int:
        """Messages that wait."""
        return self.end - self.offset

    def move(self, now_ms: int, offset: int, end: int) -> None:
        """Take a sample."""
        if offset != self.offset or offset == end:
            self.still_since_ms = now_ms
        elapsed_ms = now_ms - self.rate_ms
        if elapsed_ms >= LEAST_RATE_MS:
            done, came = offset - self.rate_offset, end - self.rate_end
            self.done_per_s = max(0, done) * 1_000 / elapsed_ms
            self.arriving_per_s = max(0, came) * 1_000 / elapsed_ms
            self.rate_ms, self.rate_offset, self.rate_end = now_ms, offset, end
        self.offset, self.end = offset, end
        while self.marks and self.marks[0][1] <= offset:
            del self.marks[0]
        if offset < end and (not self.marks or self.marks[-1][1] < end):
            self.marks.append((now_ms, end))
            if len(self.marks) > MAX_MARKS:
                del self.marks[-3]

    def shift_times(self, step_ms: int) -> None:
        """Move all times, because the clock was set."""
        self.first_ms += step_ms
        self.still_since_ms += step_ms
        self.rate_ms += step_ms
        self.marks = [(at_ms + step_ms, end) for at_ms, end in self.marks]

    def waits_ms(self, now_ms: int) -> int:
        """Return the minimum time that the oldest message has waited."""
        return max(0, now_ms - self.marks[0][0]) if self.marks else 0


class GroupProgress:
    """The groups for which messages wait, by group, topic and queue id."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, dict[int, QueueProgress]]] = {}
        self.unwatched = 0
        """Queues of the last sample for which there was no room."""

        self._touched: set[str] = set()
        self._suspects: set[str] = set()
        self._count = 0

    def shift_times(self, step_ms: int) -> None:
        """Move all times, because the clock was set."""
        for topics in self.groups.values():
            for queues in topics.values():
                for progress in queues.values():
                    progress.shift_times(step_ms)

    def mark_touched(self, topics: set[str]) -> None:
        """Look at these topics in the next sample: they got messages."""
        self._touched |= topics

    def mark_reset(self, group: str) -> None:
        """Look at a group in the next sample: its offsets were reset."""
        self._suspects.add(group)

    def sample(self, broker: "BrokerView") -> Iterator[None]:
        """Read all pairs; the caller may pause between two pairs."""
        self.unwatched = 0
        pairs = dict.fromkeys(
            (topic, group) for group, topics in self.groups.items() for topic in topics
        )
        yield
        yield from self._add_changed(broker, pairs)
        for topic, group in pairs:
            self._sample_pair(broker, topic, group)
            yield

    def _add_changed(
        self, broker: "BrokerView", pairs: dict[PairKey, None]
    ) -> Iterator[None]:
        """Add the pairs whose topic got messages, or whose group was reset."""
        touched, self._touched = self._touched, set()
        suspects, self._suspects = self._suspects, set()
        for topic in touched:
            for group in broker.offsets.groups_of(topic):
                _add_pair(pairs, topic, group)
            yield
        for group in suspects:
            for topic in broker.offsets.topics_of(group):
                _add_pair(pairs, topic, group)
            yield
        for number, group in enumerate(broker.consumers.group_names()):
            if number % GROUPS_AT_ONCE == 0:
                yield
            online = broker.consumers.group(group)
            wanted = online.subscriptions.keys() if online else set[str]()
            for topic in wanted if group in suspects else wanted & touched:
                _add_pair(pairs, topic, group)

    def _sample_pair(self, broker: "BrokerView", topic: str, group: str) -> None:
        """Sample the queues of a pair; forget it if nothing waits."""
        config = broker.topics.get(topic)
        online = broker.consumers.group(group)
        is_broadcast = online is not None and (
            online.message_model == MessageModel.BROADCASTING
        )
        is_gone = not broker.offsets.has_offset(group, topic) and (
            online is None or topic not in online.subscriptions
        )
        if config is None or is_broadcast or is_gone or broker.topics.is_system(topic):
            self._replace(topic, group, {})
            return
        before = self.groups.get(group, {}).get(topic, {})
        now: dict[int, QueueProgress] = {}
        for queue_id in range(config.read_queue_nums):
            queue = broker.store.queues.get(topic, queue_id)
            if queue is None:
                continue
            reached = broker.offsets.next_offset_of(group, topic, queue_id)
            found = self._sample_queue(
                broker, group, queue, reached, before.get(queue_id)
            )
            if found is not None:
                now[queue_id] = found
        self._replace(topic, group, now)

    def _sample_queue(
        self,
        broker: "BrokerView",
        group: str,
        queue: ConsumeQueue,
        reached: int,
        known: QueueProgress | None,
    ) -> QueueProgress | None:
        """Sample a queue; None if nothing waits there."""
        now_ms = broker.clock.now_ms()
        where = queue.topic, queue.queue_id
        end = int(broker.store.reads.max_offset(*where))
        low = int(queue.min_offset)
        base = reached
        if reached < 0:
            base = known.base if known is not None and known.base >= 0 else end
            if broker.statistics.pulled_offset(group, *where) >= 0:
                base = min(base, low)
        offset = min(max(base, low), end)
        if known is None:
            if offset == end and reached >= 0:
                return None
            if self._count >= MAX_QUEUES:
                self.unwatched += 1
                return None
            known = QueueProgress.start(now_ms, offset, end)
        known.base = -1 if reached >= 0 else base
        known.move(now_ms, offset, end)
        return known if reached < 0 or offset < end else None

    def _replace(self, topic: str, group: str, now: dict[int, QueueProgress]) -> None:
        topics = self.groups.get(group, {})
        self._count += len(now) - len(topics.pop(topic, {}))
        if now:
            topics[topic] = now
            self.groups[group] = topics
        elif not topics:
            self.groups.pop(group, None)


def _add_pair(pairs: dict[PairKey, None], topic: str, group: str) -> None:
    if len(pairs) < MAX_PAIRS:
        pairs[topic, group] = None
