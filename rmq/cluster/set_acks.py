"""SetAcks: acknowledgements in a group with a controller.

With `allAckInSyncStateSet` everybody in the set has to have a message, and readers see
what all of them have; else `inSyncReplicas` of those that are connected, as without a
controller.
"""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

from rmq.cluster.acks import Acks
from rmq.cluster.sync_set import SyncSet

if TYPE_CHECKING:
    from rmq.cluster.session import Follower


class _Mark(NamedTuple):
    """The end of the log at some time: who reports it had all there was then."""

    end: int
    ms: int


class SetAcks(Acks):
    """What the connected replicas have, and what that means for the set."""

    def __init__(
        self,
        group: SyncSet,
        *,
        needed: int,
        needs_all: bool,
        least: int,
        end: Callable[[], int],
        now_ms: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        """A set with fewer than `least` brokers acknowledges nothing new.

        `on_change` is called when the set should perhaps be another one.
        """
        super().__init__(needed)
        self._group = group
        self._needs_all = needs_all
        self._end = end
        self._now_ms = now_ms
        self._on_change = on_change
        self._ids: dict[Hashable, int] = {}
        self._marks: dict[Hashable, _Mark] = {}
        self._least = least
        self._acknowledged = group.confirmed(end())

    def report(self, replica: "Follower", offset: int, *, sent: int) -> None:  # type: ignore[override]
        """Take a replica's report; RemoteProtocolError if it cannot be true."""
        super().report(replica, offset, sent=sent)
        greeting = replica.greeting
        assert greeting is not None, "who reports has greeted"
        if greeting.is_learner:
            self._proven.pop(replica, None)
        if replica not in self._proven:
            return
        end, now_ms, broker_id = self._end(), self._now_ms(), greeting.broker_id
        self._group.report(broker_id, offset, end=end, now_ms=now_ms)
        self._ids[replica] = broker_id
        mark = self._marks.get(replica, _Mark(end, now_ms))
        if offset >= mark.end:
            self._group.was_at_end(broker_id, mark.ms)
            mark = _Mark(end, now_ms)
        self._marks[replica] = mark
        if broker_id not in self._group.members:
            self._on_change()

    def leave(self, replica: Hashable) -> None:
        """Forget a replica that is no longer connected; the set does not."""
        super().leave(replica)
        self._marks.pop(replica, None)
        broker_id = self._ids.pop(replica, None)
        if broker_id is not None and broker_id not in self._ids.values():
            self._group.leave(broker_id)
            self._on_change()

    def replicated(self) -> int:
        """Return the offset up to which enough brokers have the log."""
        if len(self._group.members) < self._least:
            return self._acknowledged
        if self._needs_all:
            self._acknowledged = self._group.confirmed(self._end())
        else:
            own = super().replicated() if self._needed else self._end()
            self._acknowledged = max(self._acknowledged, own)
        return self._acknowledged

    def is_in_sync(self, replica: Hashable, end: int, gap: int) -> bool:
        """Whether a replica is in the set."""
        return self._ids.get(replica) in self._group.members
