from libc.stdint cimport int32_t, int64_t

cpdef enum SendStatus:
    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12

cdef class SendResult:
    cdef int32_t code
    cdef readonly str msg_id
    cdef readonly str offset_msg_id
    cdef readonly object queue
    cdef readonly int64_t queue_offset
    cdef readonly str transaction_id
    cdef readonly str recall_handle
