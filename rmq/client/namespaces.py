"""Namespaces: tenants of one cluster, by a prefix that only clients know.

`ns%topic`, `%RETRY%ns%group`, `%DLQ%ns%group`; names of the system have none.
Known in Java as `NamespaceUtil`.
"""

from rmq.protocol.topics import DLQ_PREFIX, RETRY_PREFIX, is_system_topic


def wrap(namespace: str, name: str) -> str:
    """Return the name of a topic or group on the wire."""
    if not namespace or is_system_topic(name):
        return name
    kind = _kind(name)
    plain = name.removeprefix(kind)
    if plain.startswith(f"{namespace}%"):
        return name
    return f"{kind}{namespace}%{plain}"


def unwrap(namespace: str, name: str) -> str:
    """Return the name that a program knows."""
    if not namespace:
        return name
    kind = _kind(name)
    return kind + name.removeprefix(kind).removeprefix(f"{namespace}%")


def _kind(name: str) -> str:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix
    return ""
