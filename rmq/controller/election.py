"""Election: which broker of a group becomes master.

Known in Java as `DefaultElectPolicy`. Only a broker whose heartbeats are known can be
elected, so that a notice reaches it. The old master stays as long as it may live.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Live(NamedTuple):
    """The newest values of a broker's heartbeats.

    epoch: the newest one in its log; max_offset: the end of its log; priority: the
    smaller one is preferred.
    """

    epoch: int
    max_offset: int
    priority: int


class Alive(NamedTuple):
    """The members of a group of which a controller knows, or must assume, that they
    live.

    assumed: a controller that leads since less than a heartbeat's time-out may not
    have heard of them yet.
    """

    heard: Mapping[int, Live]
    assumed: Collection[int] = ()

    def is_alive(self, broker_id: int | None) -> bool:
        """Whether this member may be alive."""
        return broker_id in self.heard or broker_id in self.assumed


def choose(
    candidates: Collection[int],
    old_master: int | None,
    wanted: int | None,
    alive: Alive,
) -> int | None:
    """Return the master for this group; None if none of the candidates can be it.

    wanted: the id that a person asks for; it or none.
    """
    keeps_old = wanted is None or wanted == old_master
    if keeps_old and old_master in candidates and alive.is_alive(old_master):
        return old_master
    able = [each for each in candidates if each in alive.heard]
    if wanted is not None:
        return wanted if wanted in able else None
    return min(able, key=lambda each: _rank(each, alive.heard[each]), default=None)


def _rank(broker_id: int, live: Live) -> tuple[int, int, int, int]:
    """Order by larger epoch, more bytes, smaller priority, smaller id.

    Java subtracts offsets as 32 bits: logs that differ by 2 GiB are in the wrong order.
    It chooses any of two equal brokers.
    """
    return -live.epoch, -live.max_offset, live.priority, broker_id
