from enum import IntEnum

class RecordLayout(IntEnum):
    """Positions and sizes inside a commit-log record (IPv4 hosts)."""

    SIZE_AT = 0
    MAGIC_AT = 4
    BODY_CRC_AT = 8
    QUEUE_ID_AT = 12
    FLAG_AT = 16
    QUEUE_OFFSET_AT = 20
    PHYSICAL_OFFSET_AT = 28
    SYS_FLAG_AT = 36
    BORN_MS_AT = 40
    BORN_HOST_AT = 48
    HOST_SIZE_V4 = 8
    HOST_SIZE_V6 = 20
    HEAD_SIZE = 76
    FIXED_SIZE_V1 = 91
    FIXED_SIZE_V2 = 92
    BLANK_SIZE = 8
    V1_TOPIC_LIMIT = 127
    V2_TOPIC_LIMIT = 32767
    PROPERTIES_LIMIT = 32767

class RecordMagic(IntEnum):
    """Magic codes of records."""

    MAGIC_V1 = 0xDAA320A7
    MAGIC_V2 = 0xDAA320AB
    MAGIC_BLANK = 0xCBD43194

class RecordFlag(IntEnum):
    """Bits of a record's system flag that the store itself reads."""

    TRANSACTION_MASK = 0xC
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20

class QueueEntryLayout(IntEnum):
    """Positions and sizes inside a consume-queue entry."""

    ENTRY_OFFSET_AT = 0
    ENTRY_SIZE_AT = 8
    ENTRY_TAGS_AT = 12
    ENTRY_SIZE = 20
    FILLER_SIZE = 0x7FFFFFFF
