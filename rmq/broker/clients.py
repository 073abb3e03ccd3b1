"""The producers and consumers that are online, by group, as heartbeats report them.

A member is a connection. A client may return over another connection. All members of a
group are notified when its members or topics change, see `MemberNotices`. Members of
broadcast groups read every queue and are not notified. The cost of a heartbeat, a join
or a leave does not grow with the group.
"""

from collections.abc import Callable, Collection, Iterator

import msgspec

from rmq.broker.client_notices import MemberNotices
from rmq.broker.mismatch import SubscriptionMismatches
from rmq.broker.quota import Quota, peer_of
from rmq.broker.tables.groups import GroupTable
from rmq.core.errors import RequestRejected
from rmq.protocol.bodies.heartbeat import ConsumerData, MessageModel, SubscriptionData
from rmq.protocol.codes import ResponseCode
from rmq.remoting.connection import Connection

MAX_MEMBERS = 200_000
"""Maximum number of members of all groups of a table; heartbeats add them."""

MAX_GROUPS = 8_192
"""Maximum number of groups of one connection in a table: twice the limit of one client.
"""

MAX_CLIENT_IDS = 64
"""Maximum number of clients on one connection, which clients of one process share."""

MAX_SUBSCRIPTION_SIZE = 64 * 1024 * 1024
"""Maximum characters of all subscriptions together; each tag counts as `TAG_SIZE` more.
"""

TAG_SIZE = 64

_ADVICE = "spread clients over more brokers"

SHARED_GROUPS = ("CLIENT_INNER_PRODUCER", "_INNER_TRACE_PRODUCER")
"""Prefixes of the producer groups that every Java client joins automatically.

Members of these groups end no transactions and wait for no replies. Clients that are in
no other group may have equal ids.
"""


class Member(msgspec.Struct, gc=False):
    """A client in a group."""

    client_id: str
    language: int | str | None
    version: int
    last_heartbeat_ms: int
    user: str = ""
    """The user who signed the heartbeats; empty without access control."""


class ConsumerGroup(msgspec.Struct):
    """The members of a group and their subscriptions."""

    name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    members: dict[Connection, Member] = msgspec.field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    size: int = 0
    """Characters of the subscriptions."""

    peer: str = ""
    """The peer that sent the subscriptions, and whose quota counts them."""


