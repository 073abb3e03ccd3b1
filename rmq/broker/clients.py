"""Who is online: producers and consumers by group, as their heartbeats tell.

A member is a connection; the same client may come back on another one.  A change in a
group's members or topics is told to all of them (request 40), so that they divide the
queues anew; members of broadcast groups take every queue and are not told.
"""

from collections.abc import Callable, Iterator

import msgspec

from rmq.broker.mismatch import SubscriptionMismatches
from rmq.broker.tables.groups import GroupTable
from rmq.errors import RequestRejected
from rmq.protocol.bodies.heartbeat import ConsumerData, MessageModel, SubscriptionData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.client import NotifyConsumerIdsChangedRequestHeader
from rmq.remoting.connection import Connection

MAX_MEMBERS = 200_000
"""Places of clients in groups, of either table; heartbeats make them."""

MAX_CLIENT_IDS = 64
"""Clients that share a connection: instances of one process."""

MAX_SUBSCRIPTION_SIZE = 64 * 1024 * 1024
"""Characters of all subscriptions together; tags count as `TAG_SIZE` more."""

TAG_SIZE = 64


class Member(msgspec.Struct):
    """A client in a group."""

    client_id: str
    language: int | str | None
    version: int
    last_heartbeat_ms: int


class ConsumerGroup(msgspec.Struct):
    """The members of a group and what they want."""

    name: str
    consume_type: str | None
    message_model: str | None
    consume_from_where: str | None
    members: dict[Connection, Member] = msgspec.field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    size: int = 0
    """Characters of the subscriptions."""


