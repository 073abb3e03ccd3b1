from enum import IntEnum
from typing import NamedTuple, Self, final

from rmq._fastpath.held_replies import HeldReplies
from rmq._fastpath.native_table import NativeTable
from rmq._fastpath.rpc_times import RpcTimes
from rmq._fastpath.watermark import Watermark

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
    NOT_KEPT = 8

class ReactorStatistics(NamedTuple):
    """Sums since the start, and what is open now."""

    connections: int
    held: int
    frames: int
    bytes_in: int
    bytes_out: int
    polls: int
    declined: int
    buffer_bytes: int

@final
class Reactor:
    """The epoll set with its connections; `epfd` is what the owner waits for."""

    epfd: int
    connections: int
    frames: int
    bytes_in: int
    bytes_out: int
    polls: int
    spins: int
    declined: int
    held: HeldReplies
    held_timeout_ms: int
    natives: NativeTable
    buffer_bytes: int
    rpc_times: RpcTimes
    begun_ns: int
    def __new__(
        cls,
        *,
        max_frame_size: int = 16_777_216,
        max_buffer_bytes: int = ...,
        busy_poll_us: int = 0,
    ) -> Self:
        """`busy_poll_us`: for how long a poll waits busily after it had work."""

    def add(self, fd: int, listener: int = 0, peer: bytes = b"") -> int:
        """Own a connected, non-blocking descriptor; the token of its connection.

        `peer` is the other end as a record stores it, for compiled handlers.
        """

    def close(self, token: int) -> bool:
        """End a connection: send what can be sent at once, free all it holds."""

    def is_open(self, token: int) -> bool:
        """True until the connection is closed."""

    def descriptor(self, token: int) -> int:
        """The file descriptor, or -1 if the connection is gone."""

    def pending_size(self, token: int) -> int:
        """Bytes that wait in the outbox."""

    def idle_since(self, before_ms: int, listener: int) -> list[int]:
        """Tokens of a listener's connections without traffic since `before_ms`.

        So is one whose frame began to arrive by then and is not whole yet.
        """

    def poll(self, now_ms: int) -> bool:
        """Serve what is ready; True if anything was.

        Waits for peers or the disk a millisecond at most.

        `now_ms` is any clock that grows; deadlines and idle times are measured by it.
        """

    def hurry(self) -> None:
        """Let the next poll wait for nothing: other tasks have work to go on with."""

    @property
    def has_events(self) -> bool:
        """True if `take_events` has something."""

    def take_events(self) -> list[tuple[int, int, bytes | None]]:
        """[(kind, token, frame or None)] of the last poll; frames are copied out.

        Until `flush`, replies only collect, so that each connection gets one send.
        """

    def send(
        self,
        token: int,
        data: bytes,
        code: int = -1,
        response: int = 0,
        begun_ns: int = 0,
    ) -> bool:
        """Put `data` into the outbox; False if the connection is gone.

        It answers `code` with `response`: how long that took is counted, since
        `begun_ns`, or since what is served now was found ready.  -1 counts nothing.
        """

    def flush(self) -> bool:
        """Send what collected since `take_events`; True if frames wait to be cut."""

    def attach_watermark(self, watermark: Watermark, timeout_ms: int = 5_000) -> None:
        """Release held replies by this watermark from now on.

        Those of compiled handlers are given up after `timeout_ms`.
        """

    def detach_watermark(self) -> None:
        """Forget the watermark; what is held stays until its deadline."""

    def hold(
        self,
        token: int,
        data: bytes,
        watermark: int,
        deadline_ms: int,
        timeout_data: bytes,
        code: int = -1,
        begun_ns: int = 0,
    ) -> bool:
        """Send `data` once the watermark is reached, `timeout_data` if that is too
        late.

        False if the connection is gone or too much is held already.
        """

    def expire_held(self, now_ms: int) -> list[tuple[int, bytes]]:
        """Answer those whose deadline is over; to be called now and then.

        Returns [(token, reply)] of compiled handlers: their time-out reply is made from
        the reply that would have been sent.  Also tells the time to a reactor that is
        not polled because nothing happens.
        """

    def statistics(self) -> ReactorStatistics:
        """A picture of the counters; looks at every connection."""
