"""Pacing: how long a poll lasts, how many bytes it receives, and how many frames
Python gets in one poll.

A client with one request in flight sends the next one some microseconds after its
reply. A busy wait for it costs less than to sleep and wake up. A busy wait saves time
if an event comes within SPIN_GAIN_NS. If fewer than three quarters of them do, only one
poll in SPIN_TRY waits busily.
Compiled requests wait until Python has served its frames. So Python gets fewer frames
at once while each takes long: as many as it serves in HANDED_NS, at least one. A large
frame takes longer than those before it, so HANDED_BYTES is a limit, too.
The kernel may need some milliseconds to write a megabyte to the page cache. Then a poll
receives fewer bytes, so that it runs for RUN_NS.
"""

from libc.stdint cimport int32_t, int64_t

from rmq._fastpath.bytes.syscalls cimport monotonic_ns
from rmq._fastpath.reactor.connections cimport EVENT_LIMIT

cdef enum:
    SPIN_GAIN_NS = 20_000               # about what sleeping and waking up costs
    SPIN_CREDIT = 16                    # maximum credit, in busy waits
    SPIN_LOSS = 3                       # credit that a busy wait without an event costs
    SPIN_TRY = 64
    POLL_BYTES = 1 << 20                # maximum bytes received in one poll
    LEAST_BYTES = 1 << 17
    BYTES_STEP = 1 << 16                # more bytes after a poll that was short enough
    RUN_NS = 1_500_000                  # processor time of a poll with large requests
    HANDED_PER_CONNECTION = 16          # maximum frames of one connection in one poll
    HANDED_NS = 500_000  # maximum time in Python for the frames of one poll
    HANDED_BYTES = 32 * 1024            # size of frames after which no other is handed

cdef struct Pacing:
    int64_t busy_poll_ns        # maximum duration of a busy wait; 0: never
    int64_t active_ns           # time at which the last ready event was served
    int64_t spins               # number of busy waits in which an event came
    int32_t credit              # positive: recent busy waits saved time
    bint is_hurried             # the next poll must not wait
    int64_t byte_limit          # maximum bytes received in one poll
    int32_t handed_limit        # maximum frames handed over in one poll
    int32_t taken_count         # number of events that Python took and has not finished
    int64_t taken_ns            # time at which Python took them
    int64_t frame_ns            # recent average time of Python for one event


cdef inline void init_pacing(Pacing *pacing, int64_t busy_poll_ns) noexcept nogil:
    pacing.busy_poll_ns = busy_poll_ns
    pacing.credit = SPIN_CREDIT
    pacing.handed_limit = EVENT_LIMIT
    pacing.byte_limit = POLL_BYTES


cdef inline bint spin_pays(const Pacing *pacing, int64_t polls) noexcept nogil:
    """True if recent busy waits saved time, or if it is time to try one."""
    return pacing.credit > 0 or polls % SPIN_TRY == 0


cdef inline int64_t spin_end(const Pacing *pacing) noexcept nogil:
    """Return when a busy wait ends."""
    return pacing.active_ns + pacing.busy_poll_ns


cdef inline void count_spin(
    Pacing *pacing, bint came, int64_t waited_ns
) noexcept nogil:
    """Count a busy wait."""
    pacing.spins += came
    if came and waited_ns <= SPIN_GAIN_NS:
        pacing.credit = min(pacing.credit + 1, <int32_t>SPIN_CREDIT)
    else:
        pacing.credit = max(pacing.credit - SPIN_LOSS, <int32_t>0)


cdef inline void adapt_bytes(Pacing *pacing, int64_t ran_ns) noexcept nogil:
    """Adapt the bytes of the next poll after one with large requests."""
    if ran_ns > RUN_NS:
        pacing.byte_limit = max(pacing.byte_limit // 2, <int64_t>LEAST_BYTES)
    else:
        pacing.byte_limit = min(pacing.byte_limit + BYTES_STEP, <int64_t>POLL_BYTES)


cdef inline void begin_events(Pacing *pacing, int32_t count) noexcept nogil:
    """Python begins to serve `count` events."""
    pacing.taken_count = count
    pacing.taken_ns = monotonic_ns()


cdef inline void end_events(Pacing *pacing) noexcept nogil:
    """Python has served its events: adapt the number of frames per poll."""
    cdef int64_t mean_ns
    if pacing.taken_count == 0:
        return
    mean_ns = (monotonic_ns() - pacing.taken_ns) // pacing.taken_count
    pacing.frame_ns += (mean_ns - pacing.frame_ns) // 4
    pacing.handed_limit = <int32_t>min(
        max(HANDED_NS // max(pacing.frame_ns, <int64_t>1), <int64_t>1),
        <int64_t>EVENT_LIMIT,
    )
    pacing.taken_count = 0
