from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.handlers.commit_table cimport CommitTable
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

cdef class LookupPath(NativeHandler):
    cdef object look_up
    cdef CommitTable commits    # None: the answer does not depend on commits
    cdef int32_t text_count     # number of text fields; these come first
    cdef int32_t number_count   # number of number fields; these come next
    cdef int32_t field_count
    cdef int32_t version
    cdef int64_t body_limit     # 0: the function does not get the body
    cdef bint has_offset  # True: the reply has the field `offset`; False: it has a body

    cdef object find_value(self, const Frame *frame, Conn *conn)
    cdef Verdict put_value(self, const Frame *frame, Conn *conn) noexcept with gil
    cdef void put_offset(
        self, const Frame *frame, Conn *conn, int64_t offset
    ) noexcept nogil
