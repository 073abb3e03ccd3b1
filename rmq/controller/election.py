"""Election: which broker of a group becomes master.

Known in Java as `DefaultElectPolicy`. The controller elects only a broker that sends
heartbeats, so that a notice reaches it. The old master remains the master while it may
be alive.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

PATIENCE_S: Final = 60.0
"""Time in which no member is elected whose log is shorter than the confirmed log."""

_KNOWN_SET: Final = re.compile(
    r"(\d{1,10})/(\d{1,10})/(\d{1,10}):((?:\d{1,10}(?:,\d{1,10}){0,99})?)"
)


class KnownSet(NamedTuple):
    """A sync state set, as a member or the controller knows it; a newer set is
    larger.
    """

    master_epoch: int
    number: int
    master_id: int = 0
    """0: there is no master."""

    members: tuple[int, ...] = ()

    def encode(self) -> str:
        """Return the text of a heartbeat."""
        ids = ",".join(map(str, self.members))
        return f"{self.master_epoch}/{self.number}/{self.master_id}:{ids}"

    @classmethod
    def decode(cls, text: str) -> "KnownSet | None":
        """Return the set of a heartbeat; None for another text."""
        found = _KNOWN_SET.fullmatch(text)
        if found is None:
            return None
        ids = tuple(int(each) for each in found[4].split(",") if each)
        return cls(int(found[1]), int(found[2]), int(found[3]), ids)


class Live(NamedTuple):
    """The newest values of a broker's heartbeats.

    epoch: the newest epoch in its log; max_offset: the end of its log; priority: the
    smaller number is preferred.
    """

    epoch: int
    max_offset: int
    priority: int
    confirmed: int = 0
    """The end of the log that the group has confirmed, as this broker knows it."""

    known_set: KnownSet | None = None
    """The newest set that this broker knows; Java's brokers do not report it."""

    is_recent: bool = False
    """Whether the broker's first heartbeat is younger than PATIENCE_S."""

    required: tuple[int, int] = (0, 0)
    """The confirmed epoch and offset that the broker's log must contain: the newest
    that the controller knew when this heartbeat came. Under load the group confirms
    more before the next heartbeat, which then shows whether the broker has it.
    """


class Alive(NamedTuple):
    """The members of a group that are alive, or that a controller must assume to be
    alive.

    assumed: members whose heartbeats a controller may not have received yet, because it
    has led for less than their time-out.
    """

    heard: Mapping[int, Live]
    assumed: Collection[int] = ()
    is_doubtful: bool = False
    """Whether the engine may have an old state of the group."""

    confirmed: tuple[int, int] = (0, 0)
    """The newest epoch for which a member has reported a confirmed offset, and this
    offset.
    """

    def is_alive(self, broker_id: int | None) -> bool:
        """Whether this member may be alive."""
        return broker_id in self.heard or broker_id in self.assumed


def choose(
    candidates: Collection[int],
    old_master: int | None,
    wanted: int | None,
    alive: Alive,
) -> int | None:
    """Return the master for this group; None if no candidate can be the master.

    wanted: the only id that may become the master, because an operator has named it.
    """
    keeps_old = wanted is None or wanted == old_master
    if wanted is None:
        whole = [each for each in candidates if not lacks_confirmed(each, alive)]
        # without a whole log all members have reported, and all have lost bytes
        candidates = whole or candidates
    if keeps_old and old_master in candidates and alive.is_alive(old_master):
        return old_master
    able = [each for each in candidates if each in alive.heard]
    if wanted is not None:
        return wanted if wanted in able else None
    return min(able, key=lambda each: _rank(each, alive.heard[each]), default=None)


def lacks_confirmed(broker_id: int, alive: Alive) -> bool:
    """Whether a member's log ends before an offset that the group has confirmed.

    Each member of the set had all bytes before this offset, so the member has lost
    bytes. Its log may also end in an earlier epoch, or be empty. Other members have
    PATIENCE_S to register. After that this member may be the last one with data.
    """
    live = alive.heard.get(broker_id)
    if live is None or not live.is_recent:
        return False
    epoch, offset = live.required
    return live.epoch <= epoch and live.max_offset < offset


def _rank(broker_id: int, live: Live) -> tuple[int, int, int, int]:
    """Order by larger epoch, more bytes, smaller priority, smaller id.

    Java subtracts offsets as 32 bits: logs that differ by 2 GiB are in the wrong order.
    If two brokers are equal, Java chooses any.
    """
    return -live.epoch, -live.max_offset, live.priority, broker_id
