"""Light message queues (LMQ): further queues that have an entry for a record.

Java has a part of this in `MultiDispatchUtils`.
INNER_MULTI_DISPATCH of a message has the names of the queues, joined with commas;
INNER_MULTI_QUEUE_OFFSET, which the broker adds, has the offset in each of them. A light
message queue is queue 0 of a topic `%LMQ%...` that is in no table; its files are like
the files of any queue. A queue named `%LMQ%$<topic>$<lite topic>` is a lite topic.
Entries are made
again from these two properties after a crash and on a replica.  Known in Java as
`LmqDispatch`.
"""

from typing import Final, NamedTuple

from rmq.core.errors import RequestRejected
from rmq.core.offsets import QueueOffset
from rmq.protocol.codes import ResponseCode
from rmq.protocol.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    decode_properties,
)
from rmq.protocol.topics import is_lmq, validate_queue_topic

LMQ_QUEUE_ID: Final = 0
MARK: Final = f"{INNER_MULTI_DISPATCH}\x01".encode()
"""Bytes in the stored properties of every record that has such entries."""

MAX_FILLERS: Final = 300_000
"""Maximum number of missing entries before an entry that a record names."""


class Target(NamedTuple):
    """A further queue of a record, and the offset of the record in this queue."""

    topic: str
    offset: QueueOffset


def parse_targets(text: str) -> list[str]:
    """Return the names in INNER_MULTI_DISPATCH; RequestRejected if one is illegal."""
    names = text.rstrip(",").split(",")
    for name in names:
        validate_queue_topic(name)
        if not is_lmq(name):
            raise _illegal_targets(f"{name} is no light message queue")
    if len(set(names)) < len(names):
        raise _illegal_targets("a queue is named twice")
    return names


def stored_targets(properties: bytes) -> list[Target]:
    """Return the targets in a stored record; empty if they are invalid."""
    if MARK not in properties:
        return []
    texts = decode_properties(properties.decode("utf-8", "replace"))
    try:
        names = parse_targets(texts.get(INNER_MULTI_DISPATCH, ""))
    except RequestRejected:
        return []
    offsets = texts.get(INNER_MULTI_QUEUE_OFFSET, "").split(",")
    if len(names) != len(offsets) or not all(map(_is_offset, offsets)):
        return []
    pairs = zip(names, offsets, strict=True)
    return [Target(name, QueueOffset(int(offset))) for name, offset in pairs]


def _is_offset(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 12


def _illegal_targets(why: str) -> RequestRejected:
    return RequestRejected(
        ResponseCode.MESSAGE_ILLEGAL, f"{INNER_MULTI_DISPATCH}: {why}"
    )
