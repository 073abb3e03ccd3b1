"""Durability: makes the log durable, and decides whether messages are accepted.

`LogPositions` has the positions in the log; `flush` and `write` move *durable*.
Invariants: a failure of the log is permanent, and a worse refusal replaces a milder
refusal. After a failed flush *durable* never grows again: the kernel drops dirty pages
that it could not write, and the next fdatasync succeeds without them.
Locks: one flush at a time, because the kernel reports a failed fdatasync to one caller.
A second lock guards the refusal.
`flush` and `write` are for worker threads, everything else for any thread.
"""

import enum
import logging
import threading
import time
from typing import NamedTuple

from rmq._fastpath.log.flush_times import FlushTimes
from rmq._fastpath.log.watermark import Watermark
from rmq.core.errors import LogFailed
from rmq.store.commit_log import CommitLog
from rmq.store.config import StoreConfig
from rmq.store.positions import LogPositions

logger = logging.getLogger(__name__)


SLAVE_REFUSES = "this broker is a slave: send messages to its master"


class RefusalKind(enum.IntEnum):
    """Causes of refusal, from the mildest to the worst."""

    DISK_FULL = 1
    WRITE_FAILED = 2
    FLUSH_FAILED = 3

    @property
    def is_temporary(self) -> bool:
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
        positions: LogPositions,
        config: StoreConfig,
        *,
        is_copy: bool,
    ) -> None:
        """True: the store is a copy and accepts messages from its master only."""
        self.positions = positions
        self.senders_wait = self._is_disk_awaited = config.is_sync_flush
        """Whether an answer waits until *acknowledged* has passed its message."""
        self.ack_timeout_ms = config.sync_flush_timeout_ms
        self.times = FlushTimes()
        """Durations of flushes of the log, and of durable writes of its ring."""
        self.is_open = False
        self.refusal: Refusal | None = None
        self._put_error, self._put_error_end = "", -1
        self._is_copy = is_copy
        self._fence_reason = ""
        self._log = log
        self._flush_lock = threading.Lock()
        self._refusal_lock = threading.Lock()

    def open(self) -> None:
        """Begin at the end that recovery found."""
        self.positions.open()
        self.is_open = True
        self._log.is_writable = self._may_write

    def become_master(self) -> None:
        """Accept messages in a store that was opened as a copy."""
        self._is_copy = False
        self._log.is_writable = self._may_write

    def await_replicas(self, timeout_ms: int) -> Watermark:
        """Have senders wait for slaves from now on; return the watermark that their
        reports move.

        If senders wait for slaves and disk, the shorter time limit is used. Call it
        before any sender waits.
        """
        self._limit_wait(timeout_ms)
        return self.positions.await_replicas(is_disk_awaited=self._is_disk_awaited)

    def await_group(self, timeout_ms: int) -> Watermark:
        """Have senders, and *stable*, wait for a group with a controller.

        The controller removes a silent broker from the group, so nothing waits for it
        for long.
        """
        self._limit_wait(timeout_ms)
        return self.positions.await_group(is_disk_awaited=self._is_disk_awaited)

    def _limit_wait(self, timeout_ms: int) -> None:
        if self._is_disk_awaited:
            timeout_ms = min(self.ack_timeout_ms, timeout_ms)
        self.ack_timeout_ms, self.senders_wait = timeout_ms, True

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
        """Reason of the refusal, for people; empty if messages are accepted."""
        if self.refusal is not None:
            return self.refusal.text
        if not self.is_open:
            return "the store is closed"
        return SLAVE_REFUSES if self._is_copy else self._fence_reason

    @property
    def _may_write(self) -> bool:
        is_refused = self._is_copy or self._fence_reason or self.refusal is not None
        return self.is_open and not is_refused

    def fence(self, reason: str) -> None:
        """Refuse messages for a reason outside of the store; an empty reason ends the
        refusal.
        """
        self._fence_reason = reason
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

    def record_put_error(self, text: str) -> None:
        """Remember the reason why the log has no room; log its first occurrence."""
        if self.put_error != text:
            logger.error("no message can be stored: %s", text)
        self._put_error, self._put_error_end = text, self._log.end_offset

    @property
    def put_error(self) -> str:
        """Reason why the last put found no room; empty after the log has grown."""
        return self._put_error if self._put_error_end == self._log.end_offset else ""

    def resume(self) -> None:
        """Accept messages again, if the kind of the refusal allows it."""
        with self._refusal_lock:
            if self.refusal is None or not self.refusal.kind.is_temporary:
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

    def _end_writing(self, doing: str, error: OSError) -> LogFailed:
        """Let *durable* grow no more; return the error that ends the broker."""
        self.refuse(
            RefusalKind.FLUSH_FAILED,
            f"{doing} {error.filename} failed: {error.strerror}",
        )
        return LogFailed(
            f"{self.refuse_reason}; the store refuses all messages, and the file "
            "`abort` stays, so the next start checks the log"
        )

    # -- flushes

    def write(self) -> None:
        """Move the log from the ring to its files.

        It returns when all bytes are *durable*. LogFailed ends all writing.
        """
        writer = self._log.writer
        assert writer is not None, "a log without a ring has nothing to move"
        try:
            writer.run()
        except OSError as error:
            raise self._end_writing("writing", error) from error

    def flush(self) -> None:
        """Make the log durable up to its end; LogFailed ends all writing."""
        with self._flush_lock:
            if self.has_flush_failed:
                raise LogFailed(self.refuse_reason)
            store_ms = self._log.last_store_ms
            started_ns = time.monotonic_ns()
            try:
                self._log.flush(self.positions.durable)
            except OSError as error:
                raise self._end_writing("flushing", error) from error
            if not self._log.has_durable_writer:
                self.times.observe(time.monotonic_ns() - started_ns)
            self.positions.durable_store_ms = store_ms
