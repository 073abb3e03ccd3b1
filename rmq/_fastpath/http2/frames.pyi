from typing import Self

from rmq._fastpath.reactor.connections import Connections, WireProtocol

__pyx_capi__: dict[str, object]

class Http2(WireProtocol):
    peers: int
    frames: int
    requests: int
    resets: int
    refused: int
    failures: int
    floods: int
    def __new__(cls, connections: Connections) -> Self: ...
