"""Accept loss: opens a damaged log again when no broker has the missing bytes.

No broker may use the directory.  The range gets tombstones (`store/tombstone.py`), so
the log keeps its length and queues keep their offsets. The entries of lost messages
become fillers, which readers skip. Files that are missing at the start of the log
count as expired.  `damaged/` gets a copy of the first 16 MiB that were there.
"""

import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.scan import walk_log
from rmq.core.clock import SystemClock
from rmq.protocol.flags import NOT_QUEUED, TRANSACTION_MASK
from rmq.protocol.topics import is_lmq
from rmq.store.claim import ClaimFile
from rmq.store.damage import Damage, LogDamaged, LogFiles
from rmq.store.data_dir import DataDirectory
from rmq.store.message_store import MessageStore
from rmq.store.patch import LogPatch
from rmq.store.queues.consume_queue import ENTRY_SIZE, FILLER_SIZE
from rmq.store.salvage import next_record
from rmq.store.tombstone import Lost, fill_range
from rmq.tools.queue_view import view_queue
from rmq.tools.repair import NO_HOST, config_of
from rmq.tools.store_files import StoreFiles

NAMED_QUEUES: Final = 20
"""Queues that the sentences name."""

MOST_UNPLACED: Final = 100_000
"""Queue offsets of one queue that may lack an entry; a larger gap gets no tombstone."""

UNFLUSHED_BYTES: Final = 256 << 20
"""Bytes before the damage whose entries may not have been in files."""

SEARCHED_BYTES: Final = 1 << 30
"""Bytes after the damage in which the first record of each queue is looked for."""

_FILLER: Final = struct.pack(">qiq", 0, FILLER_SIZE, 0)


class Loss(NamedTuple):
    """The messages that would be lost, and why."""

    damage: Damage
    messages: Sequence[Lost]
    is_expired: bool
    """The range is at the start of the log: nothing is put there."""

    def lines(self) -> list[str]:
        """Return sentences for people."""
        damage = self.damage
        counts = Counter((each.topic, each.queue_id) for each in self.messages)
        topics = len({topic for topic, _ in counts})
        lines = [
            f"offsets {damage.begin} to {damage.end} of the log are lost: "
            f"{len(self.messages)} messages of {topics} topics are known of them"
        ]
        for (topic, queue_id), count in sorted(counts.items())[:NAMED_QUEUES]:
            offsets = [
                each.queue_offset
                for each in self.messages
                if (each.topic, each.queue_id) == (topic, queue_id)
            ]
            lines.append(
                f"topic {topic}, queue {queue_id}: {count} messages, offsets "
                f"{min(offsets)} to {max(offsets)}"
            )
        if len(counts) > NAMED_QUEUES:
            lines.append(f"and {len(counts) - NAMED_QUEUES} further queues")
        return lines


def find_loss(store: StoreFiles, values: Mapping[str, str]) -> Loss | None:
    """Return the first damage of a stopped store; None if its log is whole.

    The store is opened as by a start that cuts nothing.
    """
    config = config_of(store, values)
    try:
        opened = MessageStore.open(
            config, clock=SystemClock(), store_host=NO_HOST, keeps_damage=True
        )
    except LogDamaged as error:
        damage = error.damage
    else:
        opened.close()
        return None
    folders = DataDirectory(config).log_folders
    files = LogFiles(folders, config.commit_log_file_size)
    bases = files.find_bases()
    is_expired = bool(bases) and damage.end == bases[0]
    messages = _lost_messages(store, files, damage)
    return Loss(damage, messages, is_expired)


