"""Cleaner: old log files go, then the queue entries and index files that meant them.

A log file goes when it was last written `fileReservedTime` ago and it is one of the
hours of `deleteWhen`, the disk is too full, or somebody asked; on a disk fuller than
`diskSpaceCleanForciblyRatio` neither its age nor who needs it counts.  Never the last
file, never one that is not durable or not indexed, and always the oldest first.
Deciding (`take_*`) belongs to the trio thread, which owns the lists of files; `discard`
is for a worker.  A file that a transfer holds keeps its name until it is released or
`destroyMapedFileIntervalForcibly` has passed, and its bytes until it is released.
Crash contract: names go in the order of offsets, so what is left is always a log;
queues and index files that point before it are harmless and go at the next cleaning.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from rmq._fastpath import MappedFile
from rmq.clock import Clock
from rmq.store.commit_log import CommitLog
from rmq.store.config import StoreConfig
from rmq.store.consume_queues import ConsumeQueues
from rmq.store.durability import Durability
from rmq.store.index import MessageIndex

logger = logging.getLogger(__name__)

MANUAL_ROUNDS = 20
"""Cleanings that one request allows, as in Java."""
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
        durability: Durability,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        self._queues = queues
        self._index = index
        self._durability = durability
        self.needed_from: Callable[[], int | None] | None = None
        """Says from which offset on somebody still needs the log."""
        self._is_forced = False
        self._manual_rounds = 0
        self._held_since_ms: int | None = None
        self._cleaned_offset = -1
        self._unclosed: list[MappedFile] = []

    def request(self) -> None:
        """Delete expired files at the next cleanings, whatever the hour."""
        self._manual_rounds = MANUAL_ROUNDS

    def request_queues(self) -> None:
        """Look at all queues at the next cleaning, also if the log has not moved."""
        self._cleaned_offset = -1

    def expiry_ms(self, used_ratio: int) -> int | None:
        """Files last written before this time go now; None if none do."""
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
        """Forget the oldest log file if it may go; `discard` it afterwards."""
        files = self._log.files.files
        if len(files) < 2:
            return None
        file = files[0]
        end = file.base_offset + file.size
        is_indexed = not self._config.index_enabled or self._index.next_offset >= end
        is_durable = self._durability.durable.value >= end
        if not (is_indexed and is_durable) or self._is_needed(end):
            return None
        if os.fstat(file.fd).st_mtime * 1000 > expiry_ms:
            return None
        if file.holders and not self._has_waited():
            return None
        self._held_since_ms = None
        return files.pop(0)

    def _is_needed(self, end: int) -> bool:
        """Whether somebody needs what lies before `end`, and there is room for it."""
        needed_from = None if self.needed_from is None else self.needed_from()
        assert needed_from is None or needed_from >= 0, needed_from
        if needed_from is None or needed_from >= end:
            return False
        if self._is_forced:
            logger.warning(
                "the disk is full: the log from %d to %d goes, though somebody still "
                "needs it",
                needed_from,
                end,
            )
        return not self._is_forced

    def _has_waited(self) -> bool:
        """Whether the oldest file has been held for as long as it may."""
        now_ms = self._clock.now_ms()
        if self._held_since_ms is None:
            self._held_since_ms = now_ms
        return now_ms - self._held_since_ms >= self._config.destroy_after_ms

    def take_index_files(self) -> list[MappedFile]:
        """Forget index files of which all records are gone."""
        return self._index.take_expired(self._log.min_offset)

    def clean_queues(self) -> Iterator[list[Path]]:
        """Raise each queue's minimum and yield its files that may be unlinked.

        Nothing is looked at while the log's start has not moved.
        """
        start = self._log.min_offset
        if start == self._cleaned_offset:
            return
        for queue in self._queues:
            yield queue.clean(start)
        self._cleaned_offset = start

    def discard(self, files: list[MappedFile]) -> None:
        """Unlink files and unmap them as soon as nobody holds them."""
        for file in files:
            assert file.writable, file.path
            with suppress(FileNotFoundError):
                file.unlink()
        self._unclosed += files
        for file in list(self._unclosed):
            with suppress(BufferError):
                file.close()
                self._unclosed.remove(file)
