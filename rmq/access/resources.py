"""Resources: the objects that rules protect and requests use.

Written `Topic:orders` (literal), `Topic:order*` (prefix), `Topic:*` (any of the type)
and `*` (everything); types are Cluster, Namespace, Topic and Group.
"""

from enum import IntEnum
from typing import NamedTuple

from rmq.protocol.topics import RETRY_PREFIX

ANY_TYPE = "Any"
CLUSTER = "Cluster"
TOPIC = "Topic"
GROUP = "Group"

_TYPES = {
    name.lower(): name
    for name in ("Unknown", ANY_TYPE, CLUSTER, "Namespace", TOPIC, GROUP)
}


class Pattern(IntEnum):
    """Kind of a resource name; the smaller value takes precedence."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


class Resource(NamedTuple):
    """Known in Java as `Resource`."""

    type: str
    name: str
    pattern: Pattern = Pattern.LITERAL

    @property
    def key(self) -> str:
        """The resource in its text form."""
        if self.type == ANY_TYPE:
            return "*"
        star = "" if self.pattern is Pattern.LITERAL else "*"
        return f"{self.type}:{self.name}{star}"

    def applies_to(self, other: "Resource") -> bool:
        """Whether a rule about this applies to `other`, which is literal."""
        if self.type == ANY_TYPE:
            return True
        if self.type != other.type:
            return False
        if self.pattern is Pattern.LITERAL:
            return self.name == other.name
        return other.name.startswith(self.name)


def parse(key: str | None) -> Resource | None:
    """Read a resource; None if it is not valid."""
    if key is None or not key.strip():
        return None
    if key == "*":
        return Resource(ANY_TYPE, "", Pattern.ANY)
    kind, _, name = key.partition(":")
    known = _TYPES.get(kind.lower())
    if known is None:
        return None
    if name == "*":
        return Resource(known, "", Pattern.ANY)
    if name.endswith("*"):
        return Resource(known, name.partition("*")[0], Pattern.PREFIXED)
    return Resource(known, name)


def topic_resource(name: str) -> Resource:
    """Return the resource of a topic; a retry topic belongs to its group."""
    return (
        group_resource(name) if name.startswith(RETRY_PREFIX) else Resource(TOPIC, name)
    )


def group_resource(name: str) -> Resource:
    """Return the resource of a group, from its name or its retry topic."""
    return Resource(GROUP, name.removeprefix(RETRY_PREFIX))


def cluster_resource(name: str) -> Resource:
    """Return the resource of a cluster."""
    return Resource(CLUSTER, name)
