from typing import Self

from typing_extensions import disjoint_base

from rmq._fastpath.reactor.connections import Connections, WireProtocol

@disjoint_base
class Http2(WireProtocol):
    peers: int
    frames: int
    requests: int
    resets: int
    refused: int
    failures: int
    floods: int
    def __new__(cls, connections: Connections) -> Self: ...
