"""TableFile: the file of a table, its seal, and the versions before it.

Layout: a JSON object whose first member is `"rmqSeal":"number ms crc"`, of fixed width.
The number counts the saves, and ms is the time of this save. The CRC-32 is of the whole
text with zeros in place of the CRC. Java ignores the member and writes files without
it, which have no check. `<name>.bak` is the version before the last save. `.1` to `.3`
are older ones, one for each hour in which the table changed. Crash contract: see
`rmq/core/files.py`. While generations are renamed, one generation may be absent. A
version is torn if its checksum is wrong, or if it is no table. An empty file is torn,
too, because no save leaves one. A start reads the newest version that is whole.
"""

import contextlib
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from rmq.core.files import replace_file

SEAL_NAME: Final = "rmqSeal"
GENERATIONS: Final = 3
GENERATION_MS: Final = 3_600_000
"""Age difference between `.bak` and the newest generation from which on a new
generation is made.
"""

_SEAL: Final = re.compile(rb'\{\n\t"rmqSeal":"(\d{12}) (\d{13}) ([0-9a-f]{8})",?')
_FORM: Final = b'{\n\t"rmqSeal":"%012d %013d 00000000"'
_CRC_AT: Final = len(_FORM % (0, 0)) - 9
_CRC_SIZE: Final = 8
_HEAD_SIZE: Final = 128
"""Bytes of a file that contain its seal."""


def seal_text(text: bytes, number: int, now_ms: int) -> bytes:
    """Return the text of a JSON object with a seal as its first member."""
    assert text.startswith(b"{"), text[:20]
    is_empty = text[1:].lstrip().startswith(b"}")
    head = _FORM % (number % 10**12, now_ms % 10**13) + (b"" if is_empty else b",")
    crc = zlib.crc32(text[1:], zlib.crc32(head))
    return head[:_CRC_AT] + b"%08x" % crc + head[_CRC_AT + _CRC_SIZE :] + text[1:]


def seal_of(text: bytes) -> tuple[int, int]:
    """Return number and time of a text's seal; zeros without one."""
    found = _SEAL.match(text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def find_tear(text: bytes) -> str | None:
    """Return the reason why a text is not a whole saved text; None if it is whole."""
    if not text.strip(b"\0 \t\r\n"):
        return "the file is empty" if not text.strip() else "the file has only zeros"
    found = _SEAL.match(text)
    if found is None:
        return None
    zeroed = text[:_CRC_AT] + b"0" * _CRC_SIZE + text[_CRC_AT + _CRC_SIZE :]
    is_right = zlib.crc32(zeroed) == int(found[3], 16)
    return None if is_right else "its seal is wrong: bytes have changed"


class TableFile:
    """Reads the newest whole version of a table, and saves new ones."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0

    def versions(self) -> Iterator[Path]:
        """Yield the paths of the versions before the current one, newest first."""
        for ending in (".bak", *(f".{each + 1}" for each in range(GENERATIONS))):
            yield self._path.with_name(self._path.name + ending)

    def write(self, pieces: Iterable[bytes], now_ms: int) -> None:
        """Save a text; it blocks."""
        text = b"".join(pieces)
        assert text, f"{self._path}: an empty table is still a JSON object"
        if not self._number:
            self._number = _head_of(self._path)[0]
        self._number += 1
        with contextlib.suppress(OSError):  # a missing generation is no reason to fail
            self._make_generation()
        replace_file(self._path, seal_text(text, self._number, now_ms), backup=True)

    def _make_generation(self) -> None:
        """Copy `.bak` to a new generation if the newest generation is old."""
        backup, newest, *_ = paths = list(self.versions())
        age_ms = _head_of(backup)[1] - _head_of(newest)[1]
        if abs(age_ms) < GENERATION_MS:
            return
        for older, newer in zip(paths[:1:-1], paths[-2:0:-1], strict=True):
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)
        os.link(backup, newest)


def date_of(text: bytes) -> str:
    """Return the time when a version was saved, as a text for people."""
    _, saved_ms = seal_of(text)
    if not saved_ms:
        return "at an unknown time"
    return time.strftime("at %Y-%m-%d %H:%M:%S UTC", time.gmtime(saved_ms / 1000))


def _head_of(path: Path) -> tuple[int, int]:
    try:
        with path.open("rb") as file:
            return seal_of(file.read(_HEAD_SIZE))
    except FileNotFoundError:
        return 0, 0
