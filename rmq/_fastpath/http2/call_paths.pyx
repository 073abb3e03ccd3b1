"""CallPath: base of the calls that compiled code serves.

A call becomes the request that a remoting client would send. The compiled handler of
its code serves it: so there is one set of rules. A path reads the message and builds
the answer. It declines calls that it cannot prove plain; then Python serves them.

A signature has this form (plugins/rmq_plugins/grpc/signatures.py):

    authorization: MQv2-HMAC-SHA1 Credential=USER[/…], SignedHeaders=x-mq-date-time,
        Signature=HEX
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset, strlen

from rmq._fastpath.http2.header_names cimport AUTHORIZATION, DATE_TIME
from rmq._fastpath.http2.proto_wire cimport Span
from rmq._fastpath.http2.request_head cimport find_metadata
from rmq._fastpath.http2.sent_message cimport is_text
from rmq._fastpath.reactor.native cimport DECLINED, Verdict

cdef enum:
    BLANK = 32
    COMMA = 44
    SLASH = 47
    DIGEST_SIZE = 20


cdef class CallPath:
    """Serves the calls of one method; see `send_calls.pyx`."""

    cdef Verdict serve(self, const Call *call, CallAnswer *answer) noexcept nogil:
        """Serve a call, or decline it. KEPT: the path answers it in a later turn."""
        return DECLINED

    def count_kept(self):
        """Return the number of calls that are KEPT."""
        return 0

    cdef void drop_call(self, uint64_t token, uint32_t stream) noexcept nogil:
        """Forget a call that was KEPT: the client has reset its stream."""

    cdef void refuse(
        self, const uint8_t *data, int64_t size, int32_t code, CallAnswer *answer
    ) noexcept nogil:
        """Build the answer to a HELD call whose time limit has passed.

        `data` is the answer of a success, `code` the response code of the time-out.
        """


cdef bint skip(Span *rest, const char *text) noexcept nogil:
    """Skip a text; False if `rest` does not begin with it."""
    cdef int64_t size = strlen(text)
    if rest.size < size or memcmp(rest.data, text, size):
        return False
    rest.data += size
    rest.size -= size
    return True


cdef bint skip_blanks(Span *rest) noexcept nogil:
    """Skip blanks; True if there was one."""
    cdef const uint8_t *start = rest.data
    while rest.size and rest.data[0] == BLANK:
        rest.data += 1
        rest.size -= 1
    return rest.data != start


cdef inline int digit_of(uint8_t letter) noexcept nogil:
    """Return the value of a hexadecimal digit, or -1."""
    if 48 <= letter <= 57:
        return letter - 48
    letter |= 32
    return letter - 87 if 97 <= letter <= 102 else -1


cdef bint read_digest(const Span *text, uint8_t *digest) noexcept nogil:
    """Read the bytes of a signature; False if it has another form."""
    cdef int i, high, low
    if text.size != 2 * DIGEST_SIZE:
        return False
    for i in range(DIGEST_SIZE):
        high, low = digit_of(text.data[2 * i]), digit_of(text.data[2 * i + 1])
        if high < 0 or low < 0:
            return False
        digest[i] = <uint8_t>(high << 4 | low)
    return True


cdef void read_signer(Call *call) noexcept nogil:
    """Set the signer of a call; it has no user if the signature is not plain."""
    cdef Signer *signer = &call.signer
    cdef Span rest, date, user
    memset(signer, 0, sizeof(Signer))
    find_metadata(call.metadata, call.metadata_size, AUTHORIZATION, &rest)
    find_metadata(call.metadata, call.metadata_size, DATE_TIME, &date)
    if not is_text(&rest) or not is_text(&date):
        return
    if not (
        skip(&rest, b"MQv2-HMAC-SHA1") and skip_blanks(&rest)
        and skip(&rest, b"Credential=")
    ):
        return
    user.data = rest.data
    while rest.size and rest.data[0] not in (BLANK, COMMA, SLASH):
        rest.data += 1
        rest.size -= 1
    user.size = rest.data - user.data
    while rest.size and rest.data[0] not in (BLANK, COMMA):
        rest.data += 1
        rest.size -= 1
    if not 0 < user.size <= USER_LIMIT or not skip(&rest, b","):
        return
    skip_blanks(&rest)
    if not skip(&rest, b"SignedHeaders=x-mq-date-time,"):
        return
    skip_blanks(&rest)
    if skip(&rest, b"Signature=") and read_digest(&rest, signer.digest):
        set_text(&signer.user, user.data, user.size)
        signer.content, signer.content_size = date.data, date.size
