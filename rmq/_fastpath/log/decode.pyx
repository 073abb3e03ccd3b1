"""Decodes stored records, and decides which are valid.

A record is valid if its magic is V1 or V2 and the lengths inside it add up to its size.
The CRC of a non-empty body must be right. With CHECK_RECORD a CRC of the whole record
must be right, too: Java's property __CRC32#, if it is the last one. Sizes are signed,
as Java reads them; each is checked against the record and the readable bytes before it
is used.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from rmq._fastpath.bytes.checksum cimport body_crc_of
from rmq._fastpath.bytes.endian cimport get16, get32, get64
from rmq._fastpath.log.layout cimport RecordFlag, RecordLayout, RecordMagic


cdef enum:
    CRC_NAME_SIZE = 9           # __CRC32# and a byte 1
    CRC_SIZE = 20               # the name, ten digits (the last one first) and a byte 2


cdef bint _has_right_crc(const uint8_t *p, int64_t size) noexcept nogil:
    """False if the last property is a CRC of other bytes."""
    cdef const uint8_t *crc = p + size - CRC_SIZE
    cdef int64_t value = 0
    cdef int i
    if memcmp(crc, b"__CRC32#\1", CRC_NAME_SIZE) != 0 or crc[CRC_SIZE - 1] != 2:
        return True
    for i in range(CRC_SIZE - 2, CRC_NAME_SIZE - 1, -1):
        if not 48 <= crc[i] <= 57:
            return False
        value = 10 * value + crc[i] - 48
    return value == body_crc_of(p, size - CRC_SIZE)


cdef RecordStatus split_record(  # tidy: long — one walk over the layout, field by field
    const uint8_t *p, int64_t readable, int check_crc, RecordParts *parts
) noexcept nogil:
    cdef uint32_t magic
    cdef int64_t at
    if readable < RecordLayout.BLANK_SIZE:
        return SHORT
    parts.size = <int32_t>get32(p + RecordLayout.SIZE_AT)
    magic = get32(p + RecordLayout.MAGIC_AT)
    if magic == <uint32_t>RecordMagic.MAGIC_BLANK:
        return BLANK
    if (
        magic != <uint32_t>RecordMagic.MAGIC_V1
        and magic != <uint32_t>RecordMagic.MAGIC_V2
    ):
        return END if magic == 0 and parts.size == 0 else BAD_MAGIC
    if parts.size < RecordLayout.FIXED_SIZE_V1:
        return BAD_SIZE
    if parts.size > readable:
        return SHORT
    parts.magic = <int32_t>magic
    parts.queue_id = get32(p + RecordLayout.QUEUE_ID_AT)
    parts.queue_offset = get64(p + RecordLayout.QUEUE_OFFSET_AT)
    parts.physical_offset = get64(p + RecordLayout.PHYSICAL_OFFSET_AT)
    parts.sys_flag = get32(p + RecordLayout.SYS_FLAG_AT)
    parts.born_host_size = parts.store_host_size = RecordLayout.HOST_SIZE_V4
    if parts.sys_flag & RecordFlag.BORN_HOST_V6:
        parts.born_host_size = RecordLayout.HOST_SIZE_V6
    if parts.sys_flag & RecordFlag.STORE_HOST_V6:
        parts.store_host_size = RecordLayout.HOST_SIZE_V6
    at = RecordLayout.BORN_HOST_AT + parts.born_host_size
    parts.body_at = at + 8 + parts.store_host_size + 16
    # at least three bytes follow a body: topic size and properties size
    if parts.body_at + 3 > parts.size:
        return BAD_LENGTHS
    parts.store_ms = get64(p + at)
    parts.body_size = get32(p + parts.body_at - 4)
    if parts.body_size < 0 or parts.body_size > parts.size - parts.body_at - 3:
        return BAD_LENGTHS
    at = parts.body_at + parts.body_size
    if magic == <uint32_t>RecordMagic.MAGIC_V2:
        parts.topic_size = get16(p + at)
        at += 2
    else:
        parts.topic_size = p[at]
        at += 1
        if parts.topic_size > RecordLayout.V1_TOPIC_LIMIT:
            return BAD_LENGTHS
    parts.topic_at = at
    if parts.topic_size > min(parts.size - at - 2, RecordLayout.V2_TOPIC_LIMIT):
        return BAD_LENGTHS
    at += parts.topic_size
    parts.properties_size = get16(p + at)
    parts.properties_at = at + 2
    if parts.properties_size > RecordLayout.PROPERTIES_LIMIT:
        return BAD_LENGTHS
    if parts.properties_at + parts.properties_size != parts.size:
        return BAD_LENGTHS
    if check_crc and parts.body_size:
        if get32(p + RecordLayout.BODY_CRC_AT) != body_crc_of(
            p + parts.body_at, parts.body_size
        ):
            return BAD_CRC
    if check_crc >= CHECK_RECORD and parts.properties_size >= CRC_SIZE:
        if not _has_right_crc(p, parts.size):
            return BAD_CRC
    return OK


@cython.final
cdef class Record:
    """The fields of one stored record, copied out."""

    cdef readonly int64_t size
    cdef readonly int64_t magic
    cdef readonly int64_t body_crc
    cdef readonly int32_t queue_id
    cdef readonly int32_t flag
    cdef readonly int64_t queue_offset
    cdef readonly int64_t physical_offset
    cdef readonly int32_t sys_flag
    cdef readonly int64_t born_ms
    cdef readonly bytes born_host
    cdef readonly int64_t store_ms
    cdef readonly bytes store_host
    cdef readonly int32_t reconsume_times
    cdef readonly int64_t prepared_offset
    cdef readonly bytes body
    cdef readonly str topic
    cdef readonly bytes properties


def check_record(const uint8_t[::1] data not None, int64_t position=0, *,
                 int check_crc=CHECK_BODY):
    """Return status and size of the record at `position`; size 0 unless OK."""
    cdef RecordParts parts
    cdef RecordStatus status
    if not 0 <= position <= data.shape[0]:
        raise IndexError(f"position {position} outside {data.shape[0]} bytes")
    if data.shape[0] - position < RecordLayout.BLANK_SIZE:
        return RecordStatus.SHORT, 0
    status = split_record(
        &data[position], data.shape[0] - position, check_crc, &parts
    )
    return RecordStatus(status), parts.size if status == OK else 0


def decode_record(const uint8_t[::1] data not None, int64_t position=0, *,
                  int check_crc=CHECK_BODY):
    """Return the record at `position`; ValueError has the reason if it is not valid."""
    cdef RecordParts parts
    cdef RecordStatus status
    cdef const uint8_t *p
    cdef Record record = Record.__new__(Record)
    if not 0 <= position <= data.shape[0] - RecordLayout.BLANK_SIZE:
        raise ValueError(f"no record at {position} of {data.shape[0]} bytes")
    p = &data[position]
    status = split_record(p, data.shape[0] - position, check_crc, &parts)
    if status != OK:
        raise ValueError(f"no record at {position}: {RecordStatus(status).name}")
    record.size = parts.size
    record.magic = <uint32_t>parts.magic
    record.body_crc = get32(p + RecordLayout.BODY_CRC_AT)
    record.queue_id = parts.queue_id
    record.flag = get32(p + RecordLayout.FLAG_AT)
    record.queue_offset = parts.queue_offset
    record.physical_offset = parts.physical_offset
    record.sys_flag = parts.sys_flag
    record.born_ms = get64(p + RecordLayout.BORN_MS_AT)
    record.born_host = p[
        RecordLayout.BORN_HOST_AT:RecordLayout.BORN_HOST_AT + parts.born_host_size
    ]
    record.store_ms = parts.store_ms
    record.store_host = p[parts.body_at - 16 - parts.store_host_size:parts.body_at - 16]
    record.reconsume_times = get32(p + parts.body_at - 16)
    record.prepared_offset = get64(p + parts.body_at - 12)
    record.body = p[parts.body_at:parts.body_at + parts.body_size]
    record.topic = p[parts.topic_at:parts.topic_at + parts.topic_size].decode()
    record.properties = p[
        parts.properties_at:parts.properties_at + parts.properties_size
    ]
    return record


@cython.final
cdef class RecordView:
    """Fields of a record, read in place one by one.

    Except for `properties`, the first RecordLayout.HEAD_SIZE bytes are enough.
    ValueError if a field lies beyond the buffer.
    """

    cdef const uint8_t[::1] data
    cdef int64_t at

    def __init__(self, const uint8_t[::1] data not None, int64_t position=0):
        if not 0 <= position <= data.shape[0]:
            raise ValueError(f"position {position} outside {data.shape[0]} bytes")
        self.data = data
        self.at = position

    cdef const uint8_t *bytes_up_to(self, int64_t end) except NULL:
        if end > self.data.shape[0] - self.at:
            raise ValueError(
                f"only {self.data.shape[0] - self.at} bytes of a record are here"
            )
        return &self.data[self.at]

    @property
    def size(self):
        """Size of the record, from its first field."""
        return <int32_t>get32(self.bytes_up_to(RecordLayout.MAGIC_AT))

    @property
    def is_message(self):
        """True for the magic of a message, False for blank and unwritten bytes."""
        cdef uint32_t magic = get32(
            self.bytes_up_to(RecordLayout.BODY_CRC_AT) + RecordLayout.MAGIC_AT
        )
        return (
            magic == <uint32_t>RecordMagic.MAGIC_V1
            or magic == <uint32_t>RecordMagic.MAGIC_V2
        )

    @property
    def queue_id(self):
        """The queue id of the record."""
        return <int32_t>get32(
            self.bytes_up_to(RecordLayout.FLAG_AT) + RecordLayout.QUEUE_ID_AT
        )

    @property
    def queue_offset(self):
        """The offset of the record in its queue."""
        return <int64_t>get64(
            self.bytes_up_to(RecordLayout.PHYSICAL_OFFSET_AT)
            + RecordLayout.QUEUE_OFFSET_AT
        )

    @property
    def physical_offset(self):
        """The offset of the record in the log."""
        return <int64_t>get64(
            self.bytes_up_to(RecordLayout.SYS_FLAG_AT)
            + RecordLayout.PHYSICAL_OFFSET_AT
        )

    @property
    def store_ms(self):
        """Store time; its position depends on the size of the producer's host."""
        cdef int64_t at = RecordLayout.BORN_HOST_AT + RecordLayout.HOST_SIZE_V4
        cdef int32_t sys_flag = get32(
            self.bytes_up_to(RecordLayout.BORN_MS_AT) + RecordLayout.SYS_FLAG_AT
        )
        if sys_flag & RecordFlag.BORN_HOST_V6:
            at = RecordLayout.BORN_HOST_AT + RecordLayout.HOST_SIZE_V6
        return <int64_t>get64(self.bytes_up_to(at + 8) + at)

    @property
    def properties(self):
        """The text of its properties; ValueError unless the record is whole."""
        cdef RecordParts parts
        cdef const uint8_t *p = self.bytes_up_to(RecordLayout.BLANK_SIZE)
        cdef RecordStatus status = split_record(
            p, self.data.shape[0] - self.at, False, &parts
        )
        if status != OK:
            raise ValueError(f"no record at {self.at}: {RecordStatus(status).name}")
        return p[parts.properties_at:parts.properties_at + parts.properties_size]
