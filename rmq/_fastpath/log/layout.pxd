"""Offsets, sizes and magic codes of stored bytes; one definition for C and Python.

Commit-log record, big-endian, places for IPv4 hosts (an IPv6 host is 12 bytes longer)::

      0 i32 size          20 i64 queue offset       48 born host, 4 + i32 port
      4 i32 magic         28 i64 physical offset    56 i64 store time, ms
      8 i32 body crc      36 i32 system flag        64 store host, 4 + i32 port
     12 i32 queue id      40 i64 born time, ms      72 i32 reconsume times
     16 i32 flag                                    76 i64 prepared offset
     84 i32 body size, body; i8 (V2: i16) topic size, topic; i16 and properties

Blank record at the end of a file: i32 bytes left in the file, i32 blank magic.
Queue entry: i64 physical offset, i32 record size, i64 tags code.
"""

cpdef enum RecordLayout:
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
    HEAD_SIZE = 76          # up to the end of the store time, with an IPv6 host
    FIXED_SIZE_V1 = 91
    FIXED_SIZE_V2 = 92
    BLANK_SIZE = 8
    V1_TOPIC_LIMIT = 127
    V2_TOPIC_LIMIT = 32767
    PROPERTIES_LIMIT = 32767

cpdef enum RecordMagic:
    MAGIC_V1 = 0xDAA320A7
    MAGIC_V2 = 0xDAA320AB
    MAGIC_BLANK = 0xCBD43194

cpdef enum RecordFlag:
    TRANSACTION_MASK = 0xC
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20

cpdef enum QueueEntryLayout:
    ENTRY_OFFSET_AT = 0
    ENTRY_SIZE_AT = 8
    ENTRY_TAGS_AT = 12
    ENTRY_SIZE = 20
    FILLER_SIZE = 0x7FFFFFFF
