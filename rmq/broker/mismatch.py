"""Members of one consumer group that want different things.

RocketMQ keeps one subscription for a group, so that the member with the newest version
wins and the others silently miss messages. Here each difference is logged once, with
both sides, and counted. Bounds: `MAX_GROUPS`, `MAX_MEMBERS` and `MAX_TEXT`; what goes
beyond is not watched.
"""

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from rmq.protocol.bodies.heartbeat import SubscriptionData

logger = logging.getLogger(__name__)

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


class SubscriptionMismatches:
    """What each member of each group wants, by client id."""

    def __init__(self) -> None:
        self._wanted: dict[str, dict[str, Wanted]] = {}
        self._differing: dict[str, frozenset[Wanted]] = {}
        self._logged = 0
        self._members = 0

    def note(
        self, group: str, client_id: str, subscriptions: Iterable[SubscriptionData]
    ) -> None:
        """Compare a member's subscriptions with those of the others."""
        mine = frozenset(
            (item.topic or "", item.expression_type or "TAG", item.sub_string or "*")
            for item in subscriptions
        )
        if sum(len(text) for wanted in mine for text in wanted) > MAX_TEXT:
            return
        members = self._wanted.get(group, {})
        if client_id not in members:
            is_full = group not in self._wanted and len(self._wanted) >= MAX_GROUPS
            if is_full or self._members >= MAX_MEMBERS:
                return
            self._members += 1
        self._wanted[group] = members
        members[client_id] = mine
        self._look(group, client_id)

    def keep(self, group: str, client_ids: Iterable[str]) -> None:
        """Forget the members of a group that are not among `client_ids`."""
        members = self._wanted.get(group)
        if members is None:
            return
        for gone in set(members).difference(client_ids):
            del members[gone]
            self._members -= 1
        if not members:
            del self._wanted[group]
        if len(set(members.values())) < 2:
            self._differing.pop(group, None)

    def statistics(self) -> MismatchStatistics:
        """Return a picture of the counters."""
        return MismatchStatistics(len(self._differing), self._logged, self._members)

    def _look(self, group: str, client_id: str) -> None:
        members = self._wanted[group]
        kinds = frozenset(members.values())
        if len(kinds) == 1:
            self._differing.pop(group, None)
            return
        if self._differing.get(group) == kinds:
            return
        self._differing[group] = kinds
        self._logged += 1
        mine = members[client_id]
        other, theirs = next(
            (name, wanted) for name, wanted in members.items() if wanted != mine
        )
        logger.warning(
            "group %s: its members subscribe to different things, some of them will "
            "miss messages: %s wants %s, %s wants %s",
            group,
            client_id,
            _text(mine - theirs),
            other,
            _text(theirs - mine),
        )


def _text(wanted: Wanted) -> str:
    lines = [f"{topic} {kind} {text}" for topic, kind, text in sorted(wanted)]
    return "; ".join(lines)[:500] or "nothing else"
