"""Cut: truncates a log durably, and keeps a copy of the truncated bytes.

Recovery truncates bytes that are no records. A slave truncates whole records that its
master lacks, and after a kill none of these records may come back. So the copies become
durable first. Then the file `cutOffset` is written, with the new end in 20 digits. Log,
queues and checkpoint are truncated in any order, and the file is removed last. Crash
contract: with the file, a start truncates the log before it reads it (`finish_cut`);
without it, nothing was removed. Copies are in `cut/`, named by their offsets, for `rmq
store repair --restore`.
"""

import os
from pathlib import Path

import msgspec

from rmq._fastpath.log.mapped_file import MappedFile
from rmq.core.files import replace_file, sync_directory
from rmq.core.offsets import PhysicalOffset
from rmq.core.segments import NAME_DIGITS
from rmq.store.checkpoint import Checkpoint
from rmq.store.data_dir import DataDirectory
from rmq.store.deleted_topics import DeletedTopics
from rmq.store.mapped_files import MappedFileQueue
from rmq.store.queues.queue_ends import QueueEnds
from rmq.store.salvage import data_end, whole_records

COPY_SIZE = 1 << 20
_ZEROS_OF_A_RECORD = 2
"""Zero bytes at the end of a record without properties: the length of its
properties.
"""


class Cut(msgspec.Struct, frozen=True):
    """The new end of the log, and the copy of the data after it."""

    path: str
    offset: PhysicalOffset
    reason: str
    kept_aside: str
    byte_count: int
    record_count: int = 0

    def __str__(self) -> str:
        """One sentence for people."""
        text = (
            f"{self.path}: truncated to offset {self.offset} ({self.reason}); "
            f"{self.byte_count} bytes after it were saved in {self.kept_aside}"
        )
        if self.record_count:
            text += (
                f", among them {self.record_count} complete records: stop the broker "
                "and run `rmq store repair --restore` to store these again"
            )
        return text


def set_aside(file: MappedFile, position: int, folder: Path, reason: str) -> Cut | None:
    """Copy the data of [position, end of file); None if there is none."""
    end = data_end(file, position)
    if end <= position:
        return None
    count = 0
    reach = min(file.size, end + _ZEROS_OF_A_RECORD)
    for record in whole_records(file, position, reach):
        count += 1
        end = max(end, record.physical_offset + record.size - file.base_offset)
    folder.mkdir(exist_ok=True)
    offset = file.base_offset + position
    target = folder / f"{offset:0{NAME_DIGITS}d}"
    with target.open("wb") as copy:
        for start in range(position, end, COPY_SIZE):
            copy.write(file.read(start, min(COPY_SIZE, end - start)))
        copy.flush()
        os.fsync(copy.fileno())
    sync_directory(folder)
    return Cut(
        file.path, PhysicalOffset(offset), reason, str(target), end - position, count
    )


class CutMark:
    """The file `cutOffset`: a truncation has begun, and must be finished."""

    def __init__(self, root: Path) -> None:
        self._path = root / "cutOffset"

    def load(self) -> int | None:
        """Return the new end of the log; None if no truncation has begun."""
        try:
            return int(self._path.read_bytes())
        except FileNotFoundError:
            return None

    def save(self, end: PhysicalOffset) -> None:
        """Begin a truncation; durable at the return."""
        assert end >= 0, end
        replace_file(self._path, b"%020d" % end)

    def clear(self) -> None:
        """End the truncation; durable at the return."""
        self._path.unlink(missing_ok=True)
        sync_directory(self._path.parent)


def take_files_after(files: MappedFileQueue, end: PhysicalOffset) -> list[MappedFile]:
    """Remove and return the files that begin at or after `end`, the newest first."""
    taken = files.take_prepared()
    while files.files and files.files[-1].base_offset >= end:
        taken.append(files.files.pop())
    return taken


def end_last_file(files: MappedFileQueue, end: PhysicalOffset) -> None:
    """End the last file: zeros after `end`, durably."""
    if not files.files:
        return
    last = files.files[-1]
    position = min(end - last.base_offset, last.size)
    last.zero(position, last.size)
    last.write_position = position
    last.flush()
    last.assume_flushed(position)


def lower(
    end: PhysicalOffset,
    store_ms: int,
    checkpoint: Checkpoint,
    directory: DataDirectory,
    deleted_topics: DeletedTopics,
) -> None:
    """Lower the checkpoint's offsets to `end`, and its times to `store_ms`, the time of
    the record before.

    A record of the new master may be older than the last record of the old master.
    """
    checkpoint.logics_physical_offset = min(checkpoint.logics_physical_offset, end)
    checkpoint.confirm_offset = min(checkpoint.confirm_offset, end)
    checkpoint.physic_msg_ms = min(checkpoint.physic_msg_ms, store_ms)
    checkpoint.logics_msg_ms = min(checkpoint.logics_msg_ms, store_ms)
    checkpoint.index_msg_ms = min(checkpoint.index_msg_ms, store_ms)
    checkpoint.save(directory.checkpoint)
    deleted_topics.lower(end)
    QueueEnds.remove_file(directory.config)


def finish_cut(
    files: MappedFileQueue,
    end: PhysicalOffset,
    checkpoint: Checkpoint,
    directory: DataDirectory,
    deleted_topics: DeletedTopics,
) -> str:
    """Finish the truncation that a mark records; a start does this before any part
    reads the log.

    Recovery truncates the queues to the log's end.  Returns a sentence for the report.
    """
    for file in take_files_after(files, end):
        file.unlink()
        file.close()
    end_last_file(files, end)
    files.folders.sync()
    lower(end, 0, checkpoint, directory, deleted_topics)
    return f"truncated the log to offset {end}, as an earlier run had begun to do"
