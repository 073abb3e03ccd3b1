"""ReceiveCalls: ReceiveMessage by the compiled POPs.

    request   1 Resource group, 2 MessageQueue, 3 FilterExpression, 4 batch_size,
              5 invisible_duration, 6 auto_renew, 7 long_polling_timeout, 8 attempt_id
    queue     1 Resource topic, 2 id, 3 permission, 4 Broker, 5 *type of messages
    Broker    1 name, 2 id, 3 Endpoints: 1 scheme, 2 *address
    filter    1 type, 2 expression
    answer    1 Status, 2 the message, 3 time of delivery: one of them in each part

A view is a client with its group, topic and filter of tags. Python registers it after
it has served a receive; then the client is known, and its group reads in no order. The
call becomes a POP. If it finds nothing, it waits among the POPs of remoting
(`pop_path.pyx`). Python gets a call back if the view is removed, or if compiled code
declines its messages.
Messages of a receive with `auto_renew` go to the table of renewals.
It declines receives whose messages Python has to encode, messages that were delivered
before, and more than ANSWER_LIMIT bytes.
Belongs to the thread of the reactor.
"""
# tidy: long — one call, from its fields to its messages

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from rmq._fastpath.bytes.ascii cimport put_integer
from rmq._fastpath.bytes.endian cimport put32
from rmq._fastpath.bytes.name_table cimport (
    Name, find_name, init_names, insert_name, remove_name,
)
from rmq._fastpath.handlers.held_pulls cimport HeldPull
from rmq._fastpath.handlers.pop_path cimport PopPath
from rmq._fastpath.handlers.pop_reply cimport PopStamp
from rmq._fastpath.handlers.pop_search cimport POP_LIMIT, PopAnswer, PopPart
from rmq._fastpath.handlers.pop_table cimport PopTable
from rmq._fastpath.http2.call_answers cimport MESSAGE_NOT_FOUND, OK, put_status
from rmq._fastpath.http2.call_paths cimport (
    USER_LIMIT, Call, CallAnswer, CallPath, set_text,
)
from rmq._fastpath.http2.grpc_wire cimport GrpcWire
from rmq._fastpath.http2.header_names cimport CLIENT_ID, GRPC_TIMEOUT
from rmq._fastpath.http2.message_encoder cimport (
    Delivered, MessageEncoder, earlier_of, put_time,
)
from rmq._fastpath.http2.proto_wire cimport (
    BYTES, NUMBER, Field, Span, read_field, read_varint,
)
from rmq._fastpath.http2.renewal_table cimport RENEWED_MS, RenewalTable
from rmq._fastpath.http2.request_head cimport find_metadata
from rmq._fastpath.http2.sent_message cimport (
    is_nested, is_text, read_ms, read_resource,
)
from rmq._fastpath.log.decode cimport OK as WHOLE, RecordParts, split_record
from rmq._fastpath.reactor.native cimport (
    DECLINED, REPLY_ROOM, SERVED, Conn, Frame, Verdict,
)
from rmq._fastpath.reactor.native_table cimport Native

cdef enum:                      # fields of request 200050, as `PopPath` names them
    GROUP = 0
    TOPIC = 1
    FILTER_TYPE = 2
    FILTER = 3
    QUEUE_ID = 4
    MAX_MESSAGES = 5
    INVISIBLE_TIME = 6
    POLL_TIME = 7
    BORN_TIME = 8
    INIT_MODE = 9

cdef enum:
    REQUEST_LIMIT = 4096
    FIELD_COUNT = 8             # number of fields in a request
    TAG = 1                     # type of a filter
    PREFIX = 5                  # bytes before each message: a flag, then the size
    ANSWER_LIMIT = 256 << 10    # bytes; larger answers may wait for the client
    FIRST_ROOM = 4096
    ENDS_ROOM = 128             # bytes for the status and the time
    DIGITS = 20                 # digits of the largest number
    MIN_INVISIBLE_MS = 10_000
    MAX_INVISIBLE_MS = 12 * 3_600_000
    MIN_POLL_MS = 5_000
    MAX_POLL_MS = 20_000
    WAY_BACK_MS = 100
    TIMEOUT_DIGITS = 8

