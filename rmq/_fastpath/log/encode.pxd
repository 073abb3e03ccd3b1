from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.log.mapped_file cimport MappedFile

cdef enum:
    PWRITE_FROM = 16 * 1024     # minimum size of a batch that one pwrite writes
    RECORD_CRC_LIMIT = 21       # maximum bytes that `append_record_crc` adds

cdef struct RecordFields:
    const uint8_t *topic
    int32_t topic_size
    const uint8_t *body
    int32_t body_size
    const uint8_t *properties
    int32_t properties_size
    const uint8_t *born_host        # address and port, 8 or 20 bytes
    int32_t born_host_size
    const uint8_t *store_host
    int32_t store_host_size
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int64_t queue_offset
    int64_t physical_offset
    int64_t born_ms
    int64_t store_ms
    int64_t prepared_offset

cdef int64_t encoded_size(
    int64_t topic_size, int64_t body_size, int64_t properties_size, int64_t hosts_size
) noexcept nogil
cdef void encode_record(uint8_t *out, const RecordFields *fields) noexcept nogil
cdef int64_t append_record_crc(
    uint8_t *record, int64_t size, int32_t properties_size
) noexcept nogil
cdef int64_t tags_code_of(const uint8_t *properties, int64_t size) noexcept nogil

cdef class RecordEncoder:
    cdef uint8_t *staging
    cdef int64_t capacity
    cdef readonly int64_t staged_size
    cdef readonly int64_t tags_code
    cdef readonly bytes store_host
    cdef public bint has_record_crc     # properties end with CRC_ROOM
    cdef int reserve(self, int64_t size) except -1
    cdef bint grow(self, int64_t size) noexcept nogil
    cpdef int64_t stage(
        self,
        bytes topic,
        int32_t queue_id,
        int64_t queue_offset,
        int64_t physical_offset,
        int32_t flag,
        int32_t sys_flag,
        int64_t born_ms,
        bytes born_host,
        int64_t store_ms,
        int32_t reconsume_times,
        int64_t prepared_offset,
        bytes body,
        bytes properties,
    ) except -1
    cdef int64_t stage_fields(
        self, RecordFields *fields, bytes topic, bytes born_host, bytes body
    ) except -1
    cpdef commit(self, MappedFile file, bint use_pwrite)
    cpdef discard(self)
