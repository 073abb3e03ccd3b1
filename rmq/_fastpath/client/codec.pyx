# tidy: long — both directions of a connection share the table of pending requests
"""ClientCodec: the bytes of one connection of a client, in both directions.

It numbers requests, and writes their frames into one buffer. It splits the received
bytes into frames, and pairs answers with requests by number. It drops late answers,
second answers, and answers to cancelled requests. Time is a parameter.

It writes sends and pulls from templates with binary headers; the byte layout is in
`rmq/protocol/binary_header.py`. `header_scan` reads their answers, in binary or in JSON
as Java's brokers answer. For all other commands, and all answers that are not plain, it
uses `decode` and `encode` of `rmq.protocol.frames`.

Invariants: a request is ended exactly once: by its answer, `cancel`, `expire` or
`close`. The codec checks the length of a frame before it stores its bytes: at most
`max_frame_size` bytes wait for the rest of their frame.
"""

cimport cython
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove

from rmq._fastpath.client.messages cimport SendResult
from rmq._fastpath.bytes.endian cimport get32, put16, put32
from rmq._fastpath.reactor.header_scan cimport RawHeader, scan_header
from rmq._fastpath.reactor.native cimport Text
from rmq.core.errors import LocalProtocolError, RemoteProtocolError

cdef enum:
    FIRST_ROOM = 1 << 14
    MAX_KEPT_ROOM = 1 << 20         # a larger buffer is freed when it is empty
    LENGTH_SIZE = 4
    PREFIX_SIZE = 8
    FIXED_SIZE = 21             # bytes of a binary header without its pairs
    PAIRS_AT = PREFIX_SIZE + FIXED_SIZE
    BINARY = 1 << 24
    PYTHON = 3
    WIRE_VERSION = 513
    RESPONSE_FLAG = 1
    ONEWAY_FLAG = 2
    OPAQUE_MASK = 0x7FFFFFFF
    NUMBER_ROOM = 20
    SEND = 310
    SEND_BATCH = 320
    PULL = 11
    NOT_FOUND = 19
    OFFSET_MOVED = 21

cdef enum Kind:
    COMMAND_KIND = 0
    SEND_KIND = 1
    PULL_KIND = 2

cdef int64_t NO_DEADLINE = (<int64_t>1) << 62

ANSWER_TO_COMMAND = COMMAND_KIND
ANSWER_TO_SEND = SEND_KIND
ANSWER_TO_PULL = PULL_KIND


cdef bytes _encode_pair(str name, str value):
    raw_name, raw_value = name.encode(), value.encode()
    return (
        len(raw_name).to_bytes(2, "big") + raw_name
        + len(raw_value).to_bytes(4, "big") + raw_value
    )


@cython.final
cdef class SendTemplate:
    """The fields that all sends of a group to a queue share, with the queue."""

    cdef readonly str group
    cdef readonly str topic
    cdef readonly int32_t queue_id
    cdef readonly object queue
    cdef readonly bint is_batch
    cdef readonly int32_t flag
    cdef bytes head
    cdef bytes tail

    def __init__(
        self, str group not None, str topic not None, int32_t queue_id, queue, *,
        bint is_batch=False, int32_t flag=0,
    ):
        self.group, self.topic, self.queue_id = group, topic, queue_id
        self.queue = queue
        self.is_batch = is_batch
        self.flag = flag
        self.head = (
            _encode_pair("a", group) + _encode_pair("b", topic)
            + _encode_pair("c", "TBW102") + _encode_pair("d", "4")
            + _encode_pair("e", str(queue_id))
        )
        self.tail = (
            _encode_pair("h", str(flag)) + _encode_pair("j", "0")
            + _encode_pair("k", "false")
            + _encode_pair("m", "true" if is_batch else "false")
        )


