"""Which brokers must have a message before its sender is answered.

`Acks` counts the slaves of a group without a controller.  `SetAcks` does that with a
controller, where a `SyncSet` holds the sync state set.

The controller keeps the set: after the master's death it elects one of these brokers.
So the master may go on without a broker only after the controller has removed it.  The
controller may add a broker only after that has all acknowledged messages:

* Only the controller's answer makes the set smaller.  Until then a message needs an ack
  from every broker in the confirmed set and in the requested set.
* The master asks to remove a broker at once when its connection is lost.  Until the
  answer it acknowledges nothing that this broker lacks.
* The master asks to add a broker when that has all that is confirmed, and the start of
  this epoch.
* One request travels at a time.  If its answer is lost the request counts on, because
  the controller may have granted it.  The master repeats it until the controller
  answers or reports a later set.  Each request names the number of the set that it
  replaces, so that only one of them has an effect.

The confirm offset only grows.

A slave cannot have what it was not sent, and never has less than it reported before.
The first report of a connection proves nothing, because it only asks where to begin.
A later one proves that the slave has the log before it: the slave has compared its
last record by then.

No I/O, no clock: callers pass the time.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import NamedTuple, Protocol

from rmq.cluster.wire import Greeting
from rmq.core.errors import RemoteProtocolError


class SyncSet:
    """The set of one epoch, as its master knows it."""

    def __init__(
        self,
        own_id: int,
        members: Collection[int],
        *,
        number: int,
        start: int,
        confirm_offset: int,
        max_lag_ms: int,
    ) -> None:
        """`members` is the controller's set with this `number`, in which the master is.

        The epoch begins at `start`; everything before `confirm_offset` was confirmed in
        an earlier one.  The master asks to remove a broker that has not been at the end
        of the log for `max_lag_ms`.
        """
        self.own_id = own_id
        self.members = frozenset(members) | {own_id}
        self.number = number
        self._start = start
        self._confirm_offset = confirm_offset
        self._max_lag_ms = max_lag_ms
        self.requested: frozenset[int] | None = None
        """The set of a request that the controller has not answered, or None."""

        self._ack_offsets: dict[int, int] = {}
        """Proven log end of each connected broker, by id."""

        self._at_end_ms: dict[int, int] = {}

    @property
    def required_acks(self) -> frozenset[int]:
        """Brokers whose ack a message needs: all that may be in the set."""
        return self.members | (self.requested or self.members)

    @property
    def offline_brokers(self) -> frozenset[int]:
        """Brokers whose ack a message needs, and that are not connected."""
        return self.required_acks - self._ack_offsets.keys() - {self.own_id}

    @property
    def ack_offsets(self) -> Mapping[int, int]:
        """Proven log end of each connected broker, by id."""
        return self._ack_offsets

    # -- reports of slaves

    def report(self, broker_id: int, offset: int, *, end: int, now_ms: int) -> None:
        """Record that a broker has proven to have the log up to `offset`, of `end`.

        RemoteProtocolError if that cannot be true.
        """
        if broker_id == self.own_id:
            raise RemoteProtocolError(f"it says that it is this broker, {broker_id}")
        if offset > end:
            raise RemoteProtocolError(f"it reported {offset}, the log ends at {end}")
        known = self._ack_offsets.get(broker_id, 0)
        self._ack_offsets[broker_id] = max(known, offset)
        if offset == end:
            self._at_end_ms[broker_id] = now_ms

    def record_at_end(self, broker_id: int, now_ms: int) -> None:
        """Record that a broker has all that this log had at that time."""
        if broker_id in self._ack_offsets:
            known = self._at_end_ms.get(broker_id, now_ms)
            self._at_end_ms[broker_id] = max(known, now_ms)

    def remove(self, broker_id: int) -> None:
        """Record that the connection to a broker is lost."""
        self._ack_offsets.pop(broker_id, None)
        self._at_end_ms.pop(broker_id, None)

    # -- consequences

    def confirm_offset(self, end: int) -> int:
        """Return up to where all required brokers have the log, which ends at `end`."""
        others = self.required_acks - {self.own_id}
        if all(each in self._ack_offsets for each in others):
            least = min((self._ack_offsets[each] for each in others), default=end)
            self._confirm_offset = max(self._confirm_offset, min(least, end))
        return self._confirm_offset

    def desired_set(self, end: int, now_ms: int) -> frozenset[int] | None:
        """Return the set to ask the controller for; None if this one is right."""
        if self.requested is not None:
            return self.requested
        confirmed = self.confirm_offset(end)
        wanted = {self.own_id}
        for broker_id, offset in self._ack_offsets.items():
            has_all = offset >= max(confirmed, self._start)
            if broker_id not in self.members:
                if has_all:
                    wanted.add(broker_id)
                continue
            silent_ms = now_ms - self._at_end_ms.setdefault(broker_id, now_ms)
            if has_all and silent_ms <= self._max_lag_ms:
                wanted.add(broker_id)
        return None if wanted == self.members else frozenset(wanted)

    # -- answers of the controller

    def request_change(self, wanted: frozenset[int]) -> None:
        """Record that the controller is asked for this set, perhaps once more."""
        assert self.requested in (None, wanted), (self.requested, wanted)
        self.requested = wanted

    def cancel_request(self) -> None:
        """Record that the controller has refused the request."""
        self.requested = None

    def apply(self, members: Collection[int], number: int) -> bool:
        """Apply the controller's set; False if it is not newer than the known one.

        A request that was made before is void: it names an older number.
        """
        if number <= self.number:
            return False
        self.members, self.number = frozenset(members) | {self.own_id}, number
        self.requested = None
        return True


class Acks:
    """The acknowledged offsets of the connected slaves."""

    def __init__(self, needed: int) -> None:
        """`needed` slaves must have a message before its sender is answered."""
        assert needed >= 0, needed
        self._needed = needed
        self._offsets: dict[Hashable, int] = {}
        self._proven_offsets: dict[Hashable, int] = {}
        """Offsets of the slaves that have reported at least twice."""

    def report(self, slave: Hashable, offset: int, *, sent: int) -> None:
        """Apply a slave's report; RemoteProtocolError if it cannot be true.

        The slave was sent the log up to `sent`.
        """
        known = self._offsets.get(slave, 0)
        if offset > sent:
            raise RemoteProtocolError(
                f"it reported {offset}, but was sent the log up to {sent} only"
            )
        if offset < known:
            raise RemoteProtocolError(f"it reported {offset} after {known}")
        if slave in self._offsets:
            self._proven_offsets[slave] = offset
        self._offsets[slave] = offset

    def remove(self, slave: Hashable) -> None:
        """Remove a slave that is no longer connected."""
        self._offsets.pop(slave, None)
        self._proven_offsets.pop(slave, None)

    def offset_of(self, slave: Hashable) -> int:
        """Return what a slave reported last; -1 if it has not reported yet."""
        return self._offsets.get(slave, -1)

    def replicated_offset(self) -> int:
        """Return the offset up to which enough connected slaves have the log.

        It falls when a slave leaves; the watermark that callers move with it does not.
        """
        if self._needed > len(self._proven_offsets) or not self._needed:
            return 0
        return sorted(self._proven_offsets.values(), reverse=True)[self._needed - 1]

    def is_in_sync(self, slave: Hashable, end: int, gap: int) -> bool:
        """Whether a slave has reported, and lacks less than `gap` bytes."""
        return self.offset_of(slave) >= 0 and end - self.offset_of(slave) < gap

    def count_in_sync(self, end: int, gap: int) -> int:
        """Count the slaves that lack less than `gap` bytes of the log."""
        return sum(end - offset < gap for offset in self._offsets.values())


class Reporter(Protocol):
    """A connection over which a slave reports."""

    greeting: Greeting | None

    def __hash__(self) -> int:
        """Return the identity of the connection."""
        ...


class _Mark(NamedTuple):
    """The end of the log at some time: a slave that reports it had it all then."""

    end: int
    ms: int


class SetAcks(Acks):
    """Acknowledgements in a group with a controller.

    With `allAckInSyncStateSet` every broker of the set must have a message, and readers
    see what all of them have.  Otherwise `inSyncReplicas` connected brokers suffice, as
    without a controller.
    """

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
        self._sync_set = group
        self._needs_all = needs_all
        self._end = end
        self._now_ms = now_ms
        self._on_change = on_change
        self._ids: dict[Hashable, int] = {}
        self._marks: dict[Hashable, _Mark] = {}
        self._least = least
        self._replicated_offset = group.confirm_offset(end())

    def report(self, slave: Reporter, offset: int, *, sent: int) -> None:  # type: ignore[override]
        """Apply a slave's report; RemoteProtocolError if it cannot be true."""
        super().report(slave, offset, sent=sent)
        greeting = slave.greeting
        assert greeting is not None, "a slave greets before it reports"
        if greeting.is_learner:
            self._proven_offsets.pop(slave, None)
        if slave not in self._proven_offsets:
            return
        end, now_ms, broker_id = self._end(), self._now_ms(), greeting.broker_id
        self._sync_set.report(broker_id, offset, end=end, now_ms=now_ms)
        self._ids[slave] = broker_id
        mark = self._marks.get(slave, _Mark(end, now_ms))
        if offset >= mark.end:
            self._sync_set.record_at_end(broker_id, mark.ms)
            mark = _Mark(end, now_ms)
        self._marks[slave] = mark
        if broker_id not in self._sync_set.members:
            self._on_change()

    def remove(self, slave: Hashable) -> None:
        """Remove a slave that is no longer connected; it stays in the set."""
        super().remove(slave)
        self._marks.pop(slave, None)
        broker_id = self._ids.pop(slave, None)
        if broker_id is not None and broker_id not in self._ids.values():
            self._sync_set.remove(broker_id)
            self._on_change()

    def replicated_offset(self) -> int:
        """Return the offset up to which enough brokers have the log."""
        if len(self._sync_set.members) < self._least:
            return self._replicated_offset
        if self._needs_all:
            self._replicated_offset = self._sync_set.confirm_offset(self._end())
        else:
            own = super().replicated_offset() if self._needed else self._end()
            self._replicated_offset = max(self._replicated_offset, own)
        return self._replicated_offset

    def is_in_sync(self, slave: Hashable, end: int, gap: int) -> bool:
        """Whether a slave is in the set."""
        return self._ids.get(slave) in self._sync_set.members
