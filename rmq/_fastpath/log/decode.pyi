from enum import IntEnum
from typing import final

from typing_extensions import Buffer

from rmq._fastpath.log.mapped_file import MappedFile
from rmq.core.offsets import PhysicalOffset, QueueOffset

__pyx_capi__: dict[str, object]

class RecordStatus(IntEnum):
    """The kind of bytes at a place of the log."""

    OK = 0
    BLANK = 1
    END = 2
    SHORT = 3
    BAD_MAGIC = 4
    BAD_SIZE = 5
    BAD_LENGTHS = 6
    BAD_CRC = 7
    BAD_OFFSET = 8

@final
class Record:
    """The fields of one stored record, copied out."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties: bytes

def check_record(
    data: Buffer | MappedFile, position: int = 0, *, check_crc: bool = True
) -> tuple[RecordStatus, int]:
    """Return (status, size) of the record at `position`; the size is 0 unless OK."""

def decode_record(
    data: Buffer | MappedFile, position: int = 0, *, check_crc: bool = True
) -> Record:
    """The record at `position`; ValueError has the reason if it is not valid."""

@final
class RecordView:
    """Fields of a record, read in place one by one.

    All but `properties` need the first RecordLayout.HEAD_SIZE bytes at most. ValueError
    if a field lies beyond the buffer.
    """

    def __init__(self, data: Buffer | MappedFile, position: int = 0) -> None: ...
    @property
    def size(self) -> int:
        """Size of the record, from its first field."""

    @property
    def is_message(self) -> bool:
        """True if the magic is that of a message, not of a blank or unwritten bytes."""

    @property
    def queue_id(self) -> int:
        """The id of its queue."""

    @property
    def queue_offset(self) -> int:
        """Its offset in that queue."""

    @property
    def physical_offset(self) -> int:
        """Its offset in the log."""

    @property
    def store_ms(self) -> int:
        """Store time; its position depends on the size of the producer's host."""

    @property
    def properties(self) -> bytes:
        """The text of its properties; ValueError unless the record is whole."""
