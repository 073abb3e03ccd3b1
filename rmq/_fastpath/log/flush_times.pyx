"""FlushTimes: a histogram of the durations of flushes.

It needs no Python objects, because the log's writer thread does not hold the GIL. One
thread adds at a time; others may read.
"""

cimport cython
from libc.stdint cimport int64_t

cdef int64_t BOUNDS_NS[FLUSH_BOUND_COUNT]
BOUNDS_NS[:] = [
    500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000,
    100_000_000, 500_000_000, 1_000_000_000, 5_000_000_000,
]
FLUSH_BOUNDS_S = tuple([BOUNDS_NS[i] / 1e9 for i in range(FLUSH_BOUND_COUNT)])


@cython.final
cdef class FlushTimes:
    """The histogram of one store."""

    @property
    def counts(self):
        """Flush counts by duration: up to each of FLUSH_BOUNDS_S, then above all.
        """
        return [self.counts_by_bound[i] for i in range(FLUSH_BOUND_COUNT + 1)]

    @property
    def sum_s(self):
        """The sum of all durations."""
        return self.sum_ns / 1e9

    def observe(self, int64_t elapsed_ns):
        """Count one flush."""
        self.add(elapsed_ns)

    cdef void add(self, int64_t elapsed_ns) noexcept nogil:
        """Count one flush."""
        cdef int i = 0
        while i < FLUSH_BOUND_COUNT and elapsed_ns > BOUNDS_NS[i]:
            i += 1
        self.counts_by_bound[i] += 1
        self.sum_ns += elapsed_ns
