"""Reading a range of a segment: bytes in chunks, proof of the range, Arrow batches.

A range is read with `pread`: a file that is cut while it is mapped would kill the
worker.  The records must lead from the start of the range to exactly its end, or to a
blank record if it ends with its file; anything else is an error with its offset.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rmq._fastpath import RecordStatus
from rmq._fastpath.arrow.columns import ColumnReader, Measured, find_record
from rmq_spark.options import Options
from rmq_spark.segments.commit_log import (
    CHUNK_BYTES,
    MAX_RECORD_BYTES,
    LostData,
    bad_record,
    open_segment,
)
from rmq_spark.segments.compression import keep_if_broken, open_body
from rmq_spark.segments.plan import SegmentRange
from rmq_spark.segments.schema import (
    BROKER_NAME,
    CONSTANTS,
    TIMESTAMP_TYPE,
    Column,
    arrow_schema,
)
from rmq_spark.segments.selection import (
    ROW_SOURCES,
    RowBounds,
    TopicSelection,
    row_bounds,
    selected_topics,
)

BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 16 << 20
_BLANK_SIZE: Final = 8
_LOG_APPEND_TIME: Final = 1
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadSettings:
    """What to make of the records; sent to the workers."""

    columns: tuple[Column, ...]
    topics: TopicSelection = TopicSelection()
    rows: RowBounds = RowBounds()
    broker_name: str = ""
    with_unqueued: bool = False
    decompress: bool = True
    unwrap: bool = True
    skip_corrupt: bool = False
    fail_on_loss: bool = True

    @property
    def sources(self) -> list[str]:
        """What to decode: for the columns, and for the choice of rows."""
        wanted = dict.fromkeys(c.source for c in self.columns)
        if not self.rows.is_unbounded:
            wanted |= dict.fromkeys(ROW_SOURCES)
        return [source for source in wanted if source not in CONSTANTS]

    def decoder(self) -> ColumnReader:
        """A decoder of these columns."""
        opener = keep_if_broken if self.skip_corrupt else open_body
        return ColumnReader(
            self.sources,
            wants_topic=self.topics.wants,
            open_body=opener if self.decompress else None,
            unwrap=self.unwrap,
            skip_unqueued=not self.with_unqueued,
        )


def read_settings(options: Options, columns: tuple[Column, ...]) -> ReadSettings:
    """What the options ask for."""
    return ReadSettings(
        columns,
        selected_topics(options),
        row_bounds(options),
        options["brokerName"],
        options["includeSystemTopics"],
        options["decompress"],
        options["unwrapBatch"],
        options["corruptRecords"] == "skip",
        options["failOnDataLoss"],
    )


def read_range(
    reading: ReadSettings, part: SegmentRange, *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in the order of the log."""
    try:
        with open_segment(part.path) as descriptor:
            yield from _RangeReader(reading, part, descriptor).batches(batch_rows)
    except LostData:
        if reading.fail_on_loss:
            raise
        _log.warning(
            "%s is gone: %d to %d are not read", part.path, part.start, part.end
        )


