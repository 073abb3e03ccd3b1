"""Everything that a plugin may use of rmq, on one page.

A plugin may also use `rmq.protocol` (codes, headers and bodies), `rmq.access` (users,
signatures and policies) and `rmq.plugin.native` (compiled handlers). The plugins that
come with rmq import no other module of rmq; `lint-imports` checks that.
docs/develop/plugins.md shows how to write a plugin.

`BrokerContext` and its parts are Protocols: for annotations and type checkers.
"""

import importlib
from typing import TYPE_CHECKING

from rmq.config.broker import BrokerConfig
from rmq.config.changes import apply_changes, as_properties
from rmq.config.json_table import JsonTable
from rmq.config.option import Configuration, option, parse_properties
from rmq.core.clock import Clock
from rmq.core.errors import (
    BadValue,
    ConfigError,
    InvokeTimeout,
    LogFailed,
    PeerClosed,
    PeerError,
    PluginError,
    RecordDamaged,
    RemoteProtocolError,
    RequestRejected,
    RmqError,
    StoreError,
)
from rmq.core.logs import Foreign, SparseLog, caused_by
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.core.threads import join_text
from rmq.filters.sql import SelectorError, compile_selector
from rmq.filters.tags import is_tag_type, tag_codes
from rmq.plugin.broker import (
    Arrivals,
    BrokerContext,
    Directory,
    Facts,
    NameServers,
    PluginInfo,
    Publisher,
)
from rmq.plugin.hookspecs import hookimpl
from rmq.plugin.register import Register
from rmq.plugin.registrations import (
    Around,
    ArrivalListener,
    PopProgress,
    PutInterceptor,
    SendFields,
    Service,
)
from rmq.plugin.rights import RequestRights
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PERM_READ, PERM_WRITE
from rmq.protocol.message import Message
from rmq.protocol.records import StoredMessage
from rmq.remoting.alarm import Alarm
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import Guard, Handler, Held, Later, Result
from rmq.remoting.imports import import_later
from rmq.remoting.inner_caller import InnerCaller
from rmq.remoting.turns import TurnTaker
from rmq.store.config import StoreConfig
from rmq.store.not_in_memory import NotInMemory
from rmq.store.queues.consume_queue import ConsumeQueue
from rmq.store.queues.consume_queues import QueueKey
from rmq.store.results import (
    BatchPutResult,
    Boundary,
    GetResult,
    GetStatus,
    PutResult,
    PutStatus,
)

if TYPE_CHECKING:
    from rmq.plugin.clients import (
        ConsumerGroup,
        Consumers,
        Member,
        Producers,
        QueueLocks,
    )
    from rmq.plugin.observe import Monitor, Statistics, Timings
    from rmq.plugin.replicas import Escape, MasterLink, Replicas, Role
    from rmq.plugin.store import (
        Cleaner,
        Copies,
        Disk,
        Durability,
        Log,
        MessageIndex,
        Messages,
        Positions,
        Queues,
        Store,
        Timer,
        TimerWheel,
    )
    from rmq.plugin.tables import Audit, Filters, Groups, Offsets, QueueMappings, Topics
    from rmq.remoting.grpc_server import GrpcCall
    from rmq.store.timer.log import TimerUnit

_PARTS = {
    "clients": "ConsumerGroup Consumers Member Producers QueueLocks",
    "observe": "Monitor Statistics Timings",
    "replicas": "Escape MasterLink Replicas Role",
    "store": "Cleaner Copies Disk Durability Log MessageIndex Messages Positions "
    "Queues Store Timer TimerUnit TimerWheel",
    "tables": "Audit Filters Groups Offsets QueueMappings Topics",
}
_HOMES = {
    name: f"rmq.plugin.{home}"
    for home, names in _PARTS.items()
    for name in names.split()
} | {"GrpcCall": "rmq.remoting.grpc_server"}
"""Modules of names that a start does not need: their classes take 10 ms to create."""

__all__ = [
    "PERM_READ",
    "PERM_WRITE",
    "Alarm",
    "Around",
    "ArrivalListener",
    "Arrivals",
    "Audit",
    "BadValue",
    "BatchPutResult",
    "Boundary",
    "BrokerConfig",
    "BrokerContext",
    "Cleaner",
    "Clock",
    "Command",
    "ConfigError",
    "Configuration",
    "Connection",
    "ConsumeQueue",
    "ConsumerGroup",
    "Consumers",
    "Copies",
    "Directory",
    "Disk",
    "Durability",
    "Escape",
    "Facts",
    "Filters",
    "Foreign",
    "GetResult",
    "GetStatus",
    "Groups",
    "GrpcCall",
    "Guard",
    "Handler",
    "Held",
    "InnerCaller",
    "InvokeTimeout",
    "JsonTable",
    "Later",
    "Log",
    "LogFailed",
    "MasterLink",
    "Member",
    "Message",
    "MessageIndex",
    "Messages",
    "Monitor",
    "NameServers",
    "NotInMemory",
    "Offsets",
    "PeerClosed",
    "PeerError",
    "PhysicalOffset",
    "PluginError",
    "PluginInfo",
    "PopProgress",
    "Positions",
    "Producers",
    "Publisher",
    "PutInterceptor",
    "PutResult",
    "PutStatus",
    "QueueKey",
    "QueueLocks",
    "QueueMappings",
    "QueueOffset",
    "Queues",
    "RecordDamaged",
    "Register",
    "RemoteProtocolError",
    "Replicas",
    "RequestCode",
    "RequestRejected",
    "RequestRights",
    "ResponseCode",
    "Result",
    "RmqError",
    "Role",
    "SelectorError",
    "SendFields",
    "Service",
    "SparseLog",
    "Statistics",
    "Store",
    "StoreConfig",
    "StoreError",
    "StoredMessage",
    "Timer",
    "TimerUnit",
    "TimerWheel",
    "Timings",
    "Topics",
    "TurnTaker",
    "apply_changes",
    "as_properties",
    "caused_by",
    "compile_selector",
    "hookimpl",
    "import_later",
    "is_tag_type",
    "join_text",
    "option",
    "parse_properties",
    "tag_codes",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_HOMES[name])
    value: object = getattr(module, name)
    globals()[name] = value
    return value
