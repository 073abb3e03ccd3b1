"""LogFolders: the folders with the files of one log, and the folder of its next file.

File number `offset // size` goes to the folder of this number, modulo their count, in
the order of their paths. Read-only folders and folders on a nearly full disk get no new
file, unless all writable folders are nearly full. Java places its files in the same
way. The choice for an offset is made once: a worker and the writer may create the same
file.
Call `folder_for` from any thread; the folders never change.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from rmq.core.files import sync_directory

SEPARATOR = ","


def split_folders(text: str) -> list[Path]:
    """Return the folders of a key, each once, in the order of their paths."""
    parts = (part.strip() for part in text.split(SEPARATOR))
    return sorted({Path(part) for part in parts if part}, key=str)


def _no_folders() -> Iterable[Path]:
    return ()


class LogFolders:
    """Known in Java as `MultiPathMappedFileQueue`."""

    def __init__(
        self,
        folders: Iterable[Path],
        read_only: Callable[[], Iterable[Path]] = _no_folders,
    ) -> None:
        self._read_only = read_only
        self._named = list(folders)
        self.all = list(dict.fromkeys([*self._named, *read_only()]))
        """Every folder of the log, read-only ones included."""

        self.full: frozenset[Path] = frozenset()
        """Folders on a nearly full disk."""

        self._choice = -1, self.writable()[0]

    def writable(self) -> list[Path]:
        """Return the folders that may get new files; at least one."""
        kept = set(self._read_only())
        return [folder for folder in self._named if folder not in kept]

    def folder_for(self, base_offset: int, size: int) -> Path:
        """Return the folder of the file of `size` bytes that starts at an offset."""
        offset, folder = self._choice
        if offset != base_offset:
            writable = self.writable()
            free = [each for each in writable if each not in self.full] or writable
            folder = free[base_offset // size % len(free)]
            self._choice = base_offset, folder
        return folder

    def list_files(self) -> list[Path]:
        """Return the files of all folders, in the order of their names."""
        found = (path for folder in self.all for path in folder.iterdir())
        files = (path for path in found if path.is_file())
        return sorted(files, key=lambda path: (path.name, str(path)))

    def create(self) -> None:
        """Create the folders for new files; OSError names the folder."""
        for folder in self._named:
            folder.mkdir(parents=True, exist_ok=True)

    def sync(self) -> None:
        """Make the names of new and removed files durable."""
        for folder in self.all:
            sync_directory(folder)

    def __str__(self) -> str:
        """The folders, in the form of their key."""
        return SEPARATOR.join(map(str, self.all))
