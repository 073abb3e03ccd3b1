"""MessageDataset: a dataset of messages that DuckDB scans. LogDataset: of logs.

DuckDB requests a scanner of some columns with a filter from a
`pyarrow.dataset.Dataset`.  The dataset decodes only the columns of the scan and of the
filter.  DuckDB does not apply a filter that it has pushed down, so the dataset must
filter every row.  In addition it skips the splits and topics that the filter excludes,
for speed.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rmq.core.errors import RmqError
from rmq_spark.options import Options
from rmq_spark.segments.plan import SegmentRange
from rmq_spark.segments.reader import ReadSettings, read_range, read_settings
from rmq_spark.segments.schema import OFFSET_ID, arrow_schema, columns_of
from rmq_spark.segments.selection import TopicSelection
from rmq_spark.sql.log_snapshot import LogSnapshot
from rmq_spark.sql.prune import Pruner

AHEAD_BYTES: Final = 32 << 20
"""Limit of decoded bytes per thread before DuckDB reads them; about two splits."""
FIRST_BYTES: Final = 1 << 20
"""Limit for the first batches, so that `LIMIT 1` is fast."""
SOME_TOPIC: Final = "\0"
"""A text that is no topic: a filter that excludes this text selects topics by name."""
_NO_COLUMN: Final = "queueId"
"""The column that is decoded to count rows."""

Batches = Iterator[pa.RecordBatch]


class BrokerLog(NamedTuple):
    """The snapshot of the log of one broker."""

    log: LogSnapshot
    broker_name: str

    def after_archive(self, archived: int) -> "BrokerLog":
        """Return the part of the log that comes after its archive."""
        return self._replace(log=self.log.starting_at(archived, self.broker_name))


@dataclass(frozen=True)
class ScanSettings:
    """How logs are scanned; `threads` decode, in addition to DuckDB's threads."""

    threads: int = 1
    skip_corrupt: bool = False
    allow_loss: bool = False


class MessageDataset(ds.Dataset):  # type: ignore[misc] # pyarrow has no types
    """Messages of an origin; `failure` is the error that ended a scan."""

    def __init__(self) -> None:
        names = [*(c.name for c in columns_of(options_of())), OFFSET_ID]
        self._schema = arrow_schema(columns_of(options_of(names)))
        self.failure: RmqError | None = None
        self.left_out: set[str] = set()
        self.scanned_bytes = 0
        """Bytes of logs of the running statement that were read, or will be soon."""

        self.scanned_rows = 0

    def log_bytes(self) -> int:
        """Return the bytes that a statement without a filter reads; 0 if unknown."""
        return 0

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_: Any,  # noqa: ANN401 - hints for speed
    ) -> "_Scanner":
        """Return an object from which DuckDB reads the rows."""
        wanted = self._schema.names if columns is None else list(columns)
        return _Scanner(self, wanted, filter)

    def scan_batches(self, wanted: list[str], rows: pc.Expression | None) -> Batches:
        """Yield the batches of a scan; stores the error of a failed one."""
        try:
            yield from self._scan_batches(wanted, rows)
        except RmqError as error:
            self.failure = error
            raise

    def _scan_batches(self, wanted: list[str], rows: pc.Expression | None) -> Batches:
        """Yield the batches of a scan; each subclass implements it."""
        raise NotImplementedError

    def _needed_columns(
        self, wanted: list[str], rows: pc.Expression | None
    ) -> list[str]:
        """Return the columns that must be decoded."""
        names = [*wanted, *(n for n in self.used_columns(rows) if n not in wanted)]
        return names or [_NO_COLUMN]

    def used_columns(self, rows: pc.Expression | None) -> list[str]:
        """Return the columns that the filter uses."""
        if rows is None:
            return []
        return [name for name in self._schema.names if self._uses_column(rows, name)]

    def _uses_column(self, rows: pc.Expression, name: str) -> bool:
        others = [field for field in self._schema if field.name != name]
        try:
            pa.schema(others).empty_table().filter(rows)
        except pa.ArrowInvalid:
            return True
        return False


class LogDataset(MessageDataset):
    """Messages of the logs in `sources`, which the owner updates."""

    def __init__(
        self, sources: list[BrokerLog], limits: ScanSettings, *, with_system: bool
    ) -> None:
        super().__init__()
        self._sources = sources
        self._limits = limits
        self._with_system = with_system

    def _scan_batches(self, wanted: list[str], rows: pc.Expression | None) -> Batches:
        pruner = Pruner(rows, self._schema)
        reading = self._read_settings(wanted, rows, pruner)
        scan = _Scan(self, reading, rows, wanted, self._limits.threads)
        for source in self._sources:
            yield from scan.scan_batches(source, pruner)

    def log_bytes(self) -> int:
        """Return the bytes of all splits."""
        return sum(
            split.end - split.start
            for source in self._sources
            for _, splits in source.log.segment_splits()
            for split in splits
        )

    def _read_settings(
        self, wanted: list[str], rows: pc.Expression | None, pruner: Pruner
    ) -> ReadSettings:
        names = self._needed_columns(wanted, rows)
        options = options_of(names)
        return replace(
            read_settings(options, columns_of(options)),
            topics=_FilteredTopics(
                with_system=self._with_system,
                pruner=pruner if rows is not None and "topic" in names else None,
                named=self.left_out,
            ),
            skip_corrupt=self._limits.skip_corrupt,
            fail_on_loss=not self._limits.allow_loss,
        )


