"""Liveness: the heartbeats of brokers, in the memory of one controller.

Known in Java as `DefaultBrokerHeartbeatManager`. Brokers send heartbeats to every
controller, so each knows the live members when it begins to lead. For the time of one
heartbeat after that, it assumes that silent members are alive. It does not assume this
if another member of their group has sent heartbeats without a break: these prove that
the network worked. After a time in which the process could not run, it assumes the same
for a short time, because unread heartbeats may wait. Times are seconds of a clock that
never jumps.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from rmq.controller.election import PATIENCE_S, Alive, KnownSet, Live
from rmq.controller.groups import Group
from rmq.protocol.headers.cluster import BrokerHeartbeatRequestHeader
from rmq.remoting.connection import Connection

DEFAULT_TIMEOUT_MS: Final = 10_000
LEAST_TIMEOUT_MS: Final = 1_000
MAX_TIMEOUT_MS: Final = 600_000
CATCH_UP_S: Final = 5
"""Time for which silent members count as alive after a pause of the process: brokers
send a heartbeat each second.
"""

LEAST_PRIORITY: Final = 2**31 - 1

Key = tuple[str, int]
"""Name of the group, and id."""


class Beat(NamedTuple):
    """The newest heartbeat of a broker."""

    live: Live
    group_confirmed: tuple[int, int]
    """The newest confirmed epoch and offset of its group when this heartbeat came."""

    host: str
    connection: Connection
    since_s: float
    """Time of the first heartbeat of the unbroken series."""

    came_s: float
    expires_s: float


class Liveness:
    """The live members of groups. Only members have entries, which limits the table."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._beats: dict[Key, Beat] = {}
        self._is_new_until_s = 0.0
        self._catches_up_until_s = 0.0
        self._dead: set[Key] = set()
        self._confirmed: dict[str, tuple[int, int]] = {}
        """The newest confirmed epoch and offset by group, also from members that are
        silent now: see `Alive`.
        """

    def begin_to_lead(self) -> None:
        """Assume for the time-out of a heartbeat that members are alive."""
        self._is_new_until_s = self._now_s() + DEFAULT_TIMEOUT_MS / 1000
        self._dead.clear()

    def resume(self) -> None:
        """Assume for CATCH_UP_S that silent members are alive, except members that were
        dead before.
        """
        self._catches_up_until_s = self._now_s() + CATCH_UP_S

    def record_heartbeat(
        self, header: BrokerHeartbeatRequestHeader, host: str, connection: Connection
    ) -> None:
        """Record a heartbeat of a member.

        Java keeps the largest offset of an entry. Here a broker that has lost the end
        of its log must not win an election with its earlier data.
        """
        assert header.broker_id is not None, "handlers check it"
        timeout_ms = header.heartbeat_timeout_mills or DEFAULT_TIMEOUT_MS
        timeout_ms = min(max(timeout_ms, LEAST_TIMEOUT_MS), MAX_TIMEOUT_MS)
        priority = header.election_priority
        live = Live(
            -1 if header.epoch is None else header.epoch,
            -1 if header.max_offset is None else header.max_offset,
            LEAST_PRIORITY if priority is None else priority,
            header.confirm_offset or 0,
            KnownSet.decode(header.rmq_set or ""),
        )
        name = header.broker_name
        known = self._confirmed.get(name, (0, 0))
        confirmed = max(known, (live.epoch, live.confirmed))
        self._confirmed[name] = confirmed
        key = name, header.broker_id
        now_s = since_s = self._now_s()
        last = self._beats.get(key)
        if last is not None and last.expires_s >= now_s:
            since_s = last.since_s
        expires_s = now_s + timeout_ms / 1000
        self._beats[key] = Beat(
            live, confirmed, host, connection, since_s, now_s, expires_s
        )
        self._dead.discard(key)

    def alive_members(self, group: Group) -> Alive:
        """Return the live members of a group."""
        now_s = self._now_s()
        heard = {
            broker_id: beat.live._replace(
                is_recent=now_s - beat.since_s < PATIENCE_S,
                required=max(group.confirmed, beat.group_confirmed),
            )
            for broker_id in group.members
            if (beat := self._beats.get((group.name, broker_id)))
            and beat.expires_s >= now_s
        }
        unheard = group.members.keys() - heard.keys()
        assumed = {i for i in unheard if self._may_live(group.name, i, heard)}
        confirmed = max(group.confirmed, self._confirmed.get(group.name, (0, 0)))
        return Alive(heard, assumed, confirmed=confirmed)

    def _may_live(self, name: str, broker_id: int, heard: Iterable[int]) -> bool:
        """Whether a silent member is assumed to be alive."""
        now_s, key = self._now_s(), (name, broker_id)
        if key in self._dead:
            return False
        if now_s < self._catches_up_until_s:
            return True
        if now_s >= self._is_new_until_s:
            return False
        last = self._beats.get(key)
        return last is None or all(
            self._beats[name, each].since_s > last.came_s for each in heard
        )

    def host_of(self, key: Key) -> str | None:
        """Return the host from which a living broker sends its heartbeats."""
        beat = self._beats.get(key)
        return beat.host if beat and beat.expires_s >= self._now_s() else None

    def brokers_on(self, connection: Connection) -> Iterator[Key]:
        """Yield the brokers that sent their newest heartbeat on this connection."""
        for key, beat in self._beats.items():
            if beat.connection is connection:
                yield key

    def is_new_since(self, key: Key, connection: Connection) -> bool:
        """Whether a heartbeat has come on another connection than this one."""
        beat = self._beats.get(key)
        return beat is not None and beat.connection is not connection

    def mark_dead(self, key: Key) -> None:
        """Remove a broker whose port is closed."""
        self._beats.pop(key, None)
        self._dead.add(key)

    def keep_only(self, groups: Iterable[Group]) -> None:
        """Remove the brokers that are no members any more."""
        known = {(group.name, each) for group in groups for each in group.members}
        self._beats = {key: each for key, each in self._beats.items() if key in known}
        names = {name for name, _ in known}
        self._confirmed = {
            name: each for name, each in self._confirmed.items() if name in names
        }
        self._dead &= known
