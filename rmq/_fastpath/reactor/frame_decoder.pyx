"""SocketFrameDecoder: receives bytes from the sockets and cuts them into frames.

A frame is 4 bytes length, big-endian, then this number of bytes. Their first byte is
the kind of header, the next three are its size. A compiled handler serves the frame in
the inbox, or it becomes an event for Python. The frames of a connection are served in
the order of their arrival, by compiled handlers and by Python.

Limits: a connection has RECEIVE_BYTES and FRAMES_PER_CONNECTION per poll; `pacing.pxd`
limits frames for Python. A frame has at most `max_frame_size`, its header HEADER_LIMIT.
A connection is not read while its frames wait for Python, for a handler or for room in
its outbox.
A connection with TLS is decrypted first, and its frames are cut with the inboxes that
the last poll left. A portion of small records is small: each record has a price.
Only the reactor calls this; nothing here touches a Python object.
Known in Java as `NettyDecoder`.
"""

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t

from rmq._fastpath.bytes.endian cimport get32
from rmq._fastpath.bytes.syscalls cimport MSG_DONTWAIT, monotonic_ns, recv
from rmq._fastpath.reactor.buffers cimport Buffer, pending_size
from rmq._fastpath.reactor.connections cimport (
    CONNECTION_BROKEN, CONNECTION_CUT, EVENT_LIMIT, FRAME,
    FRAME_TOO_LARGE, FRAME_TOO_SMALL, HEADER_TOO_LARGE, OPEN, OUTBOX_PAUSE,
    OUT_OF_MEMORY, PEER_CLOSED, RECEIVE_BYTES, Connections, Slot,
)
from rmq._fastpath.reactor.native cimport DECLINED, WAITS, Verdict
from rmq._fastpath.reactor.native_table cimport NativeTable
from rmq._fastpath.reactor.pacing cimport HANDED_BYTES, HANDED_PER_CONNECTION
from rmq._fastpath.reactor.tls_layer cimport SEAL_BYTES, TlsLayer

cdef enum:
    FRAMES_PER_CONNECTION = 512
    HEADER_LIMIT = 1 << 20              # 5 ms at worst; properties have 32 KiB
    HTTP2_START = 0x50524920            # "PRI ", no possible length of a frame
    SMALL_RECEIVE = 4 * 1024            # bytes; 0.2 ms for small records


