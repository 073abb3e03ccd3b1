"""Steps: how long the serving thread works between two looks at its connections.

A look is a wait for events, with or without a time-out. A step begins when a look
returns, and ends when the next one begins. Nobody is served meanwhile, so a step is a
pause for all clients. Reading the clock is left to the caller.
"""

from libc.stdint cimport int64_t

cdef enum:
    STEP_BOUNDS = 9

cdef struct Steps:
    int64_t begun_ns            # time at which the step began; 0: there is no step
    int64_t sum_ns              # of all steps
    # steps up to 1, 2, 3, 4, 5, 10, 20, 50 and 100 ms, and longer ones
    int64_t counts[STEP_BOUNDS + 1]


cdef inline void begin_step(Steps *steps, int64_t now_ns) noexcept nogil:
    steps.begun_ns = now_ns


cdef inline void end_step(Steps *steps, int64_t now_ns) noexcept nogil:
    """Count the step that ends now."""
    cdef int64_t step_ns = now_ns - steps.begun_ns
    cdef int index
    if steps.begun_ns == 0:
        return
    steps.begun_ns = 0
    steps.sum_ns += step_ns
    index = <int>min((step_ns - 1) // 1_000_000, <int64_t>4) if step_ns > 0 else 0
    if step_ns > 5_000_000:
        index = 5 + (step_ns > 10_000_000) + (step_ns > 20_000_000)
        index += (step_ns > 50_000_000) + (step_ns > 100_000_000)
    steps.counts[index] += 1
