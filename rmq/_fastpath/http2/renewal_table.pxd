from libc.stdint cimport int64_t

cdef enum:
    RENEWED_MS = 60_000         # invisible time of a receive with auto_renew

cdef class Renewal:
    cdef readonly str client_id
    cdef readonly object owner  # the receive, as Python has registered it
    cdef readonly int64_t began_ms
    cdef public int64_t renewed_ms      # time of the receive, or of the last renewal
    cdef public object receipt  # the handle that is valid now; None: the first one
    # callbacks that wait for the end of a renewal; None: no renewal is in flight
    cdef public list waiting

cdef class RenewalTable:
    cdef readonly dict entries  # by first handle; the next message to renew is first
    cdef dict by_client         # handles of each client: sets
    cdef public int64_t limit
    cdef public int64_t client_limit
    cdef object steady_ms

    cpdef int add(self, str client_id, object owner, list handles) except -1
    cpdef Renewal remove(self, str handle)
    cdef bint is_changed(self, str handle) except -1
