# tidy: long — counts, windows and samples share one array
"""BrokerStatistics: messages in and out by topic and group, per minute, hour and day.

An item is a row of a `CounterArray`: a sum and a count of additions.  Three windows
have a snapshot of all rows each 10 s, 10 minutes and hour.  The value of a window is
the difference between now and its oldest snapshot: a minute, an hour or a day ago.

Puts cost one update of a set per poll: the queues count new messages themselves.  The
statistics read these counts a second after an arrival, and before each query.  Gets are
counted once per pull.  Only the trio thread may call these functions.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import trio

from rmq._fastpath.log.queue_tail import SIZE_BOUNDS
from rmq.core.clock import Clock
from rmq.core.measure import CounterArray, CounterSnapshots, HistogramTable
from rmq.protocol.bodies.statistics import (
    BROKER_GET_NUMS,
    BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC,
    BROKER_PUT_NUMS,
    BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    QUEUE_GET_NUMS,
    QUEUE_GET_SIZE,
    QUEUE_PUT_NUMS,
    QUEUE_PUT_SIZE,
    SNDBCK2DLQ_TIMES,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
    BrokerStatsData,
    BrokerStatsItem,
)
from rmq.protocol.topics import is_system_group, is_system_topic
from rmq.store.message_store import MessageStore
from rmq.store.queues.consume_queues import QueueKey

TOPIC_OUT: Final = "TOPIC_OUT"
GROUP_OUT: Final = "GROUP_OUT"
GROUP_AGAIN: Final = "GROUP_AGAIN"
"""Sums of a topic over all groups, and of a group over all topics (key `@group`).

So a view of a group need not add up ten thousand topics. Java has no such items."""

CREATION_BOUNDS_MS: Final = (10, 100, 1_000, 3_000, 5_000)
COMMIT_BOUNDS_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)
"""Upper bounds of the histogram of commits, as in Java's exporter."""

SAMPLE_INTERVAL_S: Final = 10
ROUNDS_OF_HOUR: Final = 60
"""Number of samples between two snapshots of the window of an hour."""

ROUNDS_OF_DAY: Final = 360
MINUTE_SAMPLES, HOUR_SAMPLES, DAY_SAMPLES = 7, 7, 25

COUNTED_AT_ONCE: Final = 100
"""Number of queues and items that are handled before other tasks run: at most a
millisecond, if they are new.
"""

COUNT_PAUSE_S: Final = 0.01
"""Pause between two such parts: 10,000 queues a second, 5 % of a core."""

ITEM_LIMIT: Final = 200_000
"""Maximum number of items of topics and groups, 0.9 kB each.

Further items are not counted.
"""

QUEUE_ITEM_LIMIT: Final = 60_000
"""Maximum number of items of single queues.

Items of queues have a separate limit, so that topics keep their rates with any number
of queues.
"""

PULL_LIMIT: Final = 100_000
"""Limit of positions of pulls, by group and queue; above it the positions of one topic
are discarded.
"""

SIZES_LIMIT: Final = 20_000
"""Maximum number of topics whose messages are counted by size."""

_OF_QUEUES: Final = "QUEUE_"
_PUTS_OF_BROKER: Final = BROKER_PUT_NUMS, BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC
_GETS_OF_BROKER: Final = BROKER_GET_NUMS, BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC
_OF_BROKER: Final = _PUTS_OF_BROKER + _GETS_OF_BROKER
_OF_GROUP: Final = GROUP_OUT, GROUP_AGAIN

Rows = tuple[int, ...]
"""Items that are counted together: items of messages, and the last two of bytes."""


class _Pull:
    """The end of the last pull of a group from a queue, and its connection."""

    __slots__ = ("next_offset", "rows", "token")

    def __init__(self) -> None:
        self.rows: Rows | None = None
        self.next_offset, self.token = -1, 0


