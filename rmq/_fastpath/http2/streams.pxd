from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.reactor.buffers cimport Buffer, MemoryBudget

cdef struct Stream:
    uint32_t id                 # 0: a free place
    int8_t method  # method of the service, or a negative number of `Method`
    bint is_ended               # the peer has sent the end of its request
    bint is_answered            # the headers of the answer are sent
    bint is_taken               # Python has its call, and is notified of its end
    bint is_kept                # a CallPath has its call, and is notified of its end
    bint is_room_wanted         # Python is notified when `late` is empty
    bint is_ending              # the answer ends after `late`
    int32_t send_window
    int32_t receive_window
    int64_t content_left  # bytes of content-length that are missing; -1: not given
    Buffer part                 # bytes of a message that is not complete yet
    Buffer late                 # answers that wait for the peer's window
    uint8_t *metadata           # metadata of the head, for Python
    int32_t metadata_size

cdef struct StreamTable:
    Stream *places              # open addressing by id
    uint32_t mask               # places - 1
    uint32_t count

cdef Stream *find_stream(const StreamTable *table, uint32_t id) noexcept nogil
cdef Stream *add_stream(
    StreamTable *table, uint32_t id, MemoryBudget *budget
) noexcept nogil
cdef void remove_stream(
    StreamTable *table, Stream *stream, MemoryBudget *budget
) noexcept nogil
cdef void free_metadata(Stream *stream, MemoryBudget *budget) noexcept nogil
cdef void free_streams(StreamTable *table, MemoryBudget *budget) noexcept nogil
