"""Inspect: the content of a store directory, from names, sizes and last entries only.

It reads a few pages of each file, so it is fast for a store of any size.
"""

from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.scan import walk_log
from rmq.store.checkpoint import Checkpoint
from rmq.store.foreign import find_foreign
from rmq.store.queues.consume_queue import FILLER_SIZE
from rmq.tools.index_view import HEADER, IndexHeader
from rmq.tools.queue_view import BATCH_ENTRY, ENTRY, view_queue
from rmq.tools.store_files import StoreFiles
from rmq.tools.timer_view import TimerView


@dataclass(slots=True)
class Picture:
    """The output of `rmq store inspect`; `as_json` for scripts."""

    root: str
    in_use: bool
    stopped_in_order: bool
    log_files: int = 0
    log_file_size: int = 0
    log_start: int = 0
    log_end: int = 0
    first_store_ms: int = 0
    log_bytes_on_disk: int = 0
    checkpoint: dict[str, int] = field(default_factory=dict)
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    queue_file_size: int = 0
    index_files: list[dict[str, Any]] = field(default_factory=list)
    timer_units: int = 0
    timers_waiting: int = 0
    next_timer_ms: int | None = None
    kept_aside: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return sentences for people."""
        state = "clean shutdown" if self.stopped_in_order else "no clean shutdown"
        lines = [
            f"{self.root}: {'in use by a broker' if self.in_use else state}",
            f"log: {self.log_files} files of {self.log_file_size} bytes, from "
            f"{self.log_start} to about {self.log_end}, "
            f"{self.log_bytes_on_disk} bytes on disk",
            "checkpoint: "
            + ", ".join(f"{name} {value}" for name, value in self.checkpoint.items()),
            f"queues: {sum(topic['queues'] for topic in self.topics.values())} of "
            f"{len(self.topics)} topics, in files of {self.queue_file_size} bytes",
        ]
        lines += [
            f"  {name}: {topic['queues']} queues, {topic['messages']} messages"
            for name, topic in self.topics.items()
        ]
        lines.append(f"index: {len(self.index_files)} files")
        lines += [
            f"  {index['name']}: {index['entries']} entries, log {index['begin']} to "
            f"{index['end']}"
            for index in self.index_files
        ]
        if self.timer_units:
            due = "" if self.next_timer_ms is None else f", from {self.next_timer_ms}"
            lines.append(
                f"timers: {self.timer_units} units, {self.timers_waiting} waiting{due}"
            )
        lines += [f"saved by recovery: {path}" for path in self.kept_aside]
        return lines + self.foreign


def inspect(store: StoreFiles) -> Picture:
    """Read names, sizes, heads and ends."""
    picture = Picture(str(store.root), store.is_in_use, not store.abort.exists())
    _look_at_log(store, picture)
    _look_at_queues(store, picture)
    if store.checkpoint.exists():
        picture.checkpoint = msgspec.structs.asdict(Checkpoint.load(store.checkpoint))
    for path in store.index_paths():
        with path.open("rb") as file:
            data = file.read(HEADER.size)
        if len(data) == HEADER.size:
            header = IndexHeader(*HEADER.unpack(data))
            picture.index_files.append(
                {
                    "name": path.name,
                    "entries": max(0, header.count - 1),
                    "begin": header.begin_offset,
                    "end": header.end_offset,
                }
            )
    timers = TimerView(store)
    picture.timer_units = len(timers.units)
    picture.timers_waiting = len(timers.waiting_units())
    picture.next_timer_ms = timers.next_due_ms()
    if store.cut.is_dir():
        picture.kept_aside = [str(path) for path in sorted(store.cut.iterdir())]
    foreign = find_foreign(store.root)
    picture.foreign = foreign.refusals + foreign.start_notes
    return picture


def _look_at_log(store: StoreFiles, picture: Picture) -> None:
    with store.open_log() as files:
        if not files:
            return
        picture.log_files = len(files)
        picture.log_file_size = files[0].size
        picture.log_start = files[0].base_offset
        paths = store.log_paths()
        picture.log_bytes_on_disk = sum(path.stat().st_blocks for path in paths) * 512
        _, _, records = walk_log(files[0], 0, files[0].size, check_crc=False, limit=1)
        picture.first_store_ms = records[0].store_ms if records else 0
        for file in reversed(files):
            status, _, first = walk_log(file, 0, file.size, check_crc=False, limit=1)
            if first or status is RecordStatus.BLANK:
                picture.log_end = file.base_offset
                break


def _look_at_queues(store: StoreFiles, picture: Picture) -> None:
    topics: defaultdict[str, dict[str, int]] = defaultdict(
        lambda: {"queues": 0, "messages": 0, "last": 0}
    )
    batches = [(queue, BATCH_ENTRY) for queue in store.queues(store.batch_queue)]
    for queue, form in [(queue, ENTRY) for queue in store.queues()] + batches:
        view = view_queue(queue.path, form)
        topic = topics[queue.topic]
        topic["queues"] += 1
        if form is ENTRY:
            picture.queue_file_size = picture.queue_file_size or view.file_size
        if not len(view.entries):
            continue
        kept = view.entries[view.entries["offset"] >= picture.log_start]
        topic["messages"] += (
            int(kept["count"].sum()) if form is BATCH_ENTRY else len(kept)
        )
        last = view.entries[-1]
        if int(last["size"]) != FILLER_SIZE:
            end = int(last["offset"]) + int(last["size"])
            topic["last"] = max(topic["last"], end)
            picture.log_end = max(picture.log_end, end)
    picture.topics = dict(topics)
