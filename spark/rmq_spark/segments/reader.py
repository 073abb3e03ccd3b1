"""Reads a range of a segment in chunks and decodes its records to Arrow batches.

The reader uses `pread`: if a file that is mapped is truncated, the worker gets SIGBUS.
The records must lead from the start of the range to exactly its end.  A range that ends
with its file may end with a blank record.  Other bytes are an error with their offset.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from rmq._fastpath.arrow.columns import ColumnReader, Measured, find_record
from rmq._fastpath.log.decode import RecordStatus
from rmq.protocol.compression import decompress_body
from rmq_spark.options import Options
from rmq_spark.segments.commit_log import (
    CHUNK_BYTES,
    MAX_RECORD_BYTES,
    LostData,
    bad_record,
    open_segment,
)
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
    """How to decode records, and which rows to keep; pickled for the workers."""

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
    def decoded_sources(self) -> list[str]:
        """The decoded columns: the selected columns, and the columns of filters."""
        wanted = dict.fromkeys(c.source for c in self.columns)
        if not self.rows.is_unbounded:
            wanted |= dict.fromkeys(ROW_SOURCES)
        return [source for source in wanted if source not in CONSTANTS]

    def create_decoder(self) -> ColumnReader:
        """Create a decoder of these columns."""
        return ColumnReader(
            self.decoded_sources,
            wants_topic=self.topics.wants_topic,
            open_body=decompress_body if self.decompress else None,
            unwrap=self.unwrap,
            skip_unqueued=not self.with_unqueued,
        )


def read_settings(options: Options, columns: tuple[Column, ...]) -> ReadSettings:
    """Return the settings that the options describe."""
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
    """Yield the rows of a range in log order."""
    try:
        with open_segment(part.path) as descriptor:
            yield from _RangeReader(reading, part, descriptor).read_batches(batch_rows)
    except LostData:
        if reading.fail_on_loss:
            raise
        _log.warning(
            "%s does not exist any more: offsets %d to %d are not read",
            part.path,
            part.start,
            part.end,
        )


class _RangeReader:
    """One pass over one range."""

    def __init__(
        self, reading: ReadSettings, part: SegmentRange, descriptor: int
    ) -> None:
        self._reading = reading
        self._part = part
        self._descriptor = descriptor
        self._decoder = reading.create_decoder()
        self._builder = BatchBuilder(reading)
        self._position = part.start

    def read_batches(self, batch_rows: int) -> Iterator[pa.RecordBatch]:
        chunk = memoryview(bytearray(min(CHUNK_BYTES, self._remaining_bytes)))
        while self._remaining_bytes:
            start = self._position
            size = self._fill(chunk[: self._remaining_bytes])
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
            if (
                found.status is RecordStatus.SHORT
                and len(chunk) == size < self._remaining_bytes
            ):
                chunk = self._double_chunk(chunk)
            elif self._is_end_of_file(found):
                self._position = self._part.end
            else:
                self._skip_damage(found)

    @property
    def _remaining_bytes(self) -> int:
        return self._part.end - self._position

    def _fill(self, chunk: memoryview) -> int:
        """Read from the position into the chunk; a truncated file is an error."""
        size = os.preadv(
            self._descriptor, [chunk], self._position - self._part.base_offset
        )
        if size == 0:
            raise bad_record(
                self._part.path,
                self._position,
                RecordStatus.SHORT,
                "the file ends here, before the end of the range",
            )
        return size

    def _double_chunk(self, chunk: memoryview) -> memoryview:
        if len(chunk) >= MAX_RECORD_BYTES:
            raise bad_record(
                self._part.path,
                self._position,
                RecordStatus.BAD_SIZE,
                "the record is too long",
            )
        return memoryview(bytearray(2 * len(chunk)))

    def _is_end_of_file(self, found: Measured) -> bool:
        if self._part.end != self._part.file_end:
            return False
        return found.status is RecordStatus.BLANK or self._remaining_bytes < _BLANK_SIZE

    def _skip_damage(self, found: Measured) -> None:
        error = bad_record(self._part.path, self._position, found.status, found.reason)
        if not self._reading.skip_corrupt:
            raise error
        bad = self._position
        self._position = self._next_record(bad + 1)
        _log.warning("%s; %d bytes are skipped", error, self._position - bad)

    def _next_record(self, position: int) -> int:
        """Return the next offset where records seem to start, or the range's end."""
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
    """Allocates the buffers that a decoder fills, and creates batches over them."""

    def __init__(self, reading: ReadSettings) -> None:
        self._reading = reading
        self._sources = reading.decoded_sources
        self._schema = arrow_schema(reading.columns)
        self._types: dict[str, pa.DataType] = {}
        for column, field in zip(reading.columns, self._schema, strict=True):
            self._types.setdefault(column.source, field.type)
        timestamp = pa.timestamp("us", tz="UTC")
        kinds = (pa.string(), pa.int32(), pa.int64(), timestamp, pa.string())
        for source, kind in zip(ROW_SOURCES, kinds, strict=True):
            self._types.setdefault(source, kind)

    def build(self, decoder: ColumnReader, found: Measured) -> Iterator[pa.RecordBatch]:
        """Yield the batch of the measured rows, unless all rows are filtered out."""
        if found.unopened:
            _log.warning(
                "bodies that cannot be decompressed are rows as stored: %s",
                "; ".join(found.unopened),
            )
        arrays = self._decode(decoder, found)
        columns = [
            self._create_column(column, arrays, found.rows) for column in self._fields
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if not self._reading.rows.is_unbounded:
            batch = batch.filter(self._reading.rows.row_mask(arrays))
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
            arrays[source] = _create_array(
                self._types[source], found.rows, parts, nulls
            )
        return arrays

    def _create_column(
        self, wanted: tuple[Column, pa.DataType], arrays: dict[str, pa.Array], rows: int
    ) -> pa.Array:
        column, kind = wanted
        if column.source == BROKER_NAME:
            return pa.repeat(pa.scalar(self._reading.broker_name, kind), rows)
        if column.source == TIMESTAMP_TYPE:
            return pa.repeat(pa.scalar(_LOG_APPEND_TIME, kind), rows)
        array = arrays[column.source]
        return array if array.type == kind else array.view(kind)


def _create_array(
    kind: pa.DataType, rows: int, parts: list[pa.Buffer], nulls: int
) -> pa.Array:
    """Return an array over the buffers of one column, without a copy."""
    if len(parts) == 5:
        return _create_map(kind, rows, parts)
    if len(parts) == 3:
        if nulls == 0:
            parts = [None, *parts[1:]]
        return pa.Array.from_buffers(kind, rows, parts, nulls)
    return pa.Array.from_buffers(kind, rows, [None, *parts], 0)


def _create_map(kind: pa.DataType, rows: int, parts: list[pa.Buffer]) -> pa.Array:
    """Return a map, or a list of structs, which has the same buffers."""
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