class _RangeReader:
    """One pass over one range."""

    def __init__(
        self, reading: ReadSettings, part: SegmentRange, descriptor: int
    ) -> None:
        self._reading = reading
        self._part = part
        self._descriptor = descriptor
        self._decoder = reading.decoder()
        self._builder = BatchBuilder(reading)
        self._position = part.start

    def batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        chunk = memoryview(bytearray(min(CHUNK_BYTES, self._left)))
        while self._left:
            start = self._position
            size = self._fill(chunk[: self._left])
            at = 0
            while at < size:
                found = self._decoder.measure(
                    chunk,
                    at,
                    size,
                    base_offset=start,
                    check_crc=self._part.check_crc,
                    max_rows=batch_rows,
                    max_bytes=BATCH_BYTES,
                )
                at = found.position
                self._position = start + at
                if found.rows:
                    yield from self._builder.build(self._decoder, found)
                if found.status is not RecordStatus.OK:
                    break
            if found.status in (RecordStatus.OK, RecordStatus.SHORT) and at:
                continue
            if found.status is RecordStatus.SHORT and len(chunk) == size < self._left:
                chunk = self._larger(chunk)
            elif self._is_end_of_file(found):
                self._position = self._part.end
            else:
                self._pass_over(found)

    @property
    def _left(self) -> int:
        return self._part.end - self._position

    def _fill(self, chunk: memoryview) -> int:
        """Read into the chunk from the position on; a cut file is an error."""
        size = os.preadv(
            self._descriptor, [chunk], self._position - self._part.base_offset
        )
        if size == 0:
            raise bad_record(
                self._part.path,
                self._position,
                RecordStatus.SHORT,
                "the file ends here, before the range does",
            )
        return size

    def _larger(self, chunk: memoryview) -> memoryview:
        if len(chunk) >= MAX_RECORD_BYTES:
            raise bad_record(
                self._part.path, self._position, RecordStatus.BAD_SIZE, "it is too long"
            )
        return memoryview(bytearray(2 * len(chunk)))

    def _is_end_of_file(self, found: Measured) -> bool:
        if self._part.end != self._part.file_end:
            return False
        return found.status is RecordStatus.BLANK or self._left < _BLANK_SIZE

    def _pass_over(self, found: Measured) -> None:
        error = bad_record(self._part.path, self._position, found.status, found.reason)
        if not self._reading.skip_corrupt:
            raise error
        bad = self._position
        self._position = self._next_record(bad + 1)
        _log.warning("%s; %d bytes are skipped", error, self._position - bad)

    def _next_record(self, position: int) -> int:
        """The next place where records seem to start, or the end of the range."""
        end = self._part.end
        while position < end:
            size = min(CHUNK_BYTES, end - position)
            data = os.pread(self._descriptor, size, position - self._part.base_offset)
            found = find_record(data, 0, len(data), base_offset=position)
            if found < len(data) or not data or position + found >= end:
                return min(position + found, end)
            # a record may begin at the end of this chunk
            position += max(1, len(data) - CHUNK_BYTES // 2)
        return end


class BatchBuilder:
    """Allocates the buffers of a decoder, and makes batches of them."""

    def __init__(self, reading: ReadSettings) -> None:
        self._reading = reading
        self._sources = reading.sources
        self._schema = arrow_schema(reading.columns)
        self._types: dict[str, pa.DataType] = {}
        for column, field in zip(reading.columns, self._schema, strict=True):
            self._types.setdefault(column.source, field.type)
        timestamp = pa.timestamp("us", tz="UTC")
        kinds = (pa.string(), pa.int32(), pa.int64(), timestamp, pa.string())
        for source, kind in zip(ROW_SOURCES, kinds, strict=True):
            self._types.setdefault(source, kind)

    def build(self, decoder: ColumnReader, found: Measured) -> Iterator[pa.RecordBatch]:
        """The batch of the measured rows; none if the choice leaves none."""
        arrays = self._decode(decoder, found)
        columns = [self._column(column, arrays, found.rows) for column in self._fields]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if not self._reading.rows.is_unbounded:
            batch = batch.filter(self._reading.rows.mask(arrays))
        if batch.num_rows:
            yield batch

    @property
    def _fields(self) -> list[tuple[Column, pa.DataType]]:
        return list(zip(self._reading.columns, self._schema.types, strict=True))

    def _decode(self, decoder: ColumnReader, found: Measured) -> dict[str, pa.Array]:
        buffers = [
            [pa.allocate_buffer(size) for size in sizes] for sizes in found.sizes
        ]
        used = decoder.fill([tuple(b.address for b in column) for column in buffers])
        arrays = {}
        for source, column, (nulls, sizes) in zip(
            self._sources, buffers, used, strict=True
        ):
            parts = [b.slice(0, n) for b, n in zip(column, sizes, strict=True)]
            arrays[source] = _array(self._types[source], found.rows, parts, nulls)
        return arrays

    def _column(
        self, wanted: tuple[Column, pa.DataType], arrays: dict[str, pa.Array], rows: int
    ) -> pa.Array:
        column, kind = wanted
        if column.source == BROKER_NAME:
            return pa.repeat(pa.scalar(self._reading.broker_name, kind), rows)
        if column.source == TIMESTAMP_TYPE:
            return pa.repeat(pa.scalar(_LOG_APPEND_TIME, kind), rows)
        array = arrays[column.source]
        return array if array.type == kind else array.view(kind)


def _array(
    kind: pa.DataType, rows: int, parts: list[pa.Buffer], nulls: int
) -> pa.Array:
    """An array over buffers as the decoder fills them."""
    if len(parts) == 5:
        return _pairs(kind, rows, parts)
    if len(parts) == 3:
        if nulls == 0:
            parts = [None, *parts[1:]]
        return pa.Array.from_buffers(kind, rows, parts, nulls)
    return pa.Array.from_buffers(kind, rows, [None, *parts], 0)


def _pairs(kind: pa.DataType, rows: int, parts: list[pa.Buffer]) -> pa.Array:
    """A map, or a list of structs, which has the same buffers."""
    offsets, name_offsets, names, value_offsets, values = parts
    is_map = pa.types.is_map(kind)
    entry = pa.struct([kind.key_field, kind.item_field]) if is_map else kind.value_type
    count = name_offsets.size // 4 - 1
    children = [
        pa.Array.from_buffers(entry.field(i).type, count, [None, o, data], 0)
        for i, (o, data) in enumerate(((name_offsets, names), (value_offsets, values)))
    ]
    entries = pa.Array.from_buffers(entry, count, [None], 0, children=children)
    return pa.Array.from_buffers(kind, rows, [None, offsets], 0, children=[entries])
