"""For tests: of rmq itself, of programs that use it, and of plugins."""

from rmq.testing.broker import running_name_server, running_node
from rmq.testing.peer import ManualClock, PeerPair, RawClient

__all__ = [
    "ManualClock",
    "PeerPair",
    "RawClient",
    "running_name_server",
    "running_node",
]
