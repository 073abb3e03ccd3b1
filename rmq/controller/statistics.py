"""State and counters of a controller, for metrics.

Every controller knows all groups and which brokers are alive; only the leader acts.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from rmq.controller.election import Alive
from rmq.controller.groups import Group
from rmq.controller.leadership import Lead


class Counts(msgspec.Struct):
    """Counters of one process since its start."""

    elected: int = 0
    kept: int = 0
    """Elections that were requested while the master was alive."""

    failed: int = 0
    """Elections in which no broker could become the master."""

    unconfirmed: int = 0
    """Requests and elections that the engine did not confirm."""


class GroupStatistics(NamedTuple):
    """The state of a group in this controller."""

    cluster: str
    name: str
    has_master: bool
    """Whether the group has a live master."""

    master_epoch: int
    in_set: int
    members: int
    living: int
    is_doubtful: bool
    """Whether the state of the group may be an old copy; then the group gets no new
    master.
    """


class ControllerStatistics(NamedTuple):
    """One controller."""

    is_leading: bool
    leader: str | None
    controllers: tuple[str, ...]
    counts: Counts
    groups: tuple[GroupStatistics, ...]


def groups_of(
    lead: Lead, alive_members: Callable[[Group], Alive]
) -> Iterator[GroupStatistics]:
    """Yield all groups."""
    for stored in lead.groups.values():
        group = stored.group
        alive = alive_members(group)
        yield GroupStatistics(
            group.cluster,
            group.name,
            alive.is_alive(group.master_id),
            group.master_epoch,
            len(group.sync_set),
            len(group.members),
            sum(map(alive.is_alive, group.members)),
            group.is_doubtful(alive),
        )
