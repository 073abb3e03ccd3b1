"""Helpers for tests of rmq itself, of programs that use it, and of plugins.

Names are imported on first use: pytest imports this package in every project that has
rmq installed, also if no test needs a broker.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmq.testing.broker import running_controller, running_name_server, running_node
    from rmq.testing.client import TestClient
    from rmq.testing.clocks import ManualClock, TrioClock
    from rmq.testing.cluster import ClusterThreads
    from rmq.testing.conformance import check_plugin
    from rmq.testing.network import MemoryNetwork
    from rmq.testing.peer import PeerPair, RawClient
    from rmq.testing.threads import BrokerThread, NameServerThread

_HOMES = {
    "BrokerThread": "threads",
    "ClusterThreads": "cluster",
    "ManualClock": "clocks",
    "MemoryNetwork": "network",
    "NameServerThread": "threads",
    "PeerPair": "peer",
    "RawClient": "peer",
    "TestClient": "client",
    "TrioClock": "clocks",
    "check_plugin": "conformance",
    "running_controller": "broker",
    "running_name_server": "broker",
    "running_node": "broker",
}

__all__ = [
    "BrokerThread",
    "ClusterThreads",
    "ManualClock",
    "MemoryNetwork",
    "NameServerThread",
    "PeerPair",
    "RawClient",
    "TestClient",
    "TrioClock",
    "check_plugin",
    "running_controller",
    "running_name_server",
    "running_node",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    value: object = getattr(module, name)
    globals()[name] = value
    return value
