"""The part of `_fastpath` that plugins may use.

A compiled handler of a plugin cimports `rmq/_fastpath/reactor/native.pxd`, which holds
the contract, and subclasses `NativeHandler`.  `SendPath` is the handler of the send
codes, `PullPath` that of the pull codes, `CommitPath` that of request 15,
`HeartbeatPath` that of request 34, `AckPath` that of request 200051.  `Grants` are what
a guard lets them repeat.  `TimedSends` is what an interceptor registers as its compiled
form.
"""

from rmq._fastpath import (
    AckMarks,
    AckPath,
    AckTable,
    CommitPath,
    CommitTable,
    Grants,
    HeartbeatPath,
    LogTail,
    NativeHandler,
    PullPath,
    PullTable,
    PullView,
    QueueTail,
    ReturnedPull,
    SendPath,
    SendTable,
    TimedSends,
    UniqueKeys,
    java_hash,
    tags_code,
)

__all__ = [
    "AckMarks",
    "AckPath",
    "AckTable",
    "CommitPath",
    "CommitTable",
    "Grants",
    "HeartbeatPath",
    "LogTail",
    "NativeHandler",
    "PullPath",
    "PullTable",
    "PullView",
    "QueueTail",
    "ReturnedPull",
    "SendPath",
    "SendTable",
    "TimedSends",
    "UniqueKeys",
    "java_hash",
    "tags_code",
]
