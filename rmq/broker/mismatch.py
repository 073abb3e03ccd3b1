"""Members of one consumer group that want different things.

RocketMQ keeps one subscription for a group, so that the member with the newest version
wins and the others silently miss messages. Here each difference is logged once, with
both sides, and counted. Bounds: `MAX_GROUPS`, `MAX_MEMBERS` and `MAX_TEXT`; what goes
beyond is not watched. Members are kept by what they want, so that a heartbeat, a join
and a leave cost the same in a group of any size.
"""

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from rmq.logs import Foreign, SparseLog
from rmq.protocol.bodies.heartbeat import SubscriptionData

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

MAX_GROUPS: Final = 10_000
MAX_MEMBERS: Final = 20_000
MAX_TEXT: Final = 4_096
"""Characters of what one member wants."""

Wanted = frozenset[tuple[str, str, str]]
"""Topic, kind of expression and expression, of every subscription."""


class MismatchStatistics(NamedTuple):
    """Groups whose members differ now, changes that were logged, members watched."""

    groups: int
    logged: int
    members: int


class _Group(msgspec.Struct):
    """The members of one group."""

    wanted: dict[str, Wanted] = msgspec.field(default_factory=dict)
    """By client id."""

    holders: dict[str, object] = msgspec.field(default_factory=dict)
    """The connection over which each client was heard last."""

    alike: dict[Wanted, dict[str, None]] = msgspec.field(default_factory=dict)
    """The client ids that want the same."""

    def put(self, client_id: str, wanted: Wanted) -> bool:
        """Replace what a member wants; True if nobody else wants the same."""
        self.remove(client_id)
        self.wanted[client_id] = wanted
        clients = self.alike.setdefault(wanted, {})
        clients[client_id] = None
        return len(clients) == 1

    def remove(self, client_id: str) -> None:
        """Forget what a member wants; it may be unknown."""
        before = self.wanted.pop(client_id, None)
        if before is not None:
            del self.alike[before][client_id]
            if not self.alike[before]:
                del self.alike[before]
        assert bool(self.wanted) == bool(self.alike), "the tables differ"


class SubscriptionMismatches:
    """What each member of each group wants."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._differing: set[str] = set()
        self._logged = 0
        self._members = 0

    def note(
        self,
        group: str,
        client_id: str,
        subscriptions: Iterable[SubscriptionData],
        connection: object = None,
    ) -> None:
        """Compare a member's subscriptions with those of the others."""
        mine = frozenset(
            (item.topic or "", item.expression_type or "TAG", item.sub_string or "*")
            for item in subscriptions
        )
        known = self._groups.get(group) or _Group()
        if known.wanted.get(client_id) != mine:
            if not self._has_room(group, client_id, mine):
                return
            self._groups[group] = known
            self._members += client_id not in known.wanted
            is_new = known.put(client_id, mine)
            self._compare(group, known)
            if is_new and len(known.alike) > 1:
                self._log(group, client_id, known)
        known.holders[client_id] = connection

    def _has_room(self, group: str, client_id: str, mine: Wanted) -> bool:
        known = self._groups.get(group)
        if known is None and len(self._groups) >= MAX_GROUPS:
            return False
        if sum(len(text) for wanted in mine for text in wanted) > MAX_TEXT:
            return False
        is_member = known is not None and client_id in known.wanted
        return is_member or self._members < MAX_MEMBERS

    def drop(self, group: str, client_id: str, connection: object = None) -> None:
        """Forget a member that left, unless it came back over another connection."""
        known = self._groups.get(group)
        if known is None or client_id not in known.wanted:
            return
        if known.holders[client_id] is not connection:
            return
        known.remove(client_id)
        del known.holders[client_id]
        self._members -= 1
        self._compare(group, known)
        if not known.wanted:
            del self._groups[group]

    def statistics(self) -> MismatchStatistics:
        """Return a picture of the counters."""
        return MismatchStatistics(len(self._differing), self._logged, self._members)

    def _compare(self, group: str, known: _Group) -> None:
        if len(known.alike) > 1:
            self._differing.add(group)
        else:
            self._differing.discard(group)

    def _log(self, group: str, client_id: str, known: _Group) -> None:
        self._logged += 1
        mine = known.wanted[client_id]
        theirs, others = next(
            (wanted, names) for wanted, names in known.alike.items() if wanted != mine
        )
        logger.warning(
            "group %s: its members subscribe to different things, some of them will "
            "miss messages: %s wants %s, %s wants %s",
            Foreign(group),
            Foreign(client_id),
            Foreign(_text(mine - theirs)),
            Foreign(next(iter(others))),
            Foreign(_text(theirs - mine)),
        )


def _text(wanted: Wanted) -> str:
    lines = [f"{topic} {kind} {text}" for topic, kind, text in sorted(wanted)]
    return "; ".join(lines) or "nothing else"