# fields of a Broker that have messages: Endpoints, and in these the addresses
cdef uint32_t[2] BROKER_ADDRESSES = [3, 2]


cdef bint read_types(const Span *types) noexcept nogil:
    """Return whether a list of numbers is whole."""
    cdef const uint8_t *p = types.data
    cdef const uint8_t *end = p + types.size
    cdef uint64_t value
    while p < end:
        p = read_varint(p, end, &value)
        if p == NULL:
            return False
    return True


cdef bint read_queue(const Span *queue, Span *topic) noexcept nogil:
    """Read the topic of a queue; False if it is not plain."""
    cdef const uint8_t *p = queue.data
    cdef const uint8_t *end = p + queue.size
    cdef Field field
    while p < end:
        p = read_field(p, end, &field)
        if p == NULL or field.number > 5:
            return False
        if field.kind == NUMBER and field.number in (2, 3, 5):
            continue
        if field.kind != BYTES:
            return False
        if field.number == 1:
            if topic.data != NULL or not read_resource(&field.bytes, topic):
                return False
        elif field.number == 4:
            if not is_nested(&field.bytes, BROKER_ADDRESSES, 2):
                return False
        elif field.number != 5 or not read_types(&field.bytes):
            return False
    return topic.data != NULL


cdef bint read_filter(const Span *text, Span *tags) noexcept nogil:
    """Read a filter of tags; False for another one."""
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef Field field
    while p < end:
        p = read_field(p, end, &field)
        if p == NULL:
            return False
        if field.number == 1 and field.kind == NUMBER:
            if field.value > TAG:
                return False
        elif field.number == 2 and field.kind == BYTES:
            tags[0] = field.bytes
        else:
            return False
    return True


cdef bint read_part(Receive *found, const Field *field) noexcept nogil:
    """Read a field of a request."""
    cdef uint32_t number = field.number
    if number in (4, 6):
        if field.kind != NUMBER or field.value > 0x7FFFFFFF:
            return False
        if number == 6:
            found.is_renewed = field.value != 0
        else:
            found.batch = <int64_t>field.value
        return True
    if field.kind != BYTES:
        return False
    if number == 1:
        return read_resource(&field.bytes, &found.group)
    if number == 2:
        return read_queue(&field.bytes, &found.topic)
    if number == 3:
        return read_filter(&field.bytes, &found.tags)
    if number == 5:
        return read_ms(&field.bytes, &found.invisible_ms)
    if number == 7:
        return read_ms(&field.bytes, &found.poll_ms)
    return is_text(&field.bytes)


cdef bint read_receive(const uint8_t *p, int64_t size, Receive *found) noexcept nogil:
    """Read a request; False if it is not plain."""
    cdef const uint8_t *end = p + size
    cdef Field field
    cdef uint32_t seen = 0
    memset(found, 0, sizeof(Receive))
    while p < end:
        p = read_field(p, end, &field)
        if p == NULL or field.number > FIELD_COUNT or seen >> field.number & 1:
            return False
        seen |= <uint32_t>1 << field.number
        if not read_part(found, &field):
            return False
    if found.tags.size == 0:
        found.tags.data, found.tags.size = b"*", 1
    if found.is_renewed:
        found.invisible_ms = RENEWED_MS
    found.batch = max(<int64_t>1, min(found.batch, <int64_t>POP_LIMIT))
    return (
        found.group.data != NULL
        and found.topic.data != NULL
        and MIN_INVISIBLE_MS <= found.invisible_ms <= MAX_INVISIBLE_MS
    )


cdef int64_t read_timeout(const Span *text) noexcept nogil:
    """Return the milliseconds of a grpc-timeout; 0 without one."""
    cdef int64_t i, number = 0, count = text.size - 1
    cdef uint8_t unit
    if not 1 <= count <= TIMEOUT_DIGITS:
        return 0
    for i in range(count):
        if not 48 <= text.data[i] <= 57:
            return 0
        number = 10 * number + text.data[i] - 48
    unit = text.data[count]
    if unit == c"H":
        return number * 3_600_000
    if unit == c"M":
        return number * 60_000
    if unit == c"S":
        return number * 1000
    if unit == c"m":
        return number
    if unit == c"u":
        return number // 1000
    return number // 1_000_000 if unit == c"n" else 0


