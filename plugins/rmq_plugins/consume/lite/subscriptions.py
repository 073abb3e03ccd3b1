"""Subscriptions: the lite topics of each client.

In memory only: a client sends all its subscriptions every half minute. The broker
removes a client that sends no subscriptions. A client of a wildcard group subscribes to
every lite topic of its parent topic, by a single entry `<topic>@<group>`. Pure: no
clock, no store; connections are only values. Known in Java as
`LiteSubscriptionRegistryImpl`.
"""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import msgspec

from rmq.plugin import RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.topics import split_lite_queue

if TYPE_CHECKING:
    from rmq.plugin import Connection


class Subscription(msgspec.Struct, eq=False):
    """The lite topics of one client, for one group."""

    group: str
    topic: str
    connection: "Connection"
    updated_ms: int
    queues: dict[str, None] = msgspec.field(default_factory=dict)


def wildcard_entry(topic: str, group: str) -> str:
    """Return the entry of a wildcard group: all lite topics of a parent topic."""
    return f"{topic}@{group}"


class Subscriptions:
    """All subscriptions; `count` counts pairs of a client and a lite topic."""

    def __init__(self) -> None:
        self.count = 0
        self._by_client: dict[str, Subscription] = {}
        """Clients in the order of their last change."""

        self._clients_of: dict[str, dict[str, dict[str, None]]] = {}
        """Clients by group, for each queue and each entry of a wildcard group."""

        self._wildcards: dict[str, dict[str, None]] = {}
        """Wildcard groups with clients, by parent topic."""

    def __len__(self) -> int:
        """Return the number of clients."""
        return len(self._by_client)

    def get(self, client_id: str) -> Subscription | None:
        """Return the subscription of a client."""
        return self._by_client.get(client_id)

    def open(
        self,
        client_id: str,
        group: str,
        topic: str,
        connection: "Connection",
        now_ms: int,
    ) -> Subscription:
        """Renew the subscription of a client, or create it; return it.

        RequestRejected if the client subscribes for another group or topic.
        """
        subscription = self._by_client.pop(client_id, None)
        if subscription is None:
            subscription = Subscription(group, topic, connection, now_ms)
        self._by_client[client_id] = subscription
        if (subscription.group, subscription.topic) != (group, topic):
            raise RequestRejected(
                ResponseCode.ILLEGAL_OPERATION,
                f"client {client_id} is subscribed as group {subscription.group} "
                f"to lite topics of {subscription.topic}",
            )
        subscription.connection, subscription.updated_ms = connection, now_ms
        return subscription

    def add(self, client_id: str, queues: Collection[str]) -> list[str]:
        """Add queues to a subscription; return the new ones."""
        subscription = self._by_client[client_id]
        new = [queue for queue in queues if queue not in subscription.queues]
        for queue in new:
            subscription.queues[queue] = None
            groups = self._clients_of.setdefault(queue, {})
            groups.setdefault(subscription.group, {})[client_id] = None
            if queue == wildcard_entry(subscription.topic, subscription.group):
                wildcards = self._wildcards.setdefault(subscription.topic, {})
                wildcards[subscription.group] = None
        self.count += len(new)
        return new

    def remove(self, client_id: str, queues: Collection[str]) -> list[str]:
        """Remove queues from a subscription; return the queues that were in it."""
        subscription = self._by_client[client_id]
        gone = [queue for queue in queues if queue in subscription.queues]
        for queue in gone:
            del subscription.queues[queue]
            groups = self._clients_of[queue]
            del groups[subscription.group][client_id]
            if groups[subscription.group]:
                continue
            del groups[subscription.group]
            if not groups:
                del self._clients_of[queue]
            if queue == wildcard_entry(subscription.topic, subscription.group):
                del self._wildcards[subscription.topic][subscription.group]
                if not self._wildcards[subscription.topic]:
                    del self._wildcards[subscription.topic]
        self.count -= len(gone)
        return gone

    def drop(self, client_id: str) -> Subscription | None:
        """Remove a client; return its former subscription, without queues."""
        subscription = self._by_client.get(client_id)
        if subscription is not None:
            self.remove(client_id, list(subscription.queues))
            del self._by_client[client_id]
        return subscription

    def drop_queue(self, queue: str) -> list[str]:
        """Remove a queue from all clients; return these clients."""
        groups = self._clients_of.get(queue, {})
        clients = [client_id for each in groups.values() for client_id in each]
        for client_id in clients:
            self.remove(client_id, [queue])
        return clients

    def is_subscribed(self, client_id: str, queue: str) -> bool:
        """Whether a client subscribes to a lite topic."""
        subscription = self._by_client.get(client_id)
        if subscription is None:
            return False
        if queue in subscription.queues:
            return True
        parts = split_lite_queue(queue)
        return (
            parts is not None
            and parts[0] == subscription.topic
            and wildcard_entry(subscription.topic, subscription.group)
            in subscription.queues
        )

    def groups_of(self, queue: str) -> list[str]:
        """Return the groups with subscribers of a lite topic."""
        parts = split_lite_queue(queue)
        wild = self._wildcards.get(parts[0], {}) if parts is not None else {}
        return list({**self._clients_of.get(queue, {}), **wild})

    def clients_of(self, queue: str, group: str) -> dict[str, None]:
        """Return the clients of a group that subscribe to a lite topic, read-only."""
        found = self._clients_of.get(queue, {}).get(group)
        if found is not None:
            return found
        parts = split_lite_queue(queue)
        return {} if parts is None else self.wildcard_clients(parts[0], group)

    def wildcard_clients(self, topic: str, group: str) -> dict[str, None]:
        """Return the clients of a wildcard group, read-only."""
        return self._clients_of.get(wildcard_entry(topic, group), {}).get(group, {})

    def move_to_end(self, queue: str, group: str, client_id: str) -> None:
        """Move a client after the other clients of its group, for a rotation of
        events.
        """
        clients = self.clients_of(queue, group)
        clients[client_id] = clients.pop(client_id)

    def clients_of_group(self, group: str) -> list[str]:
        """Return the clients of a group."""
        return [name for name, each in self._by_client.items() if each.group == group]

    def silent_clients(self, before_ms: int) -> Iterator[str]:
        """Yield the clients without a request since a time, oldest first."""
        for client_id, each in list(self._by_client.items()):
            if each.updated_ms >= before_ms:
                return
            yield client_id
