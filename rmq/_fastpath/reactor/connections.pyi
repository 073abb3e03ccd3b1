from enum import IntEnum
from typing import Self, final

class EventKind(IntEnum):
    """Kind of an event in `Reactor.take_events`."""

    FRAME = 0
    PEER_CLOSED = 1
    CONNECTION_BROKEN = 2
    FRAME_TOO_LARGE = 3
    FRAME_TOO_SMALL = 4
    HEADER_TOO_LARGE = 5
    READER_TOO_SLOW = 6
    OUT_OF_MEMORY = 7
    NOT_STORED = 8

@final
class Connections:
    """All plain connections of the process, by token."""

    waiting_count: int
    begun_ns: int
    def __new__(cls, epfd: int, max_buffer_bytes: int) -> Self: ...
    def __len__(self) -> int: ...
    def add(
        self, fd: int, listener: int = 0, peer: bytes = b"", now_ms: int = 0
    ) -> int:
        """Add a connected, non-blocking descriptor and own it; return its token.

        `peer` is the remote address as a record stores it, for compiled handlers.
        `now_ms` is on the clock of the polls, whose last one may be long ago.
        """

    def close(self, token: int) -> bool:
        """Close a connection: send what the socket takes at once, free all memory."""

    def is_open(self, token: int) -> bool:
        """True until the connection is closed."""

    def has_sent_frame(self, token: int) -> bool:
        """True after the first whole frame."""

    def descriptor_of(self, token: int) -> int:
        """Return the file descriptor, or -1 if the connection is closed."""

    def pending_size(self, token: int) -> int:
        """Return the number of bytes that wait in the outbox."""

    def idle_since(self, before_ms: int, listener: int) -> list[int]:
        """Return tokens of a listener's connections without traffic since `before_ms`.

        It includes those whose current frame began before then and is not whole yet.
        """