class ProducerTable:
    """Known in Java as `ProducerManager`.

    A group and a client id belong to the user who registered them first, while that
    producer is online. The broker sends checks of half messages, and replies, to the
    connections of producers.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[Connection, Member]] = {}
        self._groups_of: dict[Connection, set[str]] = {}
        self._connections: dict[str, Connection] = {}
        self._users: dict[str, str] = {}
        self._clients_of: dict[Connection, set[str]] = {}
        self._places = Quota(MAX_MEMBERS, "members of producer groups", _ADVICE)

    def register(
        self,
        group: str,
        client_id: str,
        connection: Connection,
        language: int | str | None,
        version: int,
        now_ms: int,
        user: str = "",
    ) -> None:
        """Add a producer, or renew its time limit."""
        assert connection.is_open, f"{client_id} registered over a closed connection"
        members = self._groups.get(group, {})
        is_new = connection not in members
        groups = self._groups_of.get(connection, set())
        if is_new:
            _check_groups(groups)
            self._places.check_room(peer_of(connection))
        if not group.startswith(SHARED_GROUPS):
            self._remember_client(client_id, connection)
            self._users[client_id] = user
        if is_new:
            self._places.add(peer_of(connection), 1)
        members[connection] = Member(client_id, language, version, now_ms, user)
        self._groups[group] = members
        self._groups_of[connection] = groups
        groups.add(group)

    def shift_times(self, step_ms: int) -> None:
        """Move the times of heartbeats, because the clock was set."""
        for members in self._groups.values():
            for member in members.values():
                member.last_heartbeat_ms += step_ms

    def check_user(self, user: str, client_id: str, groups: Collection[str]) -> None:
        """Refuse a client id and groups that belong to another user."""
        for group in self._groups.keys() & groups:
            self.check_group(user, group)
        if self._users.get(client_id, "") not in ("", user) and not all(
            group.startswith(SHARED_GROUPS) for group in groups
        ):
            raise _owner_error(f"client id {client_id}")

    def check_group(self, user: str, group: str) -> None:
        """Refuse a group that belongs to another user."""
        if group.startswith(SHARED_GROUPS):
            return
        first = next(iter(self._groups.get(group, {}).values()), None)
        if first is not None and first.user not in ("", user):
            raise _owner_error(f"producer group {group}")

    def _remember_client(self, client_id: str, connection: Connection) -> None:
        """Remember the current connection of a client."""
        before = self._connections.get(client_id)
        if before is connection:
            return
        clients = self._clients_of.setdefault(connection, set())
        if len(clients) >= MAX_CLIENT_IDS:
            raise _limit_error(
                f"a connection serves at most {MAX_CLIENT_IDS} client ids"
            )
        if before is not None:
            self._clients_of[before].discard(client_id)
        clients.add(client_id)
        self._connections[client_id] = connection

    def unregister(self, group: str, client_id: str, connection: Connection) -> None:
        """Remove a producer that unregisters."""
        members = self._groups.get(group, {})
        if members.pop(connection, None) is None:
            return
        self._places.give_back(peer_of(connection))
        self._groups_of[connection].discard(group)
        if not members:
            del self._groups[group]

    def on_close(self, connection: Connection) -> None:
        """Remove a producer whose connection is closed."""
        for group in self._groups_of.pop(connection, ()):
            members = self._groups[group]
            del members[connection]
            self._places.give_back(peer_of(connection))
            if not members:
                del self._groups[group]
        for client_id in self._clients_of.pop(connection, ()):
            del self._connections[client_id]
            del self._users[client_id]

    def members(self, group: str) -> dict[Connection, Member]:
        """Return the producers of a group."""
        return dict(self._groups.get(group, {}))

    def connection(self, client_id: str) -> Connection | None:
        """Return the connection over which a producer registered last."""
        return self._connections.get(client_id)

    def group_names(self) -> list[str]:
        """Return the groups that are online."""
        return list(self._groups)

    def all(self) -> Iterator[tuple[str, Connection, Member]]:
        """Yield every producer with its group."""
        for group in self.group_names():
            for connection, member in self.members(group).items():
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
        self.on_join: list[Callable[[str, str, Connection], None]] = []
        self.on_leave: list[Callable[[str, str, Connection, bool], None]] = []
        """Callbacks that get group, client id, connection, and whether the client
        unregistered.
        """

        self._groups: dict[str, ConsumerGroup] = {}
        self._groups_of: dict[Connection, set[str]] = {}
        self._places = Quota(MAX_MEMBERS, "members of consumer groups", _ADVICE)
        self._sizes = Quota(
            MAX_SUBSCRIPTION_SIZE, "characters of subscriptions", _ADVICE
        )
        self.mismatches = SubscriptionMismatches()
        self.notices = MemberNotices(self._notified_members)

    def register(
        self,
        data: ConsumerData,
        client_id: str,
        connection: Connection,
        language: int | str | None,
        version: int,
        now_ms: int,
    ) -> bool:
        """Add or renew a consumer. If the group changed, notify its members and return
        True.

        RequestRejected if the tables have no room for it.
        """
        assert connection.is_open, f"{client_id} registered over a closed connection"
        name = data.group_name or ""
        group = self._groups.get(name) or ConsumerGroup(name)
        self._check_room(group, data, connection)
        self._groups[name] = group
        member = Member(client_id, language, version, now_ms)
        is_changed = self._join(group, member, connection)
        if self._subscribe(group, data, peer_of(connection)):
            is_changed = True
        wanted = data.subscription_data_set
        self.mismatches.record_member(name, client_id, wanted, connection)
        if is_changed:
            self.notices.notify_members(name)
        return is_changed

    def shift_times(self, step_ms: int) -> None:
        """Move the times of heartbeats, because the clock was set."""
        for group in self._groups.values():
            for member in group.members.values():
                member.last_heartbeat_ms += step_ms

    def _check_room(
        self, group: ConsumerGroup, data: ConsumerData, connection: Connection
    ) -> None:
        if connection not in group.members:
            _check_groups(self._groups_of.get(connection, set()))
            self._places.check_room(peer_of(connection))
        size = sum(map(_size_of, data.subscription_data_set))
        if size > group.size:
            self._sizes.check_room(peer_of(connection), size - group.size)

    def _join(
        self, group: ConsumerGroup, member: Member, connection: Connection
    ) -> bool:
        """Add or renew a member; True if it is new or has another client id."""
        before = group.members.get(connection)
        group.members[connection] = member
        if before is None:
            self._places.add(peer_of(connection), 1)
            self._groups_of.setdefault(connection, set()).add(group.name)
            for joined in self.on_join:
                joined(group.name, member.client_id, connection)
            return True
        if before.client_id == member.client_id:
            return False
        self.mismatches.remove_member(group.name, before.client_id, connection)
        return True

    def _subscribe(self, group: ConsumerGroup, data: ConsumerData, peer: str) -> bool:
        """Update the group's subscriptions; True if a topic was added or removed."""
        kind = data.consume_type, data.message_model, data.consume_from_where
        is_other_kind = kind != (
            group.consume_type,
            group.message_model,
            group.consume_from_where,
        )
        group.consume_type, group.message_model, group.consume_from_where = kind
        topics = group.subscriptions.keys()
        came = {each.topic or "" for each in data.subscription_data_set} ^ topics
        if _update_subscriptions(group.subscriptions, data.subscription_data_set):
            self._sizes.give_back(group.peer, group.size)
            group.size = sum(map(_size_of, group.subscriptions.values()))
            group.peer = peer
            self._sizes.add(peer, group.size)
        elif not is_other_kind:
            return False
        self._subscriptions_changed(group.name)
        return bool(came)

    def refresh(
        self, group: str, client_id: str, connection: Connection, now_ms: int
    ) -> bool:
        """Renew a member's time limit; False if its subscriptions are not known."""
        return self.renew(group, client_id, connection, now_ms) and bool(
            self._groups[group].subscriptions
        )

    def renew(
        self, group: str, client_id: str, connection: Connection, now_ms: int
    ) -> bool:
        """Renew a member's time limit; False if it is not a member."""
        known = self._groups.get(group)
        member = known.members.get(connection) if known else None
        if member is None or member.client_id != client_id:
            return False
        member.last_heartbeat_ms = now_ms
        return True

    def unregister(self, group: str, client_id: str, connection: Connection) -> None:
        """Remove a consumer that unregisters."""
        self._remove(group, connection, is_clean=True)

    def _remove(self, group: str, connection: Connection, *, is_clean: bool) -> None:
        known = self._groups.get(group)
        member = known.members.pop(connection, None) if known else None
        if known is None or member is None:
            return
        for left in self.on_leave:
            left(group, member.client_id, connection, is_clean)
        self._places.give_back(peer_of(connection))
        self._groups_of[connection].discard(group)
        self.mismatches.remove_member(group, member.client_id, connection)
        if known.members:
            self.notices.notify_members(group)
        else:
            self._sizes.give_back(known.peer, known.size)
            del self._groups[group]
            self._subscriptions_changed(group)
            self._on_gone(group)

    def on_close(self, connection: Connection) -> None:
        """Remove a consumer whose connection is closed from all its groups."""
        for name in list(self._groups_of.get(connection, ())):
            self._remove(name, connection, is_clean=False)
        self._groups_of.pop(connection, None)

    def client_ids(self, group: str) -> list[str]:
        """Return the ids of a group's members."""
        known = self._groups.get(group)
        if known is None:
            return []
        return list({member.client_id: None for member in known.members.values()})

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the subscription of a group to a topic."""
        known = self._groups.get(group)
        return known.subscriptions.get(topic) if known else None

    def group(self, name: str) -> ConsumerGroup | None:
        """Return the group if it is online."""
        return self._groups.get(name)

    def group_names(self) -> list[str]:
        """Return the groups that are online."""
        return list(self._groups)

    def members(self, name: str) -> dict[Connection, Member]:
        """Return the consumers of a group."""
        group = self._groups.get(name)
        return {} if group is None else dict(group.members)

    def all(self) -> Iterator[tuple[str, Connection, Member]]:
        """Yield every consumer with its group."""
        for group in self.group_names():
            for connection, member in self.members(group).items():
                yield group, connection, member

    def _subscriptions_changed(self, group: str) -> None:
        """Notify the callbacks that a group's subscriptions or settings changed."""
        for listener in self.on_change:
            listener(group)

    def _notified_members(self, name: str) -> list[Connection]:
        """Return the connections of members that want notices of changes."""
        settings, group = self._settings.get(name), self._groups.get(name)
        is_wanted = settings is None or settings.notify_consumer_ids_changed_enable
        if group is None or not self._notifies or not is_wanted:
            return []
        if group.message_model == MessageModel.BROADCASTING:
            return []
        return list(group.members)


