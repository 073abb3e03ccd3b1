"""Durability: which part of the log is safe, and whether more may be written.

Offsets, which only grow: *durable*: the disk has confirmed the bytes before it;
*replicated*: enough replicas have them; *acknowledged*: what senders wait for, the
lesser of those of the two that they wait for; *confirm*: readers may see them: the
durable offset under SYNC_FLUSH, else the end of the log; in a group with a controller
what no failover takes away; *kept*: what neither a start nor a failover of such a group
takes away: offsets that say that something is done wait for it.
Invariants: a failure of the log is permanent, and a worse refusal replaces a lesser
one; after a failed flush the durable offset never grows again, because the kernel drops
dirty pages that it could not write, and the next fdatasync succeeds without them.
Locks: one flush at a time (the kernel reports a failed fdatasync to one caller only); a
refusal changes under a lock of its own.
`flush` and `write` are for worker threads, everything else for any thread.
"""

import enum
import logging
import threading
import time
from typing import NamedTuple

from rmq._fastpath import FlushTimes, Watermark
from rmq.core.errors import LogFailed
from rmq.store.commit_log import CommitLog
from rmq.store.config import StoreConfig

logger = logging.getLogger(__name__)


REPLICA_REFUSES = "this broker is a slave: send messages to its master"


class RefusalKind(enum.IntEnum):
    """Causes of refusal, from the least to the worst."""

    DISK_FULL = 1
    WRITE_FAILED = 2
    FLUSH_FAILED = 3

    @property
    def resumes(self) -> bool:
        """Whether messages are accepted again when the cause has disappeared."""
        return self is RefusalKind.DISK_FULL

    @property
    def keeps_abort(self) -> bool:
        """Whether the next start must check the log."""
        return self is not RefusalKind.DISK_FULL


class Refusal(NamedTuple):
    """The cause of refusals; `text` is for people only."""

    kind: RefusalKind
    text: str


