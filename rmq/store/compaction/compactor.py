"""Compaction of a queue: only the last message of each key stays.

It reads the full files of the queue, and writes the messages that stay to new files:

* a message that is newer than the newest one in the table of keys;
* the last message of a key, if it has a body. A message without a body is a
  *tombstone*, which removes its key.

The newest pair of files is not compacted.  The table has the keys of messages that no
compaction has seen yet. The size of the table is limited: other keys wait for the next
round. Runs in a worker thread.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from rmq.core.offsets import QueueOffset
from rmq.protocol.properties import KEYS
from rmq.protocol.records import StoredMessage, decode_stored_at
from rmq.store.compaction.compacted_queue import (
    COMPACTING,
    CompactedQueue,
    Part,
    make_part,
)

KEY_SIZE: Final = 16
ENTRY_COST: Final = 128
"""Bytes of memory of a key in the table."""

MIN_KEYS: Final = 100


class KeyTable(NamedTuple):
    """The offset of the last message of each key; `last` is the newest of all."""

    offsets: dict[bytes, int]
    last: int

    def is_kept(self, message: StoredMessage) -> bool:
        """Return whether a message stays."""
        if message.queue_offset > self.last:
            return True
        key = key_of(message)
        if not key or not message.body:
            return False
        return message.queue_offset >= self.offsets.get(_digest(key), -1)


def key_of(message: StoredMessage) -> str:
    """Return the key of a message: all of its KEYS together, as in Java."""
    return message.properties.get(KEYS, "").strip()


def _digest(key: str) -> bytes:
    return blake2b(key.encode(errors="surrogateescape"), digest_size=KEY_SIZE).digest()


def compact(queue: CompactedQueue, position: int, memory: int) -> int:
    """Compact the full files; return the offset up to which keys were seen.

    `position` is the result of the last compaction, -1 before the first one. `memory`
    is the limit of the table in bytes.
    """
    full = queue.parts[:-1]
    if not any(
        part.count and part.entry_at(part.count - 1).first > position for part in full
    ):
        return position
    table = _read_keys(full, position, max(MIN_KEYS, memory // ENTRY_COST))
    if table.last < 0:
        return position
    queue.replace(full, _write_kept(queue, full, table))
    return table.last


def _read_keys(parts: Sequence[Part], position: int, most: int) -> KeyTable:
    """Return the keys of messages after a position, as many as fit."""
    offsets: dict[bytes, int] = {}
    last = -1
    for part in parts:
        for number in range(part.first_from(QueueOffset(position + 1)), part.count):
            message = decode_stored_at(part.record(part.entry_at(number)), 0)
            digest = _digest(key_of(message))
            if len(offsets) >= most and digest not in offsets:
                return KeyTable(offsets, last)
            offsets[digest] = last = message.queue_offset
    return KeyTable(offsets, last)


def _write_kept(
    queue: CompactedQueue, parts: Sequence[Part], table: KeyTable
) -> list[Part]:
    """Write the messages that stay to new files; return the new files."""
    written: list[Part] = []
    log = queue.log_folder / COMPACTING
    entries = queue.entries_folder / COMPACTING
    for part in parts:
        for number in range(part.count):
            entry = part.entry_at(number)
            record = part.record(entry)
            if not table.is_kept(decode_stored_at(record, 0)):
                continue
            if not written or not written[-1].has_room(len(record)):
                base = 0
                if written:
                    written[-1].end()
                    base = written[-1].base + written[-1].log.size
                sizes = part.log.size, part.entries.size
                written.append(make_part(log, entries, base, sizes))
            written[-1].append(record, entry.tags_code, entry.store_ms)
    if written:
        written[-1].end()
    return written