class _Scanner:
    """The part of `pyarrow.dataset.Scanner` that DuckDB uses."""

    def __init__(
        self, dataset: MessageDataset, wanted: list[str], rows: pc.Expression | None
    ) -> None:
        self._dataset = dataset
        self._wanted = wanted
        self._rows = rows

    @property
    def projected_schema(self) -> pa.Schema:
        fields = self._dataset.schema
        return pa.schema([fields.field(name) for name in self._wanted])

    def to_reader(self) -> pa.RecordBatchReader:
        batches = self._dataset.scan_batches(self._wanted, self._rows)
        return pa.RecordBatchReader.from_batches(self.projected_schema, batches)


class _Prefetched(NamedTuple):
    """Batches that were read ahead, and the iterator of the remaining ones."""

    batches: list[pa.RecordBatch]
    more: Batches | None


class _Scan:
    """A scan of the logs; threads decode splits ahead, in log order."""

    def __init__(
        self,
        dataset: MessageDataset,
        reading: ReadSettings,
        rows: pc.Expression | None,
        wanted: list[str],
        threads: int,
    ) -> None:
        self._dataset = dataset
        self._read_settings = reading
        self._rows = rows
        self._wanted = wanted
        self._threads = threads
        self._checks_crc = any(c.source == "body" for c in reading.columns)

    def scan_batches(self, source: BrokerLog, pruner: Pruner) -> Batches:
        """Yield the batches of one log."""
        reading = replace(self._read_settings, broker_name=source.broker_name)
        ranges = self._plan_ranges(source, pruner)
        yield from read_ahead(
            (self._read(reading, part) for part in ranges), self._threads
        )

    def _plan_ranges(self, source: BrokerLog, pruner: Pruner) -> Iterator[SegmentRange]:
        for segment, splits in source.log.segment_splits():
            for split in pruner.matching_splits(splits, source.broker_name):
                self._dataset.scanned_bytes += split.end - split.start
                yield SegmentRange(
                    segment.path,
                    segment.base_offset,
                    segment.size,
                    split.start,
                    split.end,
                    self._checks_crc,
                )

    def _read(self, reading: ReadSettings, part: SegmentRange) -> Batches:
        """Yield the rows of a range that pass the filter."""
        batches = self._count_rows(read_range(reading, part))
        return filter_batches(batches, self._rows, self._wanted)

    def _count_rows(self, batches: Batches) -> Batches:
        for batch in batches:
            self._dataset.scanned_rows += batch.num_rows
            yield batch


def filter_batches(
    batches: Iterable[pa.RecordBatch], rows: pc.Expression | None, wanted: list[str]
) -> Batches:
    """Yield the selected columns of the rows that pass the filter."""
    for batch in batches:
        if rows is None:
            yield batch.select(wanted)
            continue
        table = pa.Table.from_batches([batch]).filter(rows)
        yield from table.select(wanted).to_batches()


def read_ahead(parts: Iterator[Batches], threads: int) -> Batches:
    """Yield the batches of parts in their order, while threads read the next ones."""
    taken_ahead: deque[Future[_Prefetched]] = deque()
    pool = ThreadPoolExecutor(threads)
    room, size = 1, FIRST_BYTES
    try:
        while True:
            while len(taken_ahead) < room and (part := next(parts, None)) is not None:
                taken_ahead.append(pool.submit(_prefetch, part, size))
            if not taken_ahead:
                return
            taken = taken_ahead.popleft().result()
            room, size = threads + 1, AHEAD_BYTES
            if taken.more is not None:
                taken_ahead.appendleft(pool.submit(_prefetch, taken.more, size))
            yield from taken.batches
    finally:
        pool.shutdown(cancel_futures=True)


def _prefetch(batches: Batches, limit: int) -> _Prefetched:
    taken, size = [], 0
    for batch in batches:
        taken.append(batch)
        size += batch.nbytes
        if size >= limit:
            return _Prefetched(taken, batches)
    return _Prefetched(taken, None)


@dataclass(frozen=True)
class _FilteredTopics(TopicSelection):
    """The topics whose rows may pass the filter."""

    pruner: Pruner | None = None
    named: set[str] = field(default_factory=set, compare=False)
    """System topics that the filter names, and that the table does not have."""

    def wants_topic(self, topic: str) -> bool:
        """Return whether the rows of a topic are read."""
        if self.pruner is None:
            return super().wants_topic(topic)
        if not self.pruner.matches_topic(topic):
            return False
        if super().wants_topic(topic):
            return True
        if not self.pruner.matches_topic(SOME_TOPIC):
            self.named.add(topic)
        return False


def options_of(names: Sequence[str] = ("full",)) -> Options:
    """Return the options of a reader of these columns."""
    return Options({"store": "-", "columns": ",".join(names)})
