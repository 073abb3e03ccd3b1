"""Reads the records of a few topics through their consume queues.

Consume queues are an index that may lag the log, and they have neither prepared nor
rolled-back messages.  So the source uses them with `readFrom=queues` only, and an
export never does.

Entry, 20 bytes: i64 physical offset, i32 record size, i64 tags code.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from rmq._fastpath.log.decode import RecordStatus, RecordView
from rmq._fastpath.log.layout import QueueEntryLayout, RecordLayout
from rmq.core.errors import ConfigError
from rmq.core.segments import Segment, segments_of
from rmq_spark.options import Options
from rmq_spark.segments.commit_log import (
    QUEUE_ENTRY,
    LostData,
    bad_record,
    find_segments,
    open_segment,
)
from rmq_spark.segments.reader import BatchBuilder, ReadSettings

_BATCH_RECORDS: Final = 16_384
_BATCH_BYTES: Final = 16 << 20
Place = tuple[int, int]
"""Physical offset and size of a record."""
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecordList:
    """Records of one segment in log order: physical offset and size of each."""

    path: str
    base_offset: int
    places: list[Place]
    check_crc: bool = False


def plan_records(
    options: Options, start: int, end: int, *, split_bytes: int
) -> list[RecordList]:
    """Return lists of about `split_bytes` with the selected records of [start, end)."""
    store = Path(options["store"])
    entries: list[Place] = []
    for folder in _chosen_queues(options, store / "consumequeue"):
        entries += [
            (offset, size)
            for offset, size in _read_entries(folder)
            if start <= offset < end
        ]
    entries.sort()
    return [
        RecordList(s.path, s.base_offset, chunk, options["verifyCrc"] == "all")
        for s, places in _by_segment(find_segments(store), entries)
        for chunk in _chunk_places(places, split_bytes)
    ]


def _chosen_queues(options: Options, root: Path) -> Iterator[Path]:
    """Yield the folders of the selected queues; the options must name the topics."""
    assigned = options["assign"]
    topics = options["subscribe"]
    if assigned is not None:
        broker = options["brokerName"]
        for topic, name, queue in sorted(assigned):
            if name == broker:
                yield _require_folder(root / topic / str(queue), topic)
    elif topics is not None:
        for topic in topics:
            yield from sorted(_require_folder(root / topic, topic).iterdir())
    else:
        raise ConfigError("readFrom=queues needs option subscribe or assign")


def _require_folder(folder: Path, topic: str) -> Path:
    if not folder.is_dir():
        raise ConfigError(
            f"topic {topic} has no consume queue at {folder}: read it with readFrom=log"
        )
    return folder


def _read_entries(folder: Path) -> Iterator[Place]:
    """Yield physical offset and size of each written entry, without fillers."""
    for each in segments_of(folder):
        data = Path(each.path).read_bytes()
        whole = len(data) - len(data) % QueueEntryLayout.ENTRY_SIZE
        for offset, size, _ in QUEUE_ENTRY.iter_unpack(data[:whole]):
            if size <= 0 or offset < 0:
                break
            if size != QueueEntryLayout.FILLER_SIZE:
                yield offset, size


def _by_segment(
    segments: list[Segment], entries: list[Place]
) -> Iterator[tuple[Segment, list[Place]]]:
    """Yield each segment with its entries; `entries` are sorted."""
    at = 0
    for segment in segments:
        first = at
        while at < len(entries) and entries[at][0] < segment.end_offset:
            at += 1
        inside = [e for e in entries[first:at] if e[0] >= segment.base_offset]
        if inside:
            yield segment, inside


def _chunk_places(
    places: list[Place], max_bytes: int, max_count: int = 1 << 62
) -> Iterator[list[Place]]:
    """Yield lists that end where one of the limits is reached."""
    chunk: list[Place] = []
    size = 0
    for place in places:
        chunk.append(place)
        size += place[1]
        if size >= max_bytes or len(chunk) == max_count:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def read_records(reading: ReadSettings, part: RecordList) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a list; an entry without its record is an error."""
    try:
        with open_segment(part.path) as descriptor:
            for places in _chunk_places(part.places, _BATCH_BYTES, _BATCH_RECORDS):
                yield from _read_batch(reading, part, descriptor, places)
    except LostData:
        if reading.fail_on_loss:
            raise
        _log.warning("%s does not exist any more: its records are not read", part.path)


def _read_batch(
    reading: ReadSettings, part: RecordList, descriptor: int, places: list[Place]
) -> Iterator[pa.RecordBatch]:
    records = []
    for offset, size in places:
        data = os.pread(descriptor, size, offset - part.base_offset)
        if _is_record(data, offset, size):
            records.append(data)
        else:
            error = bad_record(part.path, offset, RecordStatus.BAD_OFFSET, "")
            if not reading.skip_corrupt:
                raise error
            _log.warning("%s", error)
    decoder, builder = reading.create_decoder(), BatchBuilder(reading)
    joined = b"".join(records)
    at = 0
    while at < len(joined):
        found = decoder.measure(joined, at, len(joined), check_crc=part.check_crc)
        if found.rows:
            yield from builder.build(decoder, found)
        at = found.position
        if found.status is not RecordStatus.OK:
            record = RecordView(joined, at)
            offset = record.physical_offset
            error = bad_record(part.path, offset, found.status, found.reason)
            if not reading.skip_corrupt:
                raise error
            _log.warning("%s", error)
            at += record.size


def _is_record(data: bytes, offset: int, size: int) -> bool:
    """Return whether the bytes have the size and offset of the queue entry."""
    if len(data) != size or size < RecordLayout.HEAD_SIZE:
        return False
    record = RecordView(data)
    return record.size == size and record.physical_offset == offset
