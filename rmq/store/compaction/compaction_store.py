"""CompactionStore: the compacted queues of a store, and the copies of new messages.

A loop copies messages of compaction topics from the commit log, soon after they are
visible, and compacts each queue every `compactionScheduleInternal`.  Readers get copied
messages from the compacted queues, and newer ones from the ordinary queues.  So a
message stays readable after the commit log has deleted it.

`compaction/position-checkpoint`: JSON as Java writes it, the offset up to which each
queue is compacted, by `<topic>_<queue id>`.
Crash contract: copies are durable before the cleaner deletes the commit log's file; a
start copies again from the end of each compacted queue.
Steps of copies and compactions run in a worker, one at a time; all other functions
belong to the trio thread.
"""

import logging
import shutil
import struct
from collections.abc import Generator, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from rmq._fastpath.bytes.hashing import tags_code
from rmq.core.errors import RecordDamaged, RemoteProtocolError
from rmq.core.files import replace_file, sync_directory
from rmq.core.logs import Foreign
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.protocol import fastjson
from rmq.protocol.properties import TAGS
from rmq.protocol.records import decode_stored_at
from rmq.store.commit_log import CommitLog
from rmq.store.compaction.compacted_queue import CompactedQueue
from rmq.store.compaction.compactor import compact, key_of
from rmq.store.config import StoreConfig
from rmq.store.log_digests import LogDigests
from rmq.store.positions import LogPositions
from rmq.store.queues.batch_queue import BATCH_ENTRY_SIZE
from rmq.store.queues.consume_queue import ENTRY_SIZE, ConsumeQueue
from rmq.store.queues.consume_queues import ConsumeQueues, Step

logger = logging.getLogger(__name__)

COPIED_AT_ONCE: Final = 500
"""Maximum number of entries that one step copies; other tasks run between two steps."""

_LEAST_FILES: Final = 5
"""A log file has at least this many times the bytes of a file of entries."""

_KINDS: Final = "compactionLog", "compactionCq"
_ENTRY: Final = struct.Struct(">qiq")
_MEMBER: Final = "queueOffsetMap"

Key = tuple[str, int]


