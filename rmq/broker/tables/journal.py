"""TopicJournal: changes of topics that `topics.json` does not hold yet.

Layout: `topicChanges.0` and `topicChanges.1` in the same folder have a line of JSON for
each change. A line has the counter of the data version, and the topic or the name of a
deleted topic:

    {"counter":41,"topic":{"perm":6,…}}
    {"counter":42,"deleted":"name"}

Crash contract: the broker writes the line before it answers the change, so a killed
process loses no new topic. A power cut may lose a line that `sync` has not made
durable: tools, and sends under SYNC_FLUSH, wait for it. Lines up to the counter of
`topics.json` are obsolete. A line that is not whole ends its file.
When a save begins and the other file is empty, new lines go there. The thread of a
complete save removes the other file, if the backup of `topics.json` has all its lines,
too. So the files never hold more than the changes during three saves.
"""

import io
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from rmq.core.files import sync_directory
from rmq.protocol.bodies.topics import TopicConfig

logger = logging.getLogger(__name__)

MAX_SIZE: Final = 64 * 1024 * 1024
"""Maximum size of a file: 200,000 topics. A file reaches it only if saves fail."""


class TopicChange(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A line: a topic that was created, changed or deleted."""

    counter: int
    topic: TopicConfig | None = None
    deleted: str | None = None


class TopicJournal:
    """Writes changes, and reads them after a crash."""

    def __init__(self, folder: Path) -> None:
        self._files = folder / "topicChanges.0", folder / "topicChanges.1"
        self._last = [0, 0]
        """The largest counter in each file."""

        self._current = 0
        self._has_failed = False

    def changes_after(self, counter: int) -> list[TopicChange]:
        """Return the changes with a larger counter, in their order."""
        changes = []
        for index, path in enumerate(self._files):
            for line in _lines(path):
                self._last[index] = line.counter
                changes.append(line)
        self._current = self._last.index(max(self._last))
        changes.sort(key=lambda change: change.counter)
        return [change for change in changes if change.counter > counter]

    def add(self, change: TopicChange) -> bool:
        """Write a change; False if that fails: only the next save will have it."""
        path = self._files[self._current]
        try:
            with _open(path) as file:
                has_room = file.tell() < MAX_SIZE
                if has_room:
                    file.write(_encode(change) + b"\n")
        except OSError as error:
            if not self._has_failed:
                logger.error("%s: %s; a kill may lose new topics", path, error.strerror)
            self._has_failed = True
            return False
        self._has_failed = False
        self._last[self._current] = change.counter
        return has_room

    def sync(self) -> None:
        """Make the written changes durable; it blocks: call it from a worker thread.

        A file that a save has removed meanwhile is no longer needed.
        """
        for path in self._files:
            with suppress(FileNotFoundError), path.open("rb") as file:
                os.fdatasync(file.fileno())
        sync_directory(self._files[0].parent)

    def clear(self) -> None:
        """Remove all changes: the master's table has replaced this one."""
        for index, path in enumerate(self._files):
            path.unlink(missing_ok=True)
            self._last[index] = 0

    def begin_save(self) -> None:
        """Write to the other file from now on, if that is empty."""
        other = 1 - self._current
        if self._last[self._current] and not self._last[other]:
            self._current = other

    def end_save(self, backup_counter: int) -> None:
        """Remove the other file if the backup of `topics.json` has all its lines.

        It blocks: call it from the worker thread that saved.
        """
        other = 1 - self._current
        if not 0 < self._last[other] <= backup_counter:
            return
        try:
            self._files[other].unlink(missing_ok=True)
        except OSError as error:
            logger.error("%s: %s", self._files[other], error.strerror)
            return
        self._last[other] = 0


def _open(path: Path) -> io.FileIO:
    try:
        return io.FileIO(path, "a")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return io.FileIO(path, "a")


def _lines(path: Path) -> list[TopicChange]:
    """Return the whole lines of a file."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    lines = []
    for line in text.split(b"\n")[:-1]:
        try:
            lines.append(_decode(line))
        except msgspec.MsgspecError as error:
            logger.warning("%s: reading ended at an invalid line: %s", path, error)
            break
    return lines


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(TopicChange).decode
