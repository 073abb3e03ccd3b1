"""ConsumeQueues: every queue of the store, and their flush.

Layout: `consumequeue/<topic>/<queue id>/`, and `batchconsumequeue/…` for topics with
`queue.type=BatchCQ`; the callers have validated the names. No queue keeps a file open:
`QueueFlush` writes entries in groups, `QueueFiles` maps files for readers. So neither
descriptors nor mappings bound the number of queues. Belongs to the trio thread; the
steps of a flush and of a cleaning run in a worker.
"""

import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from rmq._fastpath.log.queue_tail import TailSet
from rmq.core.files import sync_directory
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.protocol.topics import is_lmq, is_queue_topic, validate_queue_topic
from rmq.store.descriptors import DescriptorReserve
from rmq.store.queues.batch_queue import BATCH_ENTRY_SIZE, BatchQueue
from rmq.store.queues.consume_queue import ENTRY_SIZE, NO_OFFSET, ConsumeQueue
from rmq.store.queues.queue_files import QueueFiles
from rmq.store.queues.queue_flush import GROUP_SIZE, QueueFlush

PAGE_SIZE: Final = 4096
QUEUE_ID_DIGITS: Final = 10

Step = Callable[[], object]
"""A blocking part of longer work; a worker runs it."""

QueueKey = tuple[str, int]


def _queue_id(name: str) -> int | None:
    """Return the number of a queue from the name of its folder; None if it is wrong."""
    if not (name.isascii() and name.isdecimal() and len(name) <= QUEUE_ID_DIGITS):
        return None
    return int(name) if int(name) < 1 << 31 else None


