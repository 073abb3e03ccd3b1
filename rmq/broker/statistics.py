"""BrokerStatistics: messages in and out by topic and group, per minute, hour and day.

An item is a sum and a count of additions that only grow. Samples of both are taken
every 10 s, 10 minutes and hour; a window is the difference between now and its oldest
sample (one minute, one hour, one day ago).

Puts cost one update of a set per poll: the queues count new messages themselves, and
are asked a second after they came and before each reading. Gets are counted once per
pull. Call everything from the trio thread.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import trio

from rmq._fastpath import SIZE_BOUNDS
from rmq.broker.arrivals import QueueKey
from rmq.broker.timings import COMMIT_BOUNDS_S, CREATION_BOUNDS_MS, Timings
from rmq.clock import Clock
from rmq.protocol.bodies.statistics import BrokerStatsData, BrokerStatsItem
from rmq.store.message_store import MessageStore

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
QUEUE_PUT_NUMS: Final = "QUEUE_PUT_NUMS"
QUEUE_PUT_SIZE: Final = "QUEUE_PUT_SIZE"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
QUEUE_GET_NUMS: Final = "QUEUE_GET_NUMS"
QUEUE_GET_SIZE: Final = "QUEUE_GET_SIZE"
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"
SNDBCK2DLQ_TIMES: Final = "SNDBCK2DLQ_TIMES"
COMMIT_NUMS: Final = "COMMIT_NUMS"
ROLLBACK_NUMS: Final = "ROLLBACK_NUMS"

SAMPLE_INTERVAL_S: Final = 10
ROUNDS_OF_HOUR: Final = 60
"""Samples after which the hour gets one: every 10 minutes."""

ROUNDS_OF_DAY: Final = 360
MINUTE_NOTES, HOUR_NOTES, DAY_NOTES = 7, 7, 25

COUNTED_AT_ONCE: Final = 500
"""Queues and items that are handled before others run: at most a millisecond."""

COUNT_PAUSE_S: Final = 0.05
"""Between two such parts, while nobody asks: 10,000 queues a second, 5 % of a core."""

MAX_ITEMS: Final = 20_000
"""Items of all names; one takes up to 3 kB. More are not counted."""

_NO_PULL: Final = -1, 0

Note = tuple[int, int, int]
PullKey = tuple[str, str, int]
"""Group, topic, queue."""


class StatsItem:
    """A sum, its number of additions, and samples of both. Java's `StatsItem`."""

    __slots__ = ("day", "hour", "minute", "times", "value")

    def __init__(self, now_ms: int) -> None:
        self.value = 0
        self.times = 0
        first = (now_ms, 0, 0)
        self.minute: list[Note] = [first]
        self.hour: list[Note] = [first]
        self.day: list[Note] = [first]

    @property
    def is_idle(self) -> bool:
        """Whether nothing was added for a day."""
        return len(self.day) == DAY_NOTES and self.day[0][2] == self.times

    def window(self, notes: list[Note], now_ms: int) -> BrokerStatsItem:
        """Return what was added since the oldest sample.

        A rate is over one sample interval at least, so that a single message one
        millisecond ago is not reported as 1,000/s.
        """
        at_ms, value, times = notes[0]
        added, additions = self.value - value, self.times - times
        assert added >= 0 <= additions, f"{notes[0]}: sums only grow"
        elapsed_ms = max(now_ms - at_ms, SAMPLE_INTERVAL_S * 1_000)
        return BrokerStatsItem(
            sum=added,
            tps=added * 1_000 / elapsed_ms,
            avgpt=added / additions if additions else 0.0,
        )


