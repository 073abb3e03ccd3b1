"""CallPath: base of the calls that compiled code serves.

A call becomes the request that a remoting client would send. The compiled handler of
its code serves it: so there is one set of rules. A path reads the message and builds
the answer. It declines what it cannot prove plain; Python serves the call then.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.reactor.native cimport DECLINED, Verdict


cdef class CallPath:
    """Serves the calls of one method; see `send_calls.pyx`."""

    cdef Verdict serve(
        self, uint32_t index, const uint8_t *p, int64_t size, CallAnswer *answer
    ) noexcept nogil:
        """Serve the message of a call on the connection `index`, or decline it."""
        return DECLINED

    cdef void refuse(
        self, const uint8_t *data, int64_t size, int32_t code, CallAnswer *answer
    ) noexcept nogil:
        """Build the answer to a call that was HELD and waited in vain.

        `data` is its answer so far, `code` the response code of the time-out.
        """