class EarlierPart:
    """Messages of a queue before the first one in the log, from another broker.

    They are written in `compaction/earlier`, and move to the compacted queue when they
    are complete. All methods block.
    """

    def __init__(
        self,
        topic: str,
        queue_id: int,
        end_offset: QueueOffset,
        folder: Path,
        sizes: tuple[int, int],
    ) -> None:
        """The log has the messages from `end_offset` on."""
        self.topic = topic
        self.queue_id = queue_id
        self.end_offset = end_offset
        self._folder = folder / "earlier"
        log, entries = (self._folder / kind for kind in _KINDS)
        self._queue = CompactedQueue(log, entries, sizes)
        self._places = [
            (part, folder / part.name / topic / str(queue_id))
            for part in (log, entries)
        ]

    def begin(self) -> None:
        """Begin without messages; an earlier attempt may have left some."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._queue.parts = ()

    def add(self, records: bytes) -> None:
        """Add records that follow the others; those of the log are left out."""
        position = 0
        while position < len(records):
            message = decode_stored_at(records, position)
            if message.queue_offset < self.end_offset and key_of(message):
                record = records[position : position + message.size]
                code = tags_code(message.properties.get(TAGS, ""))
                self._queue.append(record, code, message.store_timestamp)
            position += message.size

    def finish(self) -> None:
        """Make the messages durable, and move them to the compacted queue."""
        self._queue.sync()
        for source, place in self._places:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(place, ignore_errors=True)
            if source.is_dir():
                source.rename(place)
            sync_directory(place.parent)


class CompactionStore:
    """Known in Java under the same name."""

    def __init__(
        self,
        config: StoreConfig,
        root: Path,
        log: CommitLog,
        queues: ConsumeQueues,
        positions: LogPositions,
        digests: LogDigests,
    ) -> None:
        self.topics: set[str] = set()
        """Topics whose queues are compacted."""

        self._config = config
        self._folder = root / "compaction"
        self._log = log
        self._queues = queues
        self._positions = positions
        self._digests = digests
        self._compacted: dict[Key, CompactedQueue] = {}
        self._offsets: dict[str, int] = {}
        self._deletions = 0
        self._copied_end = -1
        """Offset in the commit log before which all messages are copied durably."""

        self.pulls_earlier = False
        """Whether this broker, a slave, pulls from its master the messages that its log
        never had.
        """

    # -- start

    def load(self, *, was_clean: bool) -> list[str]:
        """Open the queues that exist; return sentences about anomalies."""
        notes: list[str] = []
        self._offsets = self._read_positions()
        logs = self._folder / "compactionLog"
        self._remove_deleted()
        for folder in sorted(logs.glob("*/*")) if logs.is_dir() else ():
            topic, name = folder.parent.name, folder.name
            if not (folder.is_dir() and name.isdecimal()):
                continue
            ordinary = self._queues.get(topic, int(name))
            if ordinary is None:
                notes.append(f"{folder}: the topic has no such queue, it is not served")
                continue
            queue = self._make(topic, int(name))
            notes += queue.load(was_clean=was_clean)
            if queue.end_offset > ordinary.next_offset:
                queue.truncate(ordinary.next_offset)
                notes.append(f"{folder}: messages that the log has lost were removed")
        return notes

    def _make(self, topic: str, queue_id: int) -> CompactedQueue:
        key = topic, queue_id
        log, entries = (self._folder / part / topic / str(queue_id) for part in _KINDS)
        queue = self._compacted[key] = CompactedQueue(log, entries, self._file_sizes())
        return queue

    def _file_sizes(self) -> tuple[int, int]:
        """Return the bytes of a log file and of a file of entries, as Java does."""
        wanted = self._config.compaction_file_size
        entries = self._config.compaction_queue_file_size
        entries -= entries % BATCH_ENTRY_SIZE
        count, rest = divmod(wanted, entries)
        if count < _LEAST_FILES:
            return entries * _LEAST_FILES, entries
        is_down = 0 < rest < entries // 2
        return (count if is_down else count + 1) * entries, entries

    def _read_positions(self) -> dict[str, int]:
        try:
            data = (self._folder / "position-checkpoint").read_bytes()
            found = fastjson.load_json(data)
        except (OSError, RemoteProtocolError):
            return {}
        table = found.get(_MEMBER) if isinstance(found, dict) else None
        if not isinstance(table, dict):
            return {}
        return {name: at for name, at in table.items() if isinstance(at, int)}

    # -- topics

    def set_topic(self, name: str, *, is_compacted: bool) -> None:
        """Compact the queues of a topic from now on, or serve them as ordinary
        queues.
        """
        if is_compacted and self._config.compaction_enabled:
            self.topics.add(name)
        else:
            self.topics.discard(name)

    def find(self, topic: str, queue_id: int) -> CompactedQueue | None:
        """Return a queue that has compacted messages to read."""
        if topic not in self.topics:
            return None
        queue = self._compacted.get((topic, queue_id))
        return queue if queue is not None and queue.parts else None

    def delete_topic(self, topic: str) -> Step:
        """Remove the queues of a topic from the table; return the step that removes
        their files.

        Another step may be writing to these files. So their folders get another name
        first, which no topic has.
        """
        for key in [key for key in self._compacted if key[0] == topic]:
            self._compacted.pop(key).is_deleted = True
            self._offsets.pop(f"{topic}_{key[1]}", None)
        self._deletions += 1
        for kind in _KINDS:
            folder = self._folder / kind / topic
            with suppress(FileNotFoundError):
                folder.rename(folder.with_name(f"{topic}.{self._deletions}"))
        return self._remove_deleted

    def _remove_deleted(self) -> None:
        for kind in _KINDS:
            for folder in (self._folder / kind).glob("*.*"):
                shutil.rmtree(folder, ignore_errors=True)

    def forget_all(self) -> None:
        """Begin without messages: the files were moved away."""
        self._compacted.clear()
        self._offsets.clear()
        self._copied_end = -1

    # -- copies

    @property
    def needed_from(self) -> int | None:
        """Offset from which the commit log is needed; None without such topics."""
        return max(0, self._copied_end) if self.topics else None

    def copy_steps(self) -> Generator[Step]:
        """Copy the messages that have become visible; yields the blocking steps, for a
        worker.
        """
        end = min(self._positions.visible, self._positions.durable.value)
        is_complete = True
        for topic in list(self.topics):
            for queue in self._queues.of_topic(topic):
                if self.pulls_earlier and self._lacks_messages(queue):
                    is_complete = False
                elif not queue.is_batch:
                    yield from self._copy_queue(queue, end)
        if is_complete:
            self._copied_end = end

    def _lacks_messages(self, queue: ConsumeQueue) -> bool:
        """Whether the log lacks the first messages of a queue, and no message was
        copied.
        """
        if queue.is_batch or not 0 < queue.min_offset < queue.next_offset:
            return False
        compacted = self._compacted.get((queue.topic, queue.queue_id))
        return compacted is None or not compacted.copied_offset

    def lacking_parts(self) -> list[EarlierPart]:
        """Return the messages to pull from the master, by queue."""
        return [
            EarlierPart(
                queue.topic,
                queue.queue_id,
                queue.min_offset,
                self._folder,
                self._file_sizes(),
            )
            for topic in self.topics
            for queue in self._queues.of_topic(topic)
            if self._lacks_messages(queue)
        ]

    def accept_earlier(self, pulled: EarlierPart) -> None:
        """Serve messages that were pulled; the log has the messages after them."""
        if pulled.topic in self.topics:
            queue = self._make(pulled.topic, pulled.queue_id)
            queue.load(was_clean=True)
            queue.copied_offset = pulled.end_offset

    def _copy_queue(self, queue: ConsumeQueue, end: int) -> Generator[Step]:
        last = queue.visible_offset(PhysicalOffset(end))
        compacted = self._compacted.get((queue.topic, queue.queue_id))
        if compacted is None:
            if last <= queue.min_offset:
                return
            compacted = self._make(queue.topic, queue.queue_id)
            yield compacted.move_aside
        at: int = max(compacted.copied_offset, queue.min_offset)
        if at >= last:
            return
        while at < last and not compacted.is_deleted:
            count = min(COPIED_AT_ONCE, last - at)
            entries = bytes(queue.read_entries(QueueOffset(at), count))
            copy = partial(self._copy, compacted, entries, at)
            yield partial(_write, compacted, copy)
            at += len(entries) // ENTRY_SIZE
        yield partial(_write, compacted, compacted.sync)

    def _copy(self, queue: CompactedQueue, entries: bytes, first: int) -> None:
        """Copy records with a key; blocks.

        RecordDamaged if a record waits for its bytes: a later call begins with this
        record.
        """
        done = 0
        try:
            for offset, size, code in _ENTRY.iter_unpack(entries):
                is_there = offset >= self._log.min_offset
                record = self._read(offset, size) if is_there else None
                if record is not None:
                    message = decode_stored_at(record, 0)
                    if key_of(message):
                        queue.append(record, code, message.store_timestamp)
                done += 1
        finally:
            queue.copied_offset = first + done

    def _read(self, offset: int, size: int) -> bytes | None:
        try:
            return self._log.read(PhysicalOffset(offset), size)
        except RecordDamaged as error:
            return self._digests.read_damaged(error, size)

    def follow_cut(self) -> None:
        """Remove messages that the ordinary queues have lost; blocks."""
        for (topic, queue_id), compacted in list(self._compacted.items()):
            queue = self._queues.get(topic, queue_id)
            if queue is not None and compacted.copied_offset > queue.next_offset:
                compacted.truncate(queue.next_offset)
                compacted.sync()
        self._copied_end = min(self._copied_end, self._log.end_offset)

    # -- compaction

    def compact_steps(self) -> Generator[Step]:
        """Compact every queue; yields the parts that block, for a worker."""
        for (topic, queue_id), queue in list(self._compacted.items()):
            if topic in self.topics:
                work = partial(self._compact, f"{topic}_{queue_id}", queue)
                yield partial(_write, queue, work)

    def _compact(self, name: str, queue: CompactedQueue) -> None:
        before = self._offsets.get(name, -1)
        after = compact(queue, before, self._config.compaction_memory)
        if after == before or queue.is_deleted:
            return
        self._offsets[name] = after
        text = msgspec.json.encode({_MEMBER: self._offsets})
        replace_file(self._folder / "position-checkpoint", text)
        logger.info("compacted queue %s up to offset %d", Foreign(name), after)


def _write(queue: CompactedQueue, work: Step) -> None:
    """Write to the files of a queue, whose topic may be deleted meanwhile; blocks."""
    if queue.is_deleted:
        return
    try:
        work()
    except FileNotFoundError:
        if not queue.is_deleted:
            raise
    if queue.is_deleted:
        queue.remove_files()


def run_steps(steps: Iterable[Step]) -> None:
    """Run all steps; blocks."""
    for step in steps:
        step()
