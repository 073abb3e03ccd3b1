"""Changes of the attributes of topics and groups.

Changes of a topic are a text: `+name=value` adds or changes an attribute, `-name`
removes one; commas separate the changes. A new topic allows only additions. The changes
of a group are a map whose names begin with `+` or `-`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rmq.plugin import RequestRejected
from rmq.protocol.bodies.topics import BATCH_QUEUES, ONCE_WINDOW, QUEUE_TYPE
from rmq.protocol.codes import ResponseCode

MESSAGE_TYPE: Final = "message.type"
MAX_TEXT_LENGTH: Final = 4_096


class Attribute(NamedTuple):
    """The accepted values; without `values`, a whole number in a range, or any text."""

    values: frozenset[str] = frozenset()
    is_changeable: bool = True
    min_value: int = -(1 << 63)
    max_value: int = (1 << 63) - 1
    is_text: bool = False


TOPIC_ATTRIBUTES: Final = {
    QUEUE_TYPE: Attribute(frozenset({"SimpleCQ", BATCH_QUEUES}), False),
    "cleanup.policy": Attribute(frozenset({"DELETE", "COMPACTION"}), False),
    MESSAGE_TYPE: Attribute(
        frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"})
        | {"MIXED", "PRIORITY", "LITE"}
    ),
    "reserve.time": Attribute(),
    "lite.topic.expiration": Attribute(min_value=-1, max_value=43_200),
    ONCE_WINDOW: Attribute(min_value=0, max_value=86_400_000),
}

_BOOLEAN: Final = Attribute(frozenset({"true", "false"}))
GROUP_ATTRIBUTES: Final = {
    "priority.factor": Attribute(min_value=0, max_value=100),
    "lite.bind.topic": Attribute(is_text=True),
    "lite.sub.model": Attribute(frozenset({"Shared", "Exclusive"})),
    "lite.sub.reset.offset.exclusive": _BOOLEAN,
    "lite.sub.reset.offset.unsubscribe": _BOOLEAN,
    "lite.sub.client.quota": Attribute(min_value=-1),
    "lite.sub.client.max.event.cnt": Attribute(min_value=10),
    "lite.sub.wildcard": Attribute(is_text=True),
}


def change_attributes(
    current: Mapping[str, str] | None, text: str | None
) -> dict[str, str]:
    """Return the attributes after the change; `current` None means a new topic."""
    return _apply_changes(current, _parse_changes(text or ""), TOPIC_ATTRIBUTES)


def change_group_attributes(
    current: Mapping[str, str], signed: Mapping[str, str]
) -> dict[str, str]:
    """Return a group's attributes after the change.

    A name without a sign is an addition, so that a tool can write back the attributes
    that it has read. Java refuses such a name.
    """
    if sum(len(name) + len(text) for name, text in signed.items()) > MAX_TEXT_LENGTH:
        raise _system_error(f"attributes of more than {MAX_TEXT_LENGTH} characters")
    changes: dict[str, str | None] = {}
    for name, value in signed.items():
        plain = name.lstrip("+-") if name[:1] in ("+", "-") else name
        if plain in changes:
            raise _system_error(f"alter duplication key. key: {plain}")
        changes[plain] = None if name.startswith("-") else value
    return _apply_changes(current, changes, GROUP_ATTRIBUTES)


def _apply_changes(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str | None],
    known: Mapping[str, Attribute],
) -> dict[str, str]:
    changed = dict(current or {})
    for name, value in changes.items():
        attribute = known.get(name)
        if attribute is None:
            raise _system_error(f"unsupported key: {name}")
        if value is None and current is None:
            raise _system_error(
                f"only add attribute is supported while creating topic. key: {name}"
            )
        if current is not None and not attribute.is_changeable:
            raise _system_error(
                f"attempt to update an unchangeable attribute. key: {name}"
            )
        if value is None:
            changed.pop(name, None)
        else:
            changed[name] = _check_value(name, attribute, value)
    return changed


def _parse_changes(text: str) -> dict[str, str | None]:
    """Return new values by name; None removes the attribute."""
    if len(text) > MAX_TEXT_LENGTH:
        raise _system_error(f"attributes of more than {MAX_TEXT_LENGTH} characters")
    changes: dict[str, str | None] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, is_addition, value = (part.strip() for part in item.partition("="))
        wanted_sign, what = ("+", "add/alter") if is_addition else ("-", "delete")
        if not name.startswith(wanted_sign):
            raise _system_error(f"{what} attribute format is wrong: {name}")
        name = name[1:]
        if name in changes:
            raise _system_error(f"key duplication: {name}")
        changes[name] = value if is_addition else None
    return changes


def _check_value(name: str, attribute: Attribute, value: str) -> str:
    if attribute.is_text:
        return value
    if not attribute.values:
        if not value.removeprefix("-").isdecimal():
            raise _system_error(f"{name}={value}: it must be a whole number")
        if not attribute.min_value <= int(value) <= attribute.max_value:
            raise _system_error(
                f"value is not in range({attribute.min_value}, {attribute.max_value})"
            )
    elif value not in attribute.values:
        raise _system_error(f"value is not in set: {sorted(attribute.values)}")
    return value


def _system_error(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
