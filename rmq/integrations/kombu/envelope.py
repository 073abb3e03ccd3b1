"""Envelope: a message of kombu as the body and the properties of a message of rmq.

Layout of the body: one line of JSON, `[content type, encoding, headers, properties]`,
a newline, the raw body. Consoles show it as text if the raw body is text. A body that
does not begin with such a line is a message of another program: it has no headers.
"""

import datetime as dt
from typing import Any, Final, NamedTuple

import msgspec

from rmq.protocol.properties import KEYS, TAGS, TIMER_DELIVER_MS

NEWLINE: Final = b"\n"
FOREIGN_TYPE: Final = "application/data"
FOREIGN_ENCODING: Final = "binary"

EARLIER_MS: Final = 1_000
"""Time before its ETA at which a task leaves the timer; the worker waits until the ETA.
"""

_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)
_LINE: Final = msgspec.json.Decoder(
    tuple[str | None, str | None, dict[str, Any] | None, dict[str, Any]]
)

Raw = dict[str, Any]
"""A message as kombu passes it to a channel."""


class Times(NamedTuple):
    """How tasks with an ETA are stored."""

    is_native: bool
    max_delay_ms: int


def pack(raw: Raw) -> bytes:
    """Return the body of a message."""
    body = raw["body"]
    if isinstance(body, str):
        body = body.encode()
    line = (
        raw.get("content-type"),
        raw.get("content-encoding"),
        raw.get("headers"),
        raw["properties"],
    )
    return b"%b\n%b" % (_ENCODER.encode(line), body or b"")


def unpack(data: bytes) -> Raw:
    """Return the message of a body; a body of another program has no headers."""
    line, newline, body = data.partition(NEWLINE)
    try:
        kind, encoding, headers, properties = _LINE.decode(line)
        is_own = bool(newline)
    except msgspec.DecodeError:
        is_own = False
    if not is_own:
        kind, encoding, headers, properties = FOREIGN_TYPE, FOREIGN_ENCODING, {}, {}
        body = data
    if not isinstance(properties.get("delivery_info"), dict):
        properties["delivery_info"] = {}
    return {
        "body": body,
        "content-type": kind,
        "content-encoding": encoding,
        "headers": headers or {},
        "properties": properties,
    }


def properties_of(raw: Raw, tag: str, now_ms: int, times: Times) -> dict[str, str]:
    """Return the properties of a message: its tag, task id and time in the timer."""
    found: dict[str, str] = {}
    if tag:
        found[TAGS] = tag
    headers = raw.get("headers") or {}
    task_id = headers.get("id")
    if isinstance(task_id, str) and task_id.isprintable() and task_id:
        found[KEYS] = task_id
    due_ms = due_ms_of(raw)
    if times.is_native and due_ms is not None and due_ms - EARLIER_MS > now_ms:
        limit_ms = now_ms + times.max_delay_ms
        found[TIMER_DELIVER_MS] = str(min(due_ms - EARLIER_MS, limit_ms))
    return found


def due_ms_of(raw: Raw) -> int | None:
    """Return the ETA of a task, in milliseconds since 1970; None without one."""
    eta = (raw.get("headers") or {}).get("eta")
    if not eta:
        return None
    try:
        moment = eta if isinstance(eta, dt.datetime) else dt.datetime.fromisoformat(eta)
    except (TypeError, ValueError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return int(moment.timestamp() * 1_000)


def priority_of(raw: Raw, queues: int) -> int:
    """Return the priority of a message, which is the id of its queue."""
    try:
        priority = int(raw["properties"].get("priority") or 0)
    except (TypeError, ValueError):
        priority = 0
    return min(max(priority, 0), queues - 1)


def mark_delivery(raw: Raw, tag: str, *, is_again: bool) -> None:
    """Add the fields of one delivery to a message."""
    properties = raw["properties"]
    properties["delivery_tag"] = tag
    properties["delivery_info"]["redelivered"] = is_again
    properties["delivery_info"].setdefault("priority", properties.get("priority"))


def is_expired(raw: Raw, born_ms: int, now_ms: int) -> bool:
    """Whether a message is too old; a worker itself marks tasks that have expired."""
    expiration = raw["properties"].get("expiration")
    if expiration is None or "task" in raw["headers"]:
        return False
    try:
        return born_ms + float(expiration) < now_ms
    except (TypeError, ValueError):
        return False