@cython.final
cdef class PullTemplate:
    """The fields that all pulls of a group from a queue share."""

    cdef readonly str group
    cdef readonly str topic
    cdef readonly int32_t queue_id
    cdef readonly str expression
    cdef readonly str kind
    cdef readonly int64_t version
    cdef bytes head
    cdef bytes tail

    def __init__(
        self, str group not None, str topic not None, int32_t queue_id, *,
        str expression="*", str kind="TAG", int64_t version=0,
    ):
        self.group, self.topic, self.queue_id = group, topic, queue_id
        self.expression, self.kind, self.version = expression, kind, version
        self.head = (
            _encode_pair("consumerGroup", group) + _encode_pair("topic", topic)
            + _encode_pair("queueId", str(queue_id))
        )
        self.tail = (
            _encode_pair("subscription", expression)
            + _encode_pair("subVersion", str(version))
            + _encode_pair("expressionType", kind)
        )


@cython.final
cdef class PullResult:
    """The answer to a pull; `body` has the records."""

    cdef readonly int32_t code
    cdef readonly int64_t next_offset
    cdef readonly int64_t min_offset
    cdef readonly int64_t max_offset
    cdef readonly int64_t suggested_broker_id
    cdef readonly str remark
    cdef readonly bytes body


@cython.final
@cython.freelist(256)
cdef class _Pending:
    cdef object waiter
    cdef int64_t deadline_ms
    cdef Kind kind
    cdef object queue
    cdef object msg_ids         # one id, or the ids of a batch


cdef struct Buffer:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room


cdef uint8_t *_reserve(Buffer *buffer, Py_ssize_t count) except NULL:
    """Make room for `count` bytes; return where they begin."""
    cdef Py_ssize_t room = buffer.room or FIRST_ROOM
    cdef uint8_t *data
    while room < buffer.size + count:
        room *= 2
    if room != buffer.room:
        data = <uint8_t *>realloc(buffer.data, room)
        if data == NULL:
            raise MemoryError
        buffer.data = data
        buffer.room = room
    return buffer.data + buffer.size


cdef void _clear_buffer(Buffer *buffer) noexcept:
    buffer.size = 0
    if buffer.room > MAX_KEPT_ROOM:
        free(buffer.data)
        buffer.data = NULL
        buffer.room = 0


cdef inline uint8_t *_put(uint8_t *p, const char *data, Py_ssize_t size) noexcept:
    memcpy(p, data, size)
    return p + size


cdef inline uint8_t *_put_name(uint8_t *p, const char *name, Py_ssize_t size) noexcept:
    put16(p, <unsigned short>size)
    return _put(p + 2, name, size)


cdef uint8_t *_put_number(uint8_t *p, int64_t value) noexcept:
    """Write the length and the digits of a value."""
    cdef uint8_t digits[NUMBER_ROOM]
    cdef int32_t at = NUMBER_ROOM
    cdef bint negative = value < 0
    if negative:
        value = -value
    while True:
        at -= 1
        digits[at] = <uint8_t>(48 + value % 10)
        value //= 10
        if value == 0:
            break
    if negative:
        at -= 1
        digits[at] = 45
    put32(p, NUMBER_ROOM - at)
    return _put(p + 4, <char *>digits + at, NUMBER_ROOM - at)


cdef bint _text_equals(const Text *text, const char *name, int32_t size) noexcept:
    return text.size == size and memcmp(text.data, name, size) == 0


cdef bint _read_number(const Text *text, int64_t *number) noexcept:
    """Read a whole number; False for any other text."""
    cdef int64_t value = 0
    cdef int32_t i = 0
    cdef bint negative = text.size > 0 and text.data[0] == 45
    if negative:
        i = 1
    if text.size == i or text.size > 18:
        return False
    while i < text.size:
        if not 48 <= text.data[i] <= 57:
            return False
        value = value * 10 + (text.data[i] - 48)
        i += 1
    number[0] = -value if negative else value
    return True


cdef str _text(const Text *text):
    return text.data[:text.size].decode()


