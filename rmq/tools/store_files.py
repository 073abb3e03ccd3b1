"""StoreFiles: the files of a store directory, found and opened for reading.

Sizes come from the files themselves, so no configuration is needed.  All files of a log
have one size, and so do all queue files of a store.  Files that disappear between the
listing and the opening were deleted by a broker and are skipped.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmq._fastpath.log.mapped_file import MappedFile
from rmq.core.errors import StoreError
from rmq.core.segments import segments_of
from rmq.store.data_dir import is_locked

PAGE_SIZE: Final = 4_096


@dataclass(frozen=True, slots=True)
class QueueFolder:
    """The folder of one queue."""

    topic: str
    queue_id: int
    path: Path


class StoreFiles:
    """The files of one store."""

    def __init__(self, root: Path, log_folders: Sequence[Path] = ()) -> None:
        self.root = root
        self.log_folders = list(log_folders) or [root / "commitlog"]
        self.consume_queue = root / "consumequeue"
        self.queue_ext = root / "consumequeue_ext"
        self.batch_queue = root / "batchconsumequeue"
        self.index = root / "index"
        self.config = root / "config"
        self.abort = root / "abort"
        self.checkpoint = root / "checkpoint"
        self.cut = root / "cut"
        self.ring = root / "ring"
        absent = [folder for folder in log_folders if not folder.is_dir()]
        if absent:
            raise StoreError(f"{absent[0]} is no folder of a log: it does not exist")
        if not (log_folders or self.log_folders[0].is_dir()) and (
            not self.consume_queue.is_dir()
        ):
            raise StoreError(
                f"{root} is no store: it has neither commitlog nor consumequeue; "
                "give the directory of storePathRootDir"
            )

    @property
    def is_in_use(self) -> bool:
        """True if a broker holds the lock; this check does not lock the store."""
        return is_locked(self.root)

    def log_paths(self) -> list[Path]:
        """Files of the log in the order of their offsets, without an empty last file.

        The broker creates an empty file and sets its length a moment later.
        """
        paths = [path for each in self.log_folders for path in segment_paths(each)]
        return sorted(paths, key=lambda path: path.name)

    @contextmanager
    def open_log(self) -> Iterator[list[MappedFile]]:
        """Map the log for reading; StoreError if its files are not of one size."""
        files: list[MappedFile] = []
        try:
            for path in self.log_paths():
                try:
                    size = path.stat().st_size
                    file = MappedFile(
                        str(path), size, base_offset=int(path.name), writable=False
                    )
                except FileNotFoundError:
                    continue
                files.append(file)
                if size != files[0].size:
                    raise StoreError(
                        f"{path} has {size} bytes, {files[0].path} has "
                        f"{files[0].size}: they do not belong to one log"
                    )
            yield files
        finally:
            for file in files:
                file.close()

    def queues(self, folder: Path | None = None) -> list[QueueFolder]:
        """Return all queues below `consumequeue`, or below a folder of that layout."""
        folder = folder or self.consume_queue
        if not folder.is_dir():
            return []
        return [
            QueueFolder(topic.name, int(queue.name), queue)
            for topic in sorted(folder.iterdir())
            if topic.is_dir()
            for queue in sorted(topic.iterdir())
            if queue.is_dir() and queue.name.isdecimal()
        ]

    def index_paths(self) -> list[Path]:
        """Return index files, the oldest first."""
        if not self.index.is_dir():
            return []
        return sorted(path for path in self.index.iterdir() if path.is_file())


def data_size(paths: Sequence[Path]) -> int:
    """Return the approximate number of bytes with data in log files; other bytes are
    zeros.
    """
    if not paths:
        return 0
    *full, last = paths
    return sum(path.stat().st_size for path in full) + _data_end(last)


def _data_end(path: Path) -> int:
    """Return the approximate start of the zeros at the end of a file, by bisection."""
    with path.open("rb") as file:
        low, high = 0, path.stat().st_size // PAGE_SIZE
        while low < high:
            middle = (low + high) // 2
            file.seek(middle * PAGE_SIZE)
            if any(file.read(PAGE_SIZE)):
                low = middle + 1
            else:
                high = middle
    return low * PAGE_SIZE


def segment_paths(folder: Path) -> list[Path]:
    """Return a folder's files whose names are offsets, in order, without empty ones."""
    if not folder.is_dir():
        return []
    return [Path(each.path) for each in segments_of(folder)]
