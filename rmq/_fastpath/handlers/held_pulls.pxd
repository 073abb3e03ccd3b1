from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.log.waiters cimport ReadyWaiters, Waiter

cdef enum:
    TICK_MS = 100               # deadlines are rounded up to multiples of this time
    # size of the ring of ticks, which is longer than the longest suspension
    TICK_COUNT = 8192

cdef struct Pull:               # the numbers of a request
    int64_t queue_id
    int64_t offset
    int64_t max_messages
    int64_t sys_flag
    int64_t commit_offset
    int64_t suspend_ms
    int64_t sub_version
    int64_t max_bytes           # 0 or less: the request has no limit
    int64_t invisible_ms        # of a POP
    int64_t now_ms

cdef struct HeldFront:          # a protocol other than remoting, whose calls are held
    void *owner
    # prepares the reply to a call; False: Python has to serve the call
    bint (*begin_call)(void *owner, const HeldPull *held) noexcept
    # sends the reply
    void (*finish_call)(void *owner, const HeldPull *held) noexcept
    # leaves a call to Python, which may hold it for `left_ms`
    void (*return_call)(void *owner, const HeldPull *held, int64_t left_ms) noexcept
    int64_t *count              # number of held calls of the client that calls now

cdef struct HeldPull:
    HeldGroup *group
    HeldPull *next              # next pull of the group, in the order of arrival
    HeldPull *previous
    HeldPull *next_of_slot      # next pull of the connection's slot
    HeldPull *previous_of_slot
    HeldPull *next_of_tick      # next pull of the deadline's tick
    HeldPull *previous_of_tick
    uint64_t token              # token of its connection
    int64_t deadline_ms
    Pull pull
    int32_t opaque
    uint8_t serialize_type
    bint is_due                 # the pull is in `due`: its deadline is over
    int64_t frame_size
    uint8_t *frame              # the received frame, stored after the struct
    HeldFront *front            # NULL: remoting; else `frame` has what the front needs
    int64_t *count              # held calls of its client, with `front`

cdef struct HeldGroup:          # the pulls of one view that wait in one queue
    Waiter waiter               # ready if messages came since the last check
    void *view
    void *queue
    # No entry before this offset matches a pull of the group. A group of POPs or
    # notifications has the number of visible messages here, at the last search.
    int64_t tested_offset
    int64_t count
    HeldPull *first
    HeldPull *last

cdef class HeldPulls:
    cdef ReadyWaiters ready     # groups for which messages came
    cdef ReadyWaiters hidden  # groups for which messages came that are not visible yet
    cdef HeldPull *due          # pulls whose deadline is over, linked by next_of_tick
    cdef void *connections  # connections of the reactor, which outlives every handler
    cdef HeldPull **slots       # pulls by the slot of their connection
    cdef int64_t *slot_counts
    cdef uint32_t slot_capacity
    cdef HeldPull **ticks
    cdef int64_t tick           # the last tick that is over
    cdef int64_t now_ms         # time of the last turn
    cdef int64_t wake_ms        # time at which Python calls `next_deadline`
    cdef bint is_stopped        # no pull is held any more
    cdef int64_t total_limit, connection_limit, view_limit
    cdef int64_t suspend_limit_ms
    cdef int64_t short_poll_ms  # replaces the request's suspension; 0: it does not
    cdef int64_t size
    # requests that wait in Python; `total_limit` counts them, too
    cdef public int64_t others
    cdef readonly int64_t waiting
    cdef readonly int64_t calls     # those of `waiting` that have a front
    cdef readonly int64_t held
    cdef readonly int64_t refused
    cdef readonly int64_t woken
    cdef readonly int64_t expired
    cdef readonly int64_t dropped
    cdef readonly int64_t returned
    cdef list returned_pulls
    cdef object on_work

    cdef bint has_room(
        self, const HeldGroup *group, uint64_t token, int64_t size
    ) noexcept nogil
    cdef bint hold_pull(
        self, HeldGroup *group, const Pull *pull, uint64_t token, int32_t opaque,
        uint8_t serialize_type, const uint8_t *frame, int64_t frame_size,
    ) noexcept nogil
    cdef HeldPull *first_of(self, uint64_t token) noexcept nogil
    cdef void count_call(self, HeldPull *held, HeldFront *front) noexcept nogil
    cdef bint has_work(self) noexcept nogil
    cdef void expire(self, int64_t now_ms) noexcept nogil
    cdef void recheck_hidden(self) noexcept nogil
    cdef HeldGroup *next_ready(self) noexcept nogil
    cdef void hide_group(self, HeldGroup *group) noexcept nogil
    cdef void remove_pull(self, HeldPull *held) noexcept nogil
    cdef void return_pull(self, HeldPull *held, int64_t tested_offset) noexcept nogil
    cdef void return_group(self, HeldGroup *group) noexcept nogil
    cdef void link_tick(self, HeldPull *held, int64_t now_ms) noexcept nogil
    cdef void unlink_tick(self, HeldPull *held) noexcept nogil
    cdef bint reserve_slot(self, uint32_t slot) noexcept nogil
    cdef void make_due(self, int64_t tick) noexcept nogil


cdef HeldGroup *new_group(
    void *view, void *queue, Waiter **first_of_queue, HeldPulls pulls
) noexcept nogil
