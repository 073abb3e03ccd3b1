"""Dump: records of a store as JSON objects, one at a time.

Records of a queue come in the order of the queue, other records in the order of the
log; damaged bytes are skipped. The index is not used, so a dump works on any store that
has a log.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import numpy as np

from rmq._fastpath.log.decode import Record, decode_record
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import topic_hash
from rmq.core.errors import StoreError
from rmq.protocol.properties import KEYS, UNIQ_KEY, decode_properties
from rmq.store.queues.consume_queue import FILLER_SIZE
from rmq.tools.queue_view import view_queue
from rmq.tools.store_files import StoreFiles
from rmq.tools.survey import Column, Survey

_PORT_SIZE = 4


@dataclass(frozen=True, slots=True)
class Choice:
    """Which records to print; None means any."""

    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    offset: int | None = None


def dump(store: StoreFiles, choice: Choice) -> Iterator[dict[str, Any]]:
    """Yield the records that match."""
    with store.open_log() as files:
        if choice.offset is not None:
            records = iter([_record_at(files, choice.offset)])
        elif choice.topic is not None and _has_queues(store, choice.topic):
            records = _by_queue(store, files, choice)
        else:
            records = _by_log(store, files, choice)
        for record in records:
            properties = decode_properties(record.properties.decode(errors="replace"))
            if _fits(record, properties, choice):
                yield _as_object(record, properties)


def _fits(record: Record, properties: dict[str, str], choice: Choice) -> bool:
    keys = [properties.get(UNIQ_KEY), *properties.get(KEYS, "").split(" ")]
    return (
        choice.topic in (None, record.topic)
        and choice.queue_id in (None, record.queue_id)
        and (choice.key is None or choice.key in keys)
    )


def _has_queues(store: StoreFiles, topic: str) -> bool:
    return any(queue.topic == topic for queue in store.queues())


def _record_at(files: Sequence[MappedFile], offset: int) -> Record:
    for file in files:
        position = offset - file.base_offset
        if 0 <= position < file.size:
            try:
                return decode_record(file, position)
            except ValueError as error:
                raise StoreError(f"{file.path} at offset {offset}: {error}") from None
    low = files[0].base_offset if files else 0
    high = files[-1].base_offset + files[-1].size if files else 0
    raise StoreError(f"offset {offset} is not in the log, which has {low} to {high}")


def _by_queue(
    store: StoreFiles, files: Sequence[MappedFile], choice: Choice
) -> Iterator[Record]:
    """Follow the entries of the topic's queues."""
    for queue in store.queues():
        wanted = queue.topic == choice.topic
        if not wanted or choice.queue_id not in (None, queue.queue_id):
            continue
        for entry in view_queue(queue.path).entries:
            offset, size = int(entry["offset"]), int(entry["size"])
            is_gone = not files or offset < files[0].base_offset
            if size <= 0 or size == FILLER_SIZE or is_gone:
                continue
            try:
                yield _record_at(files, offset)
            except StoreError:
                continue


def _by_log(
    store: StoreFiles, files: Sequence[MappedFile], choice: Choice
) -> Iterator[Record]:
    """Walk the log; only records of the topic are decoded."""
    survey = Survey(files, is_live=store.is_in_use)
    for file, block in survey.record_blocks():
        offsets = block[:, Column.OFFSET]
        if choice.topic is not None:
            wanted = topic_hash(choice.topic.encode())
            offsets = offsets[np.equal(block[:, Column.TOPIC], wanted)]
        for offset in offsets.tolist():
            yield decode_record(file, offset - file.base_offset)


def _as_object(record: Record, properties: dict[str, str]) -> dict[str, Any]:
    """Return an object with Java's names; a body that is no text as base64."""
    shown: dict[str, Any] = {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset,
        "storeSize": record.size,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_ms,
        "bornHost": _host(record.born_host),
        "storeTimestamp": record.store_ms,
        "storeHost": _host(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
        "bodyCRC": record.body_crc,
        "properties": properties,
    }
    try:
        shown["body"] = record.body.decode()
    except UnicodeDecodeError:
        shown["bodyBase64"] = base64.b64encode(record.body).decode()
    return shown


def _host(data: bytes) -> str:
    assert len(data) in (8, 20), data
    address = ip_address(data[:-_PORT_SIZE])
    port = int.from_bytes(data[-_PORT_SIZE:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
