from typing import Self, final

from rmq._fastpath.log.claim import Claim
from rmq._fastpath.log.watermark import Watermark
from rmq._fastpath.reactor.connections import Connections
from rmq._fastpath.reactor.rpc_times import RpcTimes

@final
class HeldReplies:
    count: int
    size: int
    earliest_ms: int
    timeout_ms: int
    def __new__(cls, connections: Connections, rpc_times: RpcTimes) -> Self: ...
    def attach(
        self,
        watermark: Watermark,
        timeout_ms: int = 5_000,
        replicated: Watermark | None = None,
        claim: Claim | None = None,
    ) -> None: ...
    def detach(self) -> None: ...