class ConsumeQueues:
    """The registry. Known in Java as `ConsumeQueueStore`."""

    def __init__(
        self,
        folder: Path,
        file_size: int,
        reserve: DescriptorReserve,
        *,
        batch_file_size: int = BATCH_ENTRY_SIZE,
        dispatches_lmq: bool = False,
        store_ms_at: Callable[[PhysicalOffset], int] | None = None,
    ) -> None:
        """`store_ms_at` reads the store time of a record: see `make_batch`."""
        self.files = QueueFiles(file_size, reserve)
        self.tails = TailSet()
        self.dispatches_lmq = dispatches_lmq
        """Whether records may have entries in light message queues, too."""

        self.lmq_count = 0
        """Number of light message queues, see `multi_dispatch.py`."""

        self.batch_topics: set[str] = set()
        """Topics whose queues are of type BatchCQ."""

        self._batch_files = QueueFiles(batch_file_size, reserve)
        self._store_ms_at = store_ms_at
        self._reserve = reserve
        self._folder = folder
        self._batch_folder = folder.parent / "batchconsumequeue"
        self._count = 0
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}
        self._long: dict[ConsumeQueue, None] = {}
        """Queues with several files; the first file may be unused."""

        self._removing = threading.Lock()
        self._deleted: set[str] = set()
        """Deleted topics whose files still exist; a flush of a new queue waits for
        their removal.
        """

    def __iter__(self) -> Iterator[ConsumeQueue]:
        """Yield every queue."""
        for queues in list(self._topics.values()):
            yield from list(queues.values())

    def __len__(self) -> int:
        """Count the queues."""
        return self._count

    def load(
        self,
        ends: dict[QueueKey, int] | None = None,
        durable_offset: PhysicalOffset = NO_OFFSET,
    ) -> list[Path]:
        """Find all queues; return the folders that are no queues, which stay untouched.

        Queues have at least the entries of `ends`, and after a crash the entries of
        records below `durable_offset`.
        """
        foreign = []
        ends = ends or {}
        batches = _queue_folders(self._batch_folder)
        self.batch_topics.update(folder.name for folder in batches)
        for folder in batches + _queue_folders(self._folder):
            topic = folder.name
            is_named = is_queue_topic(topic) and (
                topic not in self.batch_topics or folder.parent == self._batch_folder
            )
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    queue_id = _queue_id(entry.name)
                    if not is_named or queue_id is None or not entry.is_dir():
                        foreign.append(folder / entry.name)
                        continue
                    queue = self.get_or_create(topic, queue_id)
                    queue.load(ends.get((topic, queue_id), 0), durable_offset)
                    self._keep_if_long(queue)
        return foreign

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue if it has ever had a message."""
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; a flush creates its folder."""
        queue = self.get(topic, queue_id)
        if queue is None:
            if topic not in self._topics:
                validate_queue_topic(topic)
            assert queue_id >= 0, f"{topic} queue {queue_id}"
            if topic in self.batch_topics:
                queue = self._new_batch(topic, queue_id)
            else:
                folder = f"{self._folder}/{topic}/{queue_id}"
                queue = ConsumeQueue(topic, queue_id, folder, self.files, self.tails)
            self._topics.setdefault(topic, {})[queue_id] = queue
            self._count += 1
            self.lmq_count += is_lmq(topic)
        return queue

    def _new_batch(self, topic: str, queue_id: int) -> BatchQueue:
        folder = f"{self._batch_folder}/{topic}/{queue_id}"
        return BatchQueue(topic, queue_id, folder, self._batch_files, self.tails)

    def set_form(self, topic: str, *, is_batch: bool) -> None:
        """Set the type of the queues of a topic."""
        if is_batch:
            self.make_batch(topic)
        else:
            self.batch_topics.discard(topic)

    def make_batch(self, topic: str) -> None:
        """Change the queues of a topic to the type BatchCQ.

        A start and a slave may have queues of a new topic before its attributes. Such
        queues are written again in the other form, durably, before the old files are
        removed.
        """
        if topic in self.batch_topics:
            return
        self.batch_topics.add(topic)
        plain = self.of_topic(topic)
        if not plain:
            return
        assert self._store_ms_at is not None, topic
        batches: list[ConsumeQueue] = []
        for queue in plain:
            batch = self._new_batch(topic, queue.queue_id)
            batch.fill_to(queue.min_offset)
            for offset in range(queue.min_offset, queue.next_offset):
                place = queue.entry_at(QueueOffset(offset))
                batch.add(*place, self._store_ms_at(place[0]))
            batches.append(batch)
        flush = self._start_flush(batches)
        flush.write()
        flush.release_durable()
        if flush.failure is not None:
            self.batch_topics.discard(topic)
            raise flush.failure
        self.delete_topic(topic)
        self.remove_deleted({topic}, {self._folder})
        self._topics[topic] = {batch.queue_id: batch for batch in batches}
        self._count += len(batches)
        self.lmq_count += len(batches) if is_lmq(topic) else 0

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """Return the queues of a topic."""
        return list(self._topics.get(topic, {}).values())

    def topics(self) -> list[str]:
        """Return the names of all topics that have queues."""
        return list(self._topics)

    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic and return their number.

        Call `remove_deleted` in a worker afterwards.
        """
        queues = self.of_topic(topic)
        for queue in queues:
            queue.is_deleted = True
            queue.drop_files(NO_OFFSET)
            self._long.pop(queue, None)
        if queues:
            del self._topics[topic]
            self._count -= len(queues)
            self.lmq_count -= len(queues) if is_lmq(topic) else 0
            self._deleted.add(topic)
        return len(queues)

    def remove_deleted(self, topics: set[str], folders: Collection[Path] = ()) -> None:
        """Remove the files of deleted topics; it blocks, and any thread may call it."""
        with self._removing:
            for topic in topics & self._deleted:
                for folder in folders or (self._folder, self._batch_folder):
                    shutil.rmtree(folder / topic, ignore_errors=True)
                self._deleted.discard(topic)

    # -- flush

    def flush_steps(self, least_pages: int) -> Iterator[Step]:
        """Make entries durable; queues with fewer unflushed pages wait.

        It tries all queues, then raises StoreError with the first failure, if there was
        one. If the caller closes the generator early, the next flush writes the other
        entries.
        """
        least = max(1, least_pages * PAGE_SIZE // ENTRY_SIZE)
        waiting: list[ConsumeQueue] = self.tails.take_unflushed(least)
        ends: dict[ConsumeQueue, QueueOffset] = {}
        failure: Exception | None = None
        try:
            while waiting:
                group = [waiting.pop() for _ in range(min(GROUP_SIZE, len(waiting)))]
                if again := {queue.topic for queue in group} & self._deleted:
                    yield partial(self.remove_deleted, again)
                for part in _by_form(group):
                    ends = {queue: queue.next_offset for queue in part}
                    while ends:
                        flush = self._start_flush(list(ends))
                        try:
                            yield flush.write
                        finally:
                            flush.release_durable()
                            self.tails.relist_unflushed(flush.failed)
                        failure = failure or flush.failure
                        ends = _unfinished_ends(ends, flush.failed)
                for queue in group:
                    self._keep_if_long(queue)
        finally:
            self.tails.relist_unflushed([*waiting, *ends])
        if failure is not None:
            raise failure

    @property
    def has_unflushed(self) -> bool:
        """Whether entries are only in memory."""
        return self.tails.has_unflushed

    def _start_flush(self, group: list[ConsumeQueue]) -> QueueFlush:
        """Start a flush of queues of one form."""
        queues = [queue for queue in group if not queue.is_deleted]
        is_batch = bool(group) and group[0].is_batch
        if not is_batch:
            size = self.files.file_size
            return QueueFlush(queues, str(self._folder), size, self._reserve)
        folder = self._batch_folder
        if not folder.exists():
            folder.mkdir()
            sync_directory(folder.parent)
        return QueueFlush(
            queues, str(folder), self._batch_files.file_size, self._reserve
        )

    def flush(self, least_pages: int = 0) -> None:
        """Make entries durable like `flush_steps`; blocks."""
        for step in self.flush_steps(least_pages):
            step()

    # -- removal

    def _keep_if_long(self, queue: ConsumeQueue) -> None:
        if queue.file_count > 1 and not queue.is_deleted:
            self._long[queue] = None

    def clean_steps(self, start: int) -> Iterator[Step]:
        """Notify queues that the log begins at `start`; unlink files before it.

        Each queue computes its new minimum at the next access.
        """
        self.tails.log_start = start
        waiting = list(self._long)
        while waiting:
            group = [waiting.pop() for _ in range(min(GROUP_SIZE, len(waiting)))]
            firsts: list[int] = []
            yield partial(_find_used, group, start, firsts)
            paths = []
            for queue, first in zip(group, firsts, strict=True):
                if not queue.is_deleted:
                    paths += queue.drop_files(first)
                if queue.file_count < 2:
                    self._long.pop(queue, None)
            if paths:
                yield partial(_unlink, paths)

    def close(self) -> None:
        """Unmap everything, remove deleted queues; the caller has flushed."""
        self.remove_deleted(set(self._deleted))
        self._topics.clear()
        self._long.clear()
        self._count = 0
        self.files.close()
        self._batch_files.close()


def _queue_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, in order; none if it does not exist."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in names]


def _unfinished_ends(
    ends: dict[ConsumeQueue, QueueOffset], failed: Collection[ConsumeQueue]
) -> dict[ConsumeQueue, QueueOffset]:
    """Return the queues that have unflushed entries before their end, without the
    failed ones.
    """
    return {
        queue: end
        for queue, end in ends.items()
        if queue.flushed_offset < min(end, queue.next_offset)
        and not queue.is_deleted
        and queue not in failed
    }


def _by_form(group: list[ConsumeQueue]) -> list[list[ConsumeQueue]]:
    """Split queues by the form of their files."""
    plain = [queue for queue in group if not queue.is_batch]
    return [part for part in (plain, [q for q in group if q.is_batch]) if part]


def _find_used(group: list[ConsumeQueue], start: int, firsts: list[int]) -> None:
    for queue in group:
        try:
            firsts.append(queue.first_used_file(start))
        except (FileNotFoundError, IndexError):  # its files are being deleted
            firsts.append(0)


def _unlink(paths: list[str]) -> None:
    for path in paths:
        Path(path).unlink(missing_ok=True)