@cython.final
cdef class ClientCodec:
    """The bytes of one connection of a client. Belongs to the connection's thread."""

    cdef Buffer out
    cdef Buffer partial
    cdef dict pending
    cdef object decode
    cdef object encode
    cdef int32_t opaque
    cdef Py_ssize_t max_frame_size
    cdef readonly int64_t next_deadline_ms
    cdef readonly int64_t answers
    cdef readonly int64_t late_answers

    def __cinit__(self):
        self.out.data = self.partial.data = NULL
        self.out.size = self.partial.size = self.out.room = self.partial.room = 0

    def __dealloc__(self):
        free(self.out.data)
        free(self.partial.data)

    def __init__(self, decode, encode, *, Py_ssize_t max_frame_size=1 << 24):
        self.decode = decode
        self.encode = encode
        self.max_frame_size = max_frame_size
        self.pending = {}
        self.opaque = 0
        self.next_deadline_ms = NO_DEADLINE

    # -- requests

    cdef int32_t _wait(
        self, waiter, int64_t deadline_ms, Kind kind, queue, msg_ids
    ) except -1:
        """Assign a number to a request with an answer."""
        cdef _Pending entry = _Pending.__new__(_Pending)
        entry.waiter = waiter
        entry.deadline_ms = deadline_ms
        entry.kind = kind
        entry.queue = queue
        entry.msg_ids = msg_ids
        self._advance()
        self.pending[self.opaque] = entry
        if deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms
        return self.opaque

    cdef int _advance(self) except -1:
        self.opaque = (self.opaque + 1) & OPAQUE_MASK
        while self.opaque in self.pending:
            self.opaque = (self.opaque + 1) & OPAQUE_MASK
        return 0

    cdef int _check_size(self, int64_t size) except -1:
        if size > self.max_frame_size:
            raise LocalProtocolError(
                f"a request of {size} bytes is larger than {self.max_frame_size}"
            )
        return 0

    cdef void _finish(
        self, uint8_t *p, uint8_t *pairs_end, Py_ssize_t body_size, int32_t code,
        int32_t flag,
    ) noexcept:
        """Write the lengths and the fixed part of a frame after its pairs."""
        cdef Py_ssize_t pairs = pairs_end - p - PAIRS_AT
        put32(p, <uint32_t>(PAIRS_AT - LENGTH_SIZE + pairs + body_size))
        put32(p + 4, <uint32_t>(BINARY | (FIXED_SIZE + pairs)))
        put16(p + 8, <unsigned short>code)
        p[10] = PYTHON
        put16(p + 11, WIRE_VERSION)
        put32(p + 13, self.opaque)
        put32(p + 17, flag)
        put32(p + 21, 0)
        put32(p + 25, <uint32_t>pairs)
        self.out.size += PAIRS_AT + pairs + body_size

    def send(
        self, SendTemplate template not None, bytes properties not None,
        bytes body not None, waiter, int64_t deadline_ms, msg_ids, *,
        int64_t born_ms, int32_t sys_flag=0,
    ):
        """Write a send; return its number. Without a waiter it is oneway.

        The waiter gets a SendResult, a list of them for a batch, or the Command of a
        refusal.
        """
        cdef Py_ssize_t head = PyBytes_GET_SIZE(template.head)
        cdef Py_ssize_t tail = PyBytes_GET_SIZE(template.tail)
        cdef Py_ssize_t text = PyBytes_GET_SIZE(properties)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
        cdef uint8_t *start
        cdef uint8_t *p
        self._check_size(PAIRS_AT + head + tail + text + size + 100)
        start = _reserve(&self.out, PAIRS_AT + head + tail + text + size + 100)
        if waiter is None:
            self._advance()
        else:
            self._wait(waiter, deadline_ms, SEND_KIND, template.queue, msg_ids)
        p = _put(start + PAIRS_AT, PyBytes_AS_STRING(template.head), head)
        p = _put_number(_put_name(p, "f", 1), sys_flag)
        p = _put_number(_put_name(p, "g", 1), born_ms)
        p = _put(p, PyBytes_AS_STRING(template.tail), tail)
        p = _put_name(p, "i", 1)
        put32(p, <uint32_t>text)
        p = _put(p + 4, PyBytes_AS_STRING(properties), text)
        memcpy(p, PyBytes_AS_STRING(body), size)
        self._finish(
            start, p, size, SEND_BATCH if template.is_batch else SEND,
            ONEWAY_FLAG if waiter is None else 0,
        )
        return self.opaque

    def pull(
        self, PullTemplate template not None, waiter, int64_t deadline_ms, *,
        int64_t offset, int32_t count, int64_t hold_ms, int32_t sys_flag,
    ):
        """Write a pull; return its number. The waiter gets a PullResult."""
        cdef Py_ssize_t head = PyBytes_GET_SIZE(template.head)
        cdef Py_ssize_t tail = PyBytes_GET_SIZE(template.tail)
        cdef uint8_t *start
        cdef uint8_t *p
        self._check_size(PAIRS_AT + head + tail + 300)
        start = _reserve(&self.out, PAIRS_AT + head + tail + 300)
        self._wait(waiter, deadline_ms, PULL_KIND, None, None)
        p = _put(start + PAIRS_AT, PyBytes_AS_STRING(template.head), head)
        p = _put_number(_put_name(p, "queueOffset", 11), offset)
        p = _put_number(_put_name(p, "maxMsgNums", 10), count)
        p = _put_number(_put_name(p, "sysFlag", 7), sys_flag)
        p = _put_number(_put_name(p, "commitOffset", 12), 0)
        p = _put_number(_put_name(p, "suspendTimeoutMillis", 20), hold_ms)
        p = _put(p, PyBytes_AS_STRING(template.tail), tail)
        self._finish(start, p, 0, PULL, 0)
        return self.opaque

    def request(
        self, command, waiter, int64_t deadline_ms, *, Kind kind=COMMAND_KIND,
        queue=None, msg_ids=None,
    ):
        """Write any request; return its number. Without a waiter it is oneway."""
        if waiter is None:
            self._advance()
            command.flag |= ONEWAY_FLAG
        else:
            self._wait(waiter, deadline_ms, kind, queue, msg_ids)
        number = command.opaque = self.opaque
        try:
            self._write(self.encode(command))
        except BaseException:
            self.pending.pop(number, None)
            raise
        return number

    def respond(self, command):
        """Write the answer to a request of the server."""
        self._write(self.encode(command))

    cdef int _write(self, bytes data) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        memcpy(_reserve(&self.out, size), PyBytes_AS_STRING(data), size)
        self.out.size += size
        return 0

    def take_output(self):
        """Remove and return the bytes to send."""
        cdef bytes data = PyBytes_FromStringAndSize(
            <char *>self.out.data, self.out.size
        )
        _clear_buffer(&self.out)
        return data

    @property
    def has_output(self):
        """Whether `take_output` would return anything."""
        return self.out.size > 0

    @property
    def pending_count(self):
        """How many requests wait for their answers."""
        return len(self.pending)

    def cancel(self, int32_t number):
        """End a request; the codec drops its answer."""
        self.pending.pop(number, None)

    def expire(self, int64_t now_ms):
        """End the requests whose deadline has passed; return their waiters."""
        cdef _Pending entry
        cdef list waiters = []
        cdef list numbers = []
        if now_ms < self.next_deadline_ms:
            return waiters
        self.next_deadline_ms = NO_DEADLINE
        for number, found in self.pending.items():
            entry = found
            if entry.deadline_ms <= now_ms:
                numbers.append(number)
                waiters.append(entry.waiter)
            elif entry.deadline_ms < self.next_deadline_ms:
                self.next_deadline_ms = entry.deadline_ms
        for number in numbers:
            del self.pending[number]
        return waiters

    def close(self):
        """End all requests; return their waiters."""
        waiters = [(<_Pending>entry).waiter for entry in self.pending.values()]
        self.pending.clear()
        _clear_buffer(&self.out)
        _clear_buffer(&self.partial)
        return waiters

    # -- answers

    def feed(self, bytes data not None):
        """Read received bytes; return pairs of a waiter and its answer.

        A request of the server has None in place of a waiter. After a
        RemoteProtocolError the stream cannot be used.
        """
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t used
        cdef list found = []
        if self.partial.size == 0:
            used = self._read_frames(p, size, found)
            if used < size:
                self._keep(p + used, size - used)
            return found
        self._keep(p, size)
        used = self._read_frames(self.partial.data, self.partial.size, found)
        if used == self.partial.size:
            _clear_buffer(&self.partial)
        elif used:
            self.partial.size -= used
            memmove(self.partial.data, self.partial.data + used, self.partial.size)
        return found

    cdef int _keep(self, const uint8_t *p, Py_ssize_t size) except -1:
        memcpy(_reserve(&self.partial, size), p, size)
        self.partial.size += size
        return 0

    cdef Py_ssize_t _read_frames(
        self, const uint8_t *p, Py_ssize_t size, list found
    ) except -1:
        """Read the complete frames; return their size in bytes."""
        cdef Py_ssize_t at = 0
        cdef int64_t length
        while size - at >= LENGTH_SIZE:
            length = <int32_t>get32(p + at)
            if not LENGTH_SIZE <= length <= self.max_frame_size:
                raise RemoteProtocolError(
                    f"a frame announces {length} bytes, allowed are {LENGTH_SIZE} to "
                    f"{self.max_frame_size}"
                )
            if length + LENGTH_SIZE > size - at:
                break
            self._read_frame(p + at, length + LENGTH_SIZE, found)
            at += length + LENGTH_SIZE
        return at

    cdef int _read_frame(
        self, const uint8_t *p, Py_ssize_t size, list found
    ) except -1:
        """Read one frame."""
        cdef RawHeader raw
        cdef _Pending entry
        cdef Py_ssize_t header = get32(p + 4) & 0xFFFFFF
        cdef object answer = None
        if PREFIX_SIZE + header > size:
            raise RemoteProtocolError(
                f"a frame of {size} bytes announces a header of {header}"
            )
        if scan_header(p + PREFIX_SIZE, header, p[4], &raw):
            if raw.flag & RESPONSE_FLAG:
                entry = self.pending.get(raw.opaque)
                if entry is None:
                    self.late_answers += 1
                    return 0
                if entry.kind == SEND_KIND:
                    answer = _parse_send_answer(&raw, entry)
                elif entry.kind == PULL_KIND:
                    answer = _parse_pull_answer(
                        &raw, p + PREFIX_SIZE + header, p + size
                    )
        if answer is not None:
            self.answers += 1
            del self.pending[raw.opaque]
            found.append((entry.waiter, answer))
            return 0
        return self._read_command(PyBytes_FromStringAndSize(<char *>p, size), found)

    cdef int _read_command(self, bytes frame, list found) except -1:
        """Read a frame that the scanner declines, or a request of the server."""
        cdef _Pending entry
        command = self.decode(frame)
        if not command.is_response:
            found.append((None, command))
            return 0
        entry = self.pending.pop(command.opaque, None)
        if entry is None:
            self.late_answers += 1
            return 0
        self.answers += 1
        if entry.kind == PULL_KIND:
            found.append((entry.waiter, _pull_answer_of(command)))
        elif entry.kind == SEND_KIND and command.code in (0, 10, 11, 12):
            found.append((entry.waiter, _send_answer_of(command, entry)))
        else:
            found.append((entry.waiter, command))
        return 0


