from typing import Self, final

from rmq._fastpath.log.watermark import Watermark
from rmq._fastpath.reactor.connections import Connections
from rmq._fastpath.reactor.rpc_times import RpcTimes

@final
class HeldReplies:
    """Replies that wait for the disk, in the order of what they wait for."""

    count: int
    size: int
    earliest_ms: int
    """No deadline is before it; exact after `Reactor.expire_held`."""

    timeout_ms: int
    def __new__(cls, connections: Connections, rpc_times: RpcTimes) -> Self: ...
    def attach(
        self,
        watermark: Watermark,
        timeout_ms: int = 5_000,
        replicated: Watermark | None = None,
    ) -> None:
        """Release replies by this watermark from now on.

        Those of compiled handlers are given up after `timeout_ms`.  `replicated` is the
        part of it that replicas move, if they do.
        """

    def detach(self) -> None:
        """Forget the watermark; what is held stays until its deadline."""
