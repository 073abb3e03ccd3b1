"""Selects rows by topic, queue, queue offset, store time and tag."""

import re
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rmq.protocol.topics import is_internal_topic
from rmq_spark.option_values import Position, QueueNumbers
from rmq_spark.options import Options

ROW_SOURCES: Final = ("topic", "queueId", "queueOffset", "storeTimestamp", "tags")
"""Columns that are decoded to filter rows, also if the table does not have them."""
MAX_LEFT_OUT: Final = 1_000
"""Limit of remembered topics; a broker has two system topics per consumer group."""
_EARLIEST: Final = -2
_LATEST: Final = -1
_NEVER: Final = (1 << 63) - 1

Queue = tuple[str, int]


@dataclass(frozen=True)
class TopicSelection:
    """The topics to read: by name, by pattern, or all but the system topics.

    `left_out` collects the system topics that a reader met and did not read.
    """

    names: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    with_system: bool = False
    left_out: set[str] = field(default_factory=set, compare=False)

    def wants_topic(self, topic: str) -> bool:
        """Return whether the rows of a topic are read; a named topic always is."""
        if self.names is not None:
            return topic in self.names
        if self.pattern is not None and not self.pattern.fullmatch(topic):
            return False
        if self.with_system or not is_internal_topic(topic):
            return True
        if len(self.left_out) < MAX_LEFT_OUT:
            self.left_out.add(topic)
        return False


@dataclass(frozen=True)
class RowBounds:
    """Bounds of rows: queues, and [start, end) of queue offsets and store times."""

    start_ms: int | None = None
    end_ms: int | None = None
    queues: frozenset[Queue] | None = None
    start_offsets: dict[Queue, int] = field(default_factory=dict)
    end_offsets: dict[Queue, int] = field(default_factory=dict)
    start_times: dict[Queue, int] = field(default_factory=dict)
    end_times: dict[Queue, int] = field(default_factory=dict)
    tags: frozenset[str] | None = None

    @property
    def is_unbounded(self) -> bool:
        """Whether every row is selected."""
        return self == RowBounds()

    def row_mask(self, arrays: dict[str, pa.Array]) -> pa.Array:
        """Return a mask of the selected rows, from the arrays of ROW_SOURCES."""
        ms = pc.divide(pc.cast(arrays["storeTimestamp"], pa.int64()), 1000)
        offsets = arrays["queueOffset"]
        wanted = pa.repeat(True, len(offsets))
        if self.start_ms is not None:
            wanted = pc.and_(wanted, pc.greater_equal(ms, self.start_ms))
        if self.end_ms is not None:
            wanted = pc.and_(wanted, pc.less(ms, self.end_ms))
        if self.queues is not None:
            chosen = pa.repeat(False, len(offsets))
            for queue in sorted(self.queues):
                chosen = pc.or_(chosen, _is_queue(arrays, queue))
            wanted = pc.and_(wanted, chosen)
        for numbers, table, keep in (
            (offsets, self.start_offsets, pc.greater_equal),
            (ms, self.start_times, pc.greater_equal),
            (offsets, self.end_offsets, pc.less),
            (ms, self.end_times, pc.less),
        ):
            for queue, bound in table.items():
                other = pc.invert(_is_queue(arrays, queue))
                wanted = pc.and_(wanted, pc.or_(other, keep(numbers, bound)))
        if self.tags is not None:
            named = pc.is_in(arrays["tags"], pa.array(sorted(self.tags), pa.string()))
            wanted = pc.and_(wanted, named)
        return wanted


def _is_queue(arrays: dict[str, pa.Array], queue: Queue) -> pa.Array:
    topic, queue_id = queue
    return pc.and_(
        pc.equal(arrays["topic"], topic), pc.equal(arrays["queueId"], queue_id)
    )


def selected_topics(options: Options) -> TopicSelection:
    """Return the topics that the options select."""
    names = options["subscribe"]
    if options["assign"]:
        names = {topic for topic, _, _ in options["assign"]}
    return TopicSelection(
        None if names is None else frozenset(names),
        options["subscribePattern"],
        options["includeSystemTopics"],
    )


def row_bounds(options: Options) -> RowBounds:
    """Return the bounds of the options; a time wins over queue times and offsets."""
    broker = options["brokerName"]
    assigned = options["assign"]
    return RowBounds(
        start_ms=options["startingTimestamp"],
        end_ms=options["endingTimestamp"],
        queues=None
        if assigned is None
        else frozenset((t, q) for t, name, q in assigned if name == broker),
        **_side_bounds(options, "start", "starting", {_EARLIEST: 0, _LATEST: _NEVER}),
        **_side_bounds(options, "end", "ending", {_EARLIEST: 0, _LATEST: _NEVER}),
    )


def _side_bounds(
    options: Options, side: str, prefix: str, words: dict[int, int]
) -> dict[str, Any]:
    if options[f"{prefix}Timestamp"] is not None:
        return {}
    times: QueueNumbers | None = options[f"{prefix}OffsetsByTimestamp"]
    if times is not None:
        return {f"{side}_times": _of_broker(options, times)}
    position: Position | None = options[f"{prefix}Offsets"]
    if position is None or position.queues is None:
        return {}
    numbers = _of_broker(options, position.queues)
    return {
        f"{side}_offsets": {
            queue: words.get(number, number) for queue, number in numbers.items()
        }
    }


def _of_broker(options: Options, numbers: QueueNumbers) -> dict[Queue, int]:
    broker = options["brokerName"]
    return {(t, q): n for (t, name, q), n in numbers.items() if name == broker}
