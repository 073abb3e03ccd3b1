"""RpcTimes: how long replies took, by request code and response code.

A table of histograms with Java's bounds (`RemotingMetricsManager`), without Python
objects: an addition costs some nanoseconds.  Rows are never removed; if the table is
full, a new pair of codes is not counted.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free

from typing import NamedTuple

cdef int64_t BOUNDS_NS[BOUND_COUNT]
BOUNDS_NS[:] = [
    1_000_000, 3_000_000, 5_000_000, 7_000_000, 10_000_000, 100_000_000,
    1_000_000_000, 2_000_000_000, 3_000_000_000,
]
RPC_BOUNDS_MS = tuple([BOUNDS_NS[i] // 1_000_000 for i in range(BOUND_COUNT)])


class RpcTime(NamedTuple):
    """One histogram: the counts up to each bound, the count above all bounds, and the
    sum.
    """

    code: int
    response: int
    counts: tuple[int, ...]
    sum_ms: float


@cython.final
cdef class RpcTimes:
    """The histograms of one reactor."""

    def __cinit__(self):
        self.cells = <Cell *>calloc(CELL_LIMIT, sizeof(Cell))
        if self.cells == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.cells)

    cdef Cell *find(self, int32_t code, int32_t response) noexcept nogil:
        """Return the row of these codes, or a free one; NULL if the table is full."""
        cdef uint32_t i = (
            <uint32_t>code * 31 + <uint32_t>response * 7
        ) & (CELL_LIMIT - 1)
        cdef Cell *cell = &self.cells[i]
        while cell.total:
            if cell.code == code and cell.response == response:
                return cell
            i = (i + 1) & (CELL_LIMIT - 1)
            cell = &self.cells[i]
        return cell if self.used < CELL_LIMIT - 1 else NULL

    cdef void add(
        self,
        int32_t code,
        int32_t response,
        int64_t elapsed_ns,
        int64_t times,
    ) noexcept nogil:
        """Count `times` replies that took `elapsed_ns`."""
        cdef Cell *cell = self.find(code, response)
        cdef int i = 0
        if cell == NULL or times <= 0:
            return
        if cell.total == 0:
            cell.code, cell.response = code, response
            self.used += 1
        while i < BOUND_COUNT and elapsed_ns > BOUNDS_NS[i]:
            i += 1
        cell.counts[i] += times
        cell.total += times
        cell.sum_ns += elapsed_ns * times

    def observe(
        self,
        int32_t code,
        int32_t response,
        int64_t elapsed_ns,
        int64_t times=1,
    ):
        """Count `times` replies that took `elapsed_ns`."""
        self.add(code, response, elapsed_ns, times)

    def rows(self):
        """Return every histogram that is not empty."""
        cdef int32_t i
        return [
            RpcTime(
                self.cells[i].code,
                self.cells[i].response,
                tuple([self.cells[i].counts[j] for j in range(BOUND_COUNT + 1)]),
                self.cells[i].sum_ns / 1e6,
            )
            for i in range(CELL_LIMIT)
            if self.cells[i].total
        ]
