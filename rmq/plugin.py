"""Everything that a plugin may use of rmq, on one page.

A plugin may also use `rmq.protocol` (codes, headers and bodies), `rmq.core.errors`,
`rmq.native` (compiled handlers) and `rmq.access` (users, signatures and policies).  The
plugins that come with rmq import nothing else from it; `lint-imports` checks that.
docs/develop/plugins.md shows how to write a plugin.
"""

from rmq.broker.arrivals import ArrivalListener, QueueKey
from rmq.broker.clients import ConsumerGroup, Member
from rmq.broker.config import BrokerConfig
from rmq.broker.context import BrokerContext
from rmq.broker.put import PutInterceptor
from rmq.broker.register import Around, Facts, PluginInfo, Register, Service
from rmq.broker.rights import RequestRights
from rmq.broker.tables.filters import FilterTable
from rmq.config.changes import apply_changes, as_properties
from rmq.config.json_table import JsonTable
from rmq.config.option import Configuration, option, parse_properties
from rmq.core.clock import Clock
from rmq.core.errors import ConfigError, PluginError, RequestRejected
from rmq.core.logs import Foreign, SparseLog, caused_by
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.filters.sql import Predicate, SelectorError, compile_selector
from rmq.filters.tags import is_tag_type, tag_codes
from rmq.hookspecs import hookimpl
from rmq.observe.monitor import MAX_FOLLOWERS
from rmq.observe.statistics import (
    COMMIT_NUMS,
    GROUP_GET_NUMS,
    ROLLBACK_NUMS,
    SNDBCK2DLQ_TIMES,
    TOPIC_PUT_NUMS,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PERM_READ, PERM_WRITE
from rmq.protocol.message import Message
from rmq.protocol.records import StoredMessage
from rmq.remoting.alarm import Alarm
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import Guard, Handler, Held, Later, Result
from rmq.store.cold import NotInMemory
from rmq.store.queues.consume_queue import ConsumeQueue
from rmq.store.results import (
    BatchPutResult,
    Boundary,
    GetResult,
    GetStatus,
    PutResult,
    PutStatus,
)

__all__ = [
    "COMMIT_NUMS",
    "GROUP_GET_NUMS",
    "MAX_FOLLOWERS",
    "PERM_READ",
    "PERM_WRITE",
    "ROLLBACK_NUMS",
    "SNDBCK2DLQ_TIMES",
    "TOPIC_PUT_NUMS",
    "Alarm",
    "Around",
    "ArrivalListener",
    "BatchPutResult",
    "Boundary",
    "BrokerConfig",
    "BrokerContext",
    "Clock",
    "Command",
    "ConfigError",
    "Configuration",
    "Connection",
    "ConsumeQueue",
    "ConsumerGroup",
    "Facts",
    "FilterTable",
    "Foreign",
    "GetResult",
    "GetStatus",
    "Guard",
    "Handler",
    "Held",
    "JsonTable",
    "Later",
    "Member",
    "Message",
    "NotInMemory",
    "PhysicalOffset",
    "PluginError",
    "PluginInfo",
    "Predicate",
    "PutInterceptor",
    "PutResult",
    "PutStatus",
    "QueueKey",
    "QueueOffset",
    "Register",
    "RequestCode",
    "RequestRejected",
    "RequestRights",
    "ResponseCode",
    "Result",
    "SelectorError",
    "Service",
    "SparseLog",
    "StoredMessage",
    "apply_changes",
    "as_properties",
    "caused_by",
    "compile_selector",
    "hookimpl",
    "is_tag_type",
    "option",
    "parse_properties",
    "tag_codes",
]
