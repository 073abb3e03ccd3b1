from libc.stdint cimport int32_t, int64_t

from rmq._fastpath.handlers.diversion cimport Diversion
from rmq._fastpath.log.queue_tail cimport QueueTail

cdef enum:
    BROKER_LIMIT = 512          # maximum bytes of a broker's name in a handle
    HANDLE_LIMIT = 1024         # maximum bytes of a handle's text before Base64

cdef class TimedSends(Diversion):
    cdef object count_of        # returns the number of waiting messages of a slot
    cdef bytes broker_name
    cdef const char *broker
    cdef int64_t broker_size
    cdef int64_t precision_ms
    cdef public int64_t max_delay_ms
    cdef public int64_t most_in_slot
    # None: not registered yet, so Python serves all timed messages
    cdef readonly QueueTail queue

    cdef bint is_crowded(self, int64_t slot) noexcept nogil
