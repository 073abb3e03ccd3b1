from libc.stdint cimport int32_t, int64_t, uint8_t

cpdef enum RecordStatus:
    OK = 0
    BLANK = 1           # the rest of the file is unused; the next file continues
    END = 2             # size and magic are zero: no record was written here
    SHORT = 3           # the record reaches beyond the readable bytes
    BAD_MAGIC = 4
    BAD_SIZE = 5
    BAD_LENGTHS = 6     # body, topic and properties do not add up to the size
    BAD_CRC = 7
    BAD_OFFSET = 8      # complete, but with another offset: stale bytes

cdef enum:
    CHECK_BODY = 1      # check the CRC of the body
    CHECK_RECORD = 2    # check the last property, if it is a CRC of the record

cdef struct RecordParts:
    int64_t size
    int32_t magic
    int32_t sys_flag
    int64_t queue_offset
    int64_t physical_offset
    int64_t store_ms
    int32_t queue_id
    int32_t born_host_size
    int32_t store_host_size
    int64_t body_at
    int32_t body_size
    int64_t topic_at
    int32_t topic_size
    int64_t properties_at
    int32_t properties_size

cdef RecordStatus split_record(
    const uint8_t *p, int64_t readable, int check_crc, RecordParts *parts
) noexcept nogil
