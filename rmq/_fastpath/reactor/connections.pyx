"""Connections of the reactor: slots, tokens and generations; inboxes and outboxes.

Tokens are `generation << 32 | slot`: no look-up finds the token of a closed connection,
even after its slot or descriptor was used again. Events carry tokens, so an event of a
closed connection never reaches its successor.
Limits: at OUTBOX_PAUSE the intake stops reading a connection; at OUTBOX_LIMIT the
connection ends. All buffers together have max_buffer_bytes. Above this limit stalled
connections end, then the connection with the largest buffers, and only small buffers
may grow. A frame's buffer grows as its bytes come, whatever size it announces. An idle
connection holds no buffer.
A connection with TLS has a `TlsLayer`. Its outbox is plain. The outbox is encrypted in
portions when the socket takes them; `sealed` keeps the bytes that the socket did not
take. Belongs to the reactor, which decides when to receive, decode and send.
"""

# tidy: long — one table: open connections, their buffers and their epoll events

import os

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_DECREF, Py_INCREF
from posix.unistd cimport close

from rmq._fastpath.bytes.syscalls cimport (
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLIN,
    EPOLLOUT, EPOLLRDHUP,
    MSG_DONTWAIT, MSG_NOSIGNAL, c_send, epoll_set,
)
from rmq._fastpath.reactor.buffers cimport (
    Buffer, MemoryBudget, compact_buffer, pending_size, release_buffer,
    resize_buffer,
)
from rmq._fastpath.reactor.template cimport free_templates
from rmq._fastpath.reactor.tls_layer cimport (
    SEAL_BYTES, TLS_BROKEN, TLS_CLOSED, TLS_OPEN, RECORDS_BYTES, TlsLayer,
    TlsState,
)

cdef enum:
    OUTBOX_LIMIT = 160 * 1024 * 1024    # the largest pull answer and some more
    FIRST_SLOTS = 64
    SMALL_INBOX = 2 * 1024              # first room for some requests
    STALLED_MS = 1_000
    STALLED_BYTES_PER_S = 64 * 1024     # a frame that comes more slowly is stalled


cdef class WireProtocol:
    """Base of the protocols that connections speak instead of frames.

    `cut_frames` serves the inbox of a connection as `SocketFrameDecoder.cut_frames`
    does. It sets `Slot.wire` to its state of the connection, which `free_state` frees.
    The budget of all buffers counts this state.
    """

    cdef void cut_frames(self, uint32_t index) noexcept nogil:
        """Serve the complete units in an inbox."""

    cdef void free_state(self, Slot *slot, MemoryBudget *budget) noexcept nogil:
        """Free the state of a connection that ends."""

    cdef int64_t memory_size(self, const Slot *slot) noexcept nogil:
        """Return the memory of a connection's state."""
        return 0

    cdef void send_held(
        self, uint64_t token, uint32_t stream, const uint8_t *data, int64_t size,
        int32_t code,
    ) noexcept nogil:
        """Send an answer that waited; a code other than 0 is why it waited in vain.
        """


