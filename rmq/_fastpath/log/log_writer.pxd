from libc.stdint cimport int64_t, uint8_t

from rmq._fastpath.log.flush_times cimport FlushTimes
from rmq._fastpath.log.mapped_file cimport MappedFile
from rmq._fastpath.log.tail_ring cimport TailRing
from rmq._fastpath.log.watermark cimport Watermark

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass

cdef class LogWriter:
    cdef readonly TailRing ring
    cdef Watermark durable
    cdef FlushTimes times           # durations of durable writes
    cdef object find_file           # returns the MappedFile that contains an offset
    # called once, when direct writes end and buffered writes begin
    cdef object on_buffered
    cdef readonly bint is_durable   # True: a write is on the disk when it returns
    cdef readonly bint is_direct
    cdef public int64_t interval_ns  # maximum age of bytes before they are written
    cdef int64_t wake_size      # number of bytes for which the thread wakes up
    cdef MappedFile file            # file that is written, and its descriptors
    cdef int fd
    cdef int64_t file_begin
    cdef int64_t file_end
    cdef uint8_t *last_block        # the last block, padded with zeros
    cdef pthread_mutex_t lock       # lock of the writer's state
    cdef int wake_fd  # eventfd of the reactor whose senders wait for room, or -1
    cdef int is_room_awaited    # atomic
    cdef readonly int64_t writes
    cdef readonly int64_t buffered_writes
    cdef readonly int64_t bytes_written

    cdef void wake_for_append(self, int64_t pending) noexcept nogil
    cdef void wake_reactor_later(self) noexcept nogil
    cdef int64_t pending(self) noexcept nogil
    cdef int raise_error(self, int error) except -1
    cdef int write_until(self, int64_t end) noexcept nogil
    cdef int write_part(self, int64_t stop) noexcept nogil
    cdef int write_direct(self, int64_t start, int64_t stop) noexcept nogil
    cdef int write_buffered(self, int64_t start, int64_t stop) noexcept nogil
    cdef int fall_back_to_buffered(self, int64_t stop) noexcept with gil
    cdef int next_file(self, int64_t offset) noexcept with gil
