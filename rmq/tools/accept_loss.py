"""Accept loss: opens a damaged log again when no broker has the missing bytes.

No broker may use the directory.  The range gets tombstones (`store/tombstone.py`), so
the log keeps its length and queues keep their offsets. The entries of lost messages
become fillers, which readers skip. Files that are missing at the start of the log
count as expired.  `damaged/` gets a copy of the first 16 MiB of the replaced bytes.
"""

import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.scan import walk_log
from rmq.core.clock import SystemClock
from rmq.protocol.flags import NOT_QUEUED, TRANSACTION_MASK
from rmq.protocol.topics import is_lmq
from rmq.store.claim import ClaimFile
from rmq.store.damage import Damage, LogDamaged, LogFiles
from rmq.store.data_dir import DataDirectory
from rmq.store.log_digests import remove_digests
from rmq.store.message_store import MessageStore
from rmq.store.patch import LogPatch
from rmq.store.queues.batch_queue import inner_count
from rmq.store.queues.consume_queue import FILLER_SIZE
from rmq.store.salvage import next_record
from rmq.store.tombstone import Lost, fill_range, is_tombstone
from rmq.tools.queue_view import BATCH_ENTRY, QueueView, view_queue
from rmq.tools.repair import NO_HOST, config_of
from rmq.tools.store_files import StoreFiles

NAMED_QUEUES: Final = 20
"""Queues that the sentences name."""

MOST_UNPLACED: Final = 100_000
"""Maximum number of queue offsets without an entry in a row; a larger gap gets no
tombstone.
"""

UNFLUSHED_BYTES: Final = 256 << 20
"""Number of bytes before the damage whose queue entries may have been only in
memory.
"""

SEARCHED_BYTES: Final = 1 << 30
"""Number of bytes after the damage that are searched for the first record of each
queue.
"""

_FILLER: Final = struct.pack(">qiq", 0, FILLER_SIZE, 0)
_LOST_AT: Final = BATCH_ENTRY.itemsize - 4
_LOST: Final = struct.pack(">i", 1)


class Loss(NamedTuple):
    """The messages that would be lost, and why."""

    damage: Damage
    messages: Sequence[Lost]
    is_expired: bool
    """Whether the range is at the start of the log; such a range gets no tombstones."""

    def lines(self) -> list[str]:
        """Return sentences for people."""
        damage = self.damage
        counts: Counter[tuple[str, int]] = Counter()
        for each in self.messages:
            counts[each.topic, each.queue_id] += each.messages
        topics = len({topic for topic, _ in counts})
        lines = [
            f"offsets {damage.begin} to {damage.end} of the log are lost, with "
            f"{counts.total()} known messages of {topics} topics"
        ]
        for (topic, queue_id), count in sorted(counts.items())[:NAMED_QUEUES]:
            own = [
                each
                for each in self.messages
                if (each.topic, each.queue_id) == (topic, queue_id)
            ]
            first = min(each.queue_offset for each in own)
            last = max(each.queue_offset + each.messages for each in own) - 1
            lines.append(
                f"topic {topic}, queue {queue_id}: {count} messages, offsets "
                f"{first} to {last}"
            )
        if len(counts) > NAMED_QUEUES:
            lines.append(f"and {len(counts) - NAMED_QUEUES} further queues")
        return lines


