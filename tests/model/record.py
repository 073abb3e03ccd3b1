"""The commit-log record, as slowly and obviously as possible.

Everything is built field by field with `struct` and `zlib`; nothing is shared with the
compiled code that is compared with it.
"""

import struct
import zlib
from dataclasses import dataclass

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194


@dataclass(frozen=True)
class ModelRecord:
    """All fields of a record; sizes, CRC and the host bits of `sys_flag` follow."""

    topic: bytes
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_host: bytes = bytes(8)
    store_ms: int = 0
    store_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_offset: int = 0
    body: bytes = b""
    properties: bytes = b""

    @property
    def magic(self) -> int:
        return MAGIC_V2 if len(self.topic) > 127 else MAGIC_V1

    @property
    def stored_sys_flag(self) -> int:
        flag = self.sys_flag & 0xFFFFFFCF
        flag |= 0x10 if len(self.born_host) == 20 else 0
        flag |= 0x20 if len(self.store_host) == 20 else 0
        return flag - (1 << 32) if flag >= 1 << 31 else flag

    def encode(self) -> bytes:
        topic_size = ">H" if self.magic == MAGIC_V2 else ">B"
        rest = b"".join(
            (
                struct.pack(">I", self.magic),
                struct.pack(">I", zlib.crc32(self.body) & 0x7FFFFFFF),
                struct.pack(">i", self.queue_id),
                struct.pack(">i", self.flag),
                struct.pack(">q", self.queue_offset),
                struct.pack(">q", self.physical_offset),
                struct.pack(">i", self.stored_sys_flag),
                struct.pack(">q", self.born_ms),
                self.born_host,
                struct.pack(">q", self.store_ms),
                self.store_host,
                struct.pack(">i", self.reconsume_times),
                struct.pack(">q", self.prepared_offset),
                struct.pack(">i", len(self.body)),
                self.body,
                struct.pack(topic_size, len(self.topic)),
                self.topic,
                struct.pack(">h", len(self.properties)),
                self.properties,
            )
        )
        return struct.pack(">i", len(rest) + 4) + rest


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data):
            raise ValueError("lengths")
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    @property
    def is_empty(self) -> bool:
        return not self._data


def status_of(data: bytes, *, check_crc: bool = True) -> str:
    """Name of the RecordStatus of the bytes that start `data`."""
    if len(data) < 8:
        return "SHORT"
    size, magic = struct.unpack_from(">iI", data)
    if magic == MAGIC_BLANK:
        return "BLANK"
    if magic not in (MAGIC_V1, MAGIC_V2):
        return "END" if size == magic == 0 else "BAD_MAGIC"
    if size < 91:
        return "BAD_SIZE"
    if size > len(data):
        return "SHORT"
    reader = _Reader(data[:size])
    try:
        reader.take(8)
        crc = reader.number(4)
        reader.take(24)
        sys_flag = reader.number(4)
        reader.take(8 + (20 if sys_flag & 0x10 else 8))
        reader.take(8 + (20 if sys_flag & 0x20 else 8) + 12)
        body = reader.take(reader.number(4))
        reader.take(reader.number(2 if magic == MAGIC_V2 else 1))
        reader.take(reader.number(2))
    except ValueError:
        return "BAD_LENGTHS"
    if not reader.is_empty:
        return "BAD_LENGTHS"
    if check_crc and body and crc != zlib.crc32(body) & 0x7FFFFFFF:
        return "BAD_CRC"
    return "OK"