@cython.final
cdef class SocketFrameDecoder:
    """Passes frames from the sockets of `connections` to the handlers of `natives`, or
    to events.
    """

    def __cinit__(
        self, Connections connections, NativeTable natives, int64_t max_frame_size
    ):
        self.connections = connections
        self.natives = natives
        self.max_frame_size = max_frame_size

    cdef void receive(self, uint32_t index) noexcept nogil:
        """Receive from the socket up to the limits; split the bytes into frames."""
        cdef Slot *slot = self.connections.slots[index]
        cdef Buffer *inbox = &slot.inbox
        cdef int64_t total = 0, room
        cdef ssize_t got
        if slot.handed == 0:
            self.connections.compact(slot)
        if not pending_size(inbox):
            slot.frame_ms = self.connections.now_ms
        while total < RECEIVE_BYTES:
            if inbox.end == inbox.capacity and not self.connections.make_room(
                index, self.connections.receive_room(slot)
            ):
                if inbox.start == 0:
                    self.connections.fail(index, OUT_OF_MEMORY)
                return
            room = min(inbox.capacity - inbox.end, <int64_t>RECEIVE_BYTES)
            got = recv(slot.fd, inbox.data + inbox.end, room, MSG_DONTWAIT)
            if got < 0 and errno == EINTR:
                continue
            if got <= 0:
                if got < 0 and errno == EAGAIN:
                    break
                self.cut_frames(index)
                self.connections.fail(
                    index, PEER_CLOSED if got == 0 else CONNECTION_BROKEN
                )
                return
            inbox.end += got
            total += got
            self.bytes_in += got
            slot.active_ms = self.connections.now_ms
            self.cut_frames(index)
            if got < room or slot.state != OPEN:
                break
            if slot.is_uncut or slot.is_paused or slot.is_waiting:
                break
        self.adapt_receive_size(slot, total)
        if slot.handed == 0:
            self.connections.compact(slot)

    cdef void adapt_receive_size(self, Slot *slot, int64_t total) noexcept nogil:
        """Adapt the room for the next receive to the size of this one."""
        if total >= slot.receive_size:
            slot.receive_size = min(2 * total, <int64_t>RECEIVE_BYTES)
        elif total < slot.receive_size // 4:
            slot.receive_size //= 2

    cdef void receive_encrypted(self, uint32_t index, int64_t until_ns) noexcept nogil:
        """Receive up to the limits, or until `until_ns`, and decrypt into the inbox.

        `cut_deferred` splits the bytes into frames.
        """
        cdef Slot *slot = self.connections.slots[index]
        cdef int64_t total = 0
        if slot.handed == 0:
            self.connections.compact(slot)
        if not pending_size(&slot.inbox) and not (<TlsLayer>slot.tls).partial_size():
            slot.frame_ms = self.connections.now_ms
        while self.receive_records(index, &total):
            if total >= RECEIVE_BYTES or monotonic_ns() >= until_ns:
                break
        self.adapt_receive_size(slot, total)

    cdef bint receive_records(self, uint32_t index, int64_t *total) noexcept nogil:
        """Receive once and decrypt; True if more bytes may wait in the socket."""
        cdef Slot *slot = self.connections.slots[index]
        cdef int64_t room = min(
            self.connections.receive_room(slot), <int64_t>SEAL_BYTES
        )
        cdef ssize_t got
        cdef bint is_open
        if (<TlsLayer>slot.tls).has_small_records:
            room = SMALL_RECEIVE
        if slot.inbox.capacity and not self.reserve(index, room):
            return False        # the bytes stay in the socket
        got = recv(slot.fd, self.connections.records, room, MSG_DONTWAIT)
        while got < 0 and errno == EINTR:
            got = recv(slot.fd, self.connections.records, room, MSG_DONTWAIT)
        if got <= 0:
            if got == 0 or errno != EAGAIN:
                slot.end_event = CONNECTION_CUT if got == 0 else CONNECTION_BROKEN
                self.connections.cut_later(index)
            return False
        total[0] += got
        self.bytes_in += got
        slot.active_ms = self.connections.now_ms
        if not self.reserve(index, got):
            return False
        is_open = self.connections.decrypt_records(
            index, self.connections.records, got
        )
        return is_open and got == room

    cdef bint reserve(self, uint32_t index, int64_t size) noexcept nogil:
        """Make room for `size` encrypted bytes; False without memory.

        Then the connection ends, unless Python will soon free a part of its inbox.
        """
        if self.connections.reserve_inbox(index, size):
            return True
        if self.connections.slots[index].inbox.start == 0:
            self.connections.fail(index, OUT_OF_MEMORY)
        return False

    cdef void cut_deferred(self, int64_t until_ns) noexcept nogil:
        """Cut the inboxes that the last poll left uncut; epoll does not report them.

        They are in rotation: connections whose frames Python got in the last poll come
        last. The next poll begins with those that are left at `until_ns`.
        """
        cdef int64_t i, count = self.connections.uncut_count
        cdef bint is_over = False
        cdef int64_t first = self.connections.uncut_served
        cdef uint32_t index
        cdef uint32_t *before = self.connections.uncut
        cdef Slot *slot
        self.connections.uncut = self.connections.uncut_before
        self.connections.uncut_before = before
        self.connections.uncut_count = self.connections.uncut_served = 0
        for i in range(count):
            self.connections.slots[before[i]].is_uncut = False
        for i in range(count):
            index = before[(first + i) % count]
            slot = self.connections.slots[index]
            if i and not is_over and monotonic_ns() >= until_ns:
                is_over = True
                self.connections.uncut_served = self.connections.uncut_count
            if slot.fd >= 0 and is_over:
                self.connections.cut_later(index)
            elif slot.fd >= 0:
                self.cut_frames(index)
                if slot.end_event != FRAME:
                    self.connections.fail(index, slot.end_event)
                if slot.handed == 0:
                    self.connections.compact(slot)
                elif slot.is_uncut:
                    self.connections.uncut_served += 1

    cdef void cut_frames(self, uint32_t index) noexcept nogil:
        """Serve or hand over the whole frames of the inbox."""
        cdef Slot *slot = self.connections.slots[index]
        cdef Buffer *inbox = &slot.inbox
        cdef int64_t size
        cdef int handed = 0
        cdef bint is_after
        cdef Verdict verdict
        if not slot.has_sent_frame and self.begins_http2(slot) or slot.wire != NULL:
            self.connections.other.cut_frames(index)
            return
        while slot.state == OPEN:
            size = self.frame_size(index)
            if size == 0:
                return
            if pending_size(&slot.outbox) > OUTBOX_PAUSE:
                slot.is_paused = True
                return
            if (
                self.connections.event_count >= EVENT_LIMIT
                or handed >= FRAMES_PER_CONNECTION
                or slot.handed >= HANDED_PER_CONNECTION
            ):
                self.connections.cut_later(index)
                return
            verdict = DECLINED
            is_after = slot.declined_poll == self.connections.polls
            if slot.is_declined:    # in the poll before; later frames keep their order
                slot.declined_poll = self.connections.polls
            else:
                verdict = self.natives.serve(index, inbox.data + inbox.start, size)
            if verdict == WAITS:
                self.connections.suspend_reading(index)
                self.is_urgent = True
                return
            slot.is_declined = False
            if verdict == DECLINED and (
                self.connections.event_count >= self.handed_limit
                or self.handed_bytes >= HANDED_BYTES
            ):
                slot.is_declined = not is_after     # by the handler, not for the order
                self.connections.cut_later(index)
                return
            if verdict == DECLINED:
                self.connections.add_event(FRAME, index, inbox.start, size)
                slot.handed += 1
                self.handed_bytes += size
                self.declined += 1
            inbox.start += size
            slot.frame_ms = self.connections.now_ms
            slot.has_sent_frame = True
            self.frames += 1
            handed += 1

    cdef bint begins_http2(self, const Slot *slot) noexcept nogil:
        """True if a connection begins with HTTP/2, and this listener serves HTTP/2."""
        if self.connections.other is None or pending_size(&slot.inbox) < 4:
            return False
        if not self.connections.other_listeners >> slot.listener & 1:
            return False
        return get32(slot.inbox.data + slot.inbox.start) == HTTP2_START

    cdef int64_t frame_size(self, uint32_t index) noexcept nogil:
        """Return the size of the first frame of the inbox, 0 if it is not whole.

        The inbox grows for a larger frame; an invalid size ends the connection.
        """
        cdef Buffer *inbox = &self.connections.slots[index].inbox
        cdef int64_t have = pending_size(inbox)
        cdef int64_t size
        cdef const uint8_t *p = inbox.data + inbox.start
        if have < 4:
            return 0
        size = <int64_t>get32(p) + 4
        if size - 4 > self.max_frame_size:
            self.connections.fail(index, FRAME_TOO_LARGE)
            return 0
        if size < 8:
            self.connections.fail(index, FRAME_TOO_SMALL)
            return 0
        if have >= 8 and <int64_t>(get32(p + 4) & 0xFFFFFF) > min(
            size - 8, <int64_t>HEADER_LIMIT
        ):
            self.connections.fail(index, HEADER_TOO_LARGE)
            return 0
        if have >= size:
            return size
        if size > inbox.capacity - inbox.start:
            self.connections.make_room(index, min(size, 4 * have))
        return 0