cdef int64_t find_poll_ms(
    const Call *call, const Receive *receive, int64_t half_ms
) noexcept nogil:
    """Return how long a call may wait; -1 if Python has to refuse it."""
    cdef Span text
    cdef int64_t left_ms, wanted_ms = receive.poll_ms
    find_metadata(call.metadata, call.metadata_size, GRPC_TIMEOUT, &text)
    left_ms = read_timeout(&text)
    if wanted_ms == 0:
        wanted_ms = left_ms - half_ms if left_ms else MAX_POLL_MS
    wanted_ms = max(<int64_t>MIN_POLL_MS, min(wanted_ms, <int64_t>MAX_POLL_MS))
    if left_ms and wanted_ms > left_ms - WAY_BACK_MS:
        wanted_ms = left_ms - WAY_BACK_MS
        if wanted_ms < MIN_POLL_MS:
            return -1
    return wanted_ms


cdef bytes view_key(
    uint64_t token, bytes client_id, bytes group, bytes topic, bytes tags
):
    """Return the key of a view in a table of names."""
    cdef bytes connection = (<char *>&token)[:sizeof(token)]
    return b"".join([
        name + b"\xff" for name in (connection, client_id, group, topic, tags)
    ])


MAX_WAITING = WAITING_LIMIT


@cython.final
cdef class WaitingCount:
    """The number of calls of a client that wait for messages, or for room."""


@cython.final
cdef class ReceiveView:
    """A client on a connection, with a group, a topic and a filter of tags."""

    def __cinit__(
        self, uint64_t token, str client_id not None, str group not None,
        str topic not None, str tags not None, *, int64_t half_ms, bint is_padded,
        owner not None, waiting not None, on_return not None,
    ):
        """`owner` is what Python needs to renew messages.

        `on_return(call, user, batch, invisible_ms, left_ms, is_renewed)` gets a call
        that waited, if compiled code cannot serve it.
        """
        self.token, self.waiting = token, waiting
        self.client_id, self.owner = client_id, owner
        self.group, self.topic = group.encode(), topic.encode()
        self.tags = tags.encode()
        self.key = view_key(
            token, client_id.encode(), self.group, self.topic, self.tags
        )
        self.half_ms, self.is_padded = half_ms, is_padded
        self.on_return = on_return


cdef bint put_received(
    void *calls, PopTable table, const PopAnswer *answer, const PopStamp *stamp
) noexcept:
    """Write the answer to a receive; a `PutReply`."""
    try:
        return (<ReceiveCalls>calls).put_answer(table, answer, stamp)
    except MemoryError:
        return False


cdef bint begin_waiting(void *calls, const HeldPull *held) noexcept:
    """Prepare the answer to a receive that waits."""
    cdef const WaitingCall *waiting = <const WaitingCall *>held.frame
    (<ReceiveCalls>calls).view = waiting.view
    (<ReceiveCalls>calls).handles = [] if waiting.is_renewed else None
    return (<GrpcWire>(<ReceiveCalls>calls).wire).find_kept(
        held.token, waiting.stream
    ) != NULL


cdef void finish_waiting(void *calls, const HeldPull *held) noexcept:
    """Send the answer to a receive that waited."""
    cdef const WaitingCall *waiting = <const WaitingCall *>held.frame
    cdef CallAnswer answer
    (<ReceiveCalls>calls).set_answer(&answer)
    (<GrpcWire>(<ReceiveCalls>calls).wire).finish_kept(
        held.token, waiting.stream, &answer
    )
    (<ReceiveCalls>calls).count_received(<ReceiveView>waiting.view)


cdef void return_waiting(
    void *calls, const HeldPull *held, int64_t left_ms
) noexcept:
    """Leave a receive that waited to Python."""
    cdef const WaitingCall *waiting = <const WaitingCall *>held.frame
    cdef const char *user = <const char *>waiting.user
    (<GrpcWire>(<ReceiveCalls>calls).wire).return_call(
        held.token, waiting.stream, (<ReceiveView>waiting.view).on_return,
        (
            user[:waiting.user_size], held.pull.max_messages, held.pull.invisible_ms,
            left_ms, bool(waiting.is_renewed),
        ),
    )


