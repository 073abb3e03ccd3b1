from libc.stdint cimport int32_t, int64_t, uint8_t

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

cdef class Delivery:
    cdef readonly object packed
    cdef object on_end
    cdef object new_waiter
    cdef object outcome             # a SendResult or an exception
    cdef list waiters
    cdef list callbacks
    cdef int _end(self, outcome) except -1
    cdef int _wake(self) except -1

cdef enum:
    HOST_LIMIT = 20             # bytes of an IPv6 address and its port

cdef class ReceivedMessage:
    cdef readonly str topic
    cdef readonly bytes body
    cdef readonly object queue
    cdef readonly int64_t queue_offset
    cdef readonly int64_t physical_offset
    cdef readonly int64_t born_ms
    cdef readonly int64_t stored_ms
    cdef readonly int32_t size
    cdef readonly int32_t flag
    cdef readonly int32_t sys_flag
    cdef readonly int32_t reconsume_times
    cdef readonly int64_t prepared_offset
    cdef readonly str tags
    cdef public object lease
    cdef public int32_t local_attempts
    cdef bytes text
    cdef uint8_t[HOST_LIMIT] born
    cdef uint8_t[HOST_LIMIT] store_host
    cdef uint8_t born_size
    cdef uint8_t store_host_size
    cdef dict _properties