def _update_subscriptions(
    known: dict[str, SubscriptionData], wanted: list[SubscriptionData]
) -> bool:
    """Replace subscriptions by newer ones; return True if a subscription changed."""
    is_changed = False
    topics = set()
    for subscription in wanted:
        topic = subscription.topic or ""
        topics.add(topic)
        before = known.get(topic)
        if before is None or before.sub_version < subscription.sub_version:
            known[topic] = subscription
            is_changed = True
    for topic in known.keys() - topics:
        del known[topic]
        is_changed = True
    return is_changed


def _size_of(subscription: SubscriptionData) -> int:
    """Return the characters that the quota counts for a subscription."""
    tags = sum(TAG_SIZE + len(tag) for tag in subscription.tags_set)
    codes = TAG_SIZE * len(subscription.code_set)
    texts = len(subscription.topic or "") + len(subscription.sub_string or "")
    return TAG_SIZE + tags + codes + texts


def _check_groups(groups: set[str]) -> None:
    if len(groups) >= MAX_GROUPS:
        raise _limit_error(f"a connection serves at most {MAX_GROUPS} groups")


def _limit_error(reason: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, f"{reason}: {_ADVICE}")


def _owner_error(what: str) -> RequestRejected:
    return RequestRejected(
        ResponseCode.NO_PERMISSION,
        f"the {what} belongs to another user while its producers are online: use "
        "another name",
    )
