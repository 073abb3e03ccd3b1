from rmq._fastpath.native cimport Conn, Frame
from rmq._fastpath.pull_search cimport Pulled
from rmq._fastpath.pull_table cimport PullTable
from rmq._fastpath.scan cimport Found


cdef void put_reply(
    PullTable table, const Frame *frame, Conn *conn, const Pulled *pulled,
    const Found *found,
) noexcept nogil
