"""BrokerContext: everything a plugin may use of the broker, as plain attributes.

Plugins import their types from here; what is not here is not theirs.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol

import trio
from msgspec import Struct, field

from rmq.access.policies import Action
from rmq.broker.arrivals import ArrivalListener, Arrivals
from rmq.broker.clients import ConsumerTable, ProducerTable
from rmq.broker.config import BrokerConfig
from rmq.broker.nameservers import NameServers
from rmq.broker.overload import OverloadGuard
from rmq.broker.put import PutInterceptor, PutPipeline
from rmq.broker.queue_locks import QueueLocks
from rmq.broker.rights import AllRights, RequestRights
from rmq.broker.statistics import BrokerStatistics
from rmq.broker.tables.filters import FilterTable
from rmq.broker.tables.groups import GroupTable
from rmq.broker.tables.offsets import OffsetTable
from rmq.broker.tables.topics import TopicTable
from rmq.clock import Clock
from rmq.json_table import JsonTable
from rmq.native import NativeHandler
from rmq.plugins import PluginSet
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import Guard, Handler, Held, Later
from rmq.remoting.server import NativeCounts
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.store.service import StoreService

__all__ = [
    "Action",
    "ArrivalListener",
    "BrokerContext",
    "Connection",
    "Guard",
    "Handler",
    "Held",
    "JsonTable",
    "Later",
    "PutInterceptor",
    "RegisterHandler",
    "RegisterNative",
    "RequestRights",
    "Service",
]

Service = Callable[..., Awaitable[Any]]
"""An async function that runs as long as the broker; may take `task_status`."""


class RegisterHandler(Protocol):
    """How a plugin claims a request code."""

    def __call__(
        self,
        code: int,
        handler: Handler,
        *,
        ports: tuple[str, ...] = ("main", "fast"),
        max_running: int = 64,
        max_waiting: int = 10_000,
        replaces: str | None = None,
    ) -> None:
        """Serve `code` on these ports; `replaces` names the plugin it is taken from."""


class RegisterNative(Protocol):
    """How a plugin offers a compiled handler."""

    def __call__(
        self, code: int, handler: NativeHandler, *, ports: tuple[str, ...] = ...
    ) -> None:
        """Offer the frames of `code` on these ports to `handler` first."""


class BrokerContext(Struct, eq=False, weakref=True, kw_only=True):
    """The parts of one broker."""

    config: BrokerConfig
    store_config: StoreConfig
    clock: Clock
    store: MessageStore
    store_service: StoreService
    put: PutPipeline
    arrivals: Arrivals
    topics: TopicTable
    offsets: OffsetTable
    groups: GroupTable
    filters: FilterTable
    producers: ProducerTable
    consumers: ConsumerTable
    queue_locks: QueueLocks
    name_servers: NameServers
    overload: OverloadGuard
    store_host: bytes
    address: str
    boot_ms: int
    statistics: BrokerStatistics
    rights: RequestRights = field(default_factory=AllRights)
    """Who may do what; ask it while serving, as a plugin may put another here."""
    native_counts: Callable[[], NativeCounts] = dict
    """What compiled handlers served and declined, by port and request code."""
    next_turn: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    """What a task with much to do awaits now and then, so that all have their turns."""
    plugin_configs: dict[str, Any] = field(default_factory=dict)
    on_close: list[Callable[[Connection], None]] = field(default_factory=list)
    on_stop: list[Callable[[], object]] = field(default_factory=list)
    on_config: list[Callable[[Collection[str]], None]] = field(default_factory=list)
    """Told the keys that have new values while the broker runs."""
    plugins: PluginSet = field(default_factory=PluginSet)
    """What is loaded; known once every plugin has registered its handlers."""
    tables: list[JsonTable] = field(default_factory=list)
    """Tables of plugins; the broker saves them when it stops."""

    def config_changed(self, keys: Collection[str]) -> None:
        """Tell everybody who goes by these keys; call from the trio thread."""
        for listener in self.on_config:
            listener(keys)
