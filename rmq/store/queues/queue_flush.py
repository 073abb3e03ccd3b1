"""QueueFlush: entries of some queues on their way to the disk.

The trio thread creates it with copies of the entries; `write` runs in a worker;
`release_durable` runs on the trio thread again. Between the two the queues may grow,
and may be deleted. Crash contract: an entry leaves memory after the disk has confirmed
the entry and the names of its file and folders. So the next flush repeats a write that
failed.
"""

import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

from rmq._fastpath.log.queue_file import write_entries
from rmq.core.offsets import QueueOffset
from rmq.store.allocate import as_store_error
from rmq.store.descriptors import SHORTAGES, DescriptorReserve
from rmq.store.queues.consume_queue import ConsumeQueue, FileWrite

GROUP_SIZE = 64
"""Queues that are flushed together: their files are open together, and one commit of
the file system's journal covers them.
"""

COPIED_SIZE = 1 << 20
"""Bytes of entries that one flush copies on the trio thread, in 0.2 to 1 ms."""


class QueueFlush:
    """The first unflushed entries of one group of queues."""

    def __init__(
        self,
        queues: list[ConsumeQueue],
        root: str,
        file_size: int,
        reserve: DescriptorReserve,
    ) -> None:
        self.failed: list[ConsumeQueue] = []
        """Queues whose entries were not durable at the last `release_durable`."""

        self._queues: list[tuple[ConsumeQueue, QueueOffset, list[FileWrite]]] = []
        free_size = COPIED_SIZE
        for queue in queues:
            end, writes = queue.file_writes(free_size // queue.entry_size)
            self._queues.append((queue, end, writes))
            free_size -= sum(len(entries) for _, _, entries, _ in writes)
        self._root = root
        self._file_size = file_size
        self._reserve = reserve
        self._errors: list[int] = []
        self.failure: Exception | None = None
        """The first error."""

    def write(self) -> None:
        """Write and wait for the disk; `release_durable` reports the errors."""
        writes = [write for *_, writes in self._queues for write in writes]
        folders = {os.path.dirname(path) for path, *_, is_new in writes if is_new}
        if folders:
            folders |= {os.path.dirname(folder) for folder in folders}
            folders.add(os.fsencode(self._root))
        try:
            self._errors = self._reserve.open(
                partial(self._write_all, writes, sorted(folders))
            )
        except OSError as error:
            self.failure = as_store_error(error, Path(error.filename))

    def _write_all(self, writes: list[FileWrite], folders: list[bytes]) -> list[int]:
        """Write everything; OSError if a file found no descriptor."""
        errors = write_entries(writes, folders, self._file_size)
        for error, (path, *_) in zip(errors, writes, strict=True):
            if error in SHORTAGES:
                raise OSError(error, os.strerror(error), os.fsdecode(path))
        return errors

    def release_durable(self) -> None:
        """Free the memory of entries that are durable now."""
        errors = iter(self._errors)
        for queue, end, writes in self._queues:
            results = [next(errors, -1) for _ in writes]
            if queue.is_deleted:
                self._remove(queue)
            elif any(results):
                self.failed.append(queue)
                self._keep_error(results, writes)
            else:
                queue.record_flushed(end)

    def _remove(self, queue: ConsumeQueue) -> None:
        """Remove files that were written after the topic had been deleted."""
        shutil.rmtree(queue.folder, ignore_errors=True)
        with suppress(OSError):  # there are other queues, or it is gone
            queue.folder.parent.rmdir()

    def _keep_error(self, results: list[int], writes: list[FileWrite]) -> None:
        for result, (path, *_) in zip(results, writes, strict=True):
            if result > 0 and self.failure is None:
                error = OSError(result, os.strerror(result))
                self.failure = as_store_error(error, Path(os.fsdecode(path)))
