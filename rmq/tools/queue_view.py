"""QueueView: the entries of one queue as a numpy array over its files.

Layout of an entry (20 bytes, big-endian): i64 physical offset, i32 record size, i64
tags code.  Entry n of a view is queue offset `first` + n.  The view ends after the last
entry that is not all zeros; 5 million entries are compared in half a second.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmq._fastpath.log.mapped_file import MappedFile
from rmq.store.queues.consume_queue import ENTRY_SIZE, FILLER_SIZE
from rmq.store.salvage import data_end
from rmq.tools.store_files import segment_paths

ENTRY = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
BATCH_ENTRY = np.dtype(
    [
        ("offset", ">i8"),
        ("size", ">i4"),
        ("tags", ">i8"),
        ("store_ms", ">i8"),
        ("base", ">i8"),
        ("count", ">i2"),
        ("compacted", ">i4"),
        ("lost", ">i4"),
    ]
)
"""Entry of `batchconsumequeue`: one for all messages of an inner batch."""

assert ENTRY.itemsize == ENTRY_SIZE


@dataclass(slots=True)
class QueueView:
    """Entries of one queue, read-only."""

    folder: Path
    first: int
    entries: NDArray[np.void]
    file_size: int
    problems: list[tuple[Path, int, str]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Queue offset after the last entry."""
        return self.first + len(self.entries)

    def file_position(self, queue_offset: int) -> tuple[Path, int]:
        """Return the file of an entry, and the position in it."""
        assert self.file_size > 0, self.folder
        byte = queue_offset * self.entries.itemsize
        base = byte // self.file_size * self.file_size
        return self.folder / f"{base:020d}", byte - base

    def real_entries(self) -> NDArray[np.bool_]:
        """Mark the entries that are no fillers."""
        marks: NDArray[np.bool_] = self.entries["size"] != FILLER_SIZE
        return marks


def view_queue(folder: Path, entry: np.dtype[np.void] = ENTRY) -> QueueView:
    """Read the files of a queue; `problems` lists their defects.

    A missing file leaves zeros in the view.
    """
    paths = segment_paths(folder)
    if not paths:
        return QueueView(folder, 0, np.zeros(0, entry), 0)
    size = paths[0].stat().st_size // entry.itemsize * entry.itemsize
    view = QueueView(
        folder, int(paths[0].name) // entry.itemsize, _no_entries(entry), size
    )
    used = _used_bytes(paths)  # first: bytes that are copied later are not older
    parts: list[NDArray[np.void]] = []
    at = int(paths[0].name)
    for path in paths:
        base = int(path.name)
        if path.stat().st_size != paths[0].stat().st_size or base % entry.itemsize:
            view.problems.append((path, 0, "its size or name does not fit the others"))
            break
        if base > at:
            missing = folder / f"{at:020d}"
            view.problems.append((missing, 0, "the file is missing"))
            parts.append(np.zeros((base - at) // entry.itemsize, entry))
        mapped = np.memmap(path, entry, "r", shape=(size // entry.itemsize,))
        parts.append(np.asarray(mapped))
        at = base + size
    joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
    view.entries = joined[: -(-used // entry.itemsize) - view.first]
    assert len(view.entries) <= len(joined), folder
    return view


def _no_entries(entry: np.dtype[np.void]) -> NDArray[np.void]:
    return np.zeros(0, entry)


def _used_bytes(paths: list[Path]) -> int:
    """Return the end of the last entry that is not all zeros; holes are not read."""
    for path in reversed(paths):
        base = int(path.name)
        file = MappedFile(str(path), path.stat().st_size, writable=False)
        end = data_end(file, 0)
        file.close()
        if end:
            return base + end
    return int(paths[0].name)
