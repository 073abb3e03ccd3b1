"""Namespaces: tenants of one cluster, by a prefix that only clients know.

`ns%topic`, `%RETRY%ns%group`, `%DLQ%ns%group`; names of the system have none.
Known in Java as `NamespaceUtil`.
"""

from rmq.client.core.routes import MessageQueue
from rmq.protocol.bodies.common import MessageQueue as QueueName
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


def named(namespace: str, queue: MessageQueue) -> QueueName:
    """Return a queue as it is named on the wire."""
    topic = wrap(namespace, queue.topic)
    return QueueName(topic=topic, broker_name=queue.broker, queue_id=queue.queue_id)


def queue_of(namespace: str, name: QueueName) -> MessageQueue:
    """Return the queue of a name on the wire."""
    return MessageQueue(unwrap(namespace, name.topic), name.broker_name, name.queue_id)


def _kind(name: str) -> str:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix
    return ""
