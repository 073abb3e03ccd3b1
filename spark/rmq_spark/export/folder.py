"""Folder: where an export has its files.  A file is created once, never overwritten.

A file gets its name when it is complete.  Until then it is a draft, which no reader
sees.  If two writers create one name, the first one wins and the second one is told so.
Paths are relative, with `/` between their parts.

`disk_folder.py` and `object_folder.py` implement this; `open_folder.py` chooses.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from rmq.core.errors import StoreError

MANIFESTS: Final = "_rmq_manifest"
"""The folder of plans and manifests: what has it is an export."""


class FileInfo(NamedTuple):
    """A file of a folder."""

    path: str
    changed_s: float
    """Unix time."""


class Draft(Protocol):
    """A file without its name."""

    @property
    def target(self) -> Any:  # noqa: ANN401 - a path or a file
        """Where Parquet is written to."""

    def open(self) -> Any:  # noqa: ANN401 - a path or a file
        """Where it is read from."""

    def publish(self) -> bool:
        """Give it its name; False if that is taken."""

    def discard(self) -> None:
        """Free what it holds; a published file stays."""


class Folder(Protocol):
    """The folder of an export."""

    name: str
    """As people write it: a path or a URL."""
    url: str
    """As libraries of tables want it."""

    def prepare(self) -> None:
        """Make the folder; refuse one with other contents."""

    def has(self, path: str) -> bool:
        """Whether there is a file of this name."""

    def names(self, folder: str, after: str = "") -> list[str]:
        """Names of files in a folder, those that sort after `after`."""

    def folders(self, folder: str) -> list[str]:
        """Names of folders in a folder."""

    def data_files(self) -> Iterator[FileInfo]:
        """Files of `topic=*/dt=*/` and `_*/topic=*/dt=*/`, ordered by path."""

    def read(self, path: str) -> bytes:
        """The contents of a small file; FileNotFoundError if there is none."""

    def create(self, path: str, data: bytes) -> bool:
        """Make a small file; False if there is one with other contents."""

    def replace(self, path: str, data: bytes) -> None:
        """Write a hint, the only kind of file that changes."""

    def draft(self, path: str) -> Draft:
        """A draft of a file."""

    def open(self, path: str) -> Any:  # noqa: ANN401 - a path or a file
        """Where Parquet is read from."""

    def size(self, path: str) -> int:
        """Bytes of a file."""

    def remove(self, path: str) -> None:
        """Remove a file that nothing needs."""

    def committing(self) -> contextlib.AbstractContextManager[None]:
        """Held while a batch becomes part of the table, if that can be locked."""

    def following(self, broker: str) -> contextlib.AbstractContextManager[None]:
        """Held by a service that fills the table from this broker."""


def not_an_export(name: str, kind: str) -> StoreError:
    """The error of a folder, or of a prefix of a store, that has other contents."""
    return StoreError(
        f"{name} is neither empty nor an export of rmq-spark: choose a {kind} of its "
        "own"
    )
