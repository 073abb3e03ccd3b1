"""TermState: the running term of this broker in a group with a controller.

It holds the epochs, the sync state set of a master, and the end of the visible log.
Each epoch has a new `TermState`, which exists as long as the role of the broker.

Java's `AutoSwitchHAService` has this state.
"""

from rmq._fastpath.log.watermark import Watermark
from rmq.cluster.epochs import EpochFile
from rmq.cluster.sync_set import SyncSet
from rmq.cluster.wire import Epoch, Handshake, Lineage, encode_part_head
from rmq.core.errors import RemoteProtocolError
from rmq.core.offsets import PhysicalOffset


class TermState:
    """Epochs, the set of a master, and the end of the log for readers."""

    def __init__(
        self,
        own: Handshake,
        epoch: int,
        epochs: EpochFile,
        confirm: Watermark,
        group: SyncSet | None = None,
    ) -> None:
        """A master has a `group`; `confirm` is the end of the log for readers."""
        self.own = own
        self.epoch = epoch
        """The epoch that the controller reported; 0 before its first answer."""

        self.epochs = epochs
        self.visible_limit = confirm
        self.sync_set = group
        self._announced_offset = 0
        """Confirm offset of the master; bytes before it may not be durable here yet."""

    def confirm_offset(self, end: PhysicalOffset) -> PhysicalOffset:
        """Return the confirm offset that a master sends to its slaves."""
        if self.sync_set is None:
            return self.visible_limit.value
        # under SYNC_FLUSH a power cut may remove bytes that are not on this disk
        return min(self.sync_set.confirm_offset(end), self.visible_limit.value)

    # -- as a master

    def handshake_answer(self, end: PhysicalOffset) -> Lineage:
        """Return the answer to a handshake."""
        return Lineage(end, self.epochs.all_epochs())

    def encode_part_head(
        self, offset: PhysicalOffset, size: int, end: PhysicalOffset
    ) -> bytes:
        """Return the head that precedes bytes of the log; size 0 is a heartbeat."""
        epoch, _ = self._epoch_at(offset)
        return encode_part_head(offset, size, epoch, self.confirm_offset(end))

    def size_in_epoch(self, offset: PhysicalOffset, end: PhysicalOffset) -> int:
        """Return the number of bytes from `offset` to the end of its epoch."""
        _, epoch_end = self._epoch_at(offset)
        return (end if epoch_end is None else min(end, epoch_end)) - offset

    def _epoch_at(self, offset: PhysicalOffset) -> tuple[Epoch, int | None]:
        found = self.epochs.epoch_at(offset)
        if found is None:
            raise RemoteProtocolError(
                f"the slave asked for offset {offset}, which is before the first epoch "
                "known here: the slave must begin with an empty log"
            )
        return found

    # -- as a slave

    def enter_epoch(self, epoch: Epoch) -> None:
        """Record the epoch of the bytes that come next; durable at the return.

        RemoteProtocolError if the epoch is older than the log's last epoch.
        """
        if epoch not in self.epochs.all_epochs()[-1:]:
            self.epochs.begin(epoch)

    def advance_visible(
        self, safe: int, confirmed: PhysicalOffset | None = None
    ) -> None:
        """Let readers see the log up to the confirmed offset of the master, but not
        beyond `safe`. Without `confirmed`, the last announced offset is used.
        """
        self._announced_offset = (
            self._announced_offset if confirmed is None else confirmed
        )
        self.visible_limit.advance(min(self._announced_offset, safe))

    def cut_to(self, end: PhysicalOffset) -> None:
        """Lower all positions to the end of a truncated log."""
        self.epochs.drop_after(end)
        self.visible_limit.reset(min(self.visible_limit.value, end))
        self._announced_offset = min(self._announced_offset, end)

    def divergence_point(
        self, end: PhysicalOffset, lineage: Lineage
    ) -> PhysicalOffset | None:
        """Return the offset at which this log, which ends at `end`, diverges from the
        master's log; None if the two have no common epoch.
        """
        return self.epochs.consistent_point(end, lineage.epochs, lineage.end)
