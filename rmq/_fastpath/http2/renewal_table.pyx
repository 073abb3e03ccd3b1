"""RenewalTable: messages that push consumers process, by the handles they have.

Compiled receives with `auto_renew` add messages, and compiled acks remove messages that
were not renewed yet. Python renews them, and removes all others.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport int64_t

RENEWED_INVISIBLE_MS = RENEWED_MS


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Renewal:
    """One message; it compares by identity."""


@cython.final
cdef class RenewalTable:
    """At most `limit` messages, and `client_limit` of one client."""

    def __init__(self, steady_ms not None, *, int64_t limit, int64_t client_limit):
        self.entries, self.by_client = {}, {}
        self.steady_ms = steady_ms
        self.limit, self.client_limit = limit, client_limit

    def __len__(self):
        return len(self.entries)

    cpdef int add(self, str client_id, object owner, list handles) except -1:
        """Add new messages of a client, as far as there is room."""
        cdef int64_t now_ms = self.steady_ms()
        cdef set own = self.by_client.get(client_id)
        cdef Renewal entry
        cdef str handle
        for handle in handles:
            if len(self.entries) >= self.limit or handle in self.entries:
                continue
            if own is None:
                own = self.by_client[client_id] = set()
            elif len(own) >= self.client_limit:
                break
            entry = Renewal.__new__(Renewal)
            entry.client_id, entry.owner = client_id, owner
            entry.began_ms = entry.renewed_ms = now_ms
            self.entries[handle] = entry
            own.add(handle)
        return 0

    cpdef Renewal remove(self, str handle):
        """Remove and return a message."""
        cdef Renewal entry = self.entries.pop(handle)
        cdef set own = self.by_client[entry.client_id]
        own.remove(handle)
        if not own:
            del self.by_client[entry.client_id]
        return entry

    cdef bint is_changed(self, str handle) except -1:
        """True if a message has another handle now, or gets one."""
        cdef Renewal entry = self.entries.get(handle)
        return entry is not None and (
            entry.receipt is not None or entry.waiting is not None
        )

    def handles_of(self, str client_id not None):
        """Return the handles of the messages of a client."""
        return list(self.by_client.get(client_id, ()))

    def move_to_end(self, str handle not None):
        """Let a message be the last one to renew."""
        self.entries[handle] = self.entries.pop(handle)
