"""Members of one consumer group with different subscriptions.

RocketMQ has one subscription for a group, the subscription of the member with the
newest version, so other members miss messages without a warning. This module logs each
difference once, with both subscriptions, and counts it. It ignores members above
`MAX_GROUPS`, `MAX_MEMBERS` and `MAX_TEXT`. An index of members by subscriptions makes a
heartbeat, a join and a leave cost the same in a group of any size.
"""

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from rmq.core.logs import Foreign, SparseLog
from rmq.protocol.bodies.heartbeat import SubscriptionData

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

MAX_GROUPS: Final = 10_000
MAX_MEMBERS: Final = 20_000
MAX_TEXT: Final = 4_096
"""Maximum number of characters of one member's subscriptions."""

Wanted = frozenset[tuple[str, str, str]]
"""Subscriptions of a member: each has a topic, a kind of expression and an expression.
"""


class MismatchStatistics(NamedTuple):
    """Groups whose members differ now, logged changes, compared members."""

    groups: int
    logged: int
    members: int


class _Group(msgspec.Struct):
    """The members of one group."""

    by_client: dict[str, Wanted] = msgspec.field(default_factory=dict)
    """Subscriptions by client id."""

    holders: dict[str, object] = msgspec.field(default_factory=dict)
    """Connection of the last heartbeat, by client id."""

    by_wanted: dict[Wanted, dict[str, None]] = msgspec.field(default_factory=dict)
    """Client ids by equal subscriptions."""

    def put(self, client_id: str, wanted: Wanted) -> bool:
        """Replace a member's subscriptions; True if no other member has the same."""
        self.remove(client_id)
        self.by_client[client_id] = wanted
        clients = self.by_wanted.setdefault(wanted, {})
        clients[client_id] = None
        return len(clients) == 1

    def remove(self, client_id: str) -> None:
        """Remove a member, which may be unknown."""
        before = self.by_client.pop(client_id, None)
        if before is not None:
            del self.by_wanted[before][client_id]
            if not self.by_wanted[before]:
                del self.by_wanted[before]
        assert bool(self.by_client) == bool(self.by_wanted), "the tables differ"


class SubscriptionMismatches:
    """The subscriptions of each member of each group."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._differing: set[str] = set()
        self._logged = 0
        self._members = 0

    def record_member(
        self,
        group: str,
        client_id: str,
        subscriptions: Iterable[SubscriptionData],
        connection: object = None,
    ) -> None:
        """Compare a member's subscriptions with the other members' subscriptions."""
        mine = frozenset(
            (item.topic or "", item.expression_type or "TAG", item.sub_string or "*")
            for item in subscriptions
        )
        known = self._groups.get(group) or _Group()
        if known.by_client.get(client_id) != mine:
            if not self._has_room(group, client_id, mine):
                return
            self._groups[group] = known
            self._members += client_id not in known.by_client
            is_new = known.put(client_id, mine)
            self._compare(group, known)
            if is_new and len(known.by_wanted) > 1:
                self._log(group, client_id, known)
        known.holders[client_id] = connection

    def _has_room(self, group: str, client_id: str, mine: Wanted) -> bool:
        known = self._groups.get(group)
        if known is None and len(self._groups) >= MAX_GROUPS:
            return False
        if sum(len(text) for wanted in mine for text in wanted) > MAX_TEXT:
            return False
        is_member = known is not None and client_id in known.by_client
        return is_member or self._members < MAX_MEMBERS

    def remove_member(
        self, group: str, client_id: str, connection: object = None
    ) -> None:
        """Remove a member that left, unless it returned over another connection."""
        known = self._groups.get(group)
        if known is None or client_id not in known.by_client:
            return
        if known.holders[client_id] is not connection:
            return
        known.remove(client_id)
        del known.holders[client_id]
        self._members -= 1
        self._compare(group, known)
        if not known.by_client:
            del self._groups[group]

    def mismatched_groups(self) -> list[str]:
        """Return the groups whose members differ now."""
        return list(self._differing)

    def sides_of(self, group: str) -> list[tuple[int, str]]:
        """Return (number of members, subscriptions), the most frequent subscriptions
        first.
        """
        known = self._groups.get(group)
        if known is None:
            return []
        sides = [(len(names), _text(want)) for want, names in known.by_wanted.items()]
        return sorted(sides, reverse=True)

    def statistics(self) -> MismatchStatistics:
        """Return the counters."""
        return MismatchStatistics(len(self._differing), self._logged, self._members)

    def _compare(self, group: str, known: _Group) -> None:
        if len(known.by_wanted) > 1:
            self._differing.add(group)
        else:
            self._differing.discard(group)

    def _log(self, group: str, client_id: str, known: _Group) -> None:
        self._logged += 1
        mine = known.by_client[client_id]
        theirs, others = next(
            (wanted, names)
            for wanted, names in known.by_wanted.items()
            if wanted != mine
        )
        logger.warning(
            "group %s: its members have different subscriptions, so some members will "
            "miss messages: %s subscribes to %s, %s to %s",
            Foreign(group),
            Foreign(client_id),
            Foreign(_text(mine - theirs)),
            Foreign(next(iter(others))),
            Foreign(_text(theirs - mine)),
        )


def _text(wanted: Wanted) -> str:
    lines = [f"{topic} {kind} {text}" for topic, kind, text in sorted(wanted)]
    return "; ".join(lines) or "nothing else"
