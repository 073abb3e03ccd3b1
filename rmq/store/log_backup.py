"""LogBackup: keeps the whole log that a slave replaces, as a separate store.

A log may have nothing in common with the master's, or end before the master's begins.
Then the two have no common part, and the slave begins with an empty log. The old
log may fill most of the disk, so it is renamed, not copied.

Layout: `aside/<time>/` is a data directory, for `rmq store` or a broker: log, queues,
index and timers are moved there, tables and checkpoint are copied.  A log outside the
root (`storePathCommitLog`) becomes `<its folder>.<time>` instead. rmq never deletes it.
`setAside`, a file with <time>: the moves have begun, and must be finished. Crash
contract: the copies are durable before that file, and that file before the first
move. If the file exists, a start first moves the remaining files; without it, no file
was moved. The file is removed last, when the store is empty.
"""

import os
import shutil
import time
from pathlib import Path

from rmq.core.errors import StoreError
from rmq.core.files import replace_file, sync_directory
from rmq.store.data_dir import DataDirectory

_MOVED = (
    "batchconsumequeue",
    "compaction",
    "consumequeue",
    "consumequeue_ext",
    "digest",
    "index",
    "timerlog",
    "timerwheel",
)
_COPIED = ("config", "checkpoint", "abort")
_OF_THE_LOG = (
    "deletedTopics.json",
    "queueEnds.json",
    "timercheck",
    *(
        f"{table}.json{ending}"
        for table in ("commitsHere", "consumerOffset")
        for ending in ("", ".bak", ".1", ".2", ".3")
    ),
)
"""Files of `config/` that belong to this log only."""


class LogBackup:
    """The backup of one log; everything here blocks, except `folder`."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._mark = directory.root / "setAside"
        self._name = ""

    @property
    def folder(self) -> Path:
        """The data directory that has the old log."""
        return self._directory.root / "aside" / self._name

    def _kept_folder(self, log: Path) -> Path:
        """Return the new name of a folder of the log."""
        if log.parent == self._directory.root:
            return self.folder / log.name
        return log.with_name(f"{log.name}.{self._name}")

    def is_unfinished(self) -> bool:
        """Whether an earlier run has begun to move files, and did not finish."""
        try:
            self._name = self._mark.read_text()
        except FileNotFoundError:
            return False
        return True

    def prepare(self) -> None:
        """Copy the tables, and record that the moves begin; durable at the return.

        OSError if they cannot be copied; then nothing is changed.
        """
        self._name = time.strftime("%Y%m%d%H%M%S")
        self.folder.mkdir(parents=True)
        try:
            self._copy_tables()
            replace_file(self._mark, self._name.encode())
        except OSError:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _copy_tables(self) -> None:
        drafts = shutil.ignore_patterns("*.tmp")
        for name in _COPIED:
            source = self._directory.root / name
            if source.is_dir():
                shutil.copytree(source, self.folder / name, ignore=drafts)
            elif source.exists():
                shutil.copy2(source, self.folder / name)
        for path in [*self.folder.rglob("*"), self.folder, self.folder.parent]:
            _sync(path)
        sync_directory(self._directory.root)

    def move_files(self) -> None:
        """Move the remaining files, and leave an empty store.

        StoreError if the log cannot be renamed; then nothing is changed.
        """
        root, logs = self._directory.root, self._directory.log_folders.all
        for number, log in enumerate(logs):
            try:
                _move(log, self._kept_folder(log))
            except OSError as error:
                for moved in logs[:number]:
                    self._kept_folder(moved).rename(moved)
                self.finish()
                shutil.rmtree(self.folder, ignore_errors=True)
                raise StoreError(
                    f"cannot rename {log} to {self._kept_folder(log)}: {error.strerror}"
                ) from error
        for name in _MOVED:
            _move(root / name, self.folder / name)
        for name in _OF_THE_LOG:
            (self._directory.config / name).unlink(missing_ok=True)
        self._directory.checkpoint.unlink(missing_ok=True)
        for folder in (*logs, self._directory.consume_queue):
            folder.mkdir(exist_ok=True)
        parents = {log.parent for log in logs}
        for folder in {root, *parents, self._directory.config}:
            sync_directory(folder)

    def finish(self) -> None:
        """Remove the file `setAside`: the store is empty now; durable at the return."""
        self._mark.unlink(missing_ok=True)
        sync_directory(self._directory.root)

    def __str__(self) -> str:
        """One sentence for people."""
        text = f"the previous log is in {self.folder}"
        kept = map(self._kept_folder, self._directory.log_folders.all)
        others = [str(log) for log in kept if log.parent != self.folder]
        if others:
            text += f", its records in {' and '.join(others)}"
        return f"{text}; rmq never deletes it"


def _move(source: Path, target: Path) -> None:
    """Rename a folder or file, unless it already has its new name."""
    if source.exists() and not target.exists():
        source.rename(target)
        sync_directory(target.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
