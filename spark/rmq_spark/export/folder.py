"""Folder: where an export has its files.  A file is created once, never overwritten.

A file gets its name when it is complete.  Until then it is a draft, which no reader
sees.  If two writers create one name, the first one wins, and the second one gets
False.  Paths are relative, with `/` between their parts.

`disk_folder.py` and `object_folder.py` implement this; `open_folder.py` chooses.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from rmq.core.errors import StoreError

MANIFESTS: Final = "_rmq_manifest"
"""The folder of plans and manifests; a folder that has it is an export."""


class FileInfo(NamedTuple):
    """Path and modification time of a data file."""

    path: str
    changed_s: float
    """Unix time."""


class Draft(Protocol):
    """A file that does not have its final name yet."""

    @property
    def target(self) -> Any:  # noqa: ANN401 - a path or a file
        """The target for the writer of Parquet."""

    def open(self) -> Any:  # noqa: ANN401 - a path or a file
        """Return a path or a file for reading the draft."""

    def publish(self) -> bool:
        """Give the draft its name; returns False if another file has it."""

    def discard(self) -> None:
        """Remove the draft; a published file stays."""


class Folder(Protocol):
    """The folder of an export."""

    name: str
    """The path or URL as the user wrote it."""
    url: str
    """The absolute path or URL for libraries of table formats."""

    def prepare(self) -> None:
        """Create the folder; StoreError if it has other contents."""

    def file_exists(self, path: str) -> bool:
        """Return whether the file exists."""

    def list_files(self, folder: str, after: str = "") -> list[str]:
        """Return the sorted names of files in a folder that come after `after`."""

    def list_folders(self, folder: str) -> list[str]:
        """Return the names of folders in a folder."""

    def data_files(self) -> Iterator[FileInfo]:
        """Yield the files of `topic=*/dt=*/` and `_*/topic=*/dt=*/`, sorted by path."""

    def read(self, path: str) -> bytes:
        """Return the contents of a small file; FileNotFoundError if it is missing."""

    def create(self, path: str, data: bytes) -> bool:
        """Create a small file; returns False if it exists with other contents."""

    def replace(self, path: str, data: bytes) -> None:
        """Write a hint, the only kind of file that changes."""

    def create_draft(self, path: str) -> Draft:
        """Create a draft of a file."""

    def open(self, path: str) -> Any:  # noqa: ANN401 - a path or a file
        """Return a path or a file for reading Parquet."""

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""

    def remove(self, path: str) -> None:
        """Remove a file that is not needed."""

    def commit_lock(self) -> contextlib.AbstractContextManager[None]:
        """Return the lock of a commit, if the folder can be locked."""

    def service_lock(self, broker: str) -> contextlib.AbstractContextManager[None]:
        """Return the lock of the service that fills the table from this broker."""


def not_an_export(name: str, kind: str) -> StoreError:
    """Return the error for a folder, or a prefix, that has other contents."""
    return StoreError(
        f"{name} is neither empty nor an export of rmq-spark: choose another {kind}"
    )
