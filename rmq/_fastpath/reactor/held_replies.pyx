"""HeldReplies: replies that wait until their message is durable, by watermark.

Each has a time-out reply that is sent if it waits too long. All together have at most
HELD_LIMIT bytes, plus one reply of a compiled handler. Watermarks mostly come in order:
the search for a new reply's position starts at the end.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from rmq._fastpath.bytes.syscalls cimport (
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, epoll_set, monotonic_ns,
)
from rmq._fastpath.log.claim cimport Claim
from rmq._fastpath.log.watermark cimport Watermark
from rmq._fastpath.reactor.connections cimport WATERMARK_ID, Connections
from rmq._fastpath.reactor.rpc_times cimport RpcTimes

cdef enum:
    HELD_LIMIT = 256 * 1024 * 1024      # bytes
    TIMEOUT_MS = 5_000                  # default of syncFlushTimeout
    FLUSH_DISK_TIMEOUT = 10             # code of a reply that timed out
    FLUSH_SLAVE_TIMEOUT = 12            # and whose message slaves do not have
    SUCCESS = 0                         # code of all replies of compiled handlers


@cython.final
cdef class HeldReplies:
    """Replies that wait for the disk, sorted by watermark."""

    def __cinit__(self, Connections connections not None, RpcTimes rpc_times not None):
        self.connections = connections
        self.rpc_times = rpc_times
        self.watermark_fd = -1
        self.timeout_ms = TIMEOUT_MS
        self.earliest_ms = INT64_MAX

    def __dealloc__(self):
        while self.head != NULL:
            self.remove_reply(self.head)

    def attach(
        self,
        Watermark watermark not None,
        int64_t timeout_ms=TIMEOUT_MS,
        Watermark replicated=None,
        Claim claim=None,
    ):
        """Release each reply when this watermark reaches the reply's watermark.

        Replies of compiled handlers time out after `timeout_ms`. `replicated` is the
        part of the watermark that slaves advance, if there is one. The `claim` of the
        log has the confirmed offset before the replies leave.
        """
        self.detach()
        self.replicated = replicated
        self.claim = claim
        self.timeout_ms = timeout_ms
        self.watermark = watermark
        self.watermark_fd = watermark.subscribe()
        epoll_set(
            self.connections.epfd, EPOLL_CTL_ADD, self.watermark_fd, EPOLLIN,
            WATERMARK_ID,
        )

    def detach(self):
        """Detach the watermark; held replies stay until their deadline."""
        if self.watermark is not None:
            epoll_set(
                self.connections.epfd, EPOLL_CTL_DEL, self.watermark_fd, 0, 0
            )
            self.watermark.unsubscribe(self.watermark_fd)
            self.watermark_fd = -1
            self.watermark = self.replicated = None
            self.claim = None

    cdef int32_t timeout_code(self, int64_t watermark) noexcept nogil:
        """Return the code of a time-out reply: for a slow disk or for slow slaves."""
        if self.replicated is not None and self.replicated.load() < watermark:
            return FLUSH_SLAVE_TIMEOUT
        return FLUSH_DISK_TIMEOUT

    cdef bint has_room(self, int64_t size) noexcept nogil:
        return self.size + size <= HELD_LIMIT

    cdef bint hold_reply(
        self,
        uint64_t token,
        const uint8_t *data,
        int64_t size,
        const uint8_t *timeout_data,
        int64_t timeout_size,
        int64_t watermark,
        int64_t deadline_ms,
        int32_t code,
        int64_t begun_ns,
        uint32_t stream,
    ) noexcept nogil:
        """Hold copies of both replies; the caller has checked the room. False without
        memory.
        """
        cdef Held *held = <Held *>malloc(sizeof(Held))
        if held == NULL:
            return False
        held.data = <uint8_t *>malloc(size + timeout_size + 1)
        if held.data == NULL:
            free(held)
            return False
        memcpy(held.data, data, size)
        if timeout_size:
            memcpy(held.data + size, timeout_data, timeout_size)
        held.token = token
        held.stream = stream
        held.watermark = watermark
        held.deadline_ms = deadline_ms
        held.size = size
        held.timeout_size = timeout_size
        held.code = code
        held.begun_ns = begun_ns
        self.insert_reply(held)
        return True

    cdef void hold_compiled(
        self,
        uint64_t token,
        const uint8_t *data,
        int64_t size,
        int64_t watermark,
        int32_t code,
        uint32_t stream,
    ) noexcept nogil:
        """Hold a compiled handler's reply; Python makes its time-out reply if needed.

        With a `stream` it is a message of another protocol, which `send_held` sends.
        """
        self.hold_reply(
            token, data, size, NULL, 0, watermark,
            self.connections.now_ms + self.timeout_ms, code, self.connections.begun_ns,
            stream,
        )
        self.is_flush_needed = True

    cdef void demand_flush(self) noexcept nogil:
        """Request a flush if replies began to wait in this poll."""
        if self.is_flush_needed and self.watermark_fd >= 0:
            self.watermark.request_advance()
        self.is_flush_needed = False

    cdef void release_reached(self) noexcept nogil:
        """Send every reply that the watermark has reached."""
        cdef int64_t reached
        if self.head == NULL or self.watermark_fd < 0:
            return
        reached = self.watermark.load()
        if self.claim is not None and self.head.watermark <= reached:
            self.claim.confirm()
        while self.head != NULL and self.head.watermark <= reached:
            self.release_reply(self.head, False)

    cdef list expire(self, int64_t now_ms):
        """Send time-out replies, see `Reactor.expire_held`."""
        cdef Held *held
        cdef Held *following
        cdef list late = []
        self.release_reached()          # a durable reply is not late
        held = self.head
        self.earliest_ms = INT64_MAX
        while held != NULL:
            following = held.next
            if held.deadline_ms <= now_ms:
                if held.timeout_size == 0 and held.stream == 0:
                    late.append(
                        (
                            held.token,
                            held.data[:held.size],
                            self.timeout_code(held.watermark),
                        )
                    )
                self.release_reply(held, True)
            else:
                self.earliest_ms = min(self.earliest_ms, held.deadline_ms)
            held = following
        return late

    cdef void release_reply(self, Held *held, bint timed_out) noexcept nogil:
        """Move one reply to its outbox and remove it."""
        cdef const uint8_t *data = held.data + held.size if timed_out else held.data
        cdef int64_t size = held.timeout_size if timed_out else held.size
        cdef int32_t response = SUCCESS
        if timed_out:
            response = self.timeout_code(held.watermark)
        if held.stream:
            self.connections.other.send_held(
                held.token, held.stream, held.data, held.size, response
            )
        elif self.connections.find(held.token) != NULL:
            self.connections.push(<uint32_t>held.token, data, size)
        if held.code >= 0:
            self.rpc_times.add(
                held.code, response, monotonic_ns() - held.begun_ns, 1
            )
        self.remove_reply(held)

    cdef void insert_reply(self, Held *held) noexcept nogil:
        """Insert a reply after the last reply with the same or a smaller watermark."""
        cdef Held *before = self.tail
        while before != NULL and before.watermark > held.watermark:
            before = before.previous
        held.previous = before
        held.next = self.head if before == NULL else before.next
        if held.next != NULL:
            held.next.previous = held
        else:
            self.tail = held
        if before != NULL:
            before.next = held
        else:
            self.head = held
        self.count += 1
        self.size += held.size + held.timeout_size
        self.earliest_ms = min(self.earliest_ms, held.deadline_ms)

    cdef void remove_reply(self, Held *held) noexcept nogil:
        """Unlink a reply and free it."""
        if held.previous != NULL:
            held.previous.next = held.next
        else:
            self.head = held.next
        if held.next != NULL:
            held.next.previous = held.previous
        else:
            self.tail = held.previous
        self.count -= 1
        self.size -= held.size + held.timeout_size
        free(held.data)
        free(held)