def find_loss(store: StoreFiles, values: Mapping[str, str]) -> Loss | None:
    """Return the first damage of a stopped store; None if its log is whole.

    The store is opened as at a start, but the log is not truncated.
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
    """Open the log without the lost messages; return sentences about the loss."""
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
            remove_digests(store.root, damage.begin, damage.end, files.file_size)
            now_ms = SystemClock().now_ms()
            records = fill_range(
                damage.begin, damage.end, files.file_size, loss.messages, now_ms
            )
            # the first record last: after an earlier kill the log is still damaged, so
            # no reader gets a tombstone before the loss is accepted again
            first = next(records)
            for offset, data in records:
                patch.write(offset, memoryview(data))
            patch.sync()
            _clear_entries(store, files, damage)
            patch.write(first[0], memoryview(first[1]))
            patch.sync()
            what = f"offsets {damage.begin} to {damage.end} have tombstones now"
    finally:
        directory.release()
    return [*loss.lines(), f"the loss is accepted: {what}"]


def _lost_messages(store: StoreFiles, files: LogFiles, damage: Damage) -> list[Lost]:
    """Return the messages in the range to which queue entries point, and the queue
    offsets without an entry.
    """
    found: list[Lost] = []
    ends: dict[tuple[str, int], int] = {}
    for folder in store.queues():
        if is_lmq(folder.topic):  # its records have another topic
            continue
        view = view_queue(folder.path)
        found += [
            Lost(
                int(view.entries[number]["offset"]),
                int(view.entries[number]["size"]),
                folder.topic,
                folder.queue_id,
                view.first + int(number),
            )
            for number in _entries_inside(view, damage)
        ]
        ends[folder.topic, folder.queue_id] = view.end
    for folder in store.queues(store.batch_queue):
        view = view_queue(folder.path, BATCH_ENTRY)
        found += [
            Lost(
                int(entry["offset"]),
                int(entry["size"]),
                folder.topic,
                folder.queue_id,
                int(entry["base"]),
                int(entry["count"]),
            )
            for entry in view.entries[_entries_inside(view, damage)]
        ]
        if len(view.entries):
            last = view.entries[-1]
            end = int(last["base"]) + int(last["count"])
            ends[folder.topic, folder.queue_id] = end
    return found + _without_entry(files, damage, ends)


def _entries_inside(view: QueueView, damage: Damage) -> NDArray[np.int64]:
    """Return the numbers of the entries of a view whose records are damaged."""
    places, real = view.entries["offset"], view.real_entries()
    inside = real & (places >= damage.begin) & (places < damage.end)
    return np.flatnonzero(inside)


def _without_entry(
    files: LogFiles, damage: Damage, ends: Mapping[tuple[str, int], int]
) -> list[Lost]:
    """Return the queue offsets between the last known one of a queue and its first
    record after the damage.

    Entries of the newest messages were in memory only.
    """
    known = dict(ends)
    for key, _, end in _walk_range(
        files, max(0, damage.begin - UNFLUSHED_BYTES), damage.begin
    ):
        known[key] = max(known.get(key, 0), end)
    firsts: dict[tuple[str, int], int] = {}
    until = min(damage.promised, damage.end + SEARCHED_BYTES)
    for key, first, _ in _walk_range(files, damage.end, until):
        firsts.setdefault(key, first)
    return [
        Lost(-1, 0, *key, number)
        for key, first in firsts.items()
        for number in range(known.get(key, first), first)
        if first - known[key] < MOST_UNPLACED
    ]


def _walk_range(
    files: LogFiles, begin: int, end: int
) -> Iterator[tuple[tuple[str, int], int, int]]:
    """Yield, for each record of a range, its queue, its queue offset, and the queue
    offset after it.
    """
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
                        first = each.queue_offset
                        after = first + inner_count(each.sys_flag, each.properties)
                        yield (topic, each.queue_id), first, after


def _clear_entries(store: StoreFiles, files: LogFiles, damage: Damage) -> None:
    """Turn the entries of a range into fillers, durably: readers skip fillers.

    This includes entries of tombstones after the range, which an interrupted attempt
    has left.
    """
    end = damage.end
    while (found := files.record_at(end)) and is_tombstone(found[1]):
        end += len(found[1])
    damage = damage._replace(end=end)
    for folder in store.queues():
        view = view_queue(folder.path)
        _write_all(view, _entries_inside(view, damage), 0, _FILLER)
    for folder in store.queues(store.batch_queue):
        view = view_queue(folder.path, BATCH_ENTRY)
        _write_all(view, _entries_inside(view, damage), _LOST_AT, _LOST)


def _write_all(
    view: QueueView, numbers: NDArray[np.int64], position: int, data: bytes
) -> None:
    """Write the same bytes at the same position of each entry with one of these
    numbers.
    """
    by_path: dict[Path, list[int]] = {}
    for number in numbers.tolist():
        path, at = view.file_position(view.first + number)
        by_path.setdefault(path, []).append(at + position)
    for path, found in by_path.items():
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            for at in found:
                os.pwrite(descriptor, data, at)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
