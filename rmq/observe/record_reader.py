"""Records for views: read without waiting for the disk, decompressed up to a limit.

A worker thread reads records that are not in memory. Bodies come from outside: the
number of decompressed bytes has a limit.
"""

from contextlib import suppress
from typing import Any, Final

import trio

from rmq._fastpath.log.layout import RecordLayout
from rmq.core.errors import RecordDamaged
from rmq.core.offsets import PhysicalOffset
from rmq.core.threads import in_thread
from rmq.observe.broker_view import BrokerView
from rmq.observe.queries import Row
from rmq.protocol.flags import COMPRESSED
from rmq.protocol.properties import KEYS, TAGS, UNIQ_KEY
from rmq.protocol.records import StoredMessage
from rmq.store.not_in_memory import NotInMemory

MAX_OPENED: Final = 65_536
"""Maximum bytes of a body that are shown."""

PREVIEW: Final = 200
"""Maximum bytes of a body in a list."""

_cold_readers = trio.CapacityLimiter(1)


class Body:
    """The first bytes of a body as the sender gave it, or as it is stored."""

    def __init__(self, record: StoredMessage, limit: int) -> None:
        self.compression, self.is_opened = "", True
        content = record.body
        if record.sys_flag & COMPRESSED:
            # imported on use: most brokers never look into bodies
            from rmq.protocol.compression import decompress_start, method_name

            self.compression = method_name(record.sys_flag)
            try:
                content = decompress_start(content, record.sys_flag, limit + 1)
            except ValueError:
                self.is_opened = False
        self.is_cut = len(content) > limit
        self.content = content[:limit]


async def record_at(broker: BrokerView, physical: int) -> StoredMessage | None:
    """Read the record at an offset that the broker knows; None if it is gone.

    RecordDamaged while another broker may give its bytes.
    """
    log = broker.store.log
    head_size = int(RecordLayout.HEAD_SIZE)
    for size_of in (lambda _: head_size, log.record_size_at):
        size = 0
        with suppress(RecordDamaged):  # `message_at` decides
            size = size_of(PhysicalOffset(physical))
        missing = log.reader.find_missing(physical, size) if size else None
        if missing is not None:
            await in_thread(NotInMemory([missing]).load, limiter=_cold_readers)
    return broker.store.reads.message_at(PhysicalOffset(physical))


def message_row(record: StoredMessage) -> Row:
    """Return a message as a line of a list; offsets are texts."""
    properties = record.properties
    body = Body(record, PREVIEW)
    return {
        "topic": record.topic, "queue": record.queue_id,
        "offset": str(record.queue_offset),
        "id": properties.get(UNIQ_KEY) or record.offset_msg_id,
        "stored": record.store_timestamp, "born": record.born_timestamp,
        "key": properties.get(KEYS, ""), "tag": properties.get(TAGS, ""),
        "size": len(record.body), "again": record.reconsume_times,
        "text": body.content.decode("utf-8", "backslashreplace"),
        "cut": body.is_cut, "compressed": body.compression,
    }  # fmt: skip


def body_of(record: StoredMessage) -> dict[str, Any]:
    """Return the decoded body, in base64, with its properties."""
    body = Body(record, MAX_OPENED)
    return {
        "body": body.content, "cut": body.is_cut, "compressed": body.compression,
        "opened": body.is_opened, "stored_size": len(record.body),
    }  # fmt: skip
