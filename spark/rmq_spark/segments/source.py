"""The log of a store in Spark: a batch reader and a stream reader.

The driver plans ranges of segments, tasks read them.  Spark pickles readers and ranges,
so they hold plain values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    In,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rmq.core.errors import ConfigError
from rmq_spark.segments import commit_log, plan

if TYPE_CHECKING:
    import pyarrow as pa

    from rmq_spark.option_values import Position
    from rmq_spark.options import Options
    from rmq_spark.segments.consume_queues import RecordList
    from rmq_spark.segments.plan import SegmentRange
    from rmq_spark.segments.reader import ReadSettings

Offset = dict[str, int]
"""Of a stream: the broker name, and the physical offset behind the last record."""


@dataclass
class RangePartition(InputPartition):
    """One task: a range of a segment, or records of it."""

    part: SegmentRange | RecordList


class SegmentReader(DataSourceReader):
    """Reads the segments of a store once."""

    def __init__(self, options: Options, reading: ReadSettings) -> None:
        self._options = options
        self._reading = reading

    def partitions(self) -> list[RangePartition]:
        """Freeze the bounds and cut the log between them."""
        store = self._options["store"]
        earliest, end = bounds(self._options)
        start = _physical(self._options["startingOffsets"], earliest, end, earliest)
        last = _physical(self._options["endingOffsets"], earliest, end, end)
        size = split_bytes(self._options, last - start)
        if self._options["readFrom"] == "queues":
            from rmq_spark.segments.consume_queues import plan_records

            lists = plan_records(self._options, start, last, split_bytes=size)
            return [RangePartition(part) for part in lists]
        ranges = plan.plan_ranges(
            store,
            start,
            last,
            split_bytes=size,
            verify_crc=self._options["verifyCrc"],
            fail_on_loss=self._options["failOnDataLoss"],
        )
        return [RangePartition(part) for part in ranges]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one range; None stands for an empty plan."""
        return _read(self._reading, partition)


class FilteringReader(SegmentReader):
    """Takes comparisons of `topic` away from Spark.

    A class of its own: a reader that has `pushFilters` fails every read unless the
    session allows push-down.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Keep `topic = …` and `topic IN (…)`; give the others back."""
        names: frozenset[str] | None = None
        for item in filters:
            chosen = _chosen_topics(item)
            if chosen is None:
                yield item
            else:
                names = chosen if names is None else names & chosen
        if names is not None:
            topics = self._reading.topics
            wanted = frozenset(name for name in names if topics.wants(name))
            self._reading = replace(self._reading, topics=replace(topics, names=wanted))


def _chosen_topics(item: Filter) -> frozenset[str] | None:
    if isinstance(item, EqualTo) and item.attribute == ("topic",):
        return frozenset([item.value])
    if isinstance(item, In) and item.attribute == ("topic",):
        return frozenset(item.value)
    return None


class SegmentStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log of a store.

    Spark calls `prepareForTriggerAvailableNow` before anything else, and may never call
    `commit` for the last batch: the checkpoint's offset is what counts.
    """

    def __init__(self, options: Options, reading: ReadSettings) -> None:
        self._options = options
        self._reading = reading
        self._frozen_end: int | None = None

    def initialOffset(self) -> Offset:
        """Where a new query starts: at the latest record by default."""
        earliest, end = bounds(self._options)
        position = self._options["startingOffsets"]
        is_bounded = not self._reading.rows.is_unbounded
        default = earliest if is_bounded else end
        return self._offset(_physical(position, earliest, end, default))

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on the stream ends where the log ends now."""
        self._frozen_end = bounds(self._options)[1]

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of a micro-batch."""
        if self._options["maxOffsetsPerTrigger"]:
            return ReadMaxRows(self._options["maxOffsetsPerTrigger"])
        return ReadMaxBytes(self._options["maxBytesPerTrigger"])

    def reportLatestOffset(self) -> Offset:
        """Where the log ends, for progress reports."""
        return self._offset(self._end())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch: a boundary within the limit."""
        at, end = self._physical(start), self._end()
        if isinstance(limit, ReadAllAvailable) or at >= end:
            return self._offset(max(at, end))
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = self._options["maxBytesPerTrigger"]
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        segments = commit_log.find_segments(self._options["store"])
        if commit_log.min_offset(segments) > at and not self._options["failOnDataLoss"]:
            at = commit_log.min_offset(segments)
        return self._offset(
            plan.align(
                self._options["store"], at, end, max_bytes=size, max_records=rows
            )
        )

    def partitions(self, start: Offset, end: Offset) -> list[RangePartition]:
        """The ranges of one micro-batch."""
        first, last = self._physical(start), self._physical(end)
        ranges = plan.plan_ranges(
            self._options["store"],
            first,
            last,
            split_bytes=split_bytes(self._options, last - first),
            verify_crc=self._options["verifyCrc"],
            fail_on_loss=self._options["failOnDataLoss"],
            use_queues=False,
        )
        return [RangePartition(part) for part in ranges]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        return _read(self._reading, partition)

    def _end(self) -> int:
        if self._frozen_end is not None:
            return self._frozen_end
        return bounds(self._options)[1]

    def _offset(self, physical: int) -> Offset:
        return {self._options["brokerName"]: physical}

    def _physical(self, offset: Offset) -> int:
        name = self._options["brokerName"]
        if name not in offset:
            raise ConfigError(
                f"the checkpoint belongs to broker {', '.join(offset)}, option "
                f"brokerName is {name}: use another checkpointLocation, or the "
                "same name"
            )
        return offset[name]


def bounds(options: Options) -> tuple[int, int]:
    """The first and the end offset of what can be read now."""
    segments = commit_log.find_segments(options["store"])
    told = options["confirmOffset"]
    if told is None and options["broker"]:
        from rmq_spark.segments.broker_requests import ask_end

        told = ask_end(options["broker"])
    end = commit_log.find_end(options["store"], told)
    earliest = commit_log.min_offset(segments)
    return earliest, max(earliest, end)


def split_bytes(options: Options, size: int) -> int:
    """Bytes of one task: smaller if more tasks are wanted."""
    limit: int = options["splitBytes"]
    tasks: int | None = options["minPartitions"]
    return limit if tasks is None else min(limit, max(1, -(-size // tasks)))


def _physical(position: Position | None, earliest: int, end: int, default: int) -> int:
    if position is None:
        return default
    given: int | None = position.physical_offset
    if given is not None:
        return {-2: earliest, -1: end}.get(given, given)
    return {"earliest": earliest, "latest": end}.get(position.word, default)


def _read(
    reading: ReadSettings, partition: InputPartition | None
) -> Iterator[pa.RecordBatch]:
    from rmq_spark.segments.consume_queues import read_records
    from rmq_spark.segments.reader import read_range

    if not isinstance(partition, RangePartition):
        return
    if isinstance(partition.part, plan.SegmentRange):
        yield from read_range(reading, partition.part)
    else:
        yield from read_records(reading, partition.part)
