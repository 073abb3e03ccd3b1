"""Verify: compares log, queues and index with each other; nothing is written.

Log: every record's lengths, own offset and body CRC, the chain of records and files.
Queues: each queued record has an entry with its offset, size and tags code, and each
entry has its record.  Index: header, chains of slots, and that entries point to records
of their time.  The format's checksum does not cover properties, hosts, times and flags
of a record. Beside a running broker, messages that were stored after the survey do not
count. Verify also ignores a record whose end is still in the ring.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmq._fastpath.log.block_digests import BLOCK_BYTES, BlockDigests
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import topic_hash
from rmq.protocol.topics import is_lmq
from rmq.store.checkpoint import Checkpoint
from rmq.store.log_digests import read_digests
from rmq.store.queues.consume_queue import FILLER_SIZE
from rmq.store.tags import SCHEDULE_TOPIC
from rmq.store.tombstone import is_tombstone
from rmq.tools.index_view import IndexCheck, view_index
from rmq.tools.lmq_check import LmqCheck
from rmq.tools.progress import NoProgress, ProgressSink
from rmq.tools.queue_view import BATCH_ENTRY, QueueView, view_queue
from rmq.tools.store_files import QueueFolder, StoreFiles, data_size
from rmq.tools.survey import Block, Column, Damage, Survey, is_queued, topic_at
from rmq.tools.timer_view import TimerView

DAMAGE_LIMIT = 1_000
"""Maximum number of damages in the list; more would not help."""

_EXT_ADDRESS_BELOW = -(1 << 31)
"""Limit below which tags codes may be addresses in `consumequeue_ext`, if that folder
exists.
"""

PICKED_QUEUES = 8
"""Number of queues of a block that are selected by comparison; the other queues are
sorted.
"""

QueueKey = tuple[int, int]


@dataclass(slots=True)
class Verdict:
    """The counts of a verification, and the damages."""

    start_offset: int = 0
    end_offset: int = 0
    record_count: int = 0
    entry_count: int = 0
    index_entry_count: int = 0
    damages: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    damaged_queues: set[Path] = field(default_factory=set)
    damaged_indexes: set[Path] = field(default_factory=set)
    failed_digests: set[Path] = field(default_factory=set)
    """Files of digests that differ from the digest of a block of the log."""

    @property
    def log_damage(self) -> Damage | None:
        """The first damage of the log."""
        places = [damage for damage in self.damages if damage.is_log]
        return min(places, key=lambda damage: damage.offset, default=None)


@dataclass(slots=True)
class _QueueCheck:
    """One queue, and a mark for each entry whether a record has claimed it."""

    folder: QueueFolder
    view: QueueView
    claimed: NDArray[np.bool_]
    checks_tags: bool
    may_be_address: bool
    missing: list[tuple[int, int]] = field(default_factory=list)
    missing_count: int = 0


class Verification:
    """One run over a store."""

    def __init__(
        self,
        store: StoreFiles,
        *,
        check_crc: bool = True,
        index_slots: int = 0,
        is_live: bool | None = None,
        progress: ProgressSink | None = None,
    ) -> None:
        self._store = store
        self._check_crc = check_crc
        self._index_slots = index_slots
        self._progress = progress or NoProgress()
        if is_live is None:
            is_live = store.is_in_use or store.ring.exists()
        self._is_live = is_live
        self._durable_offset: int | None = None
        """At or after this physical offset, entries may be only in the memory of a
        broker.
        """
        self._queues: dict[QueueKey, _QueueCheck] = {}
        self._unknown: dict[int, str] = {}
        self._batch: dict[int, list[NDArray[np.int64]]] = {}
        """Records without a plain entry, by topic: offset, size, store time, queue."""

        self._batch_topics = [
            topic_hash(folder.topic.encode())
            for folder in store.queues(store.batch_queue)
        ]
        self._lmq = LmqCheck([q for q in store.queues() if is_lmq(q.topic)])
        self._lmq_topics = [topic_hash(q.topic.encode()) for q in self._lmq.folders]
        self.verdict = Verdict()

    def run(self) -> Verdict:
        """Check everything."""
        verdict = self.verdict
        with self._store.open_log() as files:
            self._progress.begin("checked", data_size(self._store.log_paths()))
            survey = Survey(
                files, self._check_crc, self._is_live, progress=self._progress
            )
            self._open_queues()
            indexes = self._open_indexes()
            for file, block in survey.record_blocks():
                self._check_block(file, block)
                for index in indexes:
                    index.match(block)
            verdict.start_offset = survey.start_offset
            verdict.end_offset = survey.end_offset
            verdict.record_count = survey.record_count
            self._add(survey.damages)
            for file in files if self._check_crc else ():
                self._check_digests(file)
            for check in self._queues.values():
                self._finish_queue(check)
            self._check_batch_queues(files)
            self._finish_lmq()
            end = verdict.end_offset if self._is_live else None
            self._add(TimerView(self._store).find_damages(files, end))
            for index in indexes:
                self._finish_index(index)
        self._name_unknown()
        if self._store.ring.exists() and not self._store.is_in_use:
            verdict.notes.append(
                f"the end of the log is in {self._store.ring}: the next start, or "
                "`rmq store settle`, moves it to the log"
            )
        return verdict

    def _add(self, damages: list[Damage]) -> None:
        room = DAMAGE_LIMIT - len(self.verdict.damages)
        self.verdict.damages += damages[:room]
        if len(damages) > room:
            note = (
                f"more than {DAMAGE_LIMIT} places are damaged; the others are not shown"
            )
            if note not in self.verdict.notes:
                self.verdict.notes.append(note)

    def _check_digests(self, file: MappedFile) -> None:
        """Compare the blocks of a file with their digests, if there are any."""
        path = self._store.root / "digest" / Path(file.path).name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
        found = read_digests(data, file.base_offset, file.size)
        if found is None:
            self.verdict.notes.append(
                f"{path} is damaged; the broker computes it again"
            )
            return
        digests = BlockDigests(file.size, found[0])
        for number in range(digests.sealed):
            begin = number * BLOCK_BYTES
            size = min(BLOCK_BYTES, file.size - begin)
            if not digests.fits(number, file.view(begin, size)):
                place = file.base_offset + begin
                reason = f"{size} bytes differ from the written bytes"
                self._add([Damage(file.path, place, reason)])
                self.verdict.failed_digests.add(path)

    # -- queues

    def _open_queues(self) -> None:
        if self._is_live or self._store.abort.exists():
            checkpoint = Checkpoint.load(self._store.checkpoint)
            self._durable_offset = checkpoint.logics_physical_offset
        for folder in self._store.queues():
            if is_lmq(folder.topic):
                continue
            view = view_queue(folder.path)
            topic = folder.topic.encode()
            self._queues[topic_hash(topic), folder.queue_id] = _QueueCheck(
                folder,
                view,
                np.zeros(len(view.entries), np.bool_),
                topic != SCHEDULE_TOPIC,
                (self._store.queue_ext / folder.topic).is_dir(),
            )

    def _check_block(self, file: MappedFile, block: Block) -> None:
        """Compare the records of a block with the entries that they should have."""
        assert len(block), file.path
        self._lmq.match(block)
        of_batch_queues = np.isin(block[:, Column.TOPIC], self._batch_topics)
        queued = is_queued(block) & ~of_batch_queues
        queued &= ~np.isin(block[:, Column.TOPIC], self._lmq_topics)
        rows = block[queued]
        others = block[~queued]
        if len(others):
            for topic in np.unique(others[:, Column.TOPIC]).tolist():
                mine = others[others[:, Column.TOPIC] == topic]
                self._batch.setdefault(topic, []).append(mine[:, :4].copy())
        if not len(rows):
            return
        for part in by_queue(rows):
            topic, queue_id = (
                int(part[0, Column.TOPIC]),
                int(part[0, Column.QUEUE_ID]),
            )
            check = self._queues.get((topic, queue_id))
            if check is None:
                if topic not in self._unknown:
                    position = int(part[0, Column.OFFSET]) - file.base_offset
                    self._unknown[topic] = topic_at(file, position)
            else:
                _check_rows(check, part)

    def _finish_queue(self, check: _QueueCheck) -> None:
        """Report entries without a record, and records without an entry."""
        view, verdict = check.view, self.verdict
        entries = view.entries
        verdict.entry_count += len(entries)
        damages = [Damage(str(path), at, why) for path, at, why in view.problems]
        offsets = entries["offset"].astype(np.int64)
        # entries of deleted records are before all others, entries of new records after
        claimed = np.flatnonzero(check.claimed)
        first, last = (claimed[0], claimed[-1]) if len(claimed) else (len(offsets), -1)
        places = np.arange(len(offsets))
        is_gone = (offsets < verdict.start_offset) & (offsets >= 0) & (places < first)
        doubtful = view.real_entries() & ~check.claimed & ~is_gone
        doubtful |= entries["size"] <= 0
        if self._is_live:
            ends = offsets + entries["size"]
            doubtful &= (ends <= verdict.end_offset) | (places < last)
        for index in np.flatnonzero(doubtful)[:DAMAGE_LIMIT].tolist():
            path, at = view.file_position(view.first + index)
            offset, size = int(offsets[index]), int(entries["size"][index])
            damages.append(
                Damage(
                    str(path),
                    at,
                    f"the entry of queue offset {view.first + index} points to {size} "
                    f"bytes at {offset} of the log, where there is no such record",
                )
            )
        if not doubtful.any():
            damages += self._missing(check)
        if damages:
            verdict.damaged_queues.add(check.folder.path)
        self._add(damages)

    def _missing(self, check: _QueueCheck) -> list[Damage]:
        if check.missing_count and self._is_live:
            fresh = view_queue(check.folder.path)
            check.missing = [
                (queue_offset, offset)
                for queue_offset, offset in check.missing
                if queue_offset >= fresh.end
            ]
            check.missing_count = len(check.missing)
        if self._durable_offset is not None and check.missing_count:
            check.missing = [
                each for each in check.missing if each[1] < self._durable_offset
            ]
            check.missing_count = len(check.missing)
        if not check.missing_count:
            return []
        queue_offset, offset = check.missing[0]
        reason = (
            f"{check.missing_count} records have no entry; the first is queue "
            f"offset {queue_offset}, at {offset} of the log"
        )
        if queue_offset == check.view.end and self._store.abort.exists():
            note = f"{check.folder.path}: {reason}; the next start adds them"
            self.verdict.notes.append(note)
            return []
        path, at = check.folder.path, 0
        if check.view.file_size:
            path, at = check.view.file_position(queue_offset)
        return [Damage(str(path), at, reason)]

    def _check_batch_queues(self, files: Sequence[MappedFile]) -> None:
        """Compare the entries of queues of type BatchCQ with the records."""
        for folder in self._store.queues(self._store.batch_queue):
            view = view_queue(folder.path, BATCH_ENTRY)
            parts = self._batch.get(topic_hash(folder.topic.encode()), [])
            known = {
                (offset, size)
                for part in parts
                for offset, size, _, queue_id in part.tolist()
                if queue_id == folder.queue_id
            }
            self.verdict.entry_count += len(view.entries)
            damages = []
            for number, entry in enumerate(view.entries):
                pair = int(entry["offset"]), int(entry["size"])
                is_gone = pair[0] < self.verdict.start_offset
                is_gone = is_gone or entry["lost"] or pair[1] == FILLER_SIZE
                if pair in known or is_gone:
                    known.discard(pair)
                    continue
                path, at = view.file_position(view.first + number)
                reason = f"no inner batch of {pair[1]} bytes at {pair[0]} of the log"
                damages.append(Damage(str(path), at, reason))
            known = {each for each in known if not _is_tombstone_at(files, *each)}
            if known and self._durable_offset is None:
                reason = (
                    f"{len(known)} records have no entry; the first is at "
                    f"{min(known)[0]} of the log"
                )
                damages.append(Damage(str(folder.path), 0, reason))
            if damages:
                self.verdict.damaged_queues.add(folder.path)
            self._add(damages)

    def _finish_lmq(self) -> None:
        """Report entries of light message queues that point to no record."""
        verdict, check = self.verdict, self._lmq
        verdict.entry_count += sum(len(view.entries) for view in check.views)
        end = verdict.end_offset if self._is_live else None
        for number, entry, offset, size in check.unclaimed_entries(
            verdict.start_offset, end
        ):
            view = check.views[number]
            path, at = view.file_position(view.first + entry)
            reason = f"no record of {size} bytes at {offset} of the log"
            self._add([Damage(str(path), at, reason)])
            verdict.damaged_queues.add(check.folders[number].path)

    def _name_unknown(self) -> None:
        for name in sorted(self._unknown.values()):
            self.verdict.notes.append(
                f"the log has records of topic {name}, but some of its queues are "
                "missing: a deleted topic, or queues that `rmq store repair` rebuilds"
            )

    # -- index

    def _open_indexes(self) -> list[IndexCheck]:
        """Open the index files; after a kill the header of the last may be old."""
        paths = self._store.index_paths()
        if paths and self._store.abort.exists():
            self.verdict.notes.append(
                f"{paths.pop()} was being written and is not checked"
            )
        return [view_index(path, self._index_slots) for path in paths]

    def _finish_index(self, index: IndexCheck) -> None:
        damages = index.finish(
            self.verdict.start_offset, self.verdict.end_offset, is_live=self._is_live
        )
        self.verdict.index_entry_count += index.entry_count
        if damages:
            self.verdict.damaged_indexes.add(index.path)
        self._add(damages)


def by_queue(rows: Block) -> Iterator[Block]:
    """Yield the rows of each queue, in the order of the log.

    A few queues are selected one after the other, which is cheaper than a sort.
    """
    topics, queue_ids = rows[:, Column.TOPIC].copy(), rows[:, Column.QUEUE_ID].copy()
    for _ in range(PICKED_QUEUES):
        mine = (topics == topics[0]) & (queue_ids == queue_ids[0])
        if mine.all():
            yield rows
            return
        yield rows[mine]
        others = ~mine
        rows, topics, queue_ids = rows[others], topics[others], queue_ids[others]
    rows = rows[np.lexsort((queue_ids, topics))]
    keys = rows[:, (Column.TOPIC, Column.QUEUE_ID)]
    starts = np.flatnonzero(np.any(keys[1:] != keys[:-1], axis=1)) + 1
    yield from np.split(rows, starts)


def _check_rows(check: _QueueCheck, rows: Block) -> None:
    """Claim the entries of records of one queue, which come in the order of the log."""
    restarts = np.flatnonzero(rows[:, Column.QUEUE_OFFSET] == 0)
    if len(restarts):
        # the topic was deleted and created again: earlier records have no entries
        check.missing.clear()
        check.missing_count = 0
        rows = rows[restarts[-1] :]
    view = check.view
    numbers = rows[:, Column.QUEUE_OFFSET] - view.first
    inside = (numbers >= 0) & (numbers < len(view.entries))
    outside = rows[~inside]
    if len(outside):
        check.missing_count += len(outside)
        columns = (Column.QUEUE_OFFSET, Column.OFFSET)
        room = max(0, DAMAGE_LIMIT - len(check.missing))
        check.missing += [(row[0], row[1]) for row in outside[:room, columns].tolist()]
    rows, numbers = rows[inside], numbers[inside]
    entries = view.entries[numbers]
    fits = (entries["offset"] == rows[:, Column.OFFSET]) & (
        entries["size"] == rows[:, Column.SIZE]
    )
    if check.checks_tags:
        tags = entries["tags"].astype(np.int64)
        same = tags == rows[:, Column.TAGS]
        if check.may_be_address:
            same |= tags < _EXT_ADDRESS_BELOW
        fits &= same
    assert len(numbers) == len(rows), check.folder.path
    check.claimed[numbers[fits]] = True


def _is_tombstone_at(files: Sequence[MappedFile], offset: int, size: int) -> bool:
    """Return whether a record is the tombstone of a lost record."""
    file = next(each for each in files if each.base_offset + each.size > offset)
    return is_tombstone(file.read(offset - file.base_offset, size))