def accept_loss(store: StoreFiles, values: Mapping[str, str], loss: Loss) -> list[str]:
    """Open the log again without what is lost; return sentences about it."""
    config, damage = config_of(store, values), loss.damage
    directory = DataDirectory(config)
    directory.acquire()
    try:
        if not directory.abort.is_set:
            directory.abort.set()
        if loss.is_expired:
            claim = ClaimFile(store.root)
            claim.open().begin_at(damage.end)
            claim.flush()
            what = f"the log begins at {damage.end} now"
        else:
            files = LogFiles(directory.log_folders, config.commit_log_file_size)
            patch = LogPatch(files, store.root / "damaged")
            patch.keep(damage.begin, damage.end)
            now_ms = SystemClock().now_ms()
            for offset, data in fill_range(
                damage.begin, damage.end, files.file_size, loss.messages, now_ms
            ):
                patch.write(offset, memoryview(data))
            patch.sync()
            _clear_entries(store, loss.messages)
            what = f"offsets {damage.begin} to {damage.end} have tombstones now"
    finally:
        directory.release()
    return [*loss.lines(), f"the loss is accepted: {what}"]


def _lost_messages(store: StoreFiles, files: LogFiles, damage: Damage) -> list[Lost]:
    """Return the messages that queues name in the range, and numbers that they lack."""
    found: list[Lost] = []
    ends: dict[tuple[str, int], int] = {}
    for folder in store.queues():
        if is_lmq(folder.topic):
            continue
        view = view_queue(folder.path)
        entries, real = view.entries, view.real_entries()
        inside = real & (entries["offset"] >= damage.begin)
        inside &= entries["offset"] < damage.end
        found += [
            Lost(
                int(entries[number]["offset"]),
                int(entries[number]["size"]),
                folder.topic,
                folder.queue_id,
                view.first + int(number),
            )
            for number in inside.nonzero()[0]
        ]
        ends[folder.topic, folder.queue_id] = view.end
    return found + _without_entry(files, damage, ends)


def _without_entry(
    files: LogFiles, damage: Damage, ends: Mapping[tuple[str, int], int]
) -> list[Lost]:
    """Return queue offsets that no entry names, and which later records leave out.

    Entries of the newest messages were in memory only.
    """
    known = dict(ends)
    for key, number in _walk_range(
        files, max(0, damage.begin - UNFLUSHED_BYTES), damage.begin
    ):
        known[key] = max(known.get(key, 0), number + 1)
    firsts: dict[tuple[str, int], int] = {}
    until = min(damage.promised, damage.end + SEARCHED_BYTES)
    for key, number in _walk_range(files, damage.end, until):
        firsts.setdefault(key, number)
    return [
        Lost(-1, 0, *key, number)
        for key, first in firsts.items()
        for number in range(known.get(key, first), first)
        if first - known[key] < MOST_UNPLACED
    ]


def _walk_range(
    files: LogFiles, begin: int, end: int
) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield queue and queue offset of the records of a range, in their order."""
    for base in files.find_bases():
        if base + files.file_size <= begin or base >= end:
            continue
        with files.open(base) as file:
            position: int | None = 0
            if base < begin:
                position = next_record(file, begin - base)
            status = RecordStatus.OK
            limit = min(file.size, end - base)
            while status is RecordStatus.OK and position is not None:
                if position >= limit:
                    break
                status, position, records = walk_log(
                    file, position, limit, check_crc=False
                )
                for each in records:
                    if each.sys_flag & TRANSACTION_MASK not in NOT_QUEUED:
                        topic = each.topic.decode(errors="replace")
                        yield (topic, each.queue_id), each.queue_offset


def _clear_entries(store: StoreFiles, messages: Sequence[Lost]) -> None:
    """Replace the entries of lost messages by fillers, durably."""
    by_queue: dict[tuple[str, int], list[int]] = {}
    for each in messages:
        if each.offset >= 0:
            key = each.topic, each.queue_id
            by_queue.setdefault(key, []).append(each.queue_offset)
    for folder in store.queues():
        offsets = by_queue.get((folder.topic, folder.queue_id), [])
        if offsets:
            view = view_queue(folder.path)
            _write_fillers([view.file_position(each) for each in offsets])


def _write_fillers(places: Sequence[tuple[Path, int]]) -> None:
    by_path: dict[Path, list[int]] = {}
    for path, at in places:
        by_path.setdefault(path, []).append(at)
    for path, found in by_path.items():
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            for at in found:
                assert at % ENTRY_SIZE == 0, path
                os.pwrite(descriptor, _FILLER, at)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
