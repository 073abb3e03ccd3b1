from rmq._fastpath.handlers.pull_search cimport PullReply
from rmq._fastpath.handlers.pull_table cimport PullTable
from rmq._fastpath.log.scan cimport ScanResult
from rmq._fastpath.reactor.native cimport Conn, Frame


cdef void put_reply(
    PullTable table, const Frame *frame, Conn *conn, const PullReply *pulled,
    const ScanResult *found,
) noexcept nogil
