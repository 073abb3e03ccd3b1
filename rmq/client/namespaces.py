"""Namespaces: tenants of one cluster, by a prefix that only clients know.

Known in Java as `NamespaceUtil`. `ns%topic`, `%RETRY%ns%group`, `%DLQ%ns%group`. Names
of the system get no prefix.
"""

from rmq.client.core.routes import MessageQueue
from rmq.protocol.bodies.common import MessageQueue as QueueName
from rmq.protocol.topics import DLQ_PREFIX, RETRY_PREFIX, is_system_topic


def wrap(namespace: str, name: str) -> str:
    """Return the name of a topic or group on the wire."""
    if not namespace or is_system_topic(name):
        return name
    prefix = _type_prefix(name)
    plain = name.removeprefix(prefix)
    if plain.startswith(f"{namespace}%"):
        return name
    return f"{prefix}{namespace}%{plain}"


def unwrap(namespace: str, name: str) -> str:
    """Return the name without the namespace, which a program uses."""
    if not namespace:
        return name
    prefix = _type_prefix(name)
    return prefix + name.removeprefix(prefix).removeprefix(f"{namespace}%")


def wire_queue(namespace: str, queue: MessageQueue) -> QueueName:
    """Return the name of a queue on the wire."""
    topic = wrap(namespace, queue.topic)
    return QueueName(topic=topic, broker_name=queue.broker, queue_id=queue.queue_id)


def queue_of(namespace: str, name: QueueName) -> MessageQueue:
    """Return the queue of a name on the wire."""
    return MessageQueue(unwrap(namespace, name.topic), name.broker_name, name.queue_id)


def _type_prefix(name: str) -> str:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix
    return ""
