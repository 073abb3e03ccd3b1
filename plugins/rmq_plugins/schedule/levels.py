"""Progress of delivery of each delay level.

Level n is queue n - 1 of SCHEDULE_TOPIC_XXXX. File `config/delayOffset.json`:

    {"dataVersion": {...}, "offsetTable": {"<level>": <next offset in the queue>}}

Crash contract: the log is durable before the file is saved. In the other order a power
cut could remove a delivered message, and the saved offset would skip its second
delivery. (Java saves the file at any time.)
"""

import errno
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rmq.plugin import Clock, JsonTable, LogFailed, RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.bodies.data_version import DataVersion


class DelayOffsets(JsonTable):
    """The table in Java's `ScheduleMessageService`."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        version_step: int,
        flush_log: Callable[[], None],
    ) -> None:
        """`flush_log` makes the log durable; it blocks."""
        super().__init__(folder / "delayOffset.json", clock)
        self._flush_log = flush_log
        self._offsets: dict[int, int] = {}
        self._version_step = version_step
        self._steps = 0

    def _read(self, value: dict[str, Any], *, replaces: bool = False) -> None:
        """Add the offsets of a table, or with `replaces` leave no other offsets.

        After RequestRejected nothing has changed.
        """
        try:
            offsets = {
                int(level): int(offset)
                for level, offset in (value.get("offsetTable") or {}).items()
            }
            version = DataVersion.from_value(value.get("dataVersion") or {})
        except (AttributeError, TypeError, ValueError) as error:
            raise RequestRejected(1, f"offsetTable: {error}") from error
        self.data_version = version
        if replaces:
            self._offsets.clear()
        self._offsets.update(offsets)

    def _content(self) -> dict[str, object]:
        return {
            "dataVersion": self.data_version,
            "offsetTable": {
                str(level): offset for level, offset in sorted(self._offsets.items())
            },
        }

    def write(self, pieces: Iterable[bytes]) -> None:
        """Make the log durable, then save the text."""
        try:
            self._flush_log()
        except LogFailed as error:
            raise OSError(errno.EIO, f"not saved before the log: {error}") from error
        super().write(pieces)

    def facts(self) -> dict[str, object]:
        """Return the content of the file, which tools can read."""
        return self._content()

    def copy(self, body: bytes) -> None:
        """Replace the table by the master's table; RequestRejected if not valid."""
        value = _load_object(body)
        before = self._content()
        self._read(value, replaces=True)
        if self._content() != before:
            self.changed.set()

    def raise_to(self, body: bytes) -> None:
        """Raise offsets to the larger ones of a slave that acted as the master.

        RequestRejected if the body is not valid.
        """
        theirs = _load_object(body)
        before = dict(self._offsets)
        version = self.data_version
        self._read(theirs)
        self.data_version = version
        for level, offset in before.items():
            self._offsets[level] = max(offset, self._offsets[level])
        if self._offsets != before:
            self.touch()
            self.changed.set()

    def get(self, level: int) -> int:
        """Return the offset of the next message of a level to deliver."""
        return self._offsets.get(level, 0)

    def set(self, level: int, offset: int) -> None:
        """Record that all messages before `offset` are delivered."""
        self._offsets[level] = offset
        self.changed.set()
        self._steps += 1
        if self._steps % self._version_step == 0:
            self.touch()


def _load_object(body: bytes) -> dict[str, Any]:
    """Return the table in a body; RequestRejected if it is not a JSON object."""
    value = fastjson.load_json(body)
    if not isinstance(value, dict):
        raise RequestRejected(1, "the delay offsets are not a JSON object")
    return value
