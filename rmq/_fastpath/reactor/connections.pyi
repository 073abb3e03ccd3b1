from enum import IntEnum
from typing import Self, final

class EventKind(IntEnum):
    """What `Reactor.take_events` tells of a connection."""

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
    """Every plain connection of the process, by token."""

    waiting_count: int
    begun_ns: int
    def __new__(cls, epfd: int, max_buffer_bytes: int) -> Self: ...
    def __len__(self) -> int: ...
    def add(
        self, fd: int, listener: int = 0, peer: bytes = b"", now_ms: int = 0
    ) -> int:
        """Own a connected, non-blocking descriptor; the token of its connection.

        `peer` is the other end as a record stores it, for compiled handlers.  `now_ms`
        is the time of polls, whose last one may be long ago.
        """

    def close(self, token: int) -> bool:
        """End a connection: send what can be sent at once, free all it holds."""

    def is_open(self, token: int) -> bool:
        """True until the connection is closed."""

    def has_sent_frame(self, token: int) -> bool:
        """True once one whole frame came."""

    def descriptor_of(self, token: int) -> int:
        """The file descriptor, or -1 if the connection is gone."""

    def pending_size(self, token: int) -> int:
        """Bytes that wait in the outbox."""

    def idle_since(self, before_ms: int, listener: int) -> list[int]:
        """Tokens of a listener's connections without traffic since `before_ms`.

        So is one whose frame began to arrive by then and is not whole yet.
        """
