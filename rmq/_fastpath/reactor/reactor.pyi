from collections.abc import Iterable
from typing import NamedTuple, Self, final

from rmq._fastpath.reactor.connections import Connections, WireProtocol
from rmq._fastpath.reactor.held_replies import HeldReplies
from rmq._fastpath.reactor.native_table import NativeTable
from rmq._fastpath.reactor.rpc_times import RpcTimes

STEP_BOUNDS_S: tuple[float, ...]

class ReactorStatistics(NamedTuple):
    connections: int
    held: int
    frames: int
    bytes_in: int
    bytes_out: int
    polls: int
    spins: int
    declined: int
    buffer_bytes: int
    tls_connections: int
    tls_refused: int

@final
class Reactor:
    epfd: int
    wake_fd: int
    connections: Connections
    held: HeldReplies
    natives: NativeTable
    rpc_times: RpcTimes
    has_slaves: bool
    replication_interval_ns: int
    def __new__(
        cls,
        *,
        max_frame_size: int = 16_777_216,
        max_buffer_bytes: int = ...,
        busy_poll_us: int = 0,
    ) -> Self: ...
    def poll(self, now_ms: int) -> bool: ...
    def wake(self) -> None: ...
    def skip_wait(self) -> None: ...
    def serve_http2(self, protocol: WireProtocol, listeners: Iterable[int]) -> None: ...
    has_events: bool
    def take_events(self) -> list[tuple[int, int, bytes | None]]: ...
    def send(
        self,
        token: int,
        data: bytes,
        code: int = -1,
        response: int = 0,
        begun_ns: int = 0,
    ) -> bool: ...
    def flush(self) -> bool: ...
    def hold_reply(
        self,
        token: int,
        data: bytes,
        watermark: int,
        deadline_ms: int,
        timeout_data: bytes,
        code: int = -1,
        begun_ns: int = 0,
    ) -> bool: ...
    def expire_held(self, now_ms: int) -> list[tuple[int, bytes, int]]: ...
    def step_times(self) -> tuple[list[int], float]: ...
    def statistics(self) -> ReactorStatistics: ...
