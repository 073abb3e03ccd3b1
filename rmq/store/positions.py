"""LogPositions: every position in the log of one broker, in one order.

A position is a physical offset: the log has, or guarantees, all bytes before it.

==============  ===============================================  ===============
position        the bytes before it …                            who moves it
==============  ===============================================  ===============
received        came from the master; a record may be partial   `ReplicaWriter`
appended        are whole records in the log                     `LogTail`
written         are in the files of the log, not only in a ring  `LogWriter`
durable         survive a power cut of this machine              `Durability`
replicated      are on as many slaves as senders wait for        `LogServer`
acknowledged    are what senders wait for                        min of two
stable          survive a restart and a failover                 min of two
visible         may be read by clients                           see below
==============  ===============================================  ===============

Order::

    received >= appended >= written >= durable
    appended >= replicated
    acknowledged = durable, replicated, or min(durable, replicated)
    stable       = durable, or min(durable, replicated)
    appended >= visible

Each position only grows.  `cut_to` is the exception: a slave that diverged from its
master removes the end of its log.

*visible* depends on the role. Without a controller, *visible* is *durable* under
SYNC_FLUSH, and *appended* under ASYNC_FLUSH. In a group with a controller a master
shows the bytes that it acknowledges. On a slave it is the position that its master has
confirmed (`TermState`): no failover removes these bytes.

*replicated* comes from the reports of slaves.  `Acks` or `SetAcks` computes it, and a
`SyncSet` defines which brokers have to report.  A slave reports its `safe_offset`.

The compiled parts own *appended* and *written*; this object reads them and copies
nothing. The other positions are atomic watermarks: any thread may read them.
"""

from collections.abc import Iterator

from rmq._fastpath.log.watermark import Watermark
from rmq.core.offsets import PhysicalOffset
from rmq.store.commit_log import CommitLog


class LogPositions:
    """The positions in one log; the module's docstring defines and orders them."""

    def __init__(self, log: CommitLog, *, is_sync_flush: bool) -> None:
        """`is_sync_flush`: readers and reports to a master wait for the disk."""
        self.durable = Watermark()
        self.durable_store_ms = 0
        """Store time of a record at the end of the durable log."""

        self.replicated: Watermark | None = None
        """None if senders wait for no slave."""

        self.acknowledged = self.stable = self.durable
        self.visible_limit = self.durable if is_sync_flush else None
        """The watermark that ends the visible log; None: the end of the log does."""

        self._log = log
        self._is_sync_flush = is_sync_flush

    # -- positions that compiled code owns

    @property
    def appended(self) -> PhysicalOffset:
        """End of the last whole record of the log."""
        return self._log.end_offset

    @property
    def written(self) -> PhysicalOffset:
        """End of the bytes in the files of the log; a ring may have more."""
        writer = self._log.writer
        return PhysicalOffset(
            self._log.end_offset if writer is None else writer.ring.written_offset
        )

    @property
    def visible(self) -> PhysicalOffset:
        """End of the log for readers."""
        limit = self.visible_limit
        return self._log.end_offset if limit is None else limit.value

    # -- derived from them

    @property
    def dirty_size(self) -> int:
        """Bytes of the log that are not known to be durable."""
        return self._log.end_offset - self.durable.value

    @property
    def safe_offset(self) -> PhysicalOffset:
        """End of the bytes that a slave may report: under SYNC_FLUSH, of its disk."""
        end = self._log.end_offset
        return min(end, self.durable.value) if self._is_sync_flush else end

    def broken_invariants(self) -> Iterator[str]:
        """Yield one sentence for each rule of the order that is broken now.

        The smaller position is read first: other threads move both upwards.
        """
        replicated = 0 if self.replicated is None else self.replicated.value
        stable, acknowledged = self.stable.value, self.acknowledged.value
        durable, visible = self.durable.value, self.visible
        written = self.written
        appended = self.appended
        for lower, low, upper, high in (
            ("stable", stable, "durable", durable),
            ("durable", durable, "written", written),
            ("written", written, "appended", appended),
            ("replicated", replicated, "appended", appended),
            ("acknowledged", acknowledged, "appended", appended),
            ("visible", visible, "appended", appended),
        ):
            if low > high:
                yield f"{lower} is {low}, beyond {upper}, which is {high}"

    # -- the role of the broker

    def await_replicas(self, *, is_disk_awaited: bool) -> Watermark:
        """Have senders wait for slaves; return the watermark that their reports move.

        With `is_disk_awaited` they wait for this broker's disk, too.
        """
        replicated = self.replicated = Watermark()
        self.acknowledged = replicated
        if is_disk_awaited:
            self.acknowledged = Watermark.minimum_of(self.durable, replicated)
        return replicated

    def await_group(self, *, is_disk_awaited: bool) -> Watermark:
        """Like `await_replicas`; *stable* then waits for the group, too."""
        replicated = self.await_replicas(is_disk_awaited=is_disk_awaited)
        self.stable = self.acknowledged
        if self.stable is replicated:
            self.stable = Watermark.minimum_of(self.durable, replicated)
        return replicated

    def limit_visible(self, limit: Watermark) -> None:
        """Let readers see the log up to this watermark only. Call it before any reader
        runs.
        """
        self.visible_limit = limit

    def confirm_by(self, limit: Watermark) -> None:
        """Set the watermark that the group has confirmed; it limits readers, too."""
        self.limit_visible(limit)
        if self._log.claim is not None:
            self._log.claim.confirm_by(limit)

    @property
    def confirmed_offset(self) -> PhysicalOffset:
        """End of the bytes of this log that the group has confirmed, in this run or
        before.
        """
        return PhysicalOffset(
            0 if self._log.claim is None else self._log.claim.confirmed_offset
        )

    # -- a log that starts, or loses its end

    def open(self) -> None:
        """Start at the end that recovery found: all bytes before it are durable."""
        self.durable.reset(self._log.end_offset)

    def cut_to(self, end: PhysicalOffset) -> None:
        """Lower *durable* and the claim to the new end of the log."""
        self.durable.reset(min(end, self.durable.value))
        if self._log.claim is not None:
            self._log.claim.lower(end)
