"""Bits of the message, pull, topic and group flags.

The flags of messages are known in Java as `MessageSysFlag`.
Plain integers, not `IntFlag`: they are tested for every message.
"""

from typing import Final

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_MASK: Final = 0xC
TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
NOT_QUEUED: Final = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
"""Type of a record for which the queue of its topic has no entry."""

BORN_HOST_V6: Final = 0x10
_V6_HOST_SIZE: Final = 20
STORE_HOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_MASK: Final = 0x700
COMPRESSION_LEGACY: Final = 0x0
COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300

CLIENT_FLAGS: Final = COMPRESSED | MULTI_TAGS | COMPRESSION_MASK
"""Bits that a sender may set; the broker sets the other bits itself."""

PULL_COMMIT_OFFSET: Final = 0x1
PULL_SUSPEND: Final = 0x2
PULL_SUBSCRIPTION: Final = 0x4
PULL_CLASS_FILTER: Final = 0x8
PULL_LITE: Final = 0x10

PERM_INHERIT: Final = 0x1
PERM_WRITE: Final = 0x2
PERM_READ: Final = 0x4
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE
PERM_PRIORITY: Final = 0x8
PERM_MAX: Final = 0x7

TOPIC_UNIT: Final = 0x1
TOPIC_UNIT_SUB: Final = 0x2
GROUP_UNIT: Final = 0x1


def is_readable(perm: int) -> bool:
    """Whether consumers may read."""
    return perm & PERM_READ != 0


def is_writable(perm: int) -> bool:
    """Whether producers may send."""
    return perm & PERM_WRITE != 0


def born_host_flag(host: bytes) -> int:
    """Return BORN_HOST_V6 for a packed IPv6 host, else 0."""
    return BORN_HOST_V6 if len(host) == _V6_HOST_SIZE else 0
