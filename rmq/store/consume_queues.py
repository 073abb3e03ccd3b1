"""ConsumeQueues: every queue of the store, and the bound on mapped queue files.

Layout: `consumequeue/<topic>/<queue id>/`; the callers have validated the names.
Queue files are mapped on use and listed in the order of use.  The bound is far below
the kernel's 65,530 mappings and the process's file descriptors; above it, or if there
is no room for one more, the files that were used least recently are unmapped.  Their
unflushed entries stay in the page cache; the next thorough flush opens the files again.
The registry belongs to the trio thread; `flush` runs in a worker on a copy of the list.
"""

import itertools
import logging
import os
import resource
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from rmq._fastpath import MappedFile, QueueTail
from rmq.errors import RequestRejected, StoreError
from rmq.files import sync_directory
from rmq.protocol.topics import validate_topic
from rmq.store.allocate import FileAllocator, as_store_error
from rmq.store.consume_queue import ENTRY_SIZE, ConsumeQueue
from rmq.store.descriptors import SHORTAGES, DescriptorReserve

logger = logging.getLogger(__name__)
T = TypeVar("T")

WINDOW_SIZE = 4 * 1024
WINDOW_LIMIT = 1024 * 1024
"""Bytes of the first blocks of a queue file, and most bytes that it gets at a time."""

MAPPED_FILES_LIMIT = 16_384
DESCRIPTOR_SHARE = 4
"""Queue files may use this part (a quarter) of the process's descriptors."""

GIVEN_UP_AT_ONCE = 64
"""Files that are unmapped if there is no room for one more."""

PAGE_SIZE = 4096
QUEUE_ID_DIGITS = 10


