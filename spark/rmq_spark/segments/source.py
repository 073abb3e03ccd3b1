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
"""The offset of a stream: broker name, and physical offset after the last record."""


@dataclass
class RangePartition(InputPartition):
    """One task: a range of a segment, or a list of its records."""

    part: SegmentRange | RecordList


class SegmentReader(DataSourceReader):
    """Reads the segments of a store once."""

    def __init__(self, options: Options, reading: ReadSettings) -> None:
        self._options = options
        self._reading = reading

    def partitions(self) -> list[RangePartition]:
        """Find the bounds of the log now, and split it into one range per task."""
        store = self._options["store"]
        earliest, end = readable_range(self._options)
        start = _resolve_position(
            self._options["startingOffsets"], earliest, end, earliest
        )
        last = _resolve_position(self._options["endingOffsets"], earliest, end, end)
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
        """Yield the rows of one range; Spark passes None for an empty plan."""
        return _read_split(self._reading, partition)


class FilteringReader(SegmentReader):
    """Reads only the topics that the query compares `topic` with.

    This is a separate class because Spark fails every read of a reader that has
    `pushFilters`, unless the session allows push-down.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Apply `topic = …` and `topic IN (…)`; yield filters that Spark must apply."""
        names: frozenset[str] | None = None
        for item in filters:
            chosen = _compared_topics(item)
            if chosen is None:
                yield item
            else:
                names = chosen if names is None else names & chosen
        if names is not None:
            topics = self._reading.topics
            wanted = frozenset(name for name in names if topics.wants_topic(name))
            self._reading = replace(self._reading, topics=replace(topics, names=wanted))


def _compared_topics(item: Filter) -> frozenset[str] | None:
    if isinstance(item, EqualTo) and item.attribute == ("topic",):
        return frozenset([item.value])
    if isinstance(item, In) and item.attribute == ("topic",):
        return frozenset(item.value)
    return None


class SegmentStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log of a store as micro-batches.

    Spark calls `prepareForTriggerAvailableNow` first. Spark may never call `commit` for
    the last batch, so only the offset in the checkpoint counts.
    """

    def __init__(self, options: Options, reading: ReadSettings) -> None:
        self._options = options
        self._reading = reading
        self._frozen_end: int | None = None

    def initialOffset(self) -> Offset:
        """Return the start of a new query: the end of the log by default."""
        earliest, end = readable_range(self._options)
        position = self._options["startingOffsets"]
        is_bounded = not self._reading.rows.is_unbounded
        default = earliest if is_bounded else end
        return self._offset(_resolve_position(position, earliest, end, default))

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the end of the log: the stream ends there."""
        self._frozen_end = readable_range(self._options)[1]

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch."""
        if self._options["maxOffsetsPerTrigger"]:
            return ReadMaxRows(self._options["maxOffsetsPerTrigger"])
        return ReadMaxBytes(self._options["maxBytesPerTrigger"])

    def reportLatestOffset(self) -> Offset:
        """Return the end of the log, for progress reports."""
        return self._offset(self._end())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next micro-batch: a record boundary in the limit."""
        at, end = self._physical_offset(start), self._end()
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
        """Return the ranges of one micro-batch."""
        first, last = self._physical_offset(start), self._physical_offset(end)
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
        """Yield the rows of one range."""
        return _read_split(self._reading, partition)

    def _end(self) -> int:
        if self._frozen_end is not None:
            return self._frozen_end
        return readable_range(self._options)[1]

    def _offset(self, physical: int) -> Offset:
        return {self._options["brokerName"]: physical}

    def _physical_offset(self, offset: Offset) -> int:
        name = self._options["brokerName"]
        if name not in offset:
            raise ConfigError(
                f"the checkpoint belongs to broker {', '.join(offset)}, option "
                f"brokerName is {name}: use another checkpointLocation, or the "
                "same name"
            )
        return offset[name]


def readable_range(options: Options) -> tuple[int, int]:
    """Return [first, end) of the log that can be read now."""
    segments = commit_log.find_segments(options["store"])
    confirmed = options["confirmOffset"]
    if confirmed is None and options["broker"]:
        from rmq_spark.segments.broker_requests import request_end

        confirmed = request_end(options["broker"])
    end = commit_log.find_end(options["store"], confirmed)
    earliest = commit_log.min_offset(segments)
    return earliest, max(earliest, end)


def split_bytes(options: Options, size: int) -> int:
    """Return the bytes of one task; fewer if `minPartitions` needs more tasks."""
    limit: int = options["splitBytes"]
    tasks: int | None = options["minPartitions"]
    return limit if tasks is None else min(limit, max(1, -(-size // tasks)))


def _resolve_position(
    position: Position | None, earliest: int, end: int, default: int
) -> int:
    if position is None:
        return default
    given: int | None = position.physical_offset
    if given is not None:
        return {-2: earliest, -1: end}.get(given, given)
    return {"earliest": earliest, "latest": end}.get(position.word, default)


def _read_split(
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
