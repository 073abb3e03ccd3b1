from typing import NamedTuple, Self, final

from rmq._fastpath.reactor.connections import Connections
from rmq._fastpath.reactor.held_replies import HeldReplies
from rmq._fastpath.reactor.native_table import NativeTable
from rmq._fastpath.reactor.rpc_times import RpcTimes

class ReactorStatistics(NamedTuple):
    """Sums since the start, and what is open now."""

    connections: int
    held: int
    frames: int
    bytes_in: int
    bytes_out: int
    polls: int
    spins: int
    declined: int
    buffer_bytes: int

@final
class Reactor:
    """The epoll set with its connections; `epfd` is what the owner waits for."""

    epfd: int
    wake_fd: int
    connections: Connections
    held: HeldReplies
    natives: NativeTable
    rpc_times: RpcTimes
    has_slaves: bool
    """What a poll stored must leave for replicas before the next wait."""

    replication_interval_ns: int
    """So long compiled code goes on before they get it; 0: not at all."""

    def __new__(
        cls,
        *,
        max_frame_size: int = 16_777_216,
        max_buffer_bytes: int = ...,
        busy_poll_us: int = 0,
    ) -> Self:
        """`busy_poll_us`: for how long a poll waits busily after it had work."""

    def poll(self, now_ms: int) -> bool:
        """Serve what is ready; True if anything was.

        Waits for peers or the disk a millisecond at most.

        `now_ms` is any clock that grows; deadlines and idle times are measured by it.
        """

    def wake(self) -> None:
        """Have the owner poll soon: a compiled handler has work that Python made.

        Frames that wait are offered to their handlers again.
        """

    def skip_wait(self) -> None:
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

    def hold_reply(
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

    def expire_held(self, now_ms: int) -> list[tuple[int, bytes, int]]:
        """Answer those whose deadline is over; to be called while replies are held.

        Returns [(token, reply, code)] of those without a time-out reply: it is made
        from the reply that would have been sent, with this code.
        """

    def statistics(self) -> ReactorStatistics:
        """A picture of the counters."""
