"""PullPath: requests 11 and 361 that find messages, without Python objects.

It serves what it can prove plain and declines the rest: a view that the Python handler
has not shown it, anything but whole decimal numbers, a subscription newer than the
known one, an offset outside its queue, nothing that matches, records or entries that
are not in memory.  What it answers is what the Python handler would, byte for byte,
with one freedom: messages of the same poll that are not yet written are not there yet.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    int32_t,
    int64_t,
    uint8_t,
    uint32_t,
)
from libc.string cimport memcpy

from rmq._fastpath.endian cimport get32, get64, put16, put32
from rmq._fastpath.header_text cimport (
    end_value,
    is_text,
    put_integer,
    put_name,
    put_signed,
    put_text,
    read_integer,
)
from rmq._fastpath.layout cimport QueueEntryLayout
from rmq._fastpath.mapped_file cimport MappedFile
from rmq._fastpath.native cimport (
    CONTRACT_VERSION,
    DECLINED,
    REPLY_ROOM,
    SERVED,
    Conn,
    Frame,
    NativeHandler,
    Text,
    Verdict,
)
from rmq._fastpath.pull_table cimport (
    COMMIT_LIMIT,
    Commit,
    PullTable,
    PullView,
    Served,
)
from rmq._fastpath.scan cimport Found, Wanted, scan_entries
from rmq._fastpath.tail cimport QueueTail

cdef enum:
    GROUP = 0
    TOPIC = 1
    QUEUE_ID = 2
    OFFSET = 3
    MAX_MESSAGES = 4
    SYS_FLAG = 5
    COMMIT_OFFSET = 6
    SUSPEND_MS = 7
    SUBSCRIPTION = 8
    SUB_VERSION = 9
    EXPRESSION_TYPE = 10
    MAX_BYTES = 11
    SOURCE = 12
    LITE_TOPIC = 13

cdef enum:
    ONEWAY_FLAG = 2
    COMMIT_FLAG = 1
    SUBSCRIPTION_FLAG = 4
    PLAIN_FLAGS = 0x17          # commit, suspend, subscription, lite
    JSON_TYPE = 0
    LANGUAGE_PYTHON = 3
    BODY_LIMIT = (16 << 20) - REPLY_ROOM    # of a frame
    ENTRY_SIZE = QueueEntryLayout.ENTRY_SIZE

NAMES = (
    "consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag",
    "commitOffset", "suspendTimeoutMillis", "subscription", "subVersion",
    "expressionType", "maxMsgBytes", "requestSource", "liteTopic",
)
VARYING = (
    "topic", "queueId", "queueOffset", "sysFlag", "commitOffset", "subVersion",
)
REASONS = (
    "header", "group or topic", "subscription not latest", "queue file",
    "offset outside", "nothing matches", "not in memory", "too much",
)


cdef int64_t _entry_end(const uint8_t *entry) noexcept nogil:
    """The end of the record that a queue entry means."""
    return (
        <int64_t>get64(entry + QueueEntryLayout.ENTRY_OFFSET_AT)
        + <int32_t>get32(entry + QueueEntryLayout.ENTRY_SIZE_AT)
    )


cdef bint _holds(void *file, int64_t byte) noexcept nogil:
    """True if this open file has the byte at an offset of its queue or log."""
    return (
        file != NULL
        and (<MappedFile>file).address != NULL
        and 0 <= byte - (<MappedFile>file).base_offset < (<MappedFile>file).size
    )


cdef int64_t _visible(void *queue, int64_t confirm_offset) noexcept nogil:
    """Offset after the last entry whose record ends before `confirm_offset`.

    -1 if that is not in the file that is being written.
    """
    cdef void *file
    cdef int64_t low, high, middle, first
    if (<QueueTail>queue).end_physical <= confirm_offset:
        return (<QueueTail>queue).next_offset
    file = <void *>(<QueueTail>queue).file
    high = (<QueueTail>queue).next_offset
    if not _holds(file, (high - 1) * ENTRY_SIZE):
        return -1
    first = (<MappedFile>file).base_offset // ENTRY_SIZE
    low = max(first, (<QueueTail>queue).min_offset)
    while low < high:
        middle = (low + high) // 2
        if _entry_end(
            (<MappedFile>file).address + (middle - first) * ENTRY_SIZE
        ) <= confirm_offset:
            low = middle + 1
        else:
            high = middle
    if low == first and first > (<QueueTail>queue).min_offset:
        return -1
    return low


@cython.final
cdef class PullPath(NativeHandler):
    """Serves one of the pull codes."""

    def __init__(self, PullTable table not None):
        NativeHandler.__init__(self, NAMES, VARYING, CONTRACT_VERSION, REASONS)
        self.table = table

    cdef bint read_numbers(self, const Frame *frame, Pull *pull) noexcept nogil:
        """Read every number that the header must have, and refuse what is unusual."""
        cdef const Text *texts = frame.fields
        cdef int64_t value
        if not read_integer(&texts[QUEUE_ID], 0, INT32_MAX, &pull.queue_id):
            return False
        if not read_integer(&texts[OFFSET], 0, INT64_MAX, &pull.offset):
            return False
        if not read_integer(
            &texts[MAX_MESSAGES], INT32_MIN, INT32_MAX, &pull.max_messages
        ):
            return False
        if not read_integer(&texts[SYS_FLAG], 0, PLAIN_FLAGS, &pull.sys_flag):
            return False
        if pull.sys_flag & ~<int64_t>PLAIN_FLAGS:
            return False
        if not read_integer(
            &texts[COMMIT_OFFSET], INT64_MIN, INT64_MAX, &pull.commit_offset
        ):
            return False
        if not read_integer(&texts[SUSPEND_MS], INT64_MIN, INT64_MAX, &value):
            return False
        if not read_integer(
            &texts[SUB_VERSION], INT64_MIN, INT64_MAX, &pull.sub_version
        ):
            return False
        pull.now_ms = frame.now_ms
        pull.max_bytes = 0
        if texts[MAX_BYTES].data != NULL and not read_integer(
            &texts[MAX_BYTES], INT32_MIN, INT32_MAX, &pull.max_bytes
        ):
            return False
        if texts[SOURCE].data != NULL and not read_integer(
            &texts[SOURCE], INT32_MIN, INT32_MAX, &value
        ):
            return False
        return texts[LITE_TOPIC].data == NULL or texts[LITE_TOPIC].size == 0

    cdef void *view_of(
        self, const Frame *frame, const Pull *pull, Conn *conn
    ) noexcept nogil:
        """The view that the request names, or NULL."""
        cdef const Text *texts = frame.fields
        cdef const uint8_t *expression = NULL
        cdef int64_t expression_size = 0
        cdef void *view
        if texts[GROUP].data == NULL or texts[GROUP].escaped:
            return NULL
        if texts[TOPIC].data == NULL or texts[TOPIC].escaped:
            return NULL
        if pull.sys_flag & SUBSCRIPTION_FLAG:
            if texts[SUBSCRIPTION].escaped:
                return NULL
            if texts[EXPRESSION_TYPE].size and not is_text(
                &texts[EXPRESSION_TYPE], b"TAG", 3
            ):
                return NULL
            expression = texts[SUBSCRIPTION].data
            expression_size = texts[SUBSCRIPTION].size
            if expression == NULL:
                expression = b""
        conn.reason = VIEW_UNKNOWN
        view = self.table.find_view(
            texts[GROUP].data, texts[GROUP].size,
            texts[TOPIC].data, texts[TOPIC].size,
            expression, expression_size,
        )
        if view == NULL or pull.queue_id >= (<PullView>view).queue_count:
            return NULL
        if expression == NULL and pull.sub_version > (<PullView>view).sub_version:
            conn.reason = NOT_LATEST
            return NULL
        return view

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Copy the records that a pull finds behind their header."""
        cdef Pull pull
        cdef Pulled pulled
        cdef Found found
        cdef Commit *commit
        cdef Served *served
        cdef void *view
        cdef uint8_t *start
        cdef uint8_t *end
        conn.reason = HEADER
        if frame.flag & ONEWAY_FLAG or not self.read_numbers(frame, &pull):
            return DECLINED
        view = self.view_of(frame, &pull, conn)
        if view == NULL:
            return DECLINED
        if not self.read(view, &pull, &pulled, &found, conn):
            return DECLINED
        conn.reason = TOO_MUCH
        if found.bytes > BODY_LIMIT or self.table.commit_count == COMMIT_LIMIT:
            return DECLINED
        if not conn.grow(conn, REPLY_ROOM + found.bytes):
            return DECLINED
        start = conn.ready.end
        end = self.put_header(start + 8, frame, &pulled)
        put32(
            start + 4,
            <uint32_t>(end - start - 8) | (frame.serialize_type != JSON_TYPE) << 24,
        )
        end = self.put_records(end, &found)
        put32(start, <uint32_t>(end - start - 4))
        conn.ready.end = end
        self.table.found += 1
        self.table.messages += found.messages
        served = &(<PullView>view).served[pull.queue_id]
        served.pulls += 1
        served.messages += found.messages
        served.size += found.bytes
        served.next_offset = pulled.next_offset
        (<PullView>view).has_served = True
        if pull.sys_flag & COMMIT_FLAG and pull.commit_offset >= 0:
            commit = &self.table.commits[self.table.commit_count]
            commit.view = view
            commit.queue_id = <int32_t>pull.queue_id
            commit.offset = pull.commit_offset
            self.table.commit_count += 1
        return SERVED

    cdef bint end_of_drain(self) noexcept nogil:
        """Tell what was served in this poll."""
        self.table.tell()
        return True

    cdef bint read(
        self, void *view, const Pull *pull, Pulled *pulled, Found *found, Conn *conn
    ) noexcept nogil:
        """Find what a pull may have; False leaves it to the Python handler."""
        cdef Wanted wanted
        cdef void *queue = (<PullView>view).tails[pull.queue_id]
        cdef void *file
        cdef int64_t position, size, log_end = self.table.end_offset()
        cdef const uint8_t *entry
        conn.reason = VIEW_UNKNOWN
        if queue == NULL or (<QueueTail>queue).is_deleted or log_end < 0:
            return False
        wanted.confirm_offset = log_end
        if self.table.durable is not None:
            wanted.confirm_offset = self.table.durable.load()
        pulled.low = (<QueueTail>queue).min_offset
        pulled.high = _visible(queue, wanted.confirm_offset)
        conn.reason = OUTSIDE
        if not pulled.low <= pull.offset < pulled.high:
            return False
        conn.reason = FILE_UNKNOWN
        file = <void *>(<QueueTail>queue).file
        if (<QueueTail>queue).file is None or not _holds(
            file, pull.offset * ENTRY_SIZE
        ):
            file = (<PullView>view).maps[pull.queue_id]
            if not _holds(file, pull.offset * ENTRY_SIZE):
                return False
        position = pull.offset * ENTRY_SIZE - (<MappedFile>file).base_offset
        size = min(
            (<MappedFile>file).size - position,
            (pulled.high - pull.offset) * ENTRY_SIZE,
        )
        wanted.max_messages = max(<int64_t>1, pull.max_messages)
        wanted.max_examined = max(
            self.table.scan_bytes, wanted.max_messages * ENTRY_SIZE
        ) // ENTRY_SIZE
        conn.reason = NOT_RESIDENT
        if not self.table.is_in_memory(
            file, position, min(size, wanted.max_examined * ENTRY_SIZE), pull.now_ms
        ):
            return False
        entry = (<MappedFile>file).address + position
        if log_end - <int64_t>get64(entry) <= self.table.hot_window:
            wanted.max_messages = min(wanted.max_messages, self.table.hot_messages)
            wanted.max_bytes = self.table.hot_bytes
        else:
            wanted.max_messages = min(wanted.max_messages, self.table.cold_messages)
            wanted.max_bytes = self.table.cold_bytes
        wanted.max_messages = max(<int64_t>1, wanted.max_messages)
        if pull.max_bytes > 0:
            wanted.max_bytes = min(wanted.max_bytes, pull.max_bytes)
        wanted.codes = (<PullView>view).codes
        wanted.code_count = (<PullView>view).code_count
        wanted.min_physical_offset = self.table.min_offset()
        scan_entries(entry, entry + size, &wanted, found)
        conn.reason = NOTHING_MATCHES
        if not found.messages:
            return False
        conn.reason = NOT_RESIDENT
        if not self.is_at_hand(found, pull.now_ms):
            return False
        pulled.next_offset = pull.offset + found.examined
        pulled.view = view
        return True

    cdef bint is_at_hand(self, const Found *found, int64_t now_ms) noexcept nogil:
        """True if all records are in memory, so that copying them waits for nothing."""
        cdef void *file = NULL
        cdef int64_t position
        cdef int i
        for i in range(found.run_count):
            if not _holds(file, found.starts[i]):
                file = self.table.log_file(found.starts[i])
                if file == NULL:
                    return False
            position = found.starts[i] - (<MappedFile>file).base_offset
            if position + found.sizes[i] > (<MappedFile>file)._write_position:
                return False
            if not self.table.is_in_memory(file, position, found.sizes[i], now_ms):
                return False
        return True

    cdef uint8_t *put_records(self, uint8_t *out, const Found *found) noexcept nogil:
        cdef void *file = NULL
        cdef int i
        for i in range(found.run_count):
            if not _holds(file, found.starts[i]):
                file = self.table.log_file(found.starts[i])
            memcpy(
                out,
                (<MappedFile>file).address
                + (found.starts[i] - (<MappedFile>file).base_offset),
                found.sizes[i],
            )
            out += found.sizes[i]
        return out

    cdef uint8_t *put_header(
        self, uint8_t *out, const Frame *frame, const Pulled *pulled
    ) noexcept nogil:
        """Write the header in the form of its request; the end of it."""
        if frame.serialize_type == JSON_TYPE:
            return self.put_json(out, frame, pulled)
        return self.put_binary(out, frame, pulled)

    cdef uint8_t *put_json(
        self, uint8_t *out, const Frame *frame, const Pulled *pulled
    ) noexcept nogil:
        out = put_text(
            out,
            b'{"code":0,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"',
            69,
        )
        out = put_integer(out, pulled.next_offset)
        out = put_text(out, b'","minOffset":"', 15)
        out = put_integer(out, pulled.low)
        out = put_text(out, b'","maxOffset":"', 15)
        out = put_integer(out, pulled.high)
        out = put_text(out, b'"', 1)
        out = put_text(
            out,
            (<PullView>pulled.view).json_text,
            (<PullView>pulled.view).json_size,
        )
        out = put_text(out, b'},"flag":1,"language":"PYTHON","opaque":', 40)
        out = put_signed(out, frame.opaque)
        out = put_text(
            out,
            b',"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":',
            61,
        )
        out = put_integer(out, self.table.version)
        return put_text(out, b"}", 1)

    cdef uint8_t *put_binary(
        self, uint8_t *out, const Frame *frame, const Pulled *pulled
    ) noexcept nogil:
        cdef uint8_t *fields = out + 26
        cdef uint8_t *end
        cdef uint8_t *start
        put16(out, 0)
        out[2] = LANGUAGE_PYTHON
        put16(out + 3, self.table.version)
        put32(out + 5, <uint32_t>frame.opaque)
        put32(out + 9, 1)
        put32(out + 13, 5)
        put_text(out + 17, b"FOUND", 5)
        start = put_name(fields, b"suggestWhichBrokerId", 20)
        end = end_value(start, put_text(start, b"0", 1))
        start = put_name(end, b"nextBeginOffset", 15)
        end = end_value(start, put_integer(start, pulled.next_offset))
        start = put_name(end, b"minOffset", 9)
        end = end_value(start, put_integer(start, pulled.low))
        start = put_name(end, b"maxOffset", 9)
        end = end_value(start, put_integer(start, pulled.high))
        end = put_text(
            end,
            (<PullView>pulled.view).binary_text,
            (<PullView>pulled.view).binary_size,
        )
        put32(out + 22, <uint32_t>(end - fields))
        return end
