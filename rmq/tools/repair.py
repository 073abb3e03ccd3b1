"""Repair: repairs a store like a start after a crash, and deletes nothing.

No broker may use the directory. Repair moves damaged queues and index files to
`cut/<time>/`. After this it recovers the log from its first file. It truncates the log
at the first damaged record, and copies the data after it to `cut/`. Every queue gets
its missing entries. The index is rebuilt from its first damaged file on.
"""

import shutil
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rmq._fastpath.log.decode import Record
from rmq._fastpath.log.index_file import index_file_size
from rmq._fastpath.log.mapped_file import MappedFile
from rmq.config.option import build
from rmq.core.clock import SystemClock
from rmq.core.errors import StoreError
from rmq.protocol.message import Message
from rmq.protocol.properties import decode_properties
from rmq.store.checkpoint import Checkpoint
from rmq.store.config import StoreConfig
from rmq.store.data_dir import DataDirectory
from rmq.store.log_folders import SEPARATOR
from rmq.store.message_store import MessageStore
from rmq.store.queues.batch_queue import BATCH_ENTRY_SIZE
from rmq.store.queues.consume_queue import ENTRY_SIZE
from rmq.store.results import PutStatus
from rmq.store.salvage import count_records, records_in
from rmq.tools.index_view import view_index
from rmq.tools.progress import NoProgress, ProgressSink
from rmq.tools.store_files import StoreFiles, data_size, segment_paths
from rmq.tools.verify import Verdict, Verification

NO_HOST = bytes(8)
_SLOT_SHARE = index_file_size(1, 4) - index_file_size(0, 0)
"""Bytes of a slot and its entries in an index file with Java's default sizes."""

_RESTORED = ".restored"


