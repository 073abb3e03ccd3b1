"""The public door to compiled code: what plugins may use of `_fastpath`.

A compiled handler of a plugin cimports `rmq/_fastpath/native.pxd`, which holds the
contract, and subclasses `NativeHandler`.  `SendPath` is the one of the send codes,
`PullPath` that of the pull codes.
"""

from rmq._fastpath import (
    LogTail,
    NativeHandler,
    PullPath,
    PullTable,
    PullView,
    QueueTail,
    SendPath,
    SendTable,
    UniqueKeys,
    java_hash,
    tags_code,
)

__all__ = [
    "LogTail",
    "NativeHandler",
    "PullPath",
    "PullTable",
    "PullView",
    "QueueTail",
    "SendPath",
    "SendTable",
    "UniqueKeys",
    "java_hash",
    "tags_code",
]
