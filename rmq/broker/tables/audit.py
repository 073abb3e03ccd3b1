"""AuditTable: the latest changes by administrative requests.

It has the newest MAX_CHANGES of the last KEPT_MS. File: `config/rmqAudit.json`.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from rmq.config.json_table import JsonTable
from rmq.core.clock import Clock
from rmq.core.logs import Foreign
from rmq.protocol import fastjson
from rmq.protocol.encoded_members import FILE_LINE, PER_TURN
from rmq.remoting.changes import Change

logger = logging.getLogger(__name__)

MAX_CHANGES: Final = 10_000
"""Maximum number of changes: about 3 MB of text in the file."""

KEPT_MS: Final = 7 * 86_400_000


class AuditTable(JsonTable):
    """The last changes, the oldest first."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder / "rmqAudit.json", clock)
        self._changes: deque[Change] = deque(maxlen=MAX_CHANGES)
        self._texts: deque[bytes] = deque()
        """Encoded texts of the newest changes, each after a comma, as in the file."""

        self.on_add: list[Callable[[Change], None]] = []

    def _read(self, value: dict[str, Any]) -> None:
        found = msgspec.convert(value.get("changes") or [], list[Change])
        self._changes = deque(found, MAX_CHANGES)
        self._texts.clear()

    def _content(self) -> object:
        return {"changes": []}

    def snapshot(self) -> list[bytes]:
        """Return the text to save in pieces, see `JsonTable`."""
        self._expire()
        while self._encode_next():
            pass
        [text] = super().snapshot()
        if not self._texts:
            return [text]
        head, tail = text.split(b"[]")
        first, *others = self._texts
        return [head, b"[", first[1:], *others, FILE_LINE[:-1], b"]", tail]

    async def _encode(self) -> None:
        """Encode the changes of the file that was loaded; other tasks run meanwhile."""
        while self._encode_next():
            if len(self._texts) % PER_TURN == 0:
                await trio.lowlevel.checkpoint()

    def _encode_next(self) -> bool:
        """Encode the newest change that has no text; False if each has one."""
        lacking = len(self._changes) - len(self._texts)
        if lacking:
            self._texts.appendleft(_encode_change(self._changes[lacking - 1]))
        return lacking > 0

    def add(self, change: Change) -> None:
        """Add a change to the table, and log it."""
        self._changes.append(change)
        self._texts.append(_encode_change(change))
        if len(self._texts) > len(self._changes):
            self._texts.popleft()
        self.touch()
        for listener in self.on_add:
            listener(change)
        logger.info(
            "%s from %s: %s %s: %s",
            Foreign(change.user or "somebody"),
            change.source,
            change.action,
            Foreign(change.subject),
            Foreign(change.change or "nothing differs", 1_000),
        )

    def all(self) -> Iterator[Change]:
        """Yield the changes of the last week."""
        self._expire()
        yield from self._changes

    def _expire(self) -> None:
        oldest_ms = self._clock.now_ms() - KEPT_MS
        while self._changes and self._changes[0].time_ms < oldest_ms:
            self._changes.popleft()
            if len(self._texts) > len(self._changes):
                self._texts.popleft()


def _encode_change(change: Change) -> bytes:
    content = msgspec.structs.asdict(change)
    return b"," + FILE_LINE + fastjson.dumps_part(content, FILE_LINE)