class BrokerStatistics:
    """Known in Java as `BrokerStatsManager`."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        cluster: str,
        is_system: Callable[[str], bool] = is_system_topic,
    ) -> None:
        self._is_system = is_system
        self._tails = store.queues.tails
        self._now_ms: Callable[[], int] = clock.steady_ms
        self._cluster = cluster
        self.sources: list[Callable[[], Iterator[None]]] = []
        """Callbacks that add the counts of other parts, some at each step."""

        self.uncounted: list[Callable[[], int]] = []
        """Callbacks that return the number of messages out that a source has not
        counted yet.
        """

        self._out_count = 0
        self._rounds = 0
        for queue in self._tails.take_uncounted(self._tails.uncounted_count):
            queue.take_counts(None)  # stored before the start
        self._counters = CounterArray(clock.steady_ms)
        self._minute = CounterSnapshots(MINUTE_SAMPLES)
        self._hour = CounterSnapshots(HOUR_SAMPLES)
        self._day = CounterSnapshots(DAY_SAMPLES)
        self._uncounted = self._counters.add_row()
        """Row of all items for which there is no room."""

        self._items: dict[str, dict[tuple[str, str], int]] = {}
        """Rows by topic, then by statistic name and rest of the key."""

        self._queue_item_count = 0
        self._puts: dict[str, dict[int, Rows]] = {}
        """Rows of queues, by topic and queue."""

        self._pulls: dict[str, dict[tuple[str, int], _Pull]] = {}
        """Positions of pulls, by topic, group and queue."""

        self._pull_count = 0
        self._has_arrived = trio.Event()
        self._sizes: dict[str, array[int]] = {}
        self.open_transactions: Counter[str] = Counter()
        """Open half messages, by topic."""
        self.topic_creations = HistogramTable(CREATION_BOUNDS_MS, clock.steady_ms)
        self.group_creations = HistogramTable(CREATION_BOUNDS_MS, clock.steady_ms)
        self.commit_ages = HistogramTable(COMMIT_BOUNDS_S, clock.steady_ms)
        """Seconds from the birth of a half message to its commit, by topic."""

    # -- counting

    def on_arrivals(self, _: Mapping[QueueKey, int]) -> None:
        """Wake the task that counts; a callback for arrivals."""
        self._has_arrived.set()

    def count_up(self) -> None:
        """Count the messages in and out since the last call."""
        for _ in self.count_parts():
            pass

    def _count_arrived(self, count: int) -> None:
        """Count the new messages of `count` queues."""
        for queue in self._tails.take_uncounted(count):
            if not queue.is_deleted:
                messages, size = queue.take_counts(self._sizes_of(queue.topic))
                if messages:
                    self._count_put(queue.key, messages, size)

    def count_parts(self) -> Iterator[None]:
        """Count the messages in and out since the last call, some at each step."""
        for source in self.sources:
            yield from source()
        for _ in range(self._tails.uncounted_count // COUNTED_AT_ONCE):
            self._count_arrived(COUNTED_AT_ONCE)
            yield
        self._count_arrived(COUNTED_AT_ONCE)

    def _count_put(self, key: QueueKey, messages: int, size: int) -> None:
        assert messages > 0, f"{key}: {messages} messages of {size} bytes"
        topic, queue_id = key
        rows = self._puts.get(topic, {}).get(queue_id)
        if rows is None:
            queue = f"{topic}@{queue_id}"
            rows = (
                self._row_of(TOPIC_PUT_NUMS, topic),
                self._row_of(QUEUE_PUT_NUMS, queue),
                *self._broker_rows(topic, _PUTS_OF_BROKER),
                self._row_of(TOPIC_PUT_SIZE, topic),
                self._row_of(QUEUE_PUT_SIZE, queue),
            )
            if self._uncounted not in rows:
                self._puts.setdefault(topic, {})[queue_id] = rows
        self._add(rows, messages, size, messages)

    def _add(self, rows: Rows, messages: int, size: int, times: int) -> None:
        sums, counts = self._counters.values, self._counters.times
        for row in rows[:-2]:
            sums[row] += messages
            counts[row] += times
        for row in rows[-2:]:
            sums[row] += size
            counts[row] += times

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
        """Count the messages that pulls returned.

        `next_offset` is the offset after the last pull, `token` names its connection.
        """
        assert messages >= pulls > 0, f"{pulls} pulls returned {messages} messages"
        self._out_count += 0 if is_system_group(group) else messages
        pull = self._pull(group, topic, queue_id)
        pull.next_offset, pull.token = next_offset, token
        rows = pull.rows
        if rows is None:
            queue = f"{topic}@{queue_id}@{group}"
            rows = (
                self._row_of(GROUP_GET_NUMS, f"{topic}@{group}"),
                self._row_of(QUEUE_GET_NUMS, queue),
                *self._broker_rows(topic, _GETS_OF_BROKER),
                self._row_of(TOPIC_OUT, topic),
                self._row_of(GROUP_OUT, f"@{group}"),
                self._row_of(GROUP_GET_SIZE, f"{topic}@{group}"),
                self._row_of(QUEUE_GET_SIZE, queue),
            )
            pull.rows = None if self._uncounted in rows else rows
        self._add(rows, messages, size, pulls)

    def _broker_rows(self, topic: str, names: tuple[str, str]) -> list[int]:
        """Return the rows of all messages, and of messages that are not the broker's
        own.
        """
        wanted = names[:1] if self._is_system(topic) else names
        return [self._row_of(name, self._cluster) for name in wanted]

    def user_totals(self) -> tuple[int, int]:
        """Return the counted messages in and out, without messages of system topics."""
        return (
            self.total_of(BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC, self._cluster),
            self.total_of(BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC, self._cluster),
        )

    def messages_out(self) -> int:
        """Return the messages that consumers got since the start, of all topics."""
        return self._out_count + sum(each() for each in self.uncounted)

    def _pull(self, group: str, topic: str, queue_id: int) -> _Pull:
        """Return the known positions of a group's pulls at a queue."""
        pulls = self._pulls.get(topic)
        pull = None if pulls is None else pulls.get((group, queue_id))
        if pull is None:
            if self._pull_count >= PULL_LIMIT:
                self._remove_pulls(next(iter(self._pulls)))
            pull = self._pulls.setdefault(topic, {})[group, queue_id] = _Pull()
            self._pull_count += 1
        return pull

    def _remove_pulls(self, topic: str) -> None:
        self._pull_count -= len(self._pulls.pop(topic, ()))

    def _sizes_of(self, topic: str) -> "array[int]":
        """Return the counts of a topic; add counts if there is room."""
        counts = self._sizes.get(topic)
        if counts is None:
            counts = array("q", bytes(8 * (len(SIZE_BOUNDS) + 1)))
            if len(self._sizes) < SIZES_LIMIT:
                self._sizes[topic] = counts
        return counts

    def count(self, name: str, key: str, times: int = 1) -> None:
        """Add `times` to the count of an item."""
        row = self._row_of(name, key)
        self._counters.values[row] += times
        self._counters.times[row] += times

    def count_send_back(
        self, group: str, topic: str, *, is_dead: bool = False, times: int = 1
    ) -> None:
        """Count messages that consumers gave back; `is_dead` for dead letters."""
        self.count(SNDBCK_PUT_NUMS, f"{topic}@{group}", times)
        self.count(GROUP_AGAIN, f"@{group}", times)
        if is_dead:
            self.count(SNDBCK2DLQ_TIMES, f"{topic}@{group}", times)

    def _row_of(self, name: str, key: str) -> int:
        """Return the row of an item; add a row if there is room."""
        row = self._find(name, key)
        if row is not None:
            return row
        is_of_queue = name.startswith(_OF_QUEUES)
        if is_of_queue:
            is_full = self._queue_item_count >= QUEUE_ITEM_LIMIT
        else:
            is_full = len(self._counters) - self._queue_item_count > ITEM_LIMIT
        if is_full:
            return self._uncounted
        topic, at, rest = key.partition("@")
        row = self._items.setdefault(topic, {})[name, at + rest] = (
            self._counters.add_row()
        )
        self._queue_item_count += is_of_queue
        return row

    def _find(self, name: str, key: str) -> int | None:
        """Return the row of an item that is counted."""
        topic, at, rest = key.partition("@")
        return self._items.get(topic, {}).get((name, at + rest))

    # -- reading

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """Return the three windows of an item; None if nothing was ever added."""
        self.count_up()
        row = self._find(name, key)
        if row is None:
            return None
        return BrokerStatsData(
            stats_minute=self._window_of(self._minute, row),
            stats_hour=self._window_of(self._hour, row),
            stats_day=self._window_of(self._day, row),
        )

    def _window_of(self, snapshots: CounterSnapshots, row: int) -> BrokerStatsItem:
        """Return the amount added since the oldest snapshot.

        A rate is over one sample interval at least, so that a single message one
        millisecond ago is not reported as 1,000/s.
        """
        added, additions, elapsed_ms = self._counters.growth_of(snapshots, row)
        elapsed_ms = max(elapsed_ms, SAMPLE_INTERVAL_S * 1_000)
        return BrokerStatsItem(
            sum=added,
            tps=added * 1_000 / elapsed_ms,
            avgpt=added / additions if additions else 0.0,
        )

    def totals_of(self, name: str) -> Iterator[tuple[str, int] | None]:
        """Yield key and sum of all items of one name, at the last count.

        None follows each part of the topics, so that other tasks can run.
        """
        values = self._counters.values
        for number, topic in enumerate(list(self._items), 1):
            for (one, rest), row in list(self._items.get(topic, {}).items()):
                if one == name:
                    yield topic + rest, values[row]
            if number % COUNTED_AT_ONCE == 0:
                yield None

    def message_sizes(self) -> "list[tuple[str, array[int]]]":
        """Return the number of messages of each topic in each class of SIZE_BOUNDS, at
        the last count.
        """
        return list(self._sizes.items())

    def pulled_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset after the last message that a group has pulled, or -1."""
        pull = self._pulls.get(topic, {}).get((group, queue_id))
        return -1 if pull is None else pull.next_offset

    def pulled_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield group, topic, queue and the offset after the last pulled message."""
        for topic, pulls in self._pulls.items():
            for (group, queue_id), pull in pulls.items():
                yield group, topic, queue_id, pull.next_offset

    def puller_token(self, group: str, topic: str, queue_id: int) -> int:
        """Return the token of the connection that got messages last; 0: unknown."""
        pull = self._pulls.get(topic, {}).get((group, queue_id))
        return 0 if pull is None else pull.token

    def total_of(self, name: str, key: str) -> int:
        """Return the sum of an item at the last count; new messages may be missing."""
        row = self._find(name, key)
        return 0 if row is None else self._counters.values[row]

    def minute_and_hour_rate(self, name: str, key: str) -> tuple[float, float]:
        """Return the additions a second over the last minute and hour, as counted."""
        row = self._find(name, key)
        if row is None:
            return 0.0, 0.0
        return self._window_of(self._minute, row).tps, self._window_of(
            self._hour, row
        ).tps

    def minute_rate(self, name: str, key: str) -> float:
        """Return the additions a second over the last minute, as counted."""
        row = self._find(name, key)
        return 0.0 if row is None else self._window_of(self._minute, row).tps

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
                    for _ in self.count_parts():
                        await trio.sleep(COUNT_PAUSE_S)
            for _ in self.sample_parts():
                await trio.lowlevel.checkpoint()

    def sample(self) -> None:
        """Take a sample of every item; remove items that were idle for a day."""
        for _ in self.sample_parts():
            pass

    def sample_parts(self) -> Iterator[None]:
        """Sample, some items at a time, so that other tasks can run."""
        yield from self.count_parts()
        self._rounds += 1
        self._counters.take_snapshot(self._minute)
        if self._rounds % ROUNDS_OF_HOUR == 0:
            yield
            self._counters.take_snapshot(self._hour)
        if self._rounds % ROUNDS_OF_DAY == 0:
            yield
            self._counters.take_snapshot(self._day)
            yield from self._remove_items(self._is_idle)

    def _is_idle(self, key: tuple[str, str], row: int) -> bool:
        """Whether a day passed without an addition.

        The items of a group stay until it is deleted: positions of pulls refer to their
        rows.
        """
        return key[0] not in _OF_GROUP and self._counters.is_idle(self._day, row)

    def remove_topic(self, topic: str) -> Iterator[None]:
        """Drop the items of a topic that was deleted, some at a time."""
        self._sizes.pop(topic, None)
        self.commit_ages.remove(topic=topic)
        self._remove_pulls(topic)
        yield from self._remove_items_of(topic, lambda _key, _row: True)

    def remove_group(self, group: str) -> Iterator[None]:
        """Drop the items of a group that was deleted, some at a time."""
        seen = 0
        for topic in list(self._pulls):
            pulls = self._pulls.get(topic, {})
            seen += len(pulls)
            for key in [key for key in pulls if key[0] == group]:
                del pulls[key]
                self._pull_count -= 1
            if seen >= COUNTED_AT_ONCE:
                seen = 0
                yield
        yield from self._remove_items(
            lambda key, _row: key[1].rpartition("@")[2] == group
        )

    def _remove_items(
        self, matches: Callable[[tuple[str, str], int], bool]
    ) -> Iterator[None]:
        """Drop the items for which `matches((name, rest of key), row)`, in parts."""
        seen = 0
        for topic in list(self._items):
            seen += len(self._items.get(topic, ()))
            yield from self._remove_items_of(topic, matches)
            if seen >= COUNTED_AT_ONCE:
                seen = 0
                yield

    def _remove_items_of(
        self, topic: str, matches: Callable[[tuple[str, str], int], bool]
    ) -> Iterator[None]:
        items = self._items.get(topic, {})
        keys = [key for key in items if key[0] not in _OF_BROKER]
        for start in range(0, len(keys), COUNTED_AT_ONCE):
            if start:
                yield
            gone = [
                (key, row)
                for key in keys[start : start + COUNTED_AT_ONCE]
                if (row := items.get(key)) is not None and matches(key, row)
            ]
            if gone:
                self._discard_rows(topic)
            for key, row in gone:
                del items[key]
                self._counters.remove_row(row)
                self._queue_item_count -= key[0].startswith(_OF_QUEUES)
        if not items and self._items.get(topic) is items:
            del self._items[topic]

    def _discard_rows(self, topic: str) -> None:
        """Look up the rows of a topic again, because some rows are free again."""
        self._puts.pop(topic, None)
        for pull in self._pulls.get(topic, {}).values():
            pull.rows = None