@dataclass(slots=True)
class RepairPlan:
    """The steps of a repair; `lines` describes them before they are done."""

    verdict: Verdict
    moved: list[Path] = field(default_factory=list)
    cut_offset: int | None = None
    records_behind: int = 0

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to repair."""
        return not self.verdict.damages

    def lines(self) -> list[str]:
        """Return sentences for people."""
        lines = [str(damage) for damage in self.verdict.damages]
        if self.cut_offset is not None:
            lines.append(
                f"the log ends at offset {self.cut_offset}; {self.records_behind} "
                "complete records after it are saved in cut/ and no longer served"
            )
        lines += [f"{path} is moved aside" for path in self.moved]
        if any(path.parent.name == "index" for path in self.moved):
            lines.append("messages of moved index files are indexed again")
        return lines or ["nothing to repair"]


def plan_repair(
    store: StoreFiles, *, progress: ProgressSink | None = None
) -> RepairPlan:
    """Verify, and plan the repair; nothing is changed."""
    has_ring = store.ring.exists()  # then the end of the log is not in its files
    verdict = Verification(store, is_live=has_ring, progress=progress).run()
    plan = RepairPlan(verdict)
    assert bool(verdict.damages) >= bool(verdict.damaged_queues), store.root
    moved = verdict.damaged_queues | verdict.damaged_indexes | verdict.failed_digests
    plan.moved = sorted(moved)
    if plan.is_empty:
        return plan
    damage = verdict.log_damage
    plan.moved += [
        path
        for path in _doubtful_indexes(store, damage.offset if damage else None)
        if path not in plan.moved
    ]
    plan.moved += _later_indexes(store, plan.moved)
    if damage is not None:
        plan.cut_offset = damage.offset
        with store.open_log() as files:
            for file in files:
                start = max(0, damage.offset - file.base_offset)
                if start < file.size:
                    plan.records_behind += count_records(file, start, file.size)
    return plan


def _doubtful_indexes(store: StoreFiles, cut_offset: int | None) -> list[Path]:
    """Return index files with entries of removed records, or with an old header."""
    paths = store.index_paths()
    doubtful = set(paths[-1:]) if store.abort.exists() else set()
    if cut_offset is not None:
        doubtful |= {
            path for path in paths if view_index(path).header.end_offset >= cut_offset
        }
    return sorted(doubtful)


def _later_indexes(store: StoreFiles, moved: list[Path]) -> list[Path]:
    """Return index files after the first moved one: the index is built in order."""
    paths = store.index_paths()
    places = [paths.index(path) for path in moved if path in paths]
    later = paths[min(places) :] if places else []
    return [path for path in later if path not in moved]


def repair(
    store: StoreFiles,
    values: Mapping[str, str],
    *,
    restore: bool = False,
    progress: ProgressSink | None = None,
) -> list[str]:
    """Plan and repair; return sentences about each step.

    `restore` also stores the complete records in `cut/` again, as new messages.

    `values` are the known keys of a `broker.conf`: the delay table decides when delayed
    messages in rebuilt queues are due.
    """
    config = config_of(store, values)
    directory = DataDirectory(config)
    directory.acquire()
    try:
        plan = plan_repair(store, progress=progress)
        if plan.is_empty and not restore:
            return plan.lines()
        aside = store.cut / time.strftime("%Y%m%d%H%M%S")
        if not plan.is_empty and not directory.abort.is_set:
            directory.abort.set()
        for path in plan.moved:
            target = aside / path.relative_to(store.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
        if not plan.is_empty and store.checkpoint.exists():
            checkpoint = Checkpoint.load(store.checkpoint)
            fresh = msgspec.structs.replace(
                checkpoint, logics_physical_offset=0, logics_msg_ms=0
            )
            fresh.save(store.checkpoint)
    finally:
        directory.release()
    shown = progress or NoProgress()
    paths = store.log_paths()
    end = data_size(paths)
    if plan.cut_offset is not None:
        end = plan.cut_offset - int(paths[0].name)
    shown.begin("recovered", end)
    opened = MessageStore.open(
        config, clock=SystemClock(), store_host=NO_HOST, on_progress=shown.add
    )
    try:
        lines = plan.lines() + opened.recovery.lines()
        if restore:
            lines += _restore(store, opened, shown)
        _build_index(opened, shown)
    finally:
        opened.close()
    return lines


def _build_index(opened: MessageStore, progress: ProgressSink) -> None:
    """Index all messages and show the progress; otherwise the close of the store would
    index them silently.
    """
    progress.begin("indexed", opened.index.lag_bytes)
    while lag := opened.index.lag_bytes:
        opened.index.build()
        if opened.index.lag_bytes == lag:
            return  # the end of the store reports why
        progress.add(lag - opened.index.lag_bytes)


def _restore(
    store: StoreFiles, opened: MessageStore, progress: ProgressSink
) -> list[str]:
    """Store the records in `cut/` at the end of the log; return sentences."""
    lines = []
    progress.begin("restored", data_size(segment_paths(store.cut)))
    for path in segment_paths(store.cut):
        file = MappedFile(
            str(path), path.stat().st_size, base_offset=int(path.name), writable=False
        )
        count = 0
        for record in records_in(file):
            result = opened.writes.put(_message(record))
            if result.status is not PutStatus.PUT_OK:
                file.close()
                raise StoreError(
                    f"{path}: {count} records were stored again, the next was refused "
                    f"with {result.status.name}: {opened.durability.refuse_reason}"
                )
            count += 1
            progress.add(record.size, 1)
        file.close()
        opened.durability.flush()
        path.rename(path.with_name(path.name + _RESTORED))
        lines.append(f"{path}: {count} records were stored again as new messages")
    return lines or ["there are no truncated parts"]


def _message(record: Record) -> Message:
    text = record.properties.decode()
    return Message(
        record.topic,
        record.queue_id,
        record.body,
        record.flag,
        record.sys_flag,
        record.born_ms,
        record.born_host,
        record.reconsume_times,
        record.prepared_offset,
        properties=decode_properties(text),
        properties_text=text,
    )


def config_of(store: StoreFiles, values: Mapping[str, str]) -> StoreConfig:
    """Return settings that fit the existing files; a tool needs no ring."""
    sizes = {"rmq.tailRingBytes": "0"}
    logs = store.log_paths()
    if not logs:
        raise StoreError(
            f"{store.log_folders[0]} has no files: there is nothing to repair"
        )
    sizes["mappedFileSizeCommitLog"] = str(logs[0].stat().st_size)
    for key, folder, entry_size in (
        ("mappedFileSizeConsumeQueue", store.consume_queue, ENTRY_SIZE),
        ("mapperFileSizeBatchConsumeQueue", store.batch_queue, BATCH_ENTRY_SIZE),
    ):
        for queue in store.queues(folder):
            paths = segment_paths(queue.path)
            if paths:
                sizes[key] = str(max(paths[0].stat().st_size, 10 * entry_size))
                break
    sizes |= _index_sizes(store, values)
    places = {
        "storePathRootDir": str(store.root),
        "storePathCommitLog": SEPARATOR.join(map(str, store.log_folders)),
    }
    return build(StoreConfig, dict(values) | sizes | places)


def _index_sizes(store: StoreFiles, values: Mapping[str, str]) -> dict[str, str]:
    """Return the sizes of the existing index files, unless `values` has others.

    A file does not contain its number of slots: the default is a quarter of the
    entries.
    """
    if {"maxHashSlotNum", "maxIndexNum"} & values.keys():
        return {}
    lengths = Counter(path.stat().st_size for path in store.index_paths())
    for length, _ in lengths.most_common():
        slots, rest = divmod(length - index_file_size(0, 0), _SLOT_SHARE)
        if slots > 0 and rest == 0:
            return {"maxHashSlotNum": str(slots), "maxIndexNum": str(4 * slots)}
    return {}
