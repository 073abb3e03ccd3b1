"""Route: the queues of a topic and the addresses of their brokers, as clients see them.

Queues have the order of Java's clients, by broker and queue id, so that a key has the
same queue in both languages.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.flags import is_readable, is_writable

MASTER_ID: Final = 0
OFFERED_QUEUES: Final = 4
"""Number of queues of a topic that a send creates, as in Java's clients."""

MAX_QUEUES: Final = 65_536
"""Limit of the queues of a topic: a name server may announce any number."""


class MessageQueue(NamedTuple):
    """A queue of a topic on a broker."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        """Return the queue as log lines name it."""
        return f"queue {self.queue_id} of {self.topic} on broker {self.broker}"


class Route(NamedTuple):
    """`addresses` maps a broker name to addresses by broker id; the master has id 0."""

    topic: str
    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, str]]

    def master_of(self, broker: str) -> str | None:
        """Return the address of the master; None if it is offline."""
        return self.addresses.get(broker, {}).get(MASTER_ID)

    def any_of(self, broker: str) -> str | None:
        """Return the address of the master, or of the slave with the lowest id."""
        known = self.addresses.get(broker)
        return known[min(known)] if known else None


def route_of(topic: str, data: TopicRouteData) -> Route:
    """Read the answer of a name server."""
    addresses = {
        each.broker_name: dict(each.broker_addrs)
        for each in data.broker_datas
        if each.broker_name and each.broker_addrs
    }
    writable, readable = [], []
    for each in sorted(data.queue_datas, key=lambda each: each.broker_name or ""):
        name = each.broker_name
        if name not in addresses:
            continue
        if is_writable(each.perm) and MASTER_ID in addresses[name]:
            count = min(each.write_queue_nums, MAX_QUEUES)
            writable += [MessageQueue(topic, name, number) for number in range(count)]
        if is_readable(each.perm):
            count = min(each.read_queue_nums, MAX_QUEUES)
            readable += [MessageQueue(topic, name, number) for number in range(count)]
    return Route(topic, tuple(writable), tuple(readable), addresses)


def offered_route(topic: str, default: Route) -> Route:
    """Return the route of a topic that the first send would create."""
    queues = tuple(
        each._replace(topic=topic)
        for each in default.writable
        if each.queue_id < OFFERED_QUEUES
    )
    return Route(topic, queues, (), default.addresses)
