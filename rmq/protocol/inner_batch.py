"""Inner batches: reads the messages of one record as separate records.

An inner batch is one record with the body of request 320. Its messages have the queue
offsets from the record's offset on.
"""

from msgspec.structs import replace

from rmq._fastpath.bytes.checksum import body_crc
from rmq.core.errors import RequestRejected
from rmq.core.offsets import QueueOffset
from rmq.protocol.batch import MAX_INNER_ITEMS, decode_some
from rmq.protocol.flags import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from rmq.protocol.records import StoredMessage

_OF_THE_BATCH = INNER_BATCH | NEED_UNWRAP


def inner_messages(
    record: StoredMessage, first: int = 0, count: int = MAX_INNER_ITEMS
) -> list[StoredMessage]:
    """Return the messages of an inner batch; for another record, return the record.

    The messages begin at queue offset `first`; there are at most `count`. A batch that
    cannot be read, such as a compressed one, is left to its consumer.
    """
    if not record.sys_flag & INNER_BATCH or record.sys_flag & COMPRESSED:
        return [record]
    skipped = max(0, first - record.queue_offset)
    try:
        items = decode_some(record.body, skipped, count)
    except RequestRejected:
        return [record]
    return [
        replace(
            record,
            flag=item.flag,
            sys_flag=record.sys_flag & ~_OF_THE_BATCH,
            queue_offset=QueueOffset(record.queue_offset + number),
            body=item.body,
            body_crc=body_crc(item.body),
            properties_text=item.properties_text,
        )
        for number, item in enumerate(items, skipped)
    ]
