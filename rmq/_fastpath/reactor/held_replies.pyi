from typing import Self, final

from rmq._fastpath.log.watermark import Watermark
from rmq._fastpath.reactor.connections import Connections
from rmq._fastpath.reactor.rpc_times import RpcTimes

@final
class HeldReplies:
    """Replies that wait for the disk, sorted by watermark."""

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
        """Release replies when this watermark reaches theirs.

        Replies of compiled handlers time out after `timeout_ms`. `replicated` is the
        part of the watermark that slaves advance, if there is one.
        """

    def detach(self) -> None:
        """Detach the watermark; held replies stay until their deadline."""
