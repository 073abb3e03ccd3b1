"""The contract between reactor and compiled handlers; plugins may cimport this file.

A handler serves a frame or declines it. DECLINED leaves no trace: the frame takes the
Python path. `decline` records the reason, an index into the handler's reasons. A
handler serves only frames that it can prove plain. It allocates nothing, takes no lock
and never blocks. `end_of_poll` finishes the batch of a poll before any reply leaves.
False means that the batch is lost: the reactor drops its replies and closes their
connections. `take_turn` then continues requests that were KEPT, for half a millisecond
at most; True requests another turn at once. WAITS is for a frame that can be served
soon: it is offered again after `Reactor.wake`. A handler whose reply does not fit calls
`conn.grow` before it writes anything.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    # version of the structs below; Cython checks classes, not structs
    CONTRACT_VERSION = 4
    FIELD_LIMIT = 32
    REASON_LIMIT = 16
    REPLY_ROOM = 1024       # bytes that are free in the outbox when serve() is called

cdef enum Verdict:
    DECLINED = 0            # nothing was done
    SERVED = 1              # the reply, if one is wanted, is in conn.ready
    HELD = 2  # the reply is in conn.ready, and waits until conn.watermark is durable
    KEPT = 3                # the handler keeps the request, and answers in a later turn
    WAITS = 4               # nothing was done: the connection waits, and is not read

cdef struct Text:           # one header value; data is NULL when the field is absent
    const uint8_t *data
    int32_t size
    bint escaped            # JSON escapes are still inside

cdef struct Frame:          # pointers are valid during serve() only
    int32_t code
    int32_t flag
    int32_t version
    int32_t opaque
    uint8_t language
    uint8_t serialize_type
    Text fields[FIELD_LIMIT]    # in the order of NativeHandler.fields
    const uint8_t *body
    uint32_t body_size
    const uint8_t *start    # start of the frame, which includes its length word
    int64_t size
    int64_t now_ms          # the clock, read once per poll

cdef struct Outbox:         # write at `end`, not beyond `limit`, and move `end`
    uint8_t *end
    uint8_t *limit

cdef struct Conn:
    Outbox ready
    const uint8_t *peer     # address and port as a record stores them, 8 or 20 bytes
    int32_t peer_size
    int64_t watermark       # set with HELD: end offset of the record
    int32_t reason          # set with DECLINED, by `decline`
    bint (*grow)(Conn *conn, int64_t size) noexcept nogil   # room in `ready`
    void *owner             # the reactor, and the slot of the connection in the reactor
    uint32_t slot

cdef class NativeHandler:
    cdef readonly tuple fields      # names of the ext fields that the handler reads
    cdef readonly tuple varying     # fields that differ from frame to frame
    # reasons for which the handler declines, for the counters
    cdef readonly tuple reasons
    cdef readonly int contract_version
    cdef bint is_urgent     # set if Python must be notified of the poll at once
    cdef bint takes_turns   # the handler has further work after each poll
    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil
    cdef bint end_of_poll(self) noexcept nogil
    cdef bint take_turn(self, int64_t now_ms) noexcept nogil


cdef inline Verdict decline(Conn *conn, int32_t reason) noexcept nogil:
    """Leave the frame to Python: `return decline(conn, HEADER)`."""
    conn.reason = reason
    return DECLINED