class MappedQueueFiles:
    """Queue files by path, the least recently used first."""

    def __init__(self, file_size: int, reserve: DescriptorReserve) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limit = max(16, min(MAPPED_FILES_LIMIT, soft // DESCRIPTOR_SHARE))
        self._file_size = file_size
        self._reserve = reserve
        self._room = _QueueRoom(self, reserve)
        self._allocator = FileAllocator(WINDOW_SIZE, room=self._room)
        self._mapped: OrderedDict[tuple[Path, int], MappedFile] = OrderedDict()
        self._unflushed: dict[Path, bool] = {}
        """Files unmapped before a flush, and whether they were never flushed."""

    def __len__(self) -> int:
        """Count the mapped files."""
        return len(self._mapped)

    def open(self, folder: Path, base: int, *, create: bool = False) -> MappedFile:
        """Map the file that starts at byte `base`, or take it from the cache."""
        key = (folder, base)
        file = self._mapped.get(key)
        if file is not None:
            self._mapped.move_to_end(key)
            return file
        if create:
            file = self._allocator.create(folder, base, self._file_size)
        else:
            file = self._map(folder / f"{base:020d}", base)
        self._mapped[key] = file
        if len(self._mapped) > self.limit:
            self.give_up(len(self._mapped) - self.limit)
        return file

    def _map(self, path: Path, base: int) -> MappedFile:
        try:
            file = self._room.open(
                partial(MappedFile, str(path), self._file_size, base_offset=base)
            )
        except OSError as error:
            raise as_store_error(error, path) from error
        except ValueError as error:
            raise StoreError(f"{error}: repair it with `rmq store repair`") from error
        file.write_position = file.size
        file.assume_flushed(file.size)
        return file

    def ensure(self, file: MappedFile, end: int) -> None:
        """Give the file blocks up to `end`."""
        self._allocator.ensure(file, end)

    def extend(self, queue: QueueTail) -> None:
        """Double the blocks of a busy queue; a full disk is no error yet."""
        file = queue.file
        if file is not None and not file.is_closed:
            more = min(file.allocated, WINDOW_LIMIT)
            with suppress(StoreError):
                self._allocator.ensure(file, min(file.size, file.allocated + more))

    def drop(self, folder: Path) -> None:
        """Unmap all files of a folder, a file that is being flushed after the flush."""
        for key in [key for key in self._mapped if key[0] == folder]:
            file = self._mapped.pop(key)
            with suppress(BufferError):
                file.close()

    def forget(self, folder: Path, base: int) -> None:
        """Unmap one file; if it is being flushed, after the flush."""
        file = self._mapped.pop((folder, base), None)
        if file is not None:
            with suppress(BufferError):
                file.close()

    def dirty(self) -> list[MappedFile]:
        """Return files with entries that are not known to be durable.

        A worker calls this while the trio thread opens files, so the values are copied
        in one step: iteration over an OrderedDict runs Python code and would raise.
        """
        return [
            file
            for file in list(dict.values(self._mapped))
            if file.flushed_position < file.write_position
        ]

    def close(self) -> None:
        """Unmap everything."""
        for file in self._mapped.values():
            file.close()
        self._mapped.clear()

    def give_up(self, count: int) -> None:
        """Unmap the files that were used least recently, except those that are held.

        An unflushed file enters the list of such files before it leaves the table, so
        that a concurrent flush finds it in one of the two.
        """
        for key in list(itertools.islice(self._mapped, count)):
            file = self._mapped[key]
            if file.holders:
                self._mapped.move_to_end(key)
                continue
            if file.flushed_position < file.write_position:
                path = Path(file.path)
                is_new = not file.flushed_position
                self._unflushed[path] = is_new or self._unflushed.get(path, False)
            del self._mapped[key]
            file.close()

    def flush_given_up(self, new_folders: set[Path]) -> None:
        """Make files durable that were unmapped unflushed; add folders of new names.

        For the worker, after the flush of the files of `dirty`.
        """
        for path in list(self._unflushed):
            is_new = self._unflushed.pop(path)
            try:
                descriptor = self._reserve.open(
                    partial(os.open, path, os.O_RDONLY | os.O_CLOEXEC)
                )
            except FileNotFoundError:
                continue  # its topic was deleted in the meantime
            except OSError:
                self._unflushed[path] = is_new or self._unflushed.get(path, False)
                raise
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
            if is_new:
                new_folders.update(path.parents[:2])


class _QueueRoom:
    """Room for queue files: others are unmapped before the reserve is used."""

    def __init__(self, files: MappedQueueFiles, reserve: DescriptorReserve) -> None:
        self._files = files
        self._reserve = reserve

    def open(self, opener: Callable[[], T]) -> T:
        """Call `opener`; if there is no room, unmap other files and call it again."""
        try:
            return opener()
        except OSError as error:
            if error.errno not in SHORTAGES:
                raise
        self._files.give_up(GIVEN_UP_AT_ONCE)
        return self._reserve.open(opener)


def _is_queue(topic: str, folder: Path) -> bool:
    """Whether a folder has the name of a queue."""
    try:
        validate_topic(topic)
    except RequestRejected:
        return False
    name = folder.name
    is_number = name.isascii() and name.isdecimal() and len(name) <= QUEUE_ID_DIGITS
    return folder.is_dir() and is_number and int(name) < 1 << 31


class ConsumeQueues:
    """The registry. Known in Java as `ConsumeQueueStore`."""

    def __init__(
        self, folder: Path, file_size: int, reserve: DescriptorReserve
    ) -> None:
        self.files = MappedQueueFiles(file_size, reserve)
        self._reserve = reserve
        self._new_folders: set[Path] = set()
        """Folders with names that are not durable yet; unchanged if a flush fails."""
        self.has_lost_entries = False
        """A flush failed: the kernel may have dropped pages that it could not write."""
        self._folder = folder
        self._file_size = file_size
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}

    def __iter__(self) -> Iterator[ConsumeQueue]:
        """Yield every queue."""
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        """Count the queues."""
        return len(self._queues)

    def load(self, durable_offset: int | None = None) -> list[Path]:
        """Find all queues; return folders that are no queues and stay untouched.

        After a crash, entries of records below `durable_offset` are known to be
        durable.
        """
        foreign = []
        for topic_folder in sorted(self._folder.iterdir()):
            for folder in (
                sorted(topic_folder.iterdir()) if topic_folder.is_dir() else ()
            ):
                if not _is_queue(topic_folder.name, folder):
                    foreign.append(folder)
                    continue
                queue = self.get_or_create(topic_folder.name, int(folder.name))
                queue.load(durable_offset)
        return foreign

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue if it has ever had a message."""
        return self._queues.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; its folder is created with its first file."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            validate_topic(topic)
            assert queue_id >= 0, f"{topic} queue {queue_id}"
            folder = self._folder / topic / str(queue_id)
            queue = ConsumeQueue(topic, queue_id, folder, self.files, self._file_size)
            self._queues[topic, queue_id] = queue
        return queue

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """Return the queues of a topic."""
        return [queue for queue in self._queues.values() if queue.topic == topic]

    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic and their files; return their number."""
        queues = self.of_topic(topic)
        for queue in queues:
            queue.is_deleted = True
            self.files.drop(queue.folder)
            del self._queues[topic, queue.queue_id]
        if queues:
            shutil.rmtree(self._folder / topic, ignore_errors=True)
        return len(queues)

    def flush(self, least_pages: int) -> None:
        """Make entries durable; files with fewer dirty pages wait."""
        for file in self.files.dirty():
            dirty = file.write_position - file.flushed_position
            if dirty >= least_pages * PAGE_SIZE or dirty >= file.size - ENTRY_SIZE:
                try:
                    file.hold()
                except ValueError:
                    continue  # it was unmapped, or its topic was deleted
                if not file.flushed_position:
                    self._new_folders.update(Path(file.path).parents[:2])
                try:
                    self._flush_or_note(file.flush)
                finally:
                    file.release()
        if not least_pages:
            self._flush_or_note(partial(self.files.flush_given_up, self._new_folders))
        if self._new_folders:
            self._sync_folders()

    def _flush_or_note(self, flush: Callable[[], object]) -> None:
        """Call `flush`; remember an error, as a later success would prove nothing."""
        try:
            flush()
        except OSError as error:
            if error.errno not in SHORTAGES and not self.has_lost_entries:
                self.has_lost_entries = True
                logger.error("%s: the next start rebuilds queues from the log", error)
            raise

    def _sync_folders(self) -> None:
        """Make the names of new queue files and their folders durable."""
        for folder in [*sorted(self._new_folders), self._folder]:
            with suppress(FileNotFoundError):  # its topic was deleted meanwhile
                self._reserve.open(partial(sync_directory, folder))
        self._new_folders.clear()

    def close(self) -> None:
        """Unmap everything; the caller has flushed."""
        self._queues.clear()
        self.files.close()