cdef object _parse_send_answer(const RawHeader *raw, _Pending entry):
    """Return the result of a send; None if it is refused or not plain."""
    cdef int32_t i
    cdef int64_t queue_id = -1, queue_offset = -1
    cdef str offset_id = None, transaction_id = None, recall = None
    if raw.code != 0 and not 10 <= raw.code <= 12:
        return None
    for i in range(raw.field_count):
        if raw.values[i].escaped:
            return None
        if _text_equals(&raw.names[i], "msgId", 5):
            offset_id = _text(&raw.values[i])
        elif _text_equals(&raw.names[i], "queueId", 7):
            if not _read_number(&raw.values[i], &queue_id):
                return None
        elif _text_equals(&raw.names[i], "queueOffset", 11):
            if not _read_number(&raw.values[i], &queue_offset):
                return None
        elif _text_equals(&raw.names[i], "transactionId", 13):
            transaction_id = _text(&raw.values[i])
        elif _text_equals(&raw.names[i], "recallHandle", 12):
            recall = _text(&raw.values[i])
    if offset_id is None or queue_id < 0 or queue_offset < 0:
        return None
    return _make_results(
        entry, raw.code, offset_id, <int32_t>queue_id, queue_offset, transaction_id,
        recall,
    )


cdef object _make_results(
    _Pending entry, int32_t code, str offset_id, int32_t queue_id,
    int64_t queue_offset, str transaction_id, str recall,
):
    """Return the result of a message, or the results of a batch's messages."""
    cdef Py_ssize_t i
    queue = entry.queue
    if queue is not None and queue.queue_id != queue_id:
        queue = queue._replace(queue_id=queue_id)
    if type(entry.msg_ids) is str:
        return _make_result(
            code, entry.msg_ids, offset_id, queue, queue_offset, transaction_id, recall
        )
    offset_ids = offset_id.split(",")
    if len(offset_ids) != len(entry.msg_ids):
        offset_ids = [""] * len(entry.msg_ids)
    return [
        _make_result(
            code, entry.msg_ids[i], offset_ids[i], queue, queue_offset + i, None, None
        )
        for i in range(len(entry.msg_ids))
    ]


