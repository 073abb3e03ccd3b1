"""Engine: keeps the groups of a controller and decides which controller leads.

    load       returns the current groups
    swap       changes one group if it is unchanged and the caller still leads
    watch      yields the changes of other controllers, and the leader
    campaign   makes the caller the leader when there is none, and keeps it the leader

Safety depends on `swap`: the engine itself compares the revision of the group and the
term of the caller in the transaction that writes. So a controller that wrongly believes
that it is the leader can change nothing, whatever the clocks show.

`etcd_engine.py` and `file_engine.py` implement it. Java's `DLedgerController` keeps the
groups in a log of its own instead.
"""

from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from rmq.controller.groups import Group
from rmq.core.errors import EngineAway

ABSENT: Final = 0
"""The revision of a group that does not exist."""

MAX_GROUPS: Final = 1_000
"""Maximum number of groups of a controller: every host with the right of a broker may
create some.
"""


class Stored(NamedTuple):
    """A group, and the revision at which the engine wrote it."""

    group: Group
    revision: int


class View(msgspec.Struct):
    """The state that all controllers share: groups, leader, controllers."""

    groups: dict[str, Stored] = msgspec.field(default_factory=dict)
    leader: str | None = None
    controllers: tuple[str, ...] = ()
    doubtful: set[str] = msgspec.field(default_factory=set)
    """Groups whose newest state may be lost, so this state may be an old copy."""

    doubt: str = ""
    """The reason of the doubt; one sentence."""


class Term(msgspec.Struct):
    """The time for which one controller is the leader.

    number: unique. until_s: time of trio's clock from which on another controller may
    be the leader, unless the engine extends it.
    """

    number: int
    until_s: float


class Engine(Protocol):
    """Every method raises EngineAway if the engine does not confirm in time."""

    warning: str
    """A warning for the operator at the start; empty without one."""

    async def load(self) -> View:
        """Return the state with every confirmed swap."""
        ...

    async def swap(
        self, name: str, group: Group | None, revision: int, term: Term
    ) -> int | None:
        """Write a group, or remove it, and return its new revision.

        None: the group has another revision. TermLost: the term is over.
        """
        ...

    def watch(self) -> AsyncIterator[View]:
        """Yield the state now and after each change; the same object each time."""
        ...

    async def campaign(
        self, address: str, on_term: Callable[[Term | None], None]
    ) -> None:
        """Try to be the leader until cancelled; call back at each begin and end."""
        ...


def encode_group(group: Group) -> bytes:
    """Return a group as engines store it."""
    return msgspec.json.encode(group)


def decode_group(name: str, data: bytes) -> Group:
    """Read a stored group; EngineAway if it is damaged."""
    try:
        return msgspec.json.decode(data, type=Group)
    except msgspec.DecodeError as error:
        raise EngineAway(f"the stored group {name} cannot be read: {error}") from error