@cython.final
cdef class ReceiveCalls(CallPath):
    """Serves ReceiveMessage for views that are registered."""

    def __cinit__(self):
        self.views = {}
        init_names(&self.names)
        self.needs_room = True

    def __init__(
        self, int32_t code, MessageEncoder encoder not None,
        RenewalTable renewals not None,
    ):
        self.code = code
        self.encoder, self.renewals = encoder, renewals
        self.front.put_reply = put_received
        self.front.held.owner = <void *>self
        self.front.held.begin_call = begin_waiting
        self.front.held.finish_call = finish_waiting
        self.front.held.return_call = return_waiting

    def __dealloc__(self):
        free(self.names.slots)
        free(self.records)
        free(self.data)

    def __len__(self):
        return len(self.views)

    def add(self, ReceiveView view not None):
        """Serve receives like these; False if there are too many views."""
        self.remove(view)
        if len(self.views) >= VIEW_LIMIT:
            return False
        insert_name(&self.names, view.key, <void *>view)
        self.views[view.key] = view
        return True

    def remove(self, ReceiveView view not None):
        """Leave the receives of a view, or one like it, to Python."""
        cdef ReceiveView known = self.views.pop(view.key, None)
        if known is not None:
            remove_name(&self.names, known.key, <void *>known)
            self.end_view(known)

    cdef Verdict serve(self, const Call *call, CallAnswer *answer) noexcept nogil:
        """Answer a receive with messages, or hold it."""
        cdef Verdict verdict = DECLINED
        cdef uint64_t token = self.natives.connections.token_of(call.index)
        cdef Receive receive
        cdef Name[5] names
        cdef Span client_id
        cdef void *view = NULL
        if call.size <= REQUEST_LIMIT and (
            read_receive(call.message, call.size, &receive)
        ):
            find_metadata(call.metadata, call.metadata_size, CLIENT_ID, &client_id)
            names[0].data, names[0].size = <const uint8_t *>&token, sizeof(token)
            names[1].data, names[1].size = client_id.data, client_id.size
            names[2].data, names[2].size = receive.group.data, receive.group.size
            names[3].data, names[3].size = receive.topic.data, receive.topic.size
            names[4].data, names[4].size = receive.tags.data, receive.tags.size
            view = find_name(&self.names, names, 5)
        if view != NULL:
            verdict = self.serve_view(call, &receive, view, answer)
        if verdict == DECLINED:
            self.declined += 1
        else:
            self.served += 1
        return verdict

    cdef Verdict serve_view(
        self, const Call *call, const Receive *receive, void *view,
        CallAnswer *answer,
    ) noexcept with gil:
        """Pop for a view; without a message its call waits."""
        cdef ReceiveView known = <ReceiveView>view
        cdef int64_t poll_ms = find_poll_ms(call, receive, known.half_ms)
        cdef Verdict verdict
        if poll_ms < 0:
            return DECLINED
        if known.waiting.count >= WAITING_LIMIT:
            poll_ms = 0
        verdict = self.pop(call, known, receive, poll_ms)
        if verdict != SERVED:
            return verdict
        if self.count == 0:
            return DECLINED     # Python refuses the call
        self.set_answer(answer)
        return SERVED

    cdef void set_answer(self, CallAnswer *answer) noexcept nogil:
        answer.data, answer.size, answer.is_framed = self.data, self.size, True

    cdef PopPath find_path(self, uint32_t index):
        """Return the compiled POPs of a connection, or None."""
        cdef int32_t listener = self.natives.connections.slots[index].listener
        cdef Native *native = self.natives.find(listener, self.code)
        if native == NULL or not isinstance(<object>native.handler, PopPath):
            return None
        return <PopPath>native.handler

    cdef Verdict pop(
        self, const Call *call, ReceiveView view, const Receive *receive,
        int64_t poll_ms,
    ) except *:
        """Pop once; the answer is in `data`. KEPT: the call waits for `poll_ms`."""
        cdef uint8_t[3 * DIGITS] digits
        cdef uint8_t *end
        cdef const uint8_t *text
        cdef Frame frame
        cdef PopPath path = self.find_path(call.index)
        if path is None:
            return DECLINED
        memset(&frame, 0, sizeof(Frame))
        text = view.group
        set_text(&frame.fields[GROUP], text, len(view.group))
        text = view.topic
        set_text(&frame.fields[TOPIC], text, len(view.topic))
        set_text(&frame.fields[FILTER_TYPE], b"TAG", 3)
        text = view.tags
        set_text(&frame.fields[FILTER], text, len(view.tags))
        set_text(&frame.fields[QUEUE_ID], b"-1", 2)
        end = put_integer(digits, receive.batch)
        set_text(&frame.fields[MAX_MESSAGES], digits, end - digits)
        text = digits + DIGITS
        end = put_integer(digits + DIGITS, receive.invisible_ms)
        set_text(&frame.fields[INVISIBLE_TIME], text, end - text)
        text = digits + 2 * DIGITS
        end = put_integer(digits + 2 * DIGITS, poll_ms)
        set_text(&frame.fields[POLL_TIME], text, end - text)
        set_text(&frame.fields[BORN_TIME], b"0", 1)
        set_text(&frame.fields[INIT_MODE], b"1", 1)
        return self.offer_request(path, call, &frame, view, receive.is_renewed)

    cdef Verdict offer_request(
        self, PopPath path, const Call *call, Frame *frame, ReceiveView view,
        bint is_renewed,
    ) except *:
        """Let the compiled POPs serve or hold a request."""
        cdef WaitingCall waiting
        cdef uint8_t[REPLY_ROOM] reply
        cdef Verdict verdict
        cdef Conn conn
        waiting.view, waiting.stream = <void *>view, call.stream
        waiting.is_renewed, waiting.user_size = is_renewed, 0
        if self.natives.grants is not None and call.signer.user.data != NULL:
            waiting.user_size = call.signer.user.size
            memcpy(waiting.user, call.signer.user.data, waiting.user_size)
        frame.start = <const uint8_t *>&waiting
        frame.size = sizeof(WaitingCall) - USER_LIMIT + waiting.user_size
        conn.ready.end = reply
        conn.ready.limit = reply + REPLY_ROOM
        self.view = <void *>view
        self.handles = [] if is_renewed else None
        self.held, path.front_owner = path.held, self
        self.front.held.count = &view.waiting.count
        path.front = &self.front
        verdict = self.natives.serve_call(
            call.index, &call.signer, self.code, frame, &conn
        )
        path.front = NULL
        if verdict == SERVED:
            self.count_received(view)
        return verdict

    cdef void count_received(self, ReceiveView view) except *:
        """Count the messages of the answer; those of push consumers are renewed."""
        view.received += self.count
        if self.handles:
            self.renewals.add(view.client_id, view.owner, self.handles)

    # -- calls that wait

    def count_kept(self):
        """Return the number of receives that wait."""
        return 0 if self.held is None else self.held.calls

    cdef void drop_call(self, uint64_t token, uint32_t stream) noexcept nogil:
        """Remove a receive whose stream is gone."""
        cdef HeldPull *held = self.held.first_of(token)
        while held != NULL:
            if (
                held.front == &self.front.held
                and held.token == token
                and (<WaitingCall *>held.frame).stream == stream
            ):
                self.held.remove_pull(held)
                self.held.dropped += 1
                return
            held = held.next_of_slot

    cdef void end_view(self, ReceiveView view):
        """Leave the receives of a view that wait to Python."""
        cdef HeldPull *held = NULL
        cdef HeldPull *following
        if self.count_kept() and view.waiting.count:
            held = self.held.first_of(view.token)
        while held != NULL:
            following = held.next_of_slot
            if held.front == &self.front.held and (
                (<WaitingCall *>held.frame).view == <void *>view
            ):
                self.held.return_pull(held, 0)
            held = following

    def stop(self, bytes answer not None):
        """Give an answer to all receives that wait: the broker stops."""
        cdef CallAnswer ready
        cdef HeldPull *held
        cdef HeldPull *following
        cdef uint32_t i
        ready.data, ready.size, ready.is_framed = answer, len(answer), True
        for i in range(0 if self.held is None else self.held.slot_capacity):
            held = self.held.slots[i]
            while held != NULL:
                following = held.next_of_slot
                if held.front == &self.front.held:
                    (<GrpcWire>self.wire).finish_kept(
                        held.token, (<WaitingCall *>held.frame).stream, &ready
                    )
                    self.held.remove_pull(held)
                held = following

    # -- the answer

    cdef uint8_t *reserve(self, int64_t size) except NULL:
        """Return the end of the answer, with room for `size` bytes."""
        cdef int64_t wanted = max(self.size + size, <int64_t>FIRST_ROOM)
        cdef uint8_t *grown
        if wanted > self.room:
            wanted = max(wanted, 2 * self.room)
            grown = <uint8_t *>realloc(self.data, wanted)
            if grown == NULL:
                raise MemoryError
            self.data, self.room = grown, wanted
        return self.data + self.size

    cdef bint put_answer(
        self, PopTable table, const PopAnswer *answer, const PopStamp *stamp
    ) except -1:
        """Write status, messages and time; False if Python has to."""
        cdef ReceiveView view = <ReceiveView>self.view
        cdef Delivered delivered
        cdef uint8_t *end
        cdef int i
        self.count, self.size = answer.count, 0
        if answer.has_retries or answer.size > ANSWER_LIMIT:
            return False
        delivered.topic, delivered.topic_size = view.topic, len(view.topic)
        delivered.pop_ms, delivered.invisible_ms = stamp.pop_ms, stamp.invisible_ms
        delivered.revive_queue = stamp.revive_queue
        delivered.is_padded = view.is_padded
        end = put_status(
            self.reserve(ENDS_ROOM) + PREFIX, OK if answer.count else MESSAGE_NOT_FOUND
        )
        self.end_message(end)
        for i in range(answer.part_count):
            if answer.parts[i].count and not self.put_part(
                table, answer, &answer.parts[i], &delivered
            ):
                return False
        end = put_time(self.reserve(ENDS_ROOM) + PREFIX, 3, stamp.pop_ms)
        self.end_message(end)
        return self.size <= ANSWER_LIMIT

    cdef void end_message(self, uint8_t *end) noexcept nogil:
        """Write the prefix of a message that was written after room for it."""
        cdef uint8_t *start = self.data + self.size
        start[0] = 0
        put32(start + 1, <uint32_t>(end - start - PREFIX))
        self.size = end - self.data

    cdef bint put_part(
        self, PopTable table, const PopAnswer *answer, const PopPart *part,
        Delivered *delivered,
    ) except -1:
        """Write the messages of a queue."""
        cdef uint8_t *grown
        cdef int run
        if part.size > self.record_room:
            grown = <uint8_t *>realloc(self.records, part.size)
            if grown == NULL:
                raise MemoryError
            self.records, self.record_room = grown, part.size
        delivered.start = part.start
        for run in range(part.first_run, part.first_run + part.run_count):
            table.pulls.reader.copy(
                self.records, answer.starts[run], answer.sizes[run]
            )
            if not self.put_run(self.records, answer.sizes[run], delivered):
                return False
        return True

    cdef bint put_run(
        self, const uint8_t *record, int64_t left, const Delivered *delivered
    ) except -1:
        """Write the messages of records that follow each other."""
        cdef RecordParts parts
        cdef uint8_t *out
        cdef int64_t size
        while left > 0:
            if split_record(record, left, False, &parts) != WHOLE:
                return False
            if earlier_of(record, &parts):
                return False
            size = self.encoder.prepare(record, &parts, delivered, 0)
            if size < 0:
                return False
            out = self.reserve(PREFIX + size) + PREFIX
            self.end_message(
                self.encoder.put_prepared(out, record, &parts, delivered)
            )
            if self.handles is not None:
                self.handles.append(self.encoder.handle_text())
            record += parts.size
            left -= parts.size
        return True
