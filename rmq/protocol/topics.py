"""Names of topics and groups: their only validator, and the names with a meaning.

Every name that comes from outside passes `validate_topic` or `validate_group` before it
becomes a key or part of a path: `../../x` was once a topic (CVE-2019-17572).
"""

import re
from collections.abc import Sequence
from typing import Final

from rmq.core.errors import RequestRejected
from rmq.protocol.codes import ResponseCode

DEFAULT_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_TRANS_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
SYSTEM_CONSTANT_PREFIX: Final = "RMQ_SYS_"
"""Prefix of Java's constants for topics of the broker, also in later versions."""
CLOUD_TRACE_PREFIX: Final = "rmq_sys_TRACE_DATA_"
"""Topics of traces, by region, of Java clients with `AccessChannel.CLOUD`."""

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
LITE_SEPARATOR: Final = "$"
LITE_PREFIX: Final = LMQ_PREFIX + LITE_SEPARATOR
"""Prefix of the queues of lite topics; no name of a topic may have the separator."""

REPLY_TOPIC_POSTFIX: Final = "_REPLY_TOPIC"

SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
"""Groups that every broker has."""

MAX_TOPIC_LENGTH: Final = 127
MAX_RETRY_TOPIC_LENGTH: Final = 255
MAX_GROUP_LENGTH: Final = 120
MAX_LITE_TOPIC_LENGTH: Final = 64
"""Maximum length of a lite topic: `maxLiteTopicSize` of Java's proxy, which checks the
same letters.
"""

NOT_SENDABLE: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        ROCKSDB_TRANS_HALF_TOPIC,
        ROCKSDB_TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""Topics that only the broker itself writes to, by Java's list."""

SYSTEM_TOPICS: Final = NOT_SENDABLE | {
    DEFAULT_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
    CHECKPOINT_TOPIC,
}
"""Topics that always exist; a broker adds topics with its own names."""

_PATTERN: Final = r"^[%|a-zA-Z0-9_-]+$"
_ALLOWED: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_PLAIN_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_LITE_TOPIC: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_LITE_TOPIC_LENGTH}}}")


def validate_topic(name: str | None) -> None:
    """Refuse a name that cannot be a topic, with Java's remark."""
    if name and _PLAIN_TOPIC.fullmatch(name):
        return
    if name is None or not name.strip():
        raise _invalid("The specified topic is blank.")
    plain = name.replace("+", "_", 1) if is_retry_topic(name) else name
    if not _ALLOWED.fullmatch(plain):  # POP's retry topics may have one +
        raise _invalid(
            f"The specified topic: {name}, contains illegal characters, "
            f"allowing only {_PATTERN}"
        )
    if not is_retry_topic(name) and not is_dlq_topic(name):
        raise _invalid(
            f"The specified topic: {name}, is longer than topic max length: "
            f"{MAX_TOPIC_LENGTH}"
        )
    if len(name) > MAX_RETRY_TOPIC_LENGTH:
        raise _invalid(
            f"The specified topic is DLQ or Retry topic: {name}, and it's longer than "
            f"topic max length: {MAX_RETRY_TOPIC_LENGTH}"
        )


def is_topic(name: str) -> bool:
    """Whether `validate_topic` accepts the name."""
    try:
        validate_topic(name)
    except RequestRejected:
        return False
    return True


def validate_group(name: str | None) -> None:
    """Refuse a name that cannot be a group, with Java's remark."""
    if name is None or not name.strip():
        raise _invalid("The specified group is blank.")
    if not _ALLOWED.fullmatch(name):
        raise _invalid(
            f"The specified group: {name}, contains illegal characters, "
            f"allowing only {_PATTERN}"
        )
    if len(name) > MAX_GROUP_LENGTH:
        raise _invalid(
            f"The specified group: {name}, is longer than group max length: "
            f"{MAX_GROUP_LENGTH}"
        )


def validate_groups(names: Sequence[str]) -> None:
    """Refuse the first name that cannot be a group; a heartbeat may have thousands of
    names.
    """
    are_short = all(names) and max(map(len, names), default=0) <= MAX_GROUP_LENGTH
    if are_short and _ALLOWED.fullmatch("".join(names)):
        return
    for name in names:
        validate_group(name)