@cython.final
@cython.no_gc_clear       # `other` frees its states at the end, and refers to this
cdef class Connections:
    """All connections of the process, by token."""

    def __cinit__(self, int epfd, int64_t max_buffer_bytes):
        self.epfd = epfd
        self.budget.limit = max_buffer_bytes
        self.free_slots = []

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.slot_count):
            if self.slots[i].fd >= 0:
                close(self.slots[i].fd)
            free(self.slots[i].inbox.data)
            free(self.slots[i].outbox.data)
            self.release_tls(self.slots[i])
            free_templates(&self.slots[i].learned)
            if self.slots[i].wire != NULL:
                self.other.free_state(self.slots[i], &self.budget)
            free(self.slots[i])
        free(self.slots)
        free(self.records)
        free(self.dirty)
        free(self.uncut)
        free(self.uncut_before)
        free(self.events)

    def __len__(self):
        return self.count

    # -- slots

    def add(
        self,
        int fd,
        int listener=0,
        bytes peer=b"",
        int64_t now_ms=0,
        TlsLayer tls=None,
    ):
        """Add a connected, non-blocking descriptor and own it; return its token.

        `peer` is the remote address as a record stores it, for compiled handlers.
        `now_ms` is on the clock of the polls, whose last one may be long ago. With
        `tls` the caller wakes the reactor: bytes may have come with the handshake.
        """
        cdef uint32_t index
        cdef Slot *slot
        if not 0 <= listener < LISTENER_LIMIT:
            raise ValueError(f"listener {listener}, at most {LISTENER_LIMIT - 1}")
        if tls is not None and self.records == NULL:
            self.records = <uint8_t *>malloc(RECORDS_BYTES)
            if self.records == NULL:
                raise MemoryError
        if not self.free_slots:
            self.grow()
        index = self.free_slots.pop()
        slot = self.slots[index]
        slot.fd = fd
        slot.listener = listener
        slot.state = OPEN
        slot.is_paused = slot.is_waiting = slot.is_declined = False
        slot.has_sent_frame = False
        slot.declined_poll = -1
        slot.end_event = FRAME
        slot.peer_size = min(len(peer), <int32_t>sizeof(slot.peer))
        memcpy(slot.peer, <const char *>peer, slot.peer_size)
        slot.active_ms = slot.frame_ms = max(self.now_ms, now_ms)
        slot.armed = EPOLLIN | EPOLLRDHUP
        if epoll_set(self.epfd, EPOLL_CTL_ADD, fd, slot.armed, self.token_of(index)):
            slot.fd = -1
            self.free_slots.append(index)
            raise OSError(errno, os.strerror(errno))
        self.count += 1
        if tls is not None:
            Py_INCREF(tls)
            slot.tls = <void *>tls
            self.tls_count += 1
            rest, tls.rest = tls.rest, b""
            if not self.reserve_inbox(index, len(rest)):
                self.fail(index, OUT_OF_MEMORY)
            elif rest:
                self.decrypt_records(index, <const uint8_t *>rest, len(rest))
        return self.token_of(index)

    cdef int grow(self) except -1:
        """Add a free slot; the lists have room for every slot."""
        cdef uint32_t capacity = self.slot_capacity
        cdef Slot *slot
        if self.slot_count == capacity:
            if capacity == SLOT_LIMIT:
                raise RuntimeError(f"more than {SLOT_LIMIT} connections")
            capacity = max(<uint32_t>FIRST_SLOTS, capacity * 2)
            self.slots = <Slot **>_resize_array(self.slots, capacity * sizeof(Slot *))
            self.dirty = <uint32_t *>_resize_array(
                self.dirty, capacity * sizeof(uint32_t)
            )
            self.uncut = <uint32_t *>_resize_array(
                self.uncut, capacity * sizeof(uint32_t)
            )
            self.uncut_before = <uint32_t *>_resize_array(
                self.uncut_before, capacity * sizeof(uint32_t)
            )
            self.events = <Event *>_resize_array(
                self.events, (EVENT_LIMIT + capacity) * sizeof(Event)
            )
            self.slot_capacity = capacity
            self.event_capacity = EVENT_LIMIT + capacity
        slot = <Slot *>calloc(1, sizeof(Slot))
        if slot == NULL:
            raise MemoryError
        slot.fd = -1
        self.slots[self.slot_count] = slot
        self.free_slots.append(self.slot_count)
        self.slot_count += 1
        return 0

    cdef uint64_t token_of(self, uint32_t index) noexcept nogil:
        return (<uint64_t>self.slots[index].generation << 32) | index

    cdef Slot *find(self, uint64_t token) noexcept nogil:
        """Return the open connection of this token, or NULL."""
        cdef uint32_t index = <uint32_t>token
        if index >= self.slot_count:
            return NULL
        if self.slots[index].generation != token >> 32 or self.slots[index].fd < 0:
            return NULL
        return self.slots[index]

    def close(self, uint64_t token):
        """Close a connection: send the bytes that fit now, and free all memory."""
        cdef Slot *slot = self.find(token)
        cdef uint32_t index = <uint32_t>token
        if slot == NULL:
            return False
        if pending_size(&slot.outbox):
            self.send_pending(index, pending_size(&slot.outbox))
        if slot.tls != NULL and self.send_sealed(index):
            self.send_records(index, (<TlsLayer>slot.tls).close_notify(self.records))
        epoll_set(self.epfd, EPOLL_CTL_DEL, slot.fd, 0, 0)
        os.close(slot.fd)
        slot.fd = -1
        slot.generation += 1
        if slot.is_waiting:
            slot.is_waiting = False
            self.waiting_count -= 1
        free_templates(&slot.learned)
        if slot.wire != NULL:
            self.other.free_state(slot, &self.budget)
        release_buffer(&slot.inbox, &self.budget)
        release_buffer(&slot.outbox, &self.budget)
        release_buffer(&slot.sealed, &self.budget)
        self.release_tls(slot)
        slot.handed = 0
        slot.receive_size = 0
        self.free_slots.append(index)
        self.count -= 1
        return True

    def is_open(self, uint64_t token):
        """True until the connection is closed."""
        return self.find(token) != NULL

    def has_sent_frame(self, uint64_t token):
        """True after the first whole frame."""
        cdef Slot *slot = self.find(token)
        return slot != NULL and slot.has_sent_frame

    def descriptor_of(self, uint64_t token):
        """Return the file descriptor, or -1 if the connection is closed."""
        cdef Slot *slot = self.find(token)
        return -1 if slot == NULL else slot.fd

    def pending_size(self, uint64_t token):
        """Return the number of unsent bytes: in the outbox, and encrypted for TLS."""
        cdef Slot *slot = self.find(token)
        return 0 if slot == NULL else _unsent_size(slot)

    def received_bytes(self, uint64_t token, int64_t limit):
        """Return up to `limit` bytes of the inbox, from its first frame on."""
        cdef Slot *slot = self.find(token)
        if slot == NULL:
            return b""
        return PyBytes_FromStringAndSize(
            <char *>slot.inbox.data + slot.inbox.start,
            min(pending_size(&slot.inbox), limit),
        )

    def tls_layer_of(self, uint64_t token):
        """Return the TlsLayer; None if the connection is plain or closed."""
        cdef Slot *slot = self.find(token)
        if slot == NULL or slot.tls == NULL:
            return None
        return <TlsLayer>slot.tls

    def idle_since(self, int64_t before_ms, int listener):
        """Return tokens of a listener's connections without traffic since `before_ms`.

        It includes those whose current frame began before then and is not whole yet.
        """
        cdef uint32_t i
        cdef Slot *slot
        cdef bint is_slow
        tokens = []
        for i in range(self.slot_count):
            slot = self.slots[i]
            if slot.fd < 0 or slot.listener != listener:
                continue
            is_slow = _has_partial_frame(slot) and slot.frame_ms <= before_ms
            if slot.active_ms <= before_ms or (is_slow and not slot.is_paused):
                tokens.append(self.token_of(i))
        return tokens

    # -- events for the owner

    cdef bint has_work(self) noexcept nogil:
        """True if events or frames wait for the owner."""
        return self.event_count > 0 or self.uncut_count > 0

    cdef void add_event(
        self, EventKind kind, uint32_t index, int64_t start, int64_t size
    ) noexcept nogil:
        cdef Event *event = &self.events[self.event_count]
        event.kind = kind
        event.token = self.token_of(index)
        event.start = start
        event.size = size
        self.event_count += 1

    cdef void fail(self, uint32_t index, EventKind kind) noexcept nogil:
        """Stop reading a connection and add an event for its owner, once."""
        cdef Slot *slot = self.slots[index]
        if slot.state != OPEN or self.event_count == self.event_capacity:
            return      # no room for the event: the connection will fail again
        slot.state = ENDING
        self.arm(index)
        self.add_event(kind, index, 0, 0)

    cdef void arm(self, uint32_t index) noexcept nogil:
        """Register the connection's current interest with epoll: send or receive."""
        cdef Slot *slot = self.slots[index]
        cdef uint32_t wanted
        if slot.state != OPEN:
            wanted = 0
        elif _unsent_size(slot):
            wanted = EPOLLOUT
        elif slot.is_waiting:
            wanted = EPOLLET        # only the end of the connection, and only once
        else:
            wanted = EPOLLIN | EPOLLRDHUP
        if wanted != slot.armed:
            slot.armed = wanted
            if wanted:
                epoll_set(
                    self.epfd, EPOLL_CTL_MOD, slot.fd, wanted, self.token_of(index)
                )
            else:
                epoll_set(self.epfd, EPOLL_CTL_DEL, slot.fd, 0, 0)

    cdef void drop_replies(self) noexcept nogil:
        """End the connections that were served in this poll, and drop their replies."""
        cdef uint32_t i
        cdef Slot *slot
        for i in range(self.slot_count):
            slot = self.slots[i]
            if slot.served_poll == self.polls and slot.fd >= 0:
                slot.outbox.start = slot.outbox.end = 0
                self.fail(i, NOT_STORED)

    cdef list take_events(self):
        """Return the events as `Reactor.take_events` does, and begin a new list."""
        cdef int i
        cdef Event *event
        cdef Slot *slot
        cdef bytes frame
        cdef list taken = []
        for i in range(self.event_count):
            event = &self.events[i]
            slot = self.find(event.token)
            if slot == NULL:
                continue
            frame = None
            if event.kind == FRAME:
                try:
                    frame = PyBytes_FromStringAndSize(
                        <char *>slot.inbox.data + event.start, event.size
                    )
                except MemoryError:
                    slot.state = ENDING
                    self.arm(<uint32_t>event.token)
                    event.kind = OUT_OF_MEMORY
            taken.append((event.kind, event.token, frame))
        for i in range(self.event_count):
            slot = self.find(self.events[i].token)
            if slot != NULL:
                slot.handed = 0
                self.compact(slot)
        self.event_count = 0
        return taken

    # -- inboxes

    cdef bint may_grow(
        self, uint32_t index, const Buffer *buffer, int64_t wanted
    ) noexcept nogil:
        """True if a buffer may grow; if memory is short, other connections end.

        First stalled connections end, the largest first, then the connection with the
        largest buffers. False if this is the caller's connection.
        """
        cdef Slot *slot
        cdef Slot *largest = self.slots[index]
        cdef int64_t size
        cdef int64_t added = wanted - buffer.capacity
        cdef int64_t most = self.memory_size(largest) + added
        cdef uint32_t i
        cdef uint32_t found = index
        if wanted <= BUFFER_START or self.budget.used + added <= self.budget.limit:
            return True
        self.end_stalled(index, added)
        if self.budget.used + added <= self.budget.limit:
            return True
        for i in range(self.slot_count):
            slot = self.slots[i]
            size = self.memory_size(slot)
            if slot.fd >= 0 and slot.state == OPEN and size > most:
                most, found = size, i
        if found == index or self.event_count == self.event_capacity:
            return False
        self.end_for_memory(found)
        return True

    cdef bint is_stalled(self, const Slot *slot) noexcept nogil:
        """True if a connection holds memory while its peer sends or reads almost
        nothing.
        """
        cdef int64_t age_ms
        if slot.fd < 0 or slot.state != OPEN or slot.is_uncut or slot.handed:
            return False
        if slot.is_waiting:
            return False
        if _unsent_size(slot):
            return self.now_ms - slot.active_ms > STALLED_MS
        age_ms = self.now_ms - slot.frame_ms
        return age_ms > STALLED_MS and (
            pending_size(&slot.inbox) * 1000 < age_ms * STALLED_BYTES_PER_S
        )

    cdef void end_stalled(self, uint32_t asking, int64_t wanted) noexcept nogil:
        """End stalled connections until `wanted` bytes are free, the largest first.

        Each round ends the connections of at least half the size of the largest, so
        that the rounds are few.
        """
        cdef Slot *slot
        cdef int64_t most = 1
        cdef uint32_t i
        while most and self.budget.used + wanted > self.budget.limit:
            most = 0
            for i in range(self.slot_count):
                slot = self.slots[i]
                if i != asking and self.is_stalled(slot):
                    most = max(most, self.memory_size(slot))
            for i in range(self.slot_count if most else 0):
                slot = self.slots[i]
                if i == asking or not self.is_stalled(slot):
                    continue
                if 2 * self.memory_size(slot) < most:
                    continue
                if self.event_count == self.event_capacity:
                    return
                self.end_for_memory(i)
                if self.budget.used + wanted <= self.budget.limit:
                    return

    cdef void end_for_memory(self, uint32_t index) noexcept nogil:
        """End a connection to free its buffers, except frames that were handed over."""
        cdef Slot *slot = self.slots[index]
        self.fail(
            index,
            READER_TOO_SLOW if slot.outbox.capacity > slot.inbox.capacity
            else OUT_OF_MEMORY,
        )
        release_buffer(&slot.outbox, &self.budget)
        release_buffer(&slot.sealed, &self.budget)
        if slot.handed == 0:
            release_buffer(&slot.inbox, &self.budget)
        if slot.wire != NULL:
            self.other.free_state(slot, &self.budget)

    cdef int64_t memory_size(self, const Slot *slot) noexcept nogil:
        """Return the memory of a connection: its buffers, and its other protocol."""
        cdef int64_t size = (
            slot.inbox.capacity + slot.outbox.capacity + slot.sealed.capacity
        )
        return size if slot.wire == NULL else size + self.other.memory_size(slot)

    cdef int64_t receive_room(self, const Slot *slot) noexcept nogil:
        """Return the size of this peer's last bursts, or less if memory is short."""
        if 2 * self.budget.used > self.budget.limit:
            return BUFFER_START
        return max(slot.receive_size, <int64_t>BUFFER_START)

    cdef bint make_room(self, uint32_t index, int64_t frame_size) noexcept nogil:
        """Make room in the inbox after its end, and for a frame of `frame_size`.

        Frames that were handed over and not taken yet do not move: only `compact` moves
        bytes.
        """
        cdef Buffer *inbox = &self.slots[index].inbox
        cdef int64_t wanted = inbox.start + frame_size
        if inbox.end == inbox.capacity:
            wanted = max(wanted, inbox.end + BUFFER_START)
        if wanted <= inbox.capacity:
            return True
        if inbox.capacity:
            wanted = max(wanted, min(2 * inbox.capacity, <int64_t>(2 * RECEIVE_BYTES)))
        return self.may_grow(index, inbox, wanted) and resize_buffer(
            inbox, wanted, &self.budget
        )

    cdef void compact(self, Slot *slot) noexcept nogil:
        """Drop the frames that were taken; free the inbox if it is empty."""
        if slot.inbox.start == 0:
            return
        if pending_size(&slot.inbox):
            compact_buffer(&slot.inbox)
        else:
            release_buffer(&slot.inbox, &self.budget)

    cdef void cut_later(self, uint32_t index) noexcept nogil:
        """Cut this inbox again in the next poll, even if its socket is not ready."""
        cdef Slot *slot = self.slots[index]
        if not slot.is_uncut:
            slot.is_uncut = True
            self.uncut[self.uncut_count] = index
            self.uncut_count += 1

    cdef void suspend_reading(self, uint32_t index) noexcept nogil:
        """Do not read this connection before `resume_reading`."""
        cdef Slot *slot = self.slots[index]
        if not slot.is_waiting:
            slot.is_waiting = True
            self.waiting_count += 1
            self.arm(index)

    cdef void resume_reading(self) noexcept nogil:
        """Cut the frames that waited for a handler, and read their connections again.
        """
        cdef uint32_t i
        if self.waiting_count == 0:
            return
        for i in range(self.slot_count):
            if self.slots[i].is_waiting:
                self.slots[i].is_waiting = False
                self.cut_later(i)
                self.arm(i)
        self.waiting_count = 0

    # -- outboxes

    cdef bint push(
        self, uint32_t index, const uint8_t *data, int64_t size
    ) noexcept nogil:
        """Copy into the outbox and list the connection for the next send."""
        cdef Buffer *outbox = &self.slots[index].outbox
        if not self.reserve(index, size):
            return False
        memcpy(outbox.data + outbox.end, data, size)
        outbox.end += size
        self.mark_dirty(index)
        return True

    cdef bint reserve(self, uint32_t index, int64_t size) noexcept nogil:
        """Reserve `size` free bytes at the end of the outbox."""
        cdef Buffer *outbox = &self.slots[index].outbox
        cdef int64_t wanted
        if pending_size(outbox) + size > OUTBOX_LIMIT:
            self.fail(index, READER_TOO_SLOW)
            return False
        if outbox.end + size <= outbox.capacity:
            return True
        compact_buffer(outbox)
        if outbox.end + size > outbox.capacity:
            wanted = max(outbox.end + size, 2 * outbox.capacity)
            wanted = max(wanted, <int64_t>BUFFER_START)
            if not self.may_grow(index, outbox, wanted):
                self.fail(index, READER_TOO_SLOW)
                return False
            if not resize_buffer(outbox, wanted, &self.budget):
                self.fail(index, OUT_OF_MEMORY)
                return False
        return True

    cdef void mark_dirty(self, uint32_t index) noexcept nogil:
        """List a connection for the next send."""
        cdef Slot *slot = self.slots[index]
        if not slot.is_dirty:
            slot.is_dirty = True
            self.dirty[self.dirty_count] = index
            self.dirty_count += 1

    cdef void send_dirty(self) noexcept nogil:
        cdef int64_t i
        cdef Slot *slot
        for i in range(self.dirty_count):
            slot = self.slots[self.dirty[i]]
            slot.is_dirty = False
            if slot.fd >= 0:
                self.send_pending(self.dirty[i], SEND_BYTES)
        self.dirty_count = 0

    cdef void send_pending(self, uint32_t index, int64_t limit) noexcept nogil:
        """Send up to `limit` bytes; the remaining bytes wait for EPOLLOUT.

        A fast reader of a long reply must not delay the other connections.
        """
        cdef Slot *slot = self.slots[index]
        if slot.tls == NULL:
            self.send_plain(index, limit)
        else:
            self.send_encrypted(index, limit)
        if not pending_size(&slot.outbox):
            release_buffer(&slot.outbox, &self.budget)
            if slot.is_paused:
                slot.is_paused = False
                self.cut_later(index)
        self.arm(index)

    cdef void send_plain(self, uint32_t index, int64_t limit) noexcept nogil:
        cdef Buffer *outbox = &self.slots[index].outbox
        cdef ssize_t done
        while pending_size(outbox) and limit > 0:
            done = self.send_bytes(
                index, outbox.data + outbox.start, min(pending_size(outbox), limit)
            )
            if done == 0:
                break
            outbox.start += done
            limit -= done

    cdef void send_encrypted(self, uint32_t index, int64_t limit) noexcept nogil:
        """Encrypt and send portions of the outbox while the socket takes them."""
        cdef Slot *slot = self.slots[index]
        cdef Buffer *outbox = &slot.outbox
        cdef int64_t size, written
        if (<TlsLayer>slot.tls).has_output and not pending_size(outbox):
            if self.send_sealed(index):
                self.send_records(index, (<TlsLayer>slot.tls).take_output(self.records))
        while limit > 0 and self.send_sealed(index) and pending_size(outbox):
            size = min(min(pending_size(outbox), limit), <int64_t>SEAL_BYTES)
            written = (<TlsLayer>slot.tls).encrypt_records(
                outbox.data + outbox.start, size, self.records
            )
            if written < 0:
                outbox.start = outbox.end
                self.fail(index, TLS_FAILED)
                return
            outbox.start += size
            limit -= size
            self.send_records(index, written)

    cdef ssize_t send_bytes(
        self, uint32_t index, const uint8_t *data, int64_t size
    ) noexcept nogil:
        """Send what the socket takes at once; 0 if it takes nothing, or is broken.

        Then the outbox is empty.
        """
        cdef Slot *slot = self.slots[index]
        cdef ssize_t done
        while True:
            done = c_send(slot.fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL)
            if done >= 0:
                break
            if errno == EINTR:
                continue
            if errno != EAGAIN:
                slot.outbox.start = slot.outbox.end
                slot.sealed.start = slot.sealed.end
                self.fail(index, CONNECTION_BROKEN)
            return 0
        self.bytes_out += done
        slot.active_ms = self.now_ms
        return done

    cdef bint send_sealed(self, uint32_t index) noexcept nogil:
        """Send the encrypted bytes that wait; True if there are none any more."""
        cdef Slot *slot = self.slots[index]
        cdef Buffer *sealed = &slot.sealed
        cdef ssize_t done
        while pending_size(sealed):
            done = self.send_bytes(
                index, sealed.data + sealed.start, pending_size(sealed)
            )
            if done == 0 and pending_size(sealed):
                return False
            sealed.start += done
        release_buffer(sealed, &self.budget)
        return True

    cdef void send_records(self, uint32_t index, int64_t size) noexcept nogil:
        """Send the first `size` bytes of `records`; keep those that do not leave."""
        cdef Slot *slot = self.slots[index]
        cdef Buffer *sealed = &slot.sealed
        cdef int64_t start = 0
        cdef ssize_t done
        while start < size:
            done = self.send_bytes(index, self.records + start, size - start)
            if done == 0:
                break
            start += done
        if start == size or slot.state != OPEN:
            return
        if not self.may_grow(index, sealed, size - start):
            self.fail(index, READER_TOO_SLOW)
        elif not resize_buffer(sealed, size - start, &self.budget):
            self.fail(index, OUT_OF_MEMORY)
        else:
            memcpy(sealed.data, self.records + start, size - start)
            sealed.end = size - start

    # -- TLS

    cdef bint reserve_inbox(self, uint32_t index, int64_t size) noexcept nogil:
        """Make room in the inbox for the data of `size` more encrypted bytes.

        A new inbox for a few requests has no more. All inboxes of a poll are in use
        together, and small ones fit into the processor's cache.
        """
        cdef Slot *slot = self.slots[index]
        cdef Buffer *inbox = &slot.inbox
        size += (<TlsLayer>slot.tls).partial_size()
        if inbox.end + size <= inbox.capacity:
            return True
        if inbox.capacity == 0 and size <= SMALL_INBOX:
            return self.may_grow(index, inbox, size) and resize_buffer(
                inbox, size, &self.budget
            )
        return self.make_room(index, pending_size(inbox) + size)

    cdef bint decrypt_records(
        self, uint32_t index, const uint8_t *data, int64_t size
    ) noexcept nogil:
        """Append the data of records to the inbox, whose frames this poll will cut.

        False if nothing more can come; `end_event` has the reason.
        """
        cdef Slot *slot = self.slots[index]
        cdef TlsState state = (<TlsLayer>slot.tls).decrypt_records(
            data, size, &slot.inbox
        )
        self.cut_later(index)
        if (<TlsLayer>slot.tls).has_output:
            self.mark_dirty(index)
        if state == TLS_OPEN:
            return True
        if state == TLS_CLOSED:
            slot.end_event = PEER_CLOSED
        else:
            self.tls_refused += 1
            slot.end_event = TLS_FAILED if state == TLS_BROKEN else TLS_WITHOUT_DATA
        return False

    cdef void release_tls(self, Slot *slot):
        cdef TlsLayer tls
        if slot.tls != NULL:
            tls = <TlsLayer>slot.tls
            slot.tls = NULL
            self.tls_count -= 1
            Py_DECREF(tls)


cdef inline int64_t _unsent_size(const Slot *slot) noexcept nogil:
    return pending_size(&slot.outbox) + pending_size(&slot.sealed)


cdef inline bint _has_partial_frame(const Slot *slot) noexcept nogil:
    """True if a part of a frame has come, or of a record."""
    return pending_size(&slot.inbox) > 0 or (
        slot.tls != NULL and (<TlsLayer>slot.tls).partial_size() > 0
    )


cdef void *_resize_array(void *old, size_t size) except NULL:
    cdef void *grown = realloc(old, size)
    if grown == NULL:
        raise MemoryError
    return grown
