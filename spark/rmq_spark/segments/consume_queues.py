"""Reading a few topics by their consume queues: only their records are read.

The queues are an index that may lag behind the log, and hold neither prepared nor
rolled-back messages.  So the source
uses them only with `readFrom=queues`, and an export never does.

Entry, 20 bytes: i64 physical offset, i32 record size, i64 tags code.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from rmq._fastpath import QueueEntryLayout, RecordLayout, RecordStatus, RecordView
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
    """Records of one segment in the order of the log: offset and size of each."""

    path: str
    base_offset: int
    places: list[Place]
    check_crc: bool = False


def plan_records(
    options: Options, start: int, end: int, *, split_bytes: int
) -> list[RecordList]:
    """The records of the chosen topics in [start, end), in lists of `split_bytes`."""
    store = Path(options["store"])
    entries: list[Place] = []
    for folder in _chosen_queues(options, store / "consumequeue"):
        entries += [
            (offset, size) for offset, size in _entries(folder) if start <= offset < end
        ]
    entries.sort()
    return [
        RecordList(s.path, s.base_offset, chunk, options["verifyCrc"] == "all")
        for s, places in _by_segment(find_segments(store), entries)
        for chunk in _chunks(places, split_bytes)
    ]


def _chosen_queues(options: Options, root: Path) -> Iterator[Path]:
    """The folders of the queues; the topics must have been named."""
    assigned = options["assign"]
    topics = options["subscribe"]
    if assigned is not None:
        broker = options["brokerName"]
        for topic, name, queue in sorted(assigned):
            if name == broker:
                yield _existing(root / topic / str(queue), topic)
    elif topics is not None:
        for topic in topics:
            yield from sorted(_existing(root / topic, topic).iterdir())
    else:
        raise ConfigError("readFrom=queues needs option subscribe or assign")


def _existing(folder: Path, topic: str) -> Path:
    if not folder.is_dir():
        raise ConfigError(
            f"topic {topic} has no consume queue at {folder}: read it with readFrom=log"
        )
    return folder


def _entries(folder: Path) -> Iterator[Place]:
    """Offset and size of each entry that was written; fillers are skipped."""
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
    """Sorted entries by segment, without those of removed segments."""
    at = 0
    for segment in segments:
        first = at
        while at < len(entries) and entries[at][0] < segment.end_offset:
            at += 1
        inside = [e for e in entries[first:at] if e[0] >= segment.base_offset]
        if inside:
            yield segment, inside


def _chunks(
    places: list[Place], max_bytes: int, max_count: int = 1 << 62
) -> Iterator[list[Place]]:
    """Cut where one of the limits is reached."""
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
    """The rows of a list; a place without such a record is an error."""
    try:
        with open_segment(part.path) as descriptor:
            for places in _chunks(part.places, _BATCH_BYTES, _BATCH_RECORDS):
                yield from _read_batch(reading, part, descriptor, places)
    except LostData:
        if reading.fail_on_loss:
            raise
        _log.warning("%s is gone: its records are not read", part.path)


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
    decoder, builder = reading.decoder(), BatchBuilder(reading)
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
    """True if the bytes claim to be the record that the queue names."""
    if len(data) != size or size < RecordLayout.HEAD_SIZE:
        return False
    record = RecordView(data)
    return record.size == size and record.physical_offset == offset
