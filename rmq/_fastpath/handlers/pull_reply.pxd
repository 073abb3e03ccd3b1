from rmq._fastpath.handlers.pull_search cimport Pulled
from rmq._fastpath.handlers.pull_table cimport PullTable
from rmq._fastpath.log.scan cimport Found
from rmq._fastpath.reactor.native cimport Conn, Frame


cdef void put_reply(
    PullTable table, const Frame *frame, Conn *conn, const Pulled *pulled,
    const Found *found,
) noexcept nogil
