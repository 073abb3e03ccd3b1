"""Control: what a controller has said, for the links of one broker.

It lives as long as the role of the broker: with a new epoch comes a new one.
"""

from rmq._fastpath import Watermark
from rmq.cluster.epochs import EpochFile
from rmq.cluster.sync_set import SyncSet
from rmq.cluster.wire import Epoch, Greeting, Lineage, encode_part_head
from rmq.core.errors import RemoteProtocolError


class Control:
    """Epochs, the set of a master, and what readers may see."""

    def __init__(
        self,
        own: Greeting,
        epoch: int,
        epochs: EpochFile,
        confirm: Watermark,
        group: SyncSet | None = None,
    ) -> None:
        """A master has a `group`; `confirm` is the end of what readers see."""
        self.own = own
        self.epoch = epoch
        """Which the controller has told; 0 before it has told one."""

        self.epochs = epochs
        self.confirm = confirm
        self.group = group
        self._told = 0
        """What the master calls confirmed; some of it may not be safe here yet."""

    def confirmed(self, end: int) -> int:
        """Return what a master tells its replicas to be confirmed."""
        if self.group is None:
            return self.confirm.value
        # under SYNC_FLUSH what the own disk lacks may go with a power cut
        return min(self.group.confirmed(end), self.confirm.value)

    # -- as a master

    def lineage(self, end: int) -> Lineage:
        """Return the answer to a greeting."""
        return Lineage(end, self.epochs.all())

    def part_head(self, offset: int, size: int, end: int) -> bytes:
        """Return what comes before bytes of the log; size 0 is a heartbeat."""
        epoch, _ = self._at(offset)
        return encode_part_head(offset, size, epoch, self.confirmed(end))

    def rest_of_epoch(self, offset: int, end: int) -> int:
        """Return how many bytes of the log are in the epoch of `offset`."""
        _, epoch_end = self._at(offset)
        return (end if epoch_end is None else min(end, epoch_end)) - offset

    def _at(self, offset: int) -> tuple[Epoch, int | None]:
        found = self.epochs.at(offset)
        if found is None:
            raise RemoteProtocolError(
                f"it asked for offset {offset}, which is before the first epoch that "
                "is known here: it has to begin with an empty log"
            )
        return found

    # -- as a replica

    def enter(self, epoch: Epoch) -> None:
        """Note the epoch of the bytes that come next; durable at the return.

        RemoteProtocolError if it is older than what the log has.
        """
        if epoch not in self.epochs.all()[-1:]:
            self.epochs.begin(epoch)

    def show(self, safe: int, confirmed: int | None = None) -> None:
        """Let readers see what the master calls `confirmed`, as far as it is safe."""
        self._told = self._told if confirmed is None else confirmed
        self.confirm.advance(min(self._told, safe))

    def cut(self, end: int) -> None:
        """Forget what was beyond the end of a log that has become shorter."""
        self.epochs.cut(end)
        self.confirm.reset(min(self.confirm.value, end))
        self._told = min(self._told, end)

    def parting(self, end: int, lineage: Lineage) -> int | None:
        """Return where this log, which ends at `end`, leaves that of its master.

        None if their epochs do not tell.
        """
        return self.epochs.consistent_point(end, lineage.epochs, lineage.end)