class BrokerStatistics:
    """Known in Java as `BrokerStatsManager`."""

    def __init__(self, store: MessageStore, clock: Clock, cluster: str) -> None:
        self._tails = store.queues.tails
        self._now_ms: Callable[[], int] = clock.now_ms
        self._cluster = cluster
        self.sources: list[Callable[[], None]] = []
        """Callbacks that count what other parts have collected."""
        self._rounds = 0
        for queue in self._tails.take_uncounted(self._tails.uncounted_count):
            queue.take_counts(None)  # from before the start
        self._items: dict[tuple[str, str], StatsItem] = {}
        self._of_queue: dict[QueueKey, tuple[StatsItem, ...]] = {}
        self._of_pull: dict[PullKey, tuple[StatsItem, ...]] = {}
        self._pulled: dict[PullKey, tuple[int, int]] = {}
        """Where the last pull that found messages ended, and whose it was."""

        self._has_arrived = trio.Event()
        self._sizes: dict[str, array[int]] = {}
        self.open_transactions: Counter[str] = Counter()
        """Open half messages, by topic."""
        self.topic_creations = Timings(CREATION_BOUNDS_MS, clock.now_ms)
        self.group_creations = Timings(CREATION_BOUNDS_MS, clock.now_ms)
        self.commit_ages = Timings(COMMIT_BOUNDS_S, clock.now_ms)
        """Seconds from the birth of a half message to its commit, by topic."""

    # -- counting

    def on_arrivals(self, _: Mapping[QueueKey, int]) -> None:
        """Wake the task that counts: a listener of arrivals."""
        self._has_arrived.set()

    def count_up(self) -> None:
        """Count the messages in and out since the last call."""
        for source in self.sources:
            source()
        self._count_arrived(self._tails.uncounted_count)

    def _count_arrived(self, count: int) -> None:
        """Count the new messages of so many queues."""
        for queue in self._tails.take_uncounted(count):
            if not queue.is_deleted:
                messages, size = queue.take_counts(self._sizes_of(queue.topic))
                if messages:
                    self._count_put(queue.key, messages, size)

    def _count_parts(self) -> Iterator[None]:
        """Count what is new now, some queues at a time."""
        for _ in range(self._tails.uncounted_count // COUNTED_AT_ONCE):
            self._count_arrived(COUNTED_AT_ONCE)
            yield
        self._count_arrived(COUNTED_AT_ONCE)

    def _count_put(self, key: QueueKey, messages: int, size: int) -> None:
        items = self._of_queue.get(key)
        assert messages > 0, f"{key}: {messages} messages of {size} bytes"
        if items is None:
            topic, queue_id = key
            queue = f"{topic}@{queue_id}"
            items = self._of_queue[key] = (
                self._item(TOPIC_PUT_NUMS, topic),
                self._item(QUEUE_PUT_NUMS, queue),
                self._item(BROKER_PUT_NUMS, self._cluster),
                self._item(TOPIC_PUT_SIZE, topic),
                self._item(QUEUE_PUT_SIZE, queue),
            )
        for item in items[:3]:
            item.value += messages
            item.times += messages
        for item in items[3:]:
            item.value += size
            item.times += messages

    def count_get(
        self,
        group: str,
        topic: str,
        queue_id: int,
        pulls: int,
        messages: int,
        size: int,
        next_offset: int,
        token: int = 0,
    ) -> None:
        """Count the messages that pulls returned, up to before `next_offset`.

        `token` names the connection of the last of these pulls.
        """
        assert messages >= pulls > 0, f"{pulls} pulls brought {messages} messages"
        key = (group, topic, queue_id)
        self._pulled[key] = next_offset, token
        items = self._of_pull.get(key)
        if items is None:
            if len(self._of_pull) >= MAX_ITEMS:
                self._of_pull.clear()
                self._pulled = {key: (next_offset, token)}
            queue = f"{topic}@{queue_id}@{group}"
            items = self._of_pull[key] = (
                self._item(GROUP_GET_NUMS, f"{topic}@{group}"),
                self._item(QUEUE_GET_NUMS, queue),
                self._item(BROKER_GET_NUMS, self._cluster),
                self._item(GROUP_GET_SIZE, f"{topic}@{group}"),
                self._item(QUEUE_GET_SIZE, queue),
            )
        for item in items[:3]:
            item.value += messages
            item.times += pulls
        for item in items[3:]:
            item.value += size
            item.times += pulls

    def _sizes_of(self, topic: str) -> "array[int]":
        """Return the counts of a topic, new ones if there is room."""
        counts = self._sizes.get(topic)
        if counts is None:
            counts = array("q", bytes(8 * (len(SIZE_BOUNDS) + 1)))
            if len(self._sizes) < MAX_ITEMS:
                self._sizes[topic] = counts
        return counts

    def count(self, name: str, key: str) -> None:
        """Count one more of something."""
        item = self._item(name, key)
        item.value += 1
        item.times += 1

    def count_send_back(self, group: str, topic: str) -> None:
        """Count a message that a consumer gave back."""
        self.count(SNDBCK_PUT_NUMS, f"{topic}@{group}")

    def _item(self, name: str, key: str) -> StatsItem:
        """Return the item, a new one if there is room, else one that nobody reads."""
        item = self._items.get((name, key))
        if item is None:
            item = StatsItem(self._now_ms())
            if len(self._items) < MAX_ITEMS:
                self._items[name, key] = item
        return item

    # -- reading

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """Return the three windows of an item; None if nothing was ever added."""
        self.count_up()
        item = self._items.get((name, key))
        if item is None:
            return None
        now_ms = self._now_ms()
        return BrokerStatsData(
            stats_minute=item.window(item.minute, now_ms),
            stats_hour=item.window(item.hour, now_ms),
            stats_day=item.window(item.day, now_ms),
        )

    def totals(self, name: str) -> list[tuple[str, int]]:
        """Return the sums of all items of one name, by key."""
        self.count_up()
        return [(key, i.value) for (one, key), i in self._items.items() if one == name]

    def sizes(self) -> "dict[str, array[int]]":
        """Return the number of messages of each topic in each class of SIZE_BOUNDS."""
        self.count_up()
        return self._sizes

    def pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset after the last message that a group has pulled, or -1."""
        return self._pulled.get((group, topic, queue_id), _NO_PULL)[0]

    def puller(self, group: str, topic: str, queue_id: int) -> int:
        """Return the token of the connection that got messages last; 0: unknown."""
        return self._pulled.get((group, topic, queue_id), _NO_PULL)[1]

    def total(self, name: str, key: str) -> int:
        """Return the sum of an item at the last count; new messages may be missing."""
        item = self._items.get((name, key))
        return 0 if item is None else item.value

    def rates(self, name: str, key: str) -> tuple[float, float]:
        """Return the additions a second over the last minute and hour, as counted."""
        item = self._items.get((name, key))
        if item is None:
            return 0.0, 0.0
        now_ms = self._now_ms()
        return item.window(item.minute, now_ms).tps, item.window(item.hour, now_ms).tps

    def rate(self, name: str, key: str) -> float:
        """Return the additions per second over the last minute."""
        self.count_up()
        item = self._items.get((name, key))
        return 0.0 if item is None else item.window(item.minute, self._now_ms()).tps

    # -- samples

    async def sample_regularly(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run until cancelled: the service that takes samples."""
        task_status.started()
        while True:
            with trio.move_on_after(SAMPLE_INTERVAL_S):
                while True:
                    await self._has_arrived.wait()
                    self._has_arrived = trio.Event()
                    await trio.sleep(1)
                    for _ in self._count_parts():
                        await trio.sleep(COUNT_PAUSE_S)
                    for source in self.sources:
                        source()
            for _ in self._sample_parts():
                await trio.lowlevel.checkpoint()

    def sample(self) -> None:
        """Take a sample of every item; remove items that were idle for a day."""
        for _ in self._sample_parts():
            pass

    def _sample_parts(self) -> Iterator[None]:
        """Sample, some items at a time, so that nobody waits long for it."""
        for source in self.sources:
            source()
        yield from self._count_parts()
        self._rounds += 1
        now_ms = self._now_ms()
        is_hour = self._rounds % ROUNDS_OF_HOUR == 0
        is_day = self._rounds % ROUNDS_OF_DAY == 0
        for number, item in enumerate(list(self._items.values())):
            note = (now_ms, item.value, item.times)
            _keep(item.minute, note, MINUTE_NOTES)
            if is_hour:
                _keep(item.hour, note, HOUR_NOTES)
            if is_day:
                _keep(item.day, note, DAY_NOTES)
            if number % COUNTED_AT_ONCE == COUNTED_AT_ONCE - 1:
                yield
        if is_day:
            yield from self._forget(lambda _, item: item.is_idle)

    def forget_topic(self, topic: str) -> Iterator[None]:
        """Drop the items of a topic that was deleted, some at a time."""
        self._sizes.pop(topic, None)
        self.commit_ages.forget(topic=topic)
        for pull in [pull for pull in self._pulled if pull[1] == topic]:
            del self._pulled[pull]
        yield from self._forget(lambda key, _: key.split("@", 1)[0] == topic)

    def forget_group(self, group: str) -> Iterator[None]:
        """Drop the items of a group that was deleted, some at a time."""
        for pull in [pull for pull in self._pulled if pull[0] == group]:
            del self._pulled[pull]
        yield from self._forget(lambda key, _: "@" in key and _last(key) == group)

    def _forget(self, matches: Callable[[str, StatsItem], bool]) -> Iterator[None]:
        has_forgotten = False
        for number, name in enumerate(list(self._items), 1):
            item = self._items.get(name)
            if item is not None and matches(name[1], item):
                del self._items[name]
                has_forgotten = True
            if number % COUNTED_AT_ONCE == 0:
                yield
        if has_forgotten:
            self._of_queue.clear()
            self._of_pull.clear()


def _keep(notes: list[Note], note: Note, limit: int) -> None:
    notes.append(note)
    if len(notes) > limit:
        del notes[0]


def _last(key: str) -> str:
    return key.rpartition("@")[2]
