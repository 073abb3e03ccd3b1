"""NativeTable: finds the compiled handler of a frame, reads the header for it, and
takes its reply.

A connection's headers resemble each other.  A header that the scanner had to read is
saved as a template, and the templates of the connection are tried first. After
LEARN_TRIES templates, more are saved only if more headers have matched than were saved.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from rmq._fastpath.bytes.endian cimport get32
from rmq._fastpath.reactor.connections cimport LISTENER_LIMIT, Connections, Slot
from rmq._fastpath.reactor.grants cimport Grants, Signer
from rmq._fastpath.reactor.header_scan cimport RawHeader, scan_header
from rmq._fastpath.reactor.header_text cimport JSON_TYPE, ONEWAY_FLAG, RESPONSE_FLAG
from rmq._fastpath.reactor.held_replies cimport HeldReplies
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, DECLINED, HELD, REPLY_ROOM, SERVED, WAITS, Conn, Frame,
    NativeHandler, Text, Verdict,
)
from rmq._fastpath.reactor.rpc_times cimport RpcTimes
from rmq._fastpath.reactor.signatures cimport signature_of
from rmq._fastpath.reactor.template cimport (
    HOLE_LIMIT, TEMPLATES_PER_CONNECTION, VARYING_LIMIT, LearnedHeaders, Template,
    learn_template, match_template,
)

cdef enum:
    LEARN_TRIES = 32
    PORT_SIZE = 4               # after the address of a peer
    SUCCESS = 0                 # code of all replies of compiled handlers


@cython.final
cdef class NativeTable:
    """The compiled handlers of a process, by listener and request code."""

    def __cinit__(self, Connections connections not None, HeldReplies held not None):
        self.connections = connections
        self.held = held
        self.handlers = []
        self.natives = <Native *>calloc(NATIVE_LIMIT, sizeof(Native))
        if self.natives == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef int32_t i
        for i in range(LISTENER_LIMIT):
            free(self.dense[i])
        free(self.natives)

    def register(self, int listener, int code, NativeHandler handler not None):
        """Register a compiled handler, which gets the frames of a code on one listener
        first.
        """
        cdef Native *native
        cdef bytes name
        if handler.contract_version != CONTRACT_VERSION:
            raise ValueError(f"{handler!r}: contract {handler.contract_version}")
        if not 0 <= listener < LISTENER_LIMIT or not 0 <= code:
            raise ValueError(f"listener {listener}, code {code}")
        if self.count == NATIVE_LIMIT:
            raise ValueError(f"more than {NATIVE_LIMIT} compiled handlers")
        if self.find(listener, code) != NULL:
            raise ValueError(f"code {code} has a compiled handler already")
        if len(handler.varying) > VARYING_LIMIT:
            raise ValueError(f"{len(handler.varying)} varying fields")
        names = [field.encode() for field in handler.fields]
        self.handlers.append((handler, names))
        native = &self.natives[self.count]
        native.handler = <void *>handler
        native.listener = listener
        native.code = code
        native.field_count = len(names)
        for i in range(len(names)):
            name = names[i]
            native.fields[i].data = name
            native.fields[i].size = len(name)
            if handler.fields[i] in handler.varying:
                native.varying[native.varying_count] = i
                native.varying_count += 1
        if self.dense[listener] == NULL:
            self.dense[listener] = <int16_t *>calloc(DENSE_CODES, sizeof(int16_t))
            if self.dense[listener] == NULL:
                raise MemoryError
        self.count += 1
        if code < DENSE_CODES:
            self.dense[listener][code] = self.count

    def require_grants(self, Grants grants not None):
        """Serve only requests that a guard in Python has allowed before."""
        self.grants = grants

    cdef Native *find(self, int32_t listener, int32_t code) noexcept nogil:
        cdef int32_t i
        if self.dense[listener] == NULL:
            return NULL
        if 0 <= code < DENSE_CODES:
            i = self.dense[listener][code]
            return NULL if i == 0 else &self.natives[i - 1]
        for i in range(self.count):
            if self.natives[i].listener == listener and self.natives[i].code == code:
                return &self.natives[i]
        return NULL

    cdef Verdict serve(
        self, uint32_t index, const uint8_t *p, int64_t size
    ) noexcept nogil:
        """Offer a frame of a connection to its handler; DECLINED: Python serves it.

        After a declined frame the connection's later frames of this poll are declined,
        too, so that its requests keep their order.
        """
        cdef Slot *slot = self.connections.slots[index]
        cdef int64_t poll = self.connections.polls
        cdef uint32_t header_size = get32(p + 4) & 0xFFFFFF
        cdef Frame frame
        cdef Native *native
        cdef Verdict verdict = DECLINED
        if self.dense[slot.listener] == NULL or slot.declined_poll == poll:
            return DECLINED
        native = self.read_header(slot, p, size, &frame)
        if native != NULL:
            frame.body = p + 8 + header_size
            frame.body_size = <uint32_t>(size - 8 - header_size)
            frame.start = p
            frame.size = size
            frame.now_ms = self.connections.now_ms
            verdict = self.run_handler(index, &frame, native)
        if slot.outbox.capacity:
            self.connections.mark_dirty(index)  # also to free an outbox without use
        if verdict == DECLINED:
            slot.declined_poll = poll
        elif verdict != WAITS:
            slot.served_poll = poll
            native.served += 1
            native.is_touched = True
        return verdict

    cdef Verdict run_handler(
        self, uint32_t index, const Frame *frame, Native *native
    ) noexcept nogil:
        """Let the handler write its reply, which goes to the outbox or is held."""
        cdef Slot *slot = self.connections.slots[index]
        cdef Conn conn
        cdef const uint8_t *reply
        cdef Verdict verdict = DECLINED
        conn.reason = 0
        if self.held.has_room(REPLY_ROOM) and self.connections.reserve(
            index, REPLY_ROOM
        ):
            _point_to_outbox(&conn, slot)
            conn.peer = slot.peer
            conn.peer_size = slot.peer_size
            conn.watermark = 0
            conn.grow = _grow_outbox
            conn.owner = <void *>self.connections
            conn.slot = index
            verdict = (<NativeHandler>native.handler).serve(frame, &conn)
        if verdict == DECLINED:
            native.declined[conn.reason % REASON_LIMIT] += 1
        elif verdict == HELD:
            reply = slot.outbox.data + slot.outbox.end
            self.held.hold_compiled(
                self.connections.token_of(index), reply, conn.ready.end - reply,
                conn.watermark, native.code, 0,
            )
        elif verdict == SERVED:
            slot.outbox.end = conn.ready.end - slot.outbox.data
            native.answered += not frame.flag & ONEWAY_FLAG
        return verdict

    cdef Verdict serve_call(
        self, uint32_t index, const Signer *signer, int32_t code, Frame *frame,
        Conn *conn,
    ) noexcept nogil:
        """Offer a call of another protocol to the handler of a code.

        The caller has set the fields and the body of `frame`, and `conn.ready`, where
        it finds the reply. With access control `signer` has to be permitted.
        """
        cdef Slot *slot = self.connections.slots[index]
        cdef Native *native = self.find(slot.listener, code)
        cdef int32_t address_size = slot.peer_size - PORT_SIZE
        cdef Verdict verdict
        if native == NULL or address_size < 0:
            return DECLINED
        if self.grants is not None and not self.grants.allow_call(
            signer, code, slot.peer, address_size, native.fields, frame.fields,
            native.field_count,
        ):
            return DECLINED
        if not self.held.has_room(REPLY_ROOM):
            return DECLINED
        frame.code = code
        frame.now_ms = self.connections.now_ms
        conn.peer = slot.peer
        conn.peer_size = slot.peer_size
        conn.owner = <void *>self.connections
        conn.slot = index
        conn.watermark = conn.reason = 0
        verdict = (<NativeHandler>native.handler).serve(frame, conn)
        if verdict == DECLINED:
            native.declined[conn.reason % REASON_LIMIT] += 1
        elif verdict != WAITS:
            slot.served_poll = self.connections.polls
            native.served += 1
            native.answered += verdict == SERVED
            native.is_touched = True
        return verdict

    cdef Native *read_header(
        self, Slot *slot, const uint8_t *p, int64_t size, Frame *frame
    ) noexcept nogil:
        """Read a header and return its handler; NULL without one, or if it is not
        plain.

        With access control it is also NULL unless a permitted user has signed it.
        """
        cdef RawHeader raw
        cdef Text values[HOLE_LIMIT]
        cdef Native *native
        cdef Template *template
        cdef const uint8_t *header = p + 8
        cdef int64_t header_size = get32(p + 4) & 0xFFFFFF
        cdef const uint8_t *body = header + header_size
        cdef int64_t body_size = size - 8 - header_size
        cdef bint is_signed = self.grants is not None
        cdef int32_t i, address_size = slot.peer_size - PORT_SIZE
        if is_signed and address_size < 0:
            return NULL
        for i in range(TEMPLATES_PER_CONNECTION):
            template = slot.learned.templates[i]
            if template == NULL or template.is_signed != is_signed:
                continue
            if not match_template(template, header, header_size, frame, values):
                continue
            slot.learned.matched += 1
            if p[4] != JSON_TYPE or is_signed and not self.grants.allow_templated(
                template, values, slot.peer, address_size, body, body_size
            ):
                return NULL
            return <Native *>template.owner
        if not scan_header(header, header_size, p[4], &raw):
            return NULL
        native = self.find(slot.listener, raw.code)
        if native == NULL or raw.flag & RESPONSE_FLAG:
            return NULL
        if is_signed and not self.grants.allow_header(
            &raw, slot.peer, address_size, body, body_size
        ):
            return NULL
        _fill_frame(frame, &raw, native)
        if p[4] == JSON_TYPE:
            self.save_template(&slot.learned, &raw, header, header_size, frame, native)
        return native

    cdef void save_template(
        self,
        LearnedHeaders *known,
        const RawHeader *raw,
        const uint8_t *header,
        int64_t size,
        const Frame *frame,
        Native *native,
    ) noexcept nogil:
        """Save the header as a template, if templates of this connection save time."""
        cdef Template *template
        cdef const Text *signature = NULL
        cdef int32_t i
        if known.learned >= LEARN_TRIES and known.matched <= known.learned:
            return
        if self.grants is not None:
            signature = signature_of(raw)
        template = learn_template(
            header, size, raw, frame, native.field_count,
            native.varying, native.varying_count, signature, native,
        )
        if template == NULL:
            return
        if signature != NULL and not self.grants.describe_template(
            template, raw, header
        ):
            free(template)
            return
        i = known.learned % TEMPLATES_PER_CONNECTION
        free(known.templates[i])
        known.templates[i] = template
        known.learned += 1

    cdef bint end_of_poll(self, bint *is_urgent) noexcept nogil:
        """Let the handlers that served frames finish their batch.

        False if a batch is lost. `is_urgent` becomes true if Python must be notified at
        once.
        """
        cdef int32_t i
        cdef bint is_kept = True
        for i in range(self.count):
            if self.natives[i].is_touched:
                self.natives[i].is_touched = False
                if (<NativeHandler>self.natives[i].handler).is_urgent:
                    (<NativeHandler>self.natives[i].handler).is_urgent = False
                    is_urgent[0] = True
                if not (<NativeHandler>self.natives[i].handler).end_of_poll():
                    is_kept = False
        return is_kept

    cdef bint take_turns(self, bint *is_urgent) noexcept nogil:
        """Let handlers continue kept requests; True if one needs another turn."""
        cdef int32_t i
        cdef bint has_more = False
        for i in range(self.count):
            if not (<NativeHandler>self.natives[i].handler).takes_turns:
                continue
            if (<NativeHandler>self.natives[i].handler).take_turn(
                self.connections.now_ms
            ):
                has_more = True
            if (<NativeHandler>self.natives[i].handler).is_urgent:
                (<NativeHandler>self.natives[i].handler).is_urgent = False
                is_urgent[0] = True
        return has_more

    cdef void count_times(self, RpcTimes times, int64_t elapsed_ns) noexcept nogil:
        """Count the duration of the replies of this batch, `elapsed_ns`."""
        cdef int32_t i
        for i in range(self.count):
            if self.natives[i].answered:
                times.add(
                    self.natives[i].code, SUCCESS, elapsed_ns, self.natives[i].answered
                )
                self.natives[i].answered = 0

    def counts(self):
        """{(listener, code): (served, {reason: declined})} of the compiled handlers."""
        cdef NativeHandler handler
        counts = {}
        for i in range(self.count):
            handler = <NativeHandler>self.natives[i].handler
            counts[self.natives[i].listener, self.natives[i].code] = (
                self.natives[i].served,
                {
                    reason: self.natives[i].declined[j]
                    for j, reason in enumerate(handler.reasons)
                    if self.natives[i].declined[j]
                },
            )
        return counts


cdef void _fill_frame(
    Frame *frame, const RawHeader *raw, const Native *native
) noexcept nogil:
    """Copy the header's values in the order of the handler's fields."""
    cdef int32_t i, j
    frame.code = raw.code
    frame.flag = raw.flag
    frame.version = raw.version
    frame.opaque = raw.opaque
    frame.language = raw.language
    frame.serialize_type = raw.serialize_type
    for i in range(native.field_count):
        frame.fields[i].data = NULL
        frame.fields[i].size = 0
        for j in range(raw.field_count):
            if (
                raw.names[j].size == native.fields[i].size
                and raw.names[j].data[0] == native.fields[i].data[0]
                and not memcmp(
                    raw.names[j].data, native.fields[i].data, native.fields[i].size
                )
            ):
                frame.fields[i] = raw.values[j]
                break


cdef inline void _point_to_outbox(Conn *conn, const Slot *slot) noexcept nogil:
    conn.ready.end = slot.outbox.data + slot.outbox.end
    conn.ready.limit = slot.outbox.data + slot.outbox.capacity


cdef bint _grow_outbox(Conn *conn, int64_t size) noexcept nogil:
    """Reserve `size` free bytes in `ready`, before the first write to it."""
    if not (<Connections>conn.owner).reserve(conn.slot, size):
        return False
    _point_to_outbox(conn, (<Connections>conn.owner).slots[conn.slot])
    return True
