"""Who is online: producers and consumers by group, as their heartbeats tell.

A member is a connection; the same client may come back on another one.  A change in a
group's members or topics is told to all of them (request 40), so that they divide the
queues anew; members of broadcast groups take every queue and are not told.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rmq.broker.mismatch import SubscriptionMismatches
from rmq.broker.tables.groups import GroupTable
from rmq.protocol.bodies.heartbeat import ConsumerData, MessageModel, SubscriptionData
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.client import NotifyConsumerIdsChangedRequestHeader
from rmq.remoting.connection import Connection

MAX_PRODUCER_GROUPS = 100_000
"""Producer groups are made by heartbeats; more of them are not remembered."""


@dataclass(slots=True)
class Member:
    """A client in a group."""

    client_id: str
    language: int | str | None
    version: int
    last_heartbeat_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a group and what they want."""

    name: str
    consume_type: str | None
    message_model: str | None
    consume_from_where: str | None
    members: dict[Connection, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)


class ProducerTable:
    """Known in Java as `ProducerManager`."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Connection, Member]] = {}
        self._connections: dict[str, Connection] = {}

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
        if group not in self._groups and len(self._groups) >= MAX_PRODUCER_GROUPS:
            return
        members = self._groups.setdefault(group, {})
        members[connection] = Member(client_id, language, version, now_ms)
        assert connection.is_open, f"{client_id} registered over a closed connection"
        self._connections[client_id] = connection

    def unregister(self, group: str, client_id: str, connection: Connection) -> None:
        """Forget a producer that says goodbye."""
        members = self._groups.get(group, {})
        members.pop(connection, None)
        if not members:
            self._groups.pop(group, None)

    def on_close(self, connection: Connection) -> None:
        """Forget a producer whose connection is gone."""
        for group, members in list(self._groups.items()):
            if connection in members:
                client_id = members[connection].client_id
                self.unregister(group, client_id, connection)
                if self._connections.get(client_id) is connection:
                    del self._connections[client_id]

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
        before_topics = dict(group.subscriptions)
        changed = _subscribe(group, data.subscription_data_set) or changed
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
        assert connection not in known.members, client_id
        left = {member.client_id for member in known.members.values()}
        self.mismatches.keep(group, left)
        if known.members:
            self._notify(known)
        else:
            del self._groups[group]
            self._tell(group)
            self._on_gone(group)

    def on_close(self, connection: Connection) -> None:
        """Forget a consumer whose connection is gone, in all its groups."""
        for group in list(self._groups.values()):
            member = group.members.get(connection)
            if member is not None:
                self.unregister(group.name, member.client_id, connection)

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
    return changed
