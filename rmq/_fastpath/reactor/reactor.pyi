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
    """Slaves get the records of a poll before the next wait."""

    replication_interval_ns: int
    """So long compiled code goes on before they get it; 0: not at all."""

    def __new__(
        cls,
        *,
        max_frame_size: int = 16_777_216,
        max_buffer_bytes: int = ...,
        busy_poll_us: int = 0,
    ) -> Self:
        """`busy_poll_us` is how long a poll waits busily after work."""

    def poll(self, now_ms: int) -> bool:
        """Serve the ready connections; True if there was work.

        Waits for peers or the disk a millisecond at most.

        `now_ms` is any clock that grows; deadlines and idle times are measured by it.
        """

    def wake(self) -> None:
        """Wake the owner for a poll: Python has work for a compiled handler.

        The poll offers waiting frames to their handlers again.
        """

    def skip_wait(self) -> None:
        """Let the next poll return without a wait, because other tasks have work."""

    @property
    def has_events(self) -> bool:
        """True if there are events for `take_events`."""

    def take_events(self) -> list[tuple[int, int, bytes | None]]:
        """Return [(kind, token, frame or None)] of the last poll, with copies of
        frames.

        Until `flush`, replies collect, so that each connection gets one send.
        """

    def send(
        self,
        token: int,
        data: bytes,
        code: int = -1,
        response: int = 0,
        begun_ns: int = 0,
    ) -> bool:
        """Append `data` to the outbox; False if the connection is closed.

        `code` and `response` are for the histogram of durations; a code of -1 counts
        nothing. The duration is since `begun_ns`, or since the start of this poll.
        """

    def flush(self) -> bool:
        """Send the replies since `take_events`; True if frames wait to be cut."""

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

        False if the connection is closed or the held replies have too many bytes.
        """

    def expire_held(self, now_ms: int) -> list[tuple[int, bytes, int]]:
        """Send time-out replies; to be called while replies are held.

        Returns [(token, reply, code)] of those without one: the caller makes it from
        the normal reply, with this code.
        """

    def statistics(self) -> ReactorStatistics:
        """Return the counters."""
