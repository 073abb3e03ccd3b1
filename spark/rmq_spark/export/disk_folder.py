"""DiskFolder: an export in a folder of a file system that has hard links.

A draft is a hidden file, `.<name>.<host>-<process>-<random>.tmp`.  `link` gives it its
name.  Contents and folders are synced.
"""

import contextlib
import fcntl
import os
import socket
import uuid
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from rmq.core.errors import StoreError
from rmq.core.files import sync_directory
from rmq_spark.export.folder import MANIFESTS, FileInfo, not_an_export

_LOCK: Final = f"{MANIFESTS}/lock"
_DATA: Final = ("topic=*/dt=*/*", "_*/topic=*/dt=*/*")
_MAX_NAME: Final = 100
"""Maximum characters of a process number in a lock file."""


class DiskFolder:
    """A folder of a file system that has hard links."""

    def __init__(self, out: str | Path) -> None:
        self._root = Path(out).resolve()
        self.name = str(out)
        self.url = str(self._root)

    def prepare(self) -> None:
        """Create the folder; StoreError if it has other contents."""
        self._root.mkdir(parents=True, exist_ok=True)
        names = os.listdir(self._root)
        if names and MANIFESTS not in names:
            raise not_an_export(self.name, "folder")
        (self._root / MANIFESTS).mkdir(exist_ok=True)
        sync_directory(self._root)

    def file_exists(self, path: str) -> bool:
        """Return whether the file exists."""
        return (self._root / path).exists()

    def list_files(self, folder: str, after: str = "") -> list[str]:
        """Return the sorted names of files in a folder that come after `after`."""
        return self._children(folder, after, are_folders=False)

    def list_folders(self, folder: str) -> list[str]:
        """Return the names of folders in a folder."""
        return self._children(folder, "", are_folders=True)

    def data_files(self) -> Iterator[FileInfo]:
        """Yield the data files, sorted by path."""
        found = chain.from_iterable(map(self._root.glob, _DATA))
        for path in sorted(found):
            with contextlib.suppress(FileNotFoundError):
                relative = path.relative_to(self._root).as_posix()
                yield FileInfo(relative, path.stat().st_mtime)

    def read(self, path: str) -> bytes:
        """Return the contents of a small file."""
        return (self._root / path).read_bytes()

    def create(self, path: str, data: bytes) -> bool:
        """Create a small file; returns False if it exists with other contents."""
        draft = self.create_draft(path)
        try:
            Path(draft.target).write_bytes(data)
            return draft.publish() or self.read(path) == data
        finally:
            draft.discard()

    def replace(self, path: str, data: bytes) -> None:
        """Write a hint."""
        draft = self.create_draft(path)
        Path(draft.target).write_bytes(data)
        os.replace(draft.target, self._root / path)

    def create_draft(self, path: str) -> "DiskDraft":
        """Create a draft in the folder of the file."""
        (self._root / path).parent.mkdir(parents=True, exist_ok=True)
        return DiskDraft(self._root, path)

    def open(self, path: str) -> str:
        """Return the path for reading Parquet."""
        return str(self._root / path)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return (self._root / path).stat().st_size

    def remove(self, path: str) -> None:
        """Remove a file that is not needed."""
        (self._root / path).unlink(missing_ok=True)

    @contextlib.contextmanager
    def commit_lock(self) -> Iterator[None]:
        """Lock commits to the table against other exporters on this host."""
        with (self._root / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def service_lock(self, broker: str) -> Iterator[None]:
        """Lock the table of a broker against other services on this host."""
        self.prepare()
        with (self._root / MANIFESTS / f"{broker}.follower").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                raise StoreError(
                    f"another rmq-spark follow, process {file.read(_MAX_NAME)}, fills "
                    f"{self.name}: stop it, or choose another folder"
                ) from error
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def _children(self, folder: str, after: str, *, are_folders: bool) -> list[str]:
        try:
            with os.scandir(self._root / folder) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if entry.name > after and entry.is_dir() == are_folders
                )
        except (FileNotFoundError, NotADirectoryError):
            return []


class DiskDraft:
    """A hidden file in the folder of the final file."""

    def __init__(self, root: Path, path: str) -> None:
        self._root = root
        self._final = root / path
        writer = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._path = self._final.with_name(f".{self._final.name}.{writer}.tmp")

    @property
    def target(self) -> str:
        """The path for the writer of Parquet."""
        return str(self._path)

    def open(self) -> str:
        """Return the path for reading the draft."""
        return str(self._path)

    def publish(self) -> bool:
        """Sync the draft and link it; returns False if the name exists."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        try:
            os.link(self._path, self._final)
        except FileExistsError:
            return False
        folder = self._final.parent
        while folder != self._root:
            sync_directory(folder)
            folder = folder.parent
        sync_directory(self._root)
        return True

    def discard(self) -> None:
        """Remove the hidden name."""
        self._path.unlink(missing_ok=True)
