"""The part of `_fastpath` that plugins may use.

A compiled handler of a plugin cimports `rmq/_fastpath/reactor/native.pxd`, which holds
the contract, and subclasses `NativeHandler`.  `SendPath` handles the send codes and
`PullPath` the pull codes.  `CommitPath` handles request 15, `HeartbeatPath` 34,
`SendBackPath` 36, `EndPath` 37, `PopPath` 200050, `AckPath` 200051,
`InvisibleTimePath` 200053 and `NotificationPath` 200054. `Grants` are the requests that
a guard has allowed, and that compiled handlers may serve again.
`LookupPath` handles a request that one function answers with a number or a body.
`OnceTable` has the keys of stored messages. `Selector` is a compiled SQL92 expression.
`DelayedSends`, `HalfSends` and `TimedSends` are compiled forms of interceptors, which
their interceptors register.
"""

from rmq._fastpath.bytes.hashing import java_hash, tags_code
from rmq._fastpath.bytes.selector import Selector
from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.handlers.ack_path import AckPath
from rmq._fastpath.handlers.checkpoint import Checkpoint, PopQueue
from rmq._fastpath.handlers.checkpoint_table import CheckpointTable
from rmq._fastpath.handlers.commit_path import CommitPath
from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.handlers.diversion import DelayedSends, HalfSends
from rmq._fastpath.handlers.end_path import EndPath
from rmq._fastpath.handlers.heartbeat_path import HeartbeatPath
from rmq._fastpath.handlers.held_pulls import ReturnedPull
from rmq._fastpath.handlers.invisible_time_path import InvisibleTimePath
from rmq._fastpath.handlers.lookup_path import LookupPath
from rmq._fastpath.handlers.notification_path import NotificationPath
from rmq._fastpath.handlers.once_table import OnceTable
from rmq._fastpath.handlers.pop_path import PopPath
from rmq._fastpath.handlers.pop_table import PopTable, PopTopic, PopView
from rmq._fastpath.handlers.pull_path import PullPath
from rmq._fastpath.handlers.pull_table import PullTable, PullView
from rmq._fastpath.handlers.send_back_path import SendBackPath
from rmq._fastpath.handlers.send_path import SendPath
from rmq._fastpath.handlers.send_table import SendTable
from rmq._fastpath.handlers.timed_sends import TimedSends
from rmq._fastpath.log.queue_tail import QueueTail, TopicWatch
from rmq._fastpath.log.tail import LogTail
from rmq._fastpath.reactor.grants import Grants
from rmq._fastpath.reactor.native import NativeHandler

__all__ = [
    "AckPath",
    "Checkpoint",
    "CheckpointTable",
    "CommitPath",
    "CommitTable",
    "DelayedSends",
    "EndPath",
    "Grants",
    "HalfSends",
    "HeartbeatPath",
    "InvisibleTimePath",
    "LogTail",
    "LookupPath",
    "NativeHandler",
    "NotificationPath",
    "OnceTable",
    "PopPath",
    "PopQueue",
    "PopTable",
    "PopTopic",
    "PopView",
    "PullPath",
    "PullTable",
    "PullView",
    "QueueTail",
    "ReturnedPull",
    "Selector",
    "SendBackPath",
    "SendPath",
    "SendTable",
    "TimedSends",
    "TopicWatch",
    "UniqueKeys",
    "java_hash",
    "tags_code",
]
