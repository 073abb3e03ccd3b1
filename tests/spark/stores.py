"""Stores for tests and benchmarks: segments and queues as a broker leaves them."""

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rmq._fastpath.log.encode import RecordEncoder, record_size

BROKER_HOST = bytes((10, 0, 0, 2)) + (10_911).to_bytes(4, "big")
CLIENT_HOST = bytes((10, 0, 0, 1)) + (50_000).to_bytes(4, "big")
ENTRY = struct.Struct(">qiq")
START_MS = 1_763_000_000_000
FLUSH_BYTES = 4 << 20


class Sent(NamedTuple):
    """A message to be stored."""

    topic: bytes
    queue_id: int = 0
    body: bytes = b""
    properties: bytes = b""
    store_ms: int = START_MS
    sys_flag: int = 0
    flag: int = 0


def orders(count: int, *, per_ms: int = 50, start: int = 0) -> Iterator[Sent]:
    """Messages of about 262 bytes as records, in 4 topics of 4 queues."""
    topics = [b"orders_%02d" % i for i in range(4)]
    bodies = [
        b'{"order":%06d,"sku":"' % i + b"%x" % (i * 7919) * 12 for i in range(997)
    ]
    bodies = [body[: 70 + i % 40] for i, body in enumerate(bodies)]
    for i in range(start, start + count):
        yield Sent(
            topics[(i * 7 + (i >> 5)) % 4],
            (i >> 2) % 4,
            bodies[i * 31 % 997],
            b"KEYS\1k%d\2UNIQ_KEY\1%032X\2TAGS\1Tag%d\2WAIT\1true\2" % (i, i, i % 5),
            START_MS + i // per_ms,
        )


class StoreWriter:
    """Appends messages to the segments of a store, and their entries to its queues."""

    def __init__(self, root: Path, segment_size: int = 1 << 20, base: int = 0) -> None:
        self.root = root
        self.end = base
        self._size = segment_size
        self._log = root / "commitlog"
        self._log.mkdir(parents=True, exist_ok=True)
        self._encoder = RecordEncoder(BROKER_HOST)
        self._next: dict[tuple[bytes, int], int] = {}
        self._entries: dict[tuple[bytes, int], list[bytes]] = {}

    def append(self, messages: Iterable[Sent]) -> int:
        """Store messages; the end of the log."""
        for sent in messages:
            size = record_size(len(sent.topic), len(sent.body), len(sent.properties))
            at = (self.end + self._encoder.staged_size) % self._size
            if at + size + 8 > self._size:
                self._roll(self._size - at)
            self._stage(sent, size)
            if self._encoder.staged_size > FLUSH_BYTES:
                self._flush()
        self._flush()
        return self.end

    def delete_before(self, offset: int) -> None:
        """Remove whole segments, as a broker cleans its disk."""
        for path in sorted(self._log.iterdir()):
            if int(path.name) + self._size <= offset:
                path.unlink()

    def _stage(self, sent: Sent, size: int) -> None:
        queue = (sent.topic, sent.queue_id)
        index = self._next.get(queue, 0)
        self._next[queue] = index + 1
        place = self.end + self._encoder.staged_size
        self._entries.setdefault(queue, []).append(ENTRY.pack(place, size, 0))
        self._encoder.stage(
            sent.topic, sent.queue_id, index, place, sent.flag, sent.sys_flag,
            sent.store_ms - 1, CLIENT_HOST, sent.store_ms, 0, 0, sent.body,
            sent.properties,
        )  # fmt: skip

    def _roll(self, rest: int) -> None:
        self._encoder.stage_blank(rest)
        self._flush()
        self.end += rest - 8

    def _flush(self) -> None:
        staged = self._encoder.staged_bytes()
        self._encoder.discard()
        if staged:
            base = self.end - self.end % self._size
            path = self._log / f"{base:020d}"
            path.touch()
            os.truncate(path, self._size)
            with path.open("r+b") as file:
                os.pwrite(file.fileno(), staged, self.end - base)
            self.end += len(staged)
        for (topic, queue_id), entries in self._entries.items():
            folder = self.root / "consumequeue" / topic.decode() / str(queue_id)
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / f"{0:020d}").open("ab") as file:
                file.write(b"".join(entries))
        self._entries = {}


def write_store(
    root: Path, messages: Iterable[Sent], segment_size: int = 1 << 20
) -> int:
    """A store that holds these messages; the end of its log."""
    return StoreWriter(root, segment_size).append(messages)
