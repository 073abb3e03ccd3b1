"""SyncSet: who has to have a message before its sender is answered; of one master.

The controller keeps the set: after the master's death it makes one of these brokers the
master.  So a broker that is left out must be left out there first, and one that is in
must have all that was acknowledged:

* Only the controller's answer makes the set smaller.  Until then all count who are in
  the set that it has confirmed, or in one that it was asked for.
* A broker whose connection is lost is asked out at once; until the answer nothing is
  acknowledged that it does not have.
* A broker is asked in when it has all that is confirmed, and the begin of this epoch.
* One request travels at a time.  If its answer is lost it counts on, because it may
  have been carried out, and is repeated until the controller answers, or tells of a
  later set: each names the number of the set that it replaces, so that one alone has
  effect.

The confirmed offset only grows.  No I/O, no clock: callers say what time it is.
"""

from collections.abc import Collection, Mapping

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
        confirmed: int,
        patience_ms: int,
    ) -> None:
        """`members` is the controller's set with this `number`, in which the master is.

        The epoch begins at `start`, and `confirmed` was confirmed before.  Whoever was
        not at the end of the log for `patience_ms` is asked out.
        """
        self.own_id = own_id
        self.members = frozenset(members) | {own_id}
        self.number = number
        self._start = start
        self._confirmed = confirmed
        self._patience_ms = patience_ms
        self.asked: frozenset[int] | None = None
        """The set of the request of which the answer is not known."""

        self._acknowledged: dict[int, int] = {}
        """Of those who are connected, and have proven that they have it."""

        self._at_end_ms: dict[int, int] = {}

    @property
    def waited_for(self) -> frozenset[int]:
        """Who counts for acknowledgements: all who may be in the controller's set."""
        return self.members | (self.asked or self.members)

    @property
    def absent(self) -> frozenset[int]:
        """Who counts, and is not connected."""
        return self.waited_for - self._acknowledged.keys() - {self.own_id}

    @property
    def acknowledged(self) -> Mapping[int, int]:
        """What each connected broker has."""
        return self._acknowledged

    # -- what replicas do

    def report(self, broker_id: int, offset: int, *, end: int, now_ms: int) -> None:
        """Note that a broker has proven to have the log up to `offset`, of `end`.

        RemoteProtocolError if that cannot be true.
        """
        if broker_id == self.own_id:
            raise RemoteProtocolError(f"it says that it is this broker, {broker_id}")
        if offset > end:
            raise RemoteProtocolError(f"it reported {offset}, the log ends at {end}")
        known = self._acknowledged.get(broker_id, 0)
        self._acknowledged[broker_id] = max(known, offset)
        if offset == end:
            self._at_end_ms[broker_id] = now_ms

    def was_at_end(self, broker_id: int, now_ms: int) -> None:
        """Note that a broker has all that this log had at that time."""
        if broker_id in self._acknowledged:
            known = self._at_end_ms.get(broker_id, now_ms)
            self._at_end_ms[broker_id] = max(known, now_ms)

    def leave(self, broker_id: int) -> None:
        """Note that the connection to a broker is lost."""
        self._acknowledged.pop(broker_id, None)
        self._at_end_ms.pop(broker_id, None)

    # -- what that means

    def confirmed(self, end: int) -> int:
        """Return up to where all who count have the log, which ends at `end`."""
        others = self.waited_for - {self.own_id}
        if all(each in self._acknowledged for each in others):
            least = min((self._acknowledged[each] for each in others), default=end)
            self._confirmed = max(self._confirmed, min(least, end))
        return self._confirmed

    def wish(self, end: int, now_ms: int) -> frozenset[int] | None:
        """Return the set to ask the controller for; None if this one is right."""
        if self.asked is not None:
            return self.asked
        confirmed = self.confirmed(end)
        wanted = {self.own_id}
        for broker_id, offset in self._acknowledged.items():
            has_all = offset >= max(confirmed, self._start)
            if broker_id not in self.members:
                if has_all:
                    wanted.add(broker_id)
                continue
            silent_ms = now_ms - self._at_end_ms.setdefault(broker_id, now_ms)
            if has_all and silent_ms <= self._patience_ms:
                wanted.add(broker_id)
        return None if wanted == self.members else frozenset(wanted)

    # -- what the controller does

    def ask(self, wanted: frozenset[int]) -> None:
        """Note that the controller is asked for this set, perhaps once more."""
        assert self.asked in (None, wanted), (self.asked, wanted)
        self.asked = wanted

    def refused(self) -> None:
        """Note that the controller has refused what it was asked for."""
        self.asked = None

    def take(self, members: Collection[int], number: int) -> bool:
        """Take the controller's set; False if it is not newer than the known one.

        A request that was made before is void: it names an older number.
        """
        if number <= self.number:
            return False
        self.members, self.number = frozenset(members) | {self.own_id}, number
        self.asked = None
        return True
