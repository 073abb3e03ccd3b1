from enum import IntEnum
from typing import Self, final

from typing_extensions import disjoint_base

from rmq._fastpath.reactor.tls_layer import TlsLayer

class EventKind(IntEnum):
    FRAME = 0
    PEER_CLOSED = 1
    CONNECTION_BROKEN = 2
    FRAME_TOO_LARGE = 3
    FRAME_TOO_SMALL = 4
    HEADER_TOO_LARGE = 5
    READER_TOO_SLOW = 6
    OUT_OF_MEMORY = 7
    NOT_STORED = 8
    RULE_BROKEN = 9
    PEER_FLOODS = 10
    CONNECTION_CUT = 11
    TLS_FAILED = 12
    TLS_WITHOUT_DATA = 13

@disjoint_base
class WireProtocol: ...

@final
class Connections:
    waiting_count: int
    begun_ns: int
    def __new__(cls, epfd: int, max_buffer_bytes: int) -> Self: ...
    def __len__(self) -> int: ...
    def add(
        self,
        fd: int,
        listener: int = 0,
        peer: bytes = b"",
        now_ms: int = 0,
        tls: TlsLayer | None = None,
    ) -> int: ...
    def close(self, token: int) -> bool: ...
    def is_open(self, token: int) -> bool: ...
    def has_sent_frame(self, token: int) -> bool: ...
    def descriptor_of(self, token: int) -> int: ...
    def pending_size(self, token: int) -> int: ...
    def received_bytes(self, token: int, limit: int) -> bytes: ...
    def tls_layer_of(self, token: int) -> TlsLayer | None: ...
    def idle_since(self, before_ms: int, listener: int) -> list[int]: ...
