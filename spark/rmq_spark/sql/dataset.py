"""MessageDataset: messages as a dataset that DuckDB scans; LogDataset: those of logs.

DuckDB asks a `pyarrow.dataset.Dataset` for a scanner of some columns and with a filter.
The columns that neither of both needs are not decoded.  DuckDB drops a filter that it
has handed over, so every row passes through it here; to leave out splits and topics
that it excludes is only a matter of speed.
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
"""What a thread decodes before DuckDB takes it; a split of 16 MiB is seldom more."""
FIRST_BYTES: Final = 1 << 20
"""The first batches come early: `LIMIT 1` needs no more."""
SOME_TOPIC: Final = "\0"
"""No topic has this name: a filter that excludes it names the topics it wants."""
_NO_COLUMN: Final = "queueId"
"""Decoded for a count of rows."""

Batches = Iterator[pa.RecordBatch]


class BrokerLog(NamedTuple):
    """The log of one broker, frozen."""

    log: LogSnapshot
    broker_name: str

    def after(self, archived: int) -> "BrokerLog":
        """What an archive of this log, which ends at a place, does not have."""
        return self._replace(log=self.log.beginning_at(archived, self.broker_name))


@dataclass(frozen=True)
class ScanSettings:
    """How logs are read; `threads` decode, beside those of DuckDB."""

    threads: int = 1
    skip_corrupt: bool = False
    allow_loss: bool = False


class MessageDataset(ds.Dataset):  # type: ignore[misc] # pyarrow has no types
    """Messages from somewhere; `failure` is why a scan ended."""

    def __init__(self) -> None:
        names = [*(c.name for c in columns_of(options_of())), OFFSET_ID]
        self._schema = arrow_schema(columns_of(options_of(names)))
        self.failure: RmqError | None = None
        self.left_out: set[str] = set()

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_: Any,  # noqa: ANN401 - what only speed depends on
    ) -> "_Scanner":
        """What DuckDB reads the rows from."""
        wanted = self._schema.names if columns is None else list(columns)
        return _Scanner(self, wanted, filter)

    def batches(self, wanted: list[str], rows: pc.Expression | None) -> Batches:
        """The batches of a scan; the first failure is remembered."""
        try:
            yield from self._batches(wanted, rows)
        except RmqError as error:
            self.failure = error
            raise

    def _batches(self, wanted: list[str], rows: pc.Expression | None) -> Batches:
        """The batches of a scan; each kind of dataset has its own way."""
        raise NotImplementedError

    def _decoded(self, wanted: list[str], rows: pc.Expression | None) -> list[str]:
        """The columns that must be decoded."""
        names = [*wanted, *(n for n in self._used_by(rows) if n not in wanted)]
        return names or [_NO_COLUMN]

    def _used_by(self, rows: pc.Expression | None) -> list[str]:
        """The columns without which a table cannot be filtered."""
        if rows is None:
            return []
        return [name for name in self._schema.names if self._needs(rows, name)]

    def _needs(self, rows: pc.Expression, name: str) -> bool:
        others = [field for field in self._schema if field.name != name]
        try:
            pa.schema(others).empty_table().filter(rows)
        except pa.ArrowInvalid:
            return True
        return False


class LogDataset(MessageDataset):
    """Messages of the logs in `sources`."""

    def __init__(
        self,
        sources: list[BrokerLog],
        limits: ScanSettings,
        *,
        with_system: bool,
    ) -> None:
        super().__init__()
        self._sources = sources
        self._limits = limits
        self._with_system = with_system

    def _batches(self, wanted: list[str], rows: pc.Expression | None) -> Batches:
        pruner = Pruner(rows, self._schema)
        reading = self._reading(wanted, rows, pruner)
        scan = _Scan(reading, rows, wanted, self._limits.threads)
        for source in self._sources:
            yield from scan.batches(source, pruner)

    def _reading(
        self, wanted: list[str], rows: pc.Expression | None, pruner: Pruner
    ) -> ReadSettings:
        names = self._decoded(wanted, rows)
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
        batches = self._dataset.batches(self._wanted, self._rows)
        return pa.RecordBatchReader.from_batches(self.projected_schema, batches)


class _Prefetched(NamedTuple):
    """Batches of a range, and where the others come from if there may be more."""

    batches: list[pa.RecordBatch]
    more: Batches | None


class _Scan:
    """One pass over the logs: splits are decoded ahead, and come in their order."""

    def __init__(
        self,
        reading: ReadSettings,
        rows: pc.Expression | None,
        wanted: list[str],
        threads: int,
    ) -> None:
        self._reading = reading
        self._rows = rows
        self._wanted = wanted
        self._threads = threads
        self._checks_crc = any(c.source == "body" for c in reading.columns)

    def batches(self, source: BrokerLog, pruner: Pruner) -> Batches:
        """The batches of one log."""
        reading = replace(self._reading, broker_name=source.broker_name)
        ranges = self._ranges(source, pruner)
        yield from read_ahead(
            (self._read(reading, part) for part in ranges), self._threads
        )

    def _ranges(self, source: BrokerLog, pruner: Pruner) -> Iterator[SegmentRange]:
        for segment, splits in source.log.parts():
            for split in pruner.splits(splits, source.broker_name):
                yield SegmentRange(
                    segment.path,
                    segment.base_offset,
                    segment.size,
                    split.start,
                    split.end,
                    self._checks_crc,
                )

    def _read(self, reading: ReadSettings, part: SegmentRange) -> Batches:
        """The rows of a range that pass the filter."""
        return filtered(read_range(reading, part), self._rows, self._wanted)


def filtered(
    batches: Iterable[pa.RecordBatch], rows: pc.Expression | None, wanted: list[str]
) -> Batches:
    """The wanted columns of the rows that pass the filter."""
    for batch in batches:
        if rows is None:
            yield batch.select(wanted)
            continue
        table = pa.Table.from_batches([batch]).filter(rows)
        yield from table.select(wanted).to_batches()


def read_ahead(parts: Iterator[Batches], threads: int) -> Batches:
    """The batches of parts in their order; threads read the next ones meanwhile."""
    taken_ahead: deque[Future[_Prefetched]] = deque()
    pool = ThreadPoolExecutor(threads)
    room, size = 1, FIRST_BYTES
    try:
        while True:
            while len(taken_ahead) < room and (part := next(parts, None)) is not None:
                taken_ahead.append(pool.submit(_take, part, size))
            if not taken_ahead:
                return
            taken = taken_ahead.popleft().result()
            room, size = threads + 1, AHEAD_BYTES
            if taken.more is not None:
                taken_ahead.appendleft(pool.submit(_take, taken.more, size))
            yield from taken.batches
    finally:
        pool.shutdown(cancel_futures=True)


def _take(batches: Batches, limit: int) -> _Prefetched:
    taken, size = [], 0
    for batch in batches:
        taken.append(batch)
        size += batch.nbytes
        if size >= limit:
            return _Prefetched(taken, batches)
    return _Prefetched(taken, None)


@dataclass(frozen=True)
class _FilteredTopics(TopicSelection):
    """Topics whose rows may pass the filter."""

    pruner: Pruner | None = None
    named: set[str] = field(default_factory=set, compare=False)
    """Topics of the system that the filter wants, and that are left out."""

    def wants(self, topic: str) -> bool:
        """True if rows of this topic are read."""
        if self.pruner is None:
            return super().wants(topic)
        if not self.pruner.keeps_topic(topic):
            return False
        if super().wants(topic):
            return True
        if not self.pruner.keeps_topic(SOME_TOPIC):
            self.named.add(topic)
        return False


def options_of(names: Sequence[str] = ("full",)) -> Options:
    """The options of a reader of these columns."""
    return Options({"store": "-", "columns": ",".join(names)})
