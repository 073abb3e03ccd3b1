"""Reads a bundle: decodes pulled records to Arrow batches, as the segment reader does.

Without a filter the records of an answer must have all offsets of its range.  A gap is
lost data.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa

from rmq._fastpath.arrow.columns import ColumnReader, Measured
from rmq._fastpath.log.decode import RecordStatus, check_record
from rmq._fastpath.log.layout import RecordLayout, RecordMagic
from rmq.core.errors import RemoteProtocolError
from rmq_spark.live.plan import Bundle
from rmq_spark.live.puller import PulledRecords, Puller, PullSettings
from rmq_spark.segments.commit_log import LostData
from rmq_spark.segments.reader import BatchBuilder, ReadSettings

BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 4 << 20
_MAX_ROWS: Final = 1 << 30
"""A number that no batch reaches: the bytes of pulled records limit a batch."""

_MAGIC: Final = re.compile(
    b"|".join(
        re.escape(int(magic).to_bytes(4, "big"))
        for magic in (RecordMagic.MAGIC_V1, RecordMagic.MAGIC_V2)
    )
)
_log: Final = logging.getLogger(__name__)


def read_bundle(
    settings: PullSettings, reading: ReadSettings, bundle: Bundle
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a bundle; rows of one queue in the order of their offsets."""
    puller = Puller(settings, bundle)
    reader = _BundleReader(settings, replace(reading, broker_name=bundle.broker))
    try:
        for answers in _group_answers(puller.pull_records()):
            yield from reader.decode_batches(answers)
    finally:
        puller.close()


def _group_answers(answers: Iterable[PulledRecords]) -> Iterator[list[PulledRecords]]:
    """Yield lists of answers that are large enough for a batch."""
    found: list[PulledRecords] = []
    rows = size = 0
    for answer in answers:
        found.append(answer)
        rows += answer.end - answer.start
        size += len(answer.body)
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield found
            found, rows, size = [], 0, 0
    if found:
        yield found


class _BundleReader:
    def __init__(self, settings: PullSettings, reading: ReadSettings) -> None:
        self._settings = settings
        self._skips_corrupt = reading.skip_corrupt
        self._decoder = reading.create_decoder()
        self._builder = BatchBuilder(reading)
        self._offsets = ColumnReader(["queueOffset"], unwrap=True, skip_unqueued=False)

    def decode_batches(self, answers: list[PulledRecords]) -> Iterator[pa.RecordBatch]:
        data = b"".join([answer.body for answer in answers])
        if self._skips_corrupt and self._has_damage(data):
            for answer in answers:
                yield from self._decode_around_damage(answer)
            return
        if not self._settings.is_filtered and not self._is_exact(answers, data):
            for answer in answers:
                self._check_offsets(answer)
        yield from self._decode(answers[0], data)

    def _has_damage(self, data: bytes) -> bool:
        found = self._offsets.measure(data, 0, len(data), max_rows=_MAX_ROWS)
        return found.status is not RecordStatus.OK

    def _decode_around_damage(self, answer: PulledRecords) -> Iterator[pa.RecordBatch]:
        """Decode the good records of an answer, and log where there are others."""
        body, at = answer.body, 0
        while at < len(body):
            found = self._offsets.measure(body, at, len(body), max_rows=_MAX_ROWS)
            yield from self._decode(answer, body[at : found.position])
            at = len(body)
            if found.status is not RecordStatus.OK:
                at = _next_record(body, found.position + 1)
                _log.warning(
                    "%s; %d bytes are skipped",
                    _damage_of(found, answer), at - found.position,
                )  # fmt: skip

    def _decode(self, first: PulledRecords, data: bytes) -> Iterator[pa.RecordBatch]:
        at = 0
        while at < len(data):
            found = self._decoder.measure(data, at, len(data), max_rows=_MAX_ROWS)
            if found.rows:
                yield from self._builder.build(self._decoder, found)
            at = found.position
            _check_status(found, first)

    def _is_exact(self, answers: list[PulledRecords], data: bytes) -> bool:
        """Return whether each answer has all offsets from its first to its last."""
        offsets = self._queue_offsets(data, answers[0])
        at = 0
        for answer in answers:
            last = at + answer.end - answer.start - 1
            if last >= len(offsets) or (offsets[at], offsets[last]) != (
                answer.start,
                answer.end - 1,
            ):
                return False
            at = last + 1
        return at == len(offsets)

    def _queue_offsets(self, data: bytes, first: PulledRecords) -> memoryview:
        found = self._offsets.measure(data, 0, len(data), max_rows=_MAX_ROWS)
        _check_status(found, first)
        ((size,),) = found.sizes
        buffer = pa.allocate_buffer(size)
        self._offsets.fill([(buffer.address,)])
        return memoryview(buffer).cast("q")[: found.rows]

    def _check_offsets(self, answer: PulledRecords) -> None:
        """Raise LostData, or warn, if offsets are missing in an answer."""
        expected = answer.start
        for offset in (*self._queue_offsets(answer.body, answer), answer.end):
            if not expected <= offset <= answer.end:
                raise RemoteProtocolError(
                    f"{answer.queue}: a pull of {answer.start} to {answer.end} "
                    f"returned offset {offset} where {expected} was expected"
                )
            if offset > expected:
                text = (
                    f"{answer.queue}: offsets {expected} to {offset} were removed "
                    "before they were read"
                )
                if self._settings.fails_on_loss:
                    raise LostData(
                        text, "failOnDataLoss=false reads the remaining messages"
                    )
                _log.warning("%s", text)
            expected = offset + 1


def _check_status(found: Measured, first: PulledRecords) -> None:
    if found.status is not RecordStatus.OK:
        raise _damage_of(found, first)


def _damage_of(found: Measured, first: PulledRecords) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{first.queue} from offset {first.start} on: a pulled record is damaged: "
        f"{found.status.name} {found.reason}".rstrip()
        + "; corruptRecords=skip skips it"
    )


def _next_record(body: bytes, start: int) -> int:
    """Return the start of the next record with a right CRC, or the end of the body."""
    magic_at = int(RecordLayout.MAGIC_AT)
    places = (
        found.start() - magic_at for found in _MAGIC.finditer(body, start + magic_at)
    )
    good = (at for at in places if check_record(body, at)[0] is RecordStatus.OK)
    return next(good, len(body))