def is_system_topic(name: str) -> bool:
    """Whether users may neither create nor delete the topic."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(name: str) -> bool:
    """Whether the broker reads with this group for itself."""
    return name.startswith(SYSTEM_GROUP_PREFIX)


def is_internal_topic(name: str) -> bool:
    """Whether the topic is the broker's own, or has a group's retried messages."""
    return (
        is_system_topic(name)
        or name.startswith(SYSTEM_CONSTANT_PREFIX)
        or is_retry_topic(name)
        or is_dlq_topic(name)
    )


def is_sendable(name: str) -> bool:
    """Whether clients may send to the topic.

    Java refuses only the topics of its list. Other system topics, such as the topics of
    timers and POP, have records of the broker, and clients send traces to other system
    topics.
    """
    if not name.startswith(SYSTEM_TOPIC_PREFIX):
        return name not in NOT_SENDABLE
    return name.startswith(CLOUD_TRACE_PREFIX)


def is_lmq(name: str) -> bool:
    """Whether the topic, or group, is a light message queue or belongs to one."""
    return name.startswith(LMQ_PREFIX)


def is_lite_topic(name: str) -> bool:
    """Whether a lite topic, below a parent topic, may have this name."""
    return _LITE_TOPIC.fullmatch(name) is not None


def lite_queue(parent: str, lite: str) -> str:
    """Return the name of the light message queue of a lite topic.

    >>> lite_queue("T", "session-1")
    '%LMQ%$T$session-1'
    """
    return f"{LITE_PREFIX}{parent}{LITE_SEPARATOR}{lite}"


def split_lite_queue(name: str) -> tuple[str, str] | None:
    """Return parent and lite topic of a queue; None if it is of no lite topic.

    >>> split_lite_queue("%LMQ%$T$session-1"), split_lite_queue("%LMQ%x")
    (('T', 'session-1'), None)
    """
    parts = name.split(LITE_SEPARATOR)
    if len(parts) != 3 or parts[0] != LMQ_PREFIX:
        return None
    _, parent, lite = parts
    return (parent, lite) if is_topic(parent) and is_lite_topic(lite) else None


def validate_queue_topic(name: str) -> None:
    """Refuse a name that neither a topic nor the queue of a lite topic may have."""
    if split_lite_queue(name) is None:
        validate_topic(name)


def is_queue_topic(name: str) -> bool:
    """Whether `validate_queue_topic` accepts the name."""
    return split_lite_queue(name) is not None or is_topic(name)


def may_dispatch(topic: str) -> bool:
    """Whether messages of the topic may have entries in light message queues, too."""
    return not is_internal_topic(topic) and not is_lmq(topic)


def is_retry_topic(name: str) -> bool:
    """Whether the topic holds messages that a group consumes again."""
    return name.startswith(RETRY_PREFIX)


def is_dlq_topic(name: str) -> bool:
    """Whether the topic holds the dead letters of a group."""
    return name.startswith(DLQ_PREFIX)


def retry_topic(group: str) -> str:
    """Return the topic of messages to deliver to the group again."""
    return RETRY_PREFIX + group


def pop_retry_topic(topic: str, group: str, version: int = 1) -> str:
    """Return the topic of messages that a group has popped from a topic, and that
    failed.

    >>> pop_retry_topic("T", "G"), pop_retry_topic("T", "G", 2)
    ('%RETRY%G_T', '%RETRY%G+T')
    """
    return f"{retry_topic(group)}{'_+'[version - 1]}{topic}"


def revive_topic(cluster: str) -> str:
    """Return the topic in which the timer delivers the records of POP."""
    return f"rmq_sys_REVIVE_LOG_{cluster}"


def plain_topic(name: str, group: str) -> str:
    """Return the original topic of a retry topic of POP; for other topics return
    `name`.

    >>> plain_topic("%RETRY%G_T", "G"), plain_topic("%RETRY%G+T", "G")
    ('T', 'T')
    >>> plain_topic("%RETRY%G", "G")
    '%RETRY%G'
    """
    return name.removeprefix(pop_retry_topic("", group)).removeprefix(
        pop_retry_topic("", group, 2)
    )


def broadcast_group(group: str) -> str:
    """Return the group name for the smallest offsets of broadcast clients."""
    return f"{group}@broadcast"


def dlq_topic(group: str) -> str:
    """Return the topic of messages that the group could not consume."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return the topic of a cluster's answers to request-reply messages."""
    return cluster + REPLY_TOPIC_POSTFIX


def _invalid(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
