from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.reactor.buffers cimport Buffer

cdef enum:
    RECORD_SIZE = 5 + 16 * 1024 + 2048  # size of the largest record that TLS 1.2 allows
    SEAL_BYTES = 64 * 1024              # maximum bytes that are encrypted for one send
    # room for the records of SEAL_BYTES, and for control records
    RECORDS_BYTES = 80 * 1024

cpdef enum TlsState:
    TLS_OPEN = 0
    TLS_CLOSED = 1              # the peer sent its close notify
    TLS_BROKEN = 2              # `error` has the reason
    TLS_ABUSED = 3              # too many records without data

cdef class Span:
    cdef uint8_t *start
    cdef int64_t size

    cdef Span point_to(self, const uint8_t *start, int64_t size)

cdef class TlsLayer:
    cdef object ssl_object
    cdef Span span              # the bytes of the current call
    cdef tuple into_span        # arguments of `read`
    cdef object read            # bound methods of this object and of its two BIOs
    cdef object write
    cdef object feed
    cdef object take
    cdef bytes rest  # bytes after the handshake, until the connection is added
    cdef uint8_t header[5]      # header of the incomplete record
    cdef int32_t header_size
    cdef int32_t record_size
    cdef int32_t record_left
    cdef readonly int64_t data_records
    cdef readonly int64_t empty_records
    cdef readonly int64_t small_records
    # recent records were small, so a receive must stay short
    cdef bint has_small_records
    cdef bint has_output        # control records wait in the outgoing BIO
    cdef readonly str error

    cdef int64_t partial_size(self) noexcept nogil
    cdef TlsState decrypt_records(
        self, const uint8_t *data, int64_t size, Buffer *inbox
    ) noexcept with gil
    cdef int64_t next_portion(
        self, const uint8_t *data, int64_t size, int32_t *records
    ) noexcept nogil
    cdef TlsState read_records(self, int32_t records, Buffer *inbox)
    cdef int64_t encrypt_records(
        self, const uint8_t *plain, int64_t size, uint8_t *out
    ) noexcept with gil
    cdef int64_t take_output(self, uint8_t *out) noexcept with gil
    cdef int64_t close_notify(self, uint8_t *out) noexcept with gil