cdef SendResult _make_result(
    int32_t code, str msg_id, str offset_id, queue, int64_t queue_offset,
    str transaction_id, str recall,
):
    cdef SendResult result = SendResult.__new__(SendResult)
    result.code = code
    result.msg_id = msg_id
    result.offset_msg_id = offset_id
    result.queue = queue
    result.queue_offset = queue_offset
    result.transaction_id = transaction_id
    result.recall_handle = recall
    return result


cdef object _send_answer_of(command, _Pending entry):
    cdef dict fields = command.ext_fields
    try:
        return _make_results(
            entry, command.code, fields["msgId"], int(fields["queueId"]),
            int(fields["queueOffset"]), fields.get("transactionId"),
            fields.get("recallHandle"),
        )
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(
            f"the answer to a send has no valid {error}"
        ) from error


cdef object _parse_pull_answer(
    const RawHeader *raw, const uint8_t *body, const uint8_t *end
):
    """Return the answer to a pull; None if it is refused or not plain."""
    cdef int32_t i
    cdef bint is_good = True
    cdef PullResult answer = PullResult.__new__(PullResult)
    if raw.code != 0 and not NOT_FOUND <= raw.code <= OFFSET_MOVED:
        return None  # the caller uses the remark
    answer.code = raw.code
    answer.next_offset = -1
    for i in range(raw.field_count):
        if _text_equals(&raw.names[i], "nextBeginOffset", 15):
            is_good = _read_number(&raw.values[i], &answer.next_offset)
        elif _text_equals(&raw.names[i], "minOffset", 9):
            is_good = _read_number(&raw.values[i], &answer.min_offset)
        elif _text_equals(&raw.names[i], "maxOffset", 9):
            is_good = _read_number(&raw.values[i], &answer.max_offset)
        elif _text_equals(&raw.names[i], "suggestWhichBrokerId", 20):
            is_good = _read_number(&raw.values[i], &answer.suggested_broker_id)
        if not is_good:
            return None
    answer.body = PyBytes_FromStringAndSize(<char *>body, end - body)
    return answer


cdef object _pull_answer_of(command):
    cdef dict fields = command.ext_fields
    cdef PullResult answer = PullResult.__new__(PullResult)
    try:
        answer.next_offset = int(fields.get("nextBeginOffset", -1))
        answer.min_offset = int(fields.get("minOffset", 0))
        answer.max_offset = int(fields.get("maxOffset", 0))
        answer.suggested_broker_id = int(fields.get("suggestWhichBrokerId", 0))
    except ValueError as error:
        raise RemoteProtocolError(f"the answer to a pull: {error}") from error
    answer.code = command.code
    answer.remark = command.remark
    answer.body = command.body
    return answer
