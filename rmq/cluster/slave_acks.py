"""Acks: the offsets up to which the connected slaves have the log.

Known in Java as `GroupTransferService`.
`Acks` counts the slaves of a group without a controller. `SetAcks` counts them with a
controller, where a `SyncSet` has the sync state set.

A slave cannot have bytes that the master has not sent, and never has fewer bytes than
it reported before. The first report of a connection proves nothing, because it only
asks where to begin. A later report proves that the slave has the log before the
reported offset: the slave has compared its last record by then.

No I/O, no clock: callers pass the time.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

from rmq.cluster.sync_set import SyncSet
from rmq.cluster.wire import Handshake
from rmq.core.errors import RemoteProtocolError
from rmq.core.offsets import PhysicalOffset


class Acks:
    """The acknowledged offsets of the connected slaves."""

    def __init__(self, needed: int) -> None:
        """`needed` slaves must have a message before its sender is answered."""
        assert needed >= 0, needed
        self._needed = needed
        self._offsets: dict[Hashable, PhysicalOffset] = {}
        self._proven_offsets: dict[Hashable, PhysicalOffset] = {}
        """Offsets of the slaves that have reported at least twice."""

    def report(self, slave: Hashable, offset: PhysicalOffset, *, sent: int) -> None:
        """Apply a slave's report; RemoteProtocolError if it cannot be true.

        The slave was sent the log up to `sent`.
        """
        known = self._offsets.get(slave, 0)
        if offset > sent:
            raise RemoteProtocolError(
                f"the slave reported {offset}, but this broker sent the log only up to "
                f"{sent}"
            )
        if offset < known:
            raise RemoteProtocolError(f"it reported offset {offset} after {known}")
        if slave in self._offsets:
            self._proven_offsets[slave] = offset
        self._offsets[slave] = offset

    def remove(self, slave: Hashable) -> None:
        """Remove a slave that is no longer connected."""
        self._offsets.pop(slave, None)
        self._proven_offsets.pop(slave, None)

    def offset_of(self, slave: Hashable) -> PhysicalOffset:
        """Return the last offset that a slave reported; -1 before the first."""
        return PhysicalOffset(self._offsets.get(slave, -1))

    def replicated_offset(self) -> PhysicalOffset:
        """Return the offset up to which enough connected slaves have the log.

        This offset may fall when a slave leaves; the watermark of the callers never
        falls.
        """
        if self._needed > len(self._proven_offsets) or not self._needed:
            return PhysicalOffset(0)
        return PhysicalOffset(
            sorted(self._proven_offsets.values(), reverse=True)[self._needed - 1]
        )

    def is_in_sync(self, slave: Hashable, end: PhysicalOffset, gap: int) -> bool:
        """Whether a slave has reported, and lacks less than `gap` bytes."""
        return self.offset_of(slave) >= 0 and end - self.offset_of(slave) < gap


class Reporter(Protocol):
    """A connection over which a slave reports."""

    handshake: Handshake | None

    def __hash__(self) -> int:
        """Return the identity of the connection."""
        ...


class _Mark(NamedTuple):
    """The end of the log at some time: a slave that reports this end had the whole log
    of that time.
    """

    end: PhysicalOffset
    ms: int


class SetAcks(Acks):
    """Acknowledgements in a group with a controller.

    With `allAckInSyncStateSet` every broker of the set must have a message, and readers
    see the messages that all of them have. Without this key `inSyncReplicas` connected
    brokers are enough, as in a group without a controller.
    """

    def __init__(
        self,
        group: SyncSet,
        *,
        needed: int,
        needs_all: bool,
        least: int,
        end: Callable[[], PhysicalOffset],
        now_ms: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        """With fewer than `least` brokers in the set, no further message is
        acknowledged.

        `on_change` is called when the set may have to change.
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

    def report(self, slave: Reporter, offset: PhysicalOffset, *, sent: int) -> None:  # type: ignore[override] # it greets
        """Apply a slave's report; RemoteProtocolError if it cannot be true."""
        super().report(slave, offset, sent=sent)
        handshake = slave.handshake
        assert handshake is not None, (
            "a slave sends its handshake before its first report"
        )
        if handshake.is_learner:
            self._proven_offsets.pop(slave, None)
        if slave not in self._proven_offsets:
            return
        end, now_ms, broker_id = self._end(), self._now_ms(), handshake.broker_id
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
        """Forget a slave that is no longer connected; the broker stays in the set."""
        super().remove(slave)
        self._marks.pop(slave, None)
        broker_id = self._ids.pop(slave, None)
        if broker_id is not None and broker_id not in self._ids.values():
            self._sync_set.remove(broker_id)
            self._on_change()

    def replicated_offset(self) -> PhysicalOffset:
        """Return the offset up to which enough brokers have the log."""
        if len(self._sync_set.members) < self._least:
            return self._replicated_offset
        if self._needs_all:
            self._replicated_offset = self._sync_set.confirm_offset(self._end())
        else:
            own = super().replicated_offset() if self._needed else self._end()
            self._replicated_offset = PhysicalOffset(max(self._replicated_offset, own))
        return self._replicated_offset

    def is_in_sync(self, slave: Hashable, end: PhysicalOffset, gap: int) -> bool:
        """Whether a slave is in the set."""
        return self._ids.get(slave) in self._sync_set.members
