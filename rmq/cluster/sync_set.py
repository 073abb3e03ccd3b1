"""SyncSet: the brokers that must have a message before its sender is answered.

It is the sync state set of a group with a controller, as the master of an epoch knows
it.  `SetAcks` reports the log end of each slave to this object.

The controller keeps the set: after the master's death it elects one of these brokers.
So the master may continue without a broker only after the controller has removed this
broker from the set. The controller may add a broker only after this broker has all
acknowledged messages:

* Only the controller's answer makes the set smaller.  Until then a message needs an ack
  from every broker in the confirmed set and in the requested set.
* The master asks to remove a broker at once when its connection is lost. Until the
  answer it acknowledges no message that this broker lacks.
* The master asks to add a broker when this broker has all confirmed bytes, and the
  start of this epoch.
* The master has one request at a time. If its answer is lost, the request remains
  valid, because the controller may have granted it. The master repeats it until the
  controller answers or reports a later set. Each request has the number of the set that
  it replaces, so only one of several requests has an effect.

The confirm offset only grows.

No I/O, no clock: callers pass the time.
"""

from collections.abc import Collection, Mapping

from rmq.core.errors import RemoteProtocolError
from rmq.core.offsets import PhysicalOffset


class SyncSet:
    """The set of one epoch, as its master knows it."""

    def __init__(
        self,
        own_id: int,
        members: Collection[int],
        *,
        number: int,
        start: PhysicalOffset,
        confirm_offset: PhysicalOffset,
        max_lag_ms: int,
    ) -> None:
        """`members` is the controller's set with this `number`, in which the master is.

        The epoch begins at `start`; everything before `confirm_offset` was confirmed in
        an earlier epoch. The master asks to remove a broker that has not been at the
        end of the log for `max_lag_ms`.
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
        """Brokers whose ack a message needs: all brokers that may be in the set."""
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

    def report(
        self,
        broker_id: int,
        offset: PhysicalOffset,
        *,
        end: PhysicalOffset,
        now_ms: int,
    ) -> None:
        """Record the proof that a broker has the log up to `offset`; this log ends at
        `end`. RemoteProtocolError if the report cannot be true.
        """
        if broker_id == self.own_id:
            raise RemoteProtocolError(
                f"the peer reports the id of this broker, {broker_id}"
            )
        if offset > end:
            raise RemoteProtocolError(
                f"the slave reported {offset}, but the log ends at {end}"
            )
        known = self._ack_offsets.get(broker_id, 0)
        self._ack_offsets[broker_id] = max(known, offset)
        if offset == end:
            self._at_end_ms[broker_id] = now_ms

    def record_at_end(self, broker_id: int, now_ms: int) -> None:
        """Record that a broker had the whole log at `now_ms`."""
        if broker_id in self._ack_offsets:
            known = self._at_end_ms.get(broker_id, now_ms)
            self._at_end_ms[broker_id] = max(known, now_ms)

    def remove(self, broker_id: int) -> None:
        """Record that the connection to a broker is lost."""
        self._ack_offsets.pop(broker_id, None)
        self._at_end_ms.pop(broker_id, None)

    # -- consequences

    def confirm_offset(self, end: PhysicalOffset) -> PhysicalOffset:
        """Return the offset up to which all required brokers have the log, which ends
        at `end`.
        """
        others = self.required_acks - {self.own_id}
        if all(each in self._ack_offsets for each in others):
            least = min((self._ack_offsets[each] for each in others), default=end)
            self._confirm_offset = PhysicalOffset(
                max(self._confirm_offset, min(least, end))
            )
        return self._confirm_offset

    def desired_set(self, end: PhysicalOffset, now_ms: int) -> frozenset[int] | None:
        """Return the set to request from the controller; None if the current set is
        right.
        """
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
        """Record a request for this set, which may be a repeated request."""
        assert self.requested in (None, wanted), (self.requested, wanted)
        self.requested = wanted

    def cancel_request(self) -> None:
        """Record that the controller has refused the request."""
        self.requested = None

    def apply(self, members: Collection[int], number: int) -> bool:
        """Apply the controller's set; False if the set is not newer than the known set.

        An earlier request has no effect any more, because it names an older number.
        """
        if number <= self.number:
            return False
        self.members, self.number = frozenset(members) | {self.own_id}, number
        self.requested = None
        return True