class ProducerTable:
    """Known in Java as `ProducerManager`."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Connection, Member]] = {}
        self._groups_of: dict[Connection, set[str]] = {}
        self._connections: dict[str, Connection] = {}
        self._clients_of: dict[Connection, set[str]] = {}
        self._count = 0

    def register(
        self,
        group: str,
        client_id: str,
        connection: Connection,
        language: int | str | None,
        version: int,
        now_ms: int,
    ) -> None:
        """Note a producer, or that it still lives."""
        assert connection.is_open, f"{client_id} registered over a closed connection"
        members = self._groups.get(group, {})
        if connection not in members:
            _check_members(self._count)
            self._count += 1
        self._note_client(client_id, connection)
        members[connection] = Member(client_id, language, version, now_ms)
        self._groups[group] = members
        self._groups_of.setdefault(connection, set()).add(group)

    def _note_client(self, client_id: str, connection: Connection) -> None:
        """Remember where a client is reached; it may come back elsewhere."""
        before = self._connections.get(client_id)
        if before is connection:
            return
        clients = self._clients_of.setdefault(connection, set())
        if len(clients) >= MAX_CLIENT_IDS:
            raise _refused(f"a connection serves at most {MAX_CLIENT_IDS} client ids")
        if before is not None:
            self._clients_of[before].discard(client_id)
        clients.add(client_id)
        self._connections[client_id] = connection

    def unregister(self, group: str, client_id: str, connection: Connection) -> None:
        """Forget a producer that says goodbye."""
        members = self._groups.get(group, {})
        if members.pop(connection, None) is None:
            return
        self._count -= 1
        self._groups_of[connection].discard(group)
        if not members:
            del self._groups[group]

    def on_close(self, connection: Connection) -> None:
        """Forget a producer whose connection is gone."""
        for group in self._groups_of.pop(connection, ()):
            members = self._groups[group]
            del members[connection]
            self._count -= 1
            if not members:
                del self._groups[group]
        for client_id in self._clients_of.pop(connection, ()):
            del self._connections[client_id]
        assert self._count >= 0, self._count

    def members(self, group: str) -> dict[Connection, Member]:
        """Return the producers of a group."""
        return dict(self._groups.get(group, {}))

    def connection(self, client_id: str) -> Connection | None:
        """Return the connection over which a producer registered last."""
        return self._connections.get(client_id)

    def all(self) -> Iterator[tuple[str, Connection, Member]]:
        """Yield every producer with its group."""
        for group, members in list(self._groups.items()):
            for connection, member in list(members.items()):
                yield group, connection, member


class ConsumerTable:
    """Known in Java as `ConsumerManager`."""

    def __init__(
        self,
        groups: GroupTable,
        *,
        notifies: bool,
        on_gone: Callable[[str], None],
    ) -> None:
        self._settings = groups
        self._notifies = notifies
        self._on_gone = on_gone
        self.on_change: list[Callable[[str], None]] = []
        self._groups: dict[str, ConsumerGroup] = {}
        self._groups_of: dict[Connection, set[str]] = {}
        self._count = 0
        self._size = 0
        self.mismatches = SubscriptionMismatches()

    def register(
        self,
        data: ConsumerData,
        client_id: str,
        connection: Connection,
        language: int | str | None,
        version: int,
        now_ms: int,
    ) -> bool:
        """Note a consumer; True (and its group is told) if that changed the group."""
        name = data.group_name or ""
        group = self._groups.get(name)
        if group is None or connection not in group.members:
            _check_members(self._count)
        size = sum(map(_size, data.subscription_data_set))
        if self._size - (group.size if group else 0) + size > MAX_SUBSCRIPTION_SIZE:
            raise _refused(
                f"the subscriptions of all groups take {self._size} characters of "
                f"{MAX_SUBSCRIPTION_SIZE}, {size} more do not fit"
            )
        if group is None:
            group = self._groups[name] = ConsumerGroup(
                name, data.consume_type, data.message_model, data.consume_from_where
            )
        assert connection.is_open, f"{client_id} registered over a closed connection"
        group.consume_type = data.consume_type
        is_other_model = group.message_model != data.message_model
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        before = group.members.get(connection)
        changed = before is None or before.client_id != client_id
        group.members[connection] = Member(client_id, language, version, now_ms)
        if before is None:
            self._count += 1
            self._groups_of.setdefault(connection, set()).add(name)
        elif changed:
            self._forget_mismatches(group)
        before_topics = dict(group.subscriptions)
        self._size -= group.size
        changed = _subscribe(group, data.subscription_data_set) or changed
        self._size += group.size
        if is_other_model or group.subscriptions != before_topics:
            self._tell(name)
        self.mismatches.note(name, client_id, data.subscription_data_set)
        if changed:
            self._notify(group)
        return changed

    def refresh(
        self, group: str, client_id: str, connection: Connection, now_ms: int
    ) -> bool:
        """Note that a member lives; False if it is not known with subscriptions."""
        known = self._groups.get(group)
        member = known.members.get(connection) if known else None
        if known is None or member is None or member.client_id != client_id:
            return False
        member.last_heartbeat_ms = now_ms
        return bool(known.subscriptions)

    def unregister(self, group: str, client_id: str, connection: Connection) -> None:
        """Forget a consumer that says goodbye."""
        known = self._groups.get(group)
        if known is None or known.members.pop(connection, None) is None:
            return
        self._count -= 1
        self._groups_of[connection].discard(group)
        assert self._count >= 0, client_id
        self._forget_mismatches(known)
        if known.members:
            self._notify(known)
        else:
            self._size -= known.size
            del self._groups[group]
            self._tell(group)
            self._on_gone(group)

    def _forget_mismatches(self, group: ConsumerGroup) -> None:
        left = {member.client_id for member in group.members.values()}
        self.mismatches.keep(group.name, left)

    def on_close(self, connection: Connection) -> None:
        """Forget a consumer whose connection is gone, in all its groups."""
        for name in list(self._groups_of.get(connection, ())):
            member = self._groups[name].members[connection]
            self.unregister(name, member.client_id, connection)
        self._groups_of.pop(connection, None)

    def client_ids(self, group: str) -> list[str]:
        """Return the ids of a group's members; none if it is not online."""
        known = self._groups.get(group)
        if known is None:
            return []
        return list({member.client_id: None for member in known.members.values()})

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return what a group wants of a topic."""
        known = self._groups.get(group)
        return known.subscriptions.get(topic) if known else None

    def group(self, name: str) -> ConsumerGroup | None:
        """Return the group if it is online."""
        return self._groups.get(name)

    def all(self) -> Iterator[tuple[str, Connection, Member]]:
        """Yield every consumer with its group."""
        for group in list(self._groups.values()):
            for connection, member in list(group.members.items()):
                yield group.name, connection, member

    def _tell(self, group: str) -> None:
        """Tell that what a group wants, or how, has changed."""
        for listener in self.on_change:
            listener(group)

    def _notify(self, group: ConsumerGroup) -> None:
        settings = self._settings.get(group.name)
        wanted = settings is None or settings.notify_consumer_ids_changed_enable
        if not self._notifies or not wanted:
            return
        if group.message_model == MessageModel.BROADCASTING:
            return
        for connection in list(group.members):
            header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group.name)
            connection.send_nowait(
                Command.request(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True
                )
            )


def _subscribe(group: ConsumerGroup, wanted: list[SubscriptionData]) -> bool:
    """Take over subscriptions; True if topics came or went. Old versions lose."""
    changed = False
    topics = set()
    for subscription in wanted:
        topic = subscription.topic or ""
        topics.add(topic)
        known = group.subscriptions.get(topic)
        if known is None:
            changed = True
        if known is None or known.sub_version < subscription.sub_version:
            group.subscriptions[topic] = subscription
    for topic in set(group.subscriptions) - topics:
        del group.subscriptions[topic]
        changed = True
    group.size = sum(map(_size, group.subscriptions.values()))
    return changed


def _size(subscription: SubscriptionData) -> int:
    """Roughly what a subscription takes in memory."""
    tags = sum(TAG_SIZE + len(tag) for tag in subscription.tags_set)
    codes = TAG_SIZE * len(subscription.code_set)
    texts = len(subscription.topic or "") + len(subscription.sub_string or "")
    return TAG_SIZE + tags + codes + texts


def _check_members(count: int) -> None:
    if count >= MAX_MEMBERS:
        raise _refused(f"this broker knows {MAX_MEMBERS} members of groups already")


def _refused(reason: str) -> RequestRejected:
    return RequestRejected(
        ResponseCode.SYSTEM_ERROR, f"{reason}: spread clients over more brokers"
    )
