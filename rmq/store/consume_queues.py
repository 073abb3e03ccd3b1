"""ConsumeQueues: every queue of the store, and the bound on mapped queue files.

Layout: `consumequeue/<topic>/<queue id>/`; names were validated before they come here.
Queue files are mapped on use and kept in the order of use.  The bound is far below the
kernel's 65,530 mappings and the process's file descriptors; a file is given up only
when it is flushed and nobody holds it.
The registry belongs to the trio thread; `flush` runs in a worker on a copy of the list.
"""

import resource
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rmq._fastpath import MappedFile, QueueTail
from rmq.errors import RequestRejected, StoreError
from rmq.files import sync_directory
from rmq.protocol.topics import validate_topic
from rmq.store.allocate import FileAllocator
from rmq.store.consume_queue import ENTRY_SIZE, ConsumeQueue

WINDOW_SIZE = 64 * 1024
WINDOW_LIMIT = 1024 * 1024
"""A queue begins with the first and gets up to the second at a time."""

MAPPED_FILES_LIMIT = 16_384
DESCRIPTOR_SHARE = 4
"""Queue files may use this part (a quarter) of the process's descriptors."""

PAGE_SIZE = 4096
QUEUE_ID_DIGITS = 10


class MappedQueueFiles:
    """Queue files by path, the least recently used first."""

    def __init__(self, file_size: int) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limit = max(64, min(MAPPED_FILES_LIMIT, soft // DESCRIPTOR_SHARE))
        self._file_size = file_size
        self._allocator = FileAllocator(WINDOW_SIZE)
        self._mapped: OrderedDict[tuple[Path, int], MappedFile] = OrderedDict()

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
            path = str(folder / f"{base:020d}")
            try:
                file = MappedFile(path, self._file_size, base_offset=base)
            except ValueError as error:
                raise StoreError(f"{error}: mend it with `rmq store repair`") from error
            file.write_position = file.size
            file.assume_flushed(file.size)
        self._give_up_oldest()
        self._mapped[key] = file
        return file

    def ensure(self, file: MappedFile, end: int) -> None:
        """Give the file blocks up to `end`."""
        self._allocator.ensure(file, end)

    def extend(self, queue: QueueTail) -> None:
        """Double the blocks of a busy queue; a full disk shows when they are needed."""
        file = queue.file
        if file is not None and not file.is_closed:
            more = min(file.allocated, WINDOW_LIMIT)
            with suppress(StoreError):
                self._allocator.ensure(file, min(file.size, file.allocated + more))

    def drop(self, folder: Path) -> None:
        """Unmap all files of a folder; one being flushed goes when that ends."""
        for key in [key for key in self._mapped if key[0] == folder]:
            file = self._mapped.pop(key)
            with suppress(BufferError):
                file.close()

    def forget(self, folder: Path, base: int) -> None:
        """Unmap one file; if it is being flushed it goes when that ends."""
        file = self._mapped.pop((folder, base), None)
        if file is not None:
            with suppress(BufferError):
                file.close()

    def dirty(self) -> list[MappedFile]:
        """Files with entries that are not known to be durable.

        A worker calls this while the trio thread opens files, so the values are copied
        in one step: an OrderedDict's own iteration runs Python code and notices.
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

    def _give_up_oldest(self) -> None:
        excess = len(self._mapped) + 1 - self.limit
        if excess <= 0:
            return
        for key, file in list(self._mapped.items())[: excess + 8]:
            clean = file.flushed_position >= file.write_position
            if clean and not file.holders and excess > 0:
                del self._mapped[key]
                file.close()
                excess -= 1


def _is_queue(topic: str, folder: Path) -> bool:
    """Return whether a folder is named as queues are."""
    try:
        validate_topic(topic)
    except RequestRejected:
        return False
    name = folder.name
    is_number = name.isascii() and name.isdecimal() and len(name) <= QUEUE_ID_DIGITS
    return folder.is_dir() and is_number and int(name) < 1 << 31


class ConsumeQueues:
    """The registry. Known in Java as `ConsumeQueueStore`."""

    def __init__(self, folder: Path, file_size: int) -> None:
        self.files = MappedQueueFiles(file_size)
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
        """Find all queues; returns folders that are no queues and were left alone.

        After a crash, entries of records below `durable_offset` are known durable.
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
        """Return the queue; the folder is made with its first file."""
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
        """Remove the queues of a topic and their files; how many there were."""
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
        new_folders: set[Path] = set()
        for file in self.files.dirty():
            dirty = file.write_position - file.flushed_position
            if dirty >= least_pages * PAGE_SIZE or dirty >= file.size - ENTRY_SIZE:
                try:
                    file.hold()
                except ValueError:
                    continue  # its topic was deleted in the meantime
                if not file.flushed_position:
                    new_folders.update(Path(file.path).parents[:2])
                try:
                    file.flush()
                finally:
                    file.release()
        if new_folders:
            self._sync_folders(new_folders)

    def _sync_folders(self, folders: set[Path]) -> None:
        """Make the names of new queue files and their folders durable."""
        for folder in [*sorted(folders), self._folder]:
            with suppress(FileNotFoundError):  # its topic was deleted meanwhile
                sync_directory(folder)

    def close(self) -> None:
        """Unmap everything; the caller has flushed."""
        self._queues.clear()
        self.files.close()
