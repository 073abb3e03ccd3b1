"""Cleaner: deletes old log files, then the queue entries and index files for them.

It deletes a log file `fileReservedTime` after its last write: in an hour of
`deleteWhen`, on a disk that is too full, or on request. On a disk fuller than
`diskSpaceCleanForciblyRatio` it also deletes files that are younger, or that plugins
need. It never deletes the last file, or a file that is not durable or not indexed. It
deletes the oldest file first. The decision (`take_*`) belongs to the trio thread, which
owns the lists of files; `discard` is for a worker. A file that a transfer holds keeps
its name until it is released or `destroyMapedFileIntervalForcibly` has passed, and its
bytes until it is released.
Crash contract: files are deleted in the order of offsets, so the remaining files are
always a log. Queue and index files that point before the first log file are harmless;
the next run deletes them.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime

from rmq._fastpath.log.mapped_file import MappedFile
from rmq.core.clock import Clock
from rmq.store.commit_log import CommitLog
from rmq.store.compaction.compaction_store import CompactionStore
from rmq.store.config import StoreConfig
from rmq.store.index import MessageIndex
from rmq.store.positions import LogPositions
from rmq.store.queues.consume_queues import ConsumeQueues, Step

logger = logging.getLogger(__name__)

MANUAL_ROUNDS = 20
"""Number of cleanings that one request allows, as in Java."""
HOUR_MS = 3_600_000


class Cleaner:
    """Known in Java as `CleanCommitLogService` and `CleanConsumeQueueService`."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        log: CommitLog,
        queues: ConsumeQueues,
        index: MessageIndex,
        positions: LogPositions,
        compaction: CompactionStore,
    ) -> None:
        self._compaction = compaction
        self._config = config
        self._clock = clock
        self._log = log
        self._queues = queues
        self._index = index
        self._positions = positions
        self.needed_from: Callable[[], int | None] | None = None
        """Function that returns the lowest offset that a plugin still needs, or None.
        """
        self._is_forced = False
        self._manual_rounds = 0
        self._held_since_ms: int | None = None
        self._cleaned_offset = -1
        self._unclosed: list[MappedFile] = []

    def request(self) -> None:
        """Delete expired files at the next cleanings, at any hour."""
        self._manual_rounds = MANUAL_ROUNDS

    def request_queues(self) -> None:
        """Clean all queues next time, also if the start of the log has not moved."""
        self._cleaned_offset = -1

    def expiry_ms(self, used_ratio: int) -> int | None:
        """Return a time: files that were last written before it have expired. None if
        no file expires.
        """
        config = self._config
        now_ms = self._clock.now_ms()
        self._is_forced = config.clean_forcibly and (
            used_ratio > config.disk_clean_ratio
        )
        if self._is_forced:
            return now_ms
        hour = datetime.fromtimestamp(now_ms / 1000).astimezone().hour
        is_wanted = (
            hour in config.delete_hour_set()
            or used_ratio > config.disk_max_used_ratio
            or self._manual_rounds > 0
        )
        self._manual_rounds = max(0, self._manual_rounds - 1)
        return now_ms - config.reserved_hours * HOUR_MS if is_wanted else None

    def take_log_file(self, expiry_ms: int) -> MappedFile | None:
        """Remove and return the oldest log file if it may be deleted, for `discard`."""
        files = self._log.files.files
        if len(files) < 2:
            return None
        file = files[0]
        end = file.base_offset + file.size
        is_indexed = not self._config.index_enabled or self._index.next_offset >= end
        is_durable = self._positions.durable.value >= end
        if not (is_indexed and is_durable) or self._is_needed(end):
            return None
        if os.fstat(file.fd).st_mtime * 1000 > expiry_ms:
            return None
        if file.holders and not self._has_waited():
            return None
        self._held_since_ms = None
        return files.pop(0)

    def _is_needed(self, end: int) -> bool:
        """Whether a plugin needs bytes before `end`, and the disk has room for them."""
        uncopied = self.uncopied_from()
        if uncopied is not None and uncopied < end and not self._is_forced:
            return True
        needed_from = None if self.needed_from is None else self.needed_from()
        assert needed_from is None or needed_from >= 0, needed_from
        if needed_from is None or needed_from >= end:
            return False
        if self._is_forced:
            logger.warning(
                "the disk is full: the log from %d to %d is deleted, though a plugin "
                "still needs it",
                needed_from,
                end,
            )
        return not self._is_forced

    def uncopied_from(self) -> int | None:
        """Return the offset from which messages of compaction topics are not copied."""
        return self._compaction.needed_from

    def _has_waited(self) -> bool:
        """Whether the longest time to hold the oldest file has passed."""
        now_ms = self._clock.now_ms()
        if self._held_since_ms is None:
            self._held_since_ms = now_ms
        return now_ms - self._held_since_ms >= self._config.destroy_after_ms

    def take_index_files(self) -> list[MappedFile]:
        """Remove and return the index files that have only deleted records."""
        return self._index.take_expired(self._log.min_offset)

    def clean_queues(self) -> Iterator[Step]:
        """Raise the queues' minimum; yield the steps that unlink unused queue files.

        Do nothing while the log's start has not moved.
        """
        start = self._log.min_offset
        if start != self._cleaned_offset:
            yield from self._queues.clean_steps(start)
            self._cleaned_offset = start

    def discard(self, files: list[MappedFile]) -> None:
        """Unlink files, and unmap each when no transfer holds it."""
        for file in files:
            assert file.writable, file.path
            with suppress(FileNotFoundError):
                file.unlink()
        self.release(files)

    def release(self, files: list[MappedFile]) -> None:
        """Unmap these files, and the files of earlier calls, as soon as no transfer
        holds them.
        """
        self._unclosed += files
        for file in list(self._unclosed):
            with suppress(BufferError):
                file.close()
                self._unclosed.remove(file)