class Durability:
    """The guarantees of one store."""

    def __init__(
        self,
        log: CommitLog,
        config: StoreConfig,
        *,
        is_copy: bool,
    ) -> None:
        """A store that is a copy takes messages from its master only."""
        self.durable = Watermark()
        self.replicated: Watermark | None = None
        """None: senders wait for no replica."""
        self.acknowledged = self.kept = self.durable
        self.senders_wait = config.is_sync_flush
        """Whether an answer waits until *acknowledged* has passed its message."""
        self.ack_timeout_ms = config.sync_flush_timeout_ms
        self.confirm: Watermark | None = None
        """End of the visible log; None means the end of the log."""
        if config.is_sync_flush:
            self.confirm = self.durable
        self.durable_ms = 0
        """Store time of a record at the end of the durable log."""
        self.times = FlushTimes()
        """Of flushes of the log, and of durable writes of its ring."""
        self.is_open = False
        self.refusal: Refusal | None = None
        self._is_replica = is_copy
        self._fence = ""
        self._log = log
        self._flush_lock = threading.Lock()
        self._refusal_lock = threading.Lock()

    def open(self) -> None:
        """Begin at the end that recovery found."""
        self.durable.reset(self._log.end_offset)
        self.is_open = True
        self._log.is_writable = self._may_write

    def become_master(self) -> None:
        """Accept messages in a store that was opened as a copy."""
        self._is_replica = False
        self._log.is_writable = self._may_write

    def await_replicas(self, timeout_ms: int) -> Watermark:
        """Have senders wait for replicas from now on; return what replicas move.

        With both, replicas and disk, the shorter time limit holds.  Call it before
        anybody waits.
        """
        replicated = self.replicated = Watermark()
        if self.senders_wait:
            self.acknowledged = Watermark.lesser_of(self.durable, replicated)
            self.ack_timeout_ms = min(self.ack_timeout_ms, timeout_ms)
        else:
            self.acknowledged, self.ack_timeout_ms = replicated, timeout_ms
        self.senders_wait = True
        return replicated

    def await_group(self, timeout_ms: int) -> Watermark:
        """Have senders, and *kept*, wait for the brokers of a group with a controller.

        They are never away for long: the controller takes them out of the group.
        """
        replicated = self.await_replicas(timeout_ms)
        self.kept = self.acknowledged
        if self.kept is replicated:
            self.kept = Watermark.lesser_of(self.durable, replicated)
        return replicated

    def close(self) -> None:
        """Refuse messages and readers; `flush` still works."""
        self.is_open = self._log.is_writable = False

    # -- refusals

    @property
    def is_writable(self) -> bool:
        """Whether messages are accepted."""
        return self._log.is_writable

    @property
    def refuse_reason(self) -> str:
        """Why messages are refused, for people; empty if they are accepted."""
        if self.refusal is not None:
            return self.refusal.text
        if not self.is_open:
            return "the store is closed"
        return REPLICA_REFUSES if self._is_replica else self._fence

    @property
    def _may_write(self) -> bool:
        is_kept = self._is_replica or self._fence or self.refusal is not None
        return self.is_open and not is_kept

    def fence(self, reason: str) -> None:
        """Refuse messages as long as there is a reason outside of the store.

        An empty one ends it.
        """
        self._fence = reason
        self._log.is_writable = self._may_write

    @property
    def keeps_abort(self) -> bool:
        """Whether the next start must check the log."""
        return self.refusal is not None and self.refusal.kind.keeps_abort

    @property
    def has_flush_failed(self) -> bool:
        """Whether a flush failed, so that nothing more becomes durable."""
        refusal = self.refusal
        return refusal is not None and refusal.kind is RefusalKind.FLUSH_FAILED

    def refuse(self, kind: RefusalKind, text: str) -> None:
        """Refuse messages from now on."""
        with self._refusal_lock:
            if self.refusal is not None and self.refusal.kind >= kind:
                return
            self.refusal = Refusal(kind, text)
            self._log.is_writable = False
        logger.error("messages are refused: %s", text)

    def resume(self) -> None:
        """Accept messages again, if the kind of the refusal allows it."""
        with self._refusal_lock:
            if self.refusal is None or not self.refusal.kind.resumes:
                return
            self.refusal = None
            self._log.is_writable = self._may_write
        logger.warning("messages are accepted again")

    def write_failed(self, error: OSError) -> None:
        """Refuse all further messages: the log cannot be written."""
        self.refuse(
            RefusalKind.WRITE_FAILED,
            f"writing {error.filename} failed: {error.strerror}",
        )

    def _end(self, doing: str, error: OSError) -> LogFailed:
        """Stop the durable offset; return the error that ends the broker."""
        self.refuse(
            RefusalKind.FLUSH_FAILED,
            f"{doing} {error.filename} failed: {error.strerror}",
        )
        return LogFailed(
            f"{self.refuse_reason}; the store refuses all messages, and `abort` stays "
            "so that the next start checks the log"
        )

    # -- offsets

    @property
    def confirm_offset(self) -> int:
        """End of the visible log."""
        return self._log.end_offset if self.confirm is None else self.confirm.value

    @property
    def dirty_size(self) -> int:
        """Bytes of the log that are not known to be durable."""
        return self._log.end_offset - self.durable.value

    def write(self) -> None:
        """Move the log from the ring to its files, until `durable.end_demand`.

        LogFailed ends all writing.
        """
        writer = self._log.writer
        assert writer is not None, "a log without a ring has nothing to move"
        try:
            writer.run()
        except OSError as error:
            raise self._end("writing", error) from error

    def flush(self) -> None:
        """Make the log durable up to its end; LogFailed ends all writing."""
        with self._flush_lock:
            if self.has_flush_failed:
                raise LogFailed(self.refuse_reason)
            store_ms = self._log.last_store_ms
            started_ns = time.monotonic_ns()
            try:
                self._log.flush(self.durable)
            except OSError as error:
                raise self._end("flushing", error) from error
            if not self._log.has_durable_writer:
                self.times.observe(time.monotonic_ns() - started_ns)
            self.durable_ms = store_ms
