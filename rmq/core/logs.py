"""Limits for text from outside in the log: it is short and rare, and cannot begin a new
line.

Text from outside goes into a log line as `Foreign(text)`: shortened, and without
control characters, which could begin forged lines. A logger for events that hosts
without trust cause has `SparseLog` as a filter, and its lines name the cause by
`extra=caused_by(address)`.
"""

import logging
from types import TracebackType
from typing import Final

from rmq.core.address import host_of, is_address

FOREIGN_LIMIT: Final = 200
"""Maximum characters of one text from outside: names have at most 255, and mostly 40.
"""

LINES: Final = 20
"""Maximum lines of one logger per second."""

LINES_OF_ADDRESS: Final = 5
"""Maximum lines with one text for one address per minute."""

ADDRESS_LIMIT: Final = 1024
"""Maximum number of pairs of text and address that are counted; further pairs share one
count until the minute is over.
"""

TRACE_LINES: Final = 60
TRACE_LINE_LIMIT: Final = 300

ExceptionInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None]
    | tuple[None, None, None]
)


class Foreign:
    """A text from outside in a log line; converted only if the line is written."""

    __slots__ = ("_limit", "_value")

    def __init__(self, value: object, limit: int = FOREIGN_LIMIT) -> None:
        self._value = value
        self._limit = limit

    def __str__(self) -> str:
        text = str(self._value)
        shown = escape_text(text[: self._limit])
        if len(text) <= self._limit and len(shown) <= self._limit:
            return shown
        return f"{shown[: self._limit]}... ({len(text)} characters)"


def escape_text(text: str) -> str:
    """Return the text with escapes for all characters that cannot be printed."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in text
    )


def caused_by(address: str) -> dict[str, str]:
    """Return the `extra` of a log record whose cause is an address: `host:port`, or a
    host.
    """
    return {"address": host_of(address) if is_address(address) else address}


class SparseLog(logging.Filter):
    """Passes the first lines of each second, and the first lines of each address per
    minute.

    The times of the log records are the clock. The next line that passes has the number
    of suppressed lines.
    """

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._passed = 0
        self._minute = 0
        self._by_address: dict[tuple[object, str], int] = {}
        self._dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Count a record; False if there were too many of its kind."""
        second = int(record.created)
        if second != self._second:
            self._second, self._passed = second, 0
        if second // 60 != self._minute:
            self._minute = second // 60
            self._by_address.clear()
        if self._passed >= LINES or not self._may_pass(record):
            self._dropped += 1
            return False
        self._passed += 1
        if self._dropped:
            record.msg = f"{record.msg} ({self._dropped} more lines were suppressed)"
            self._dropped = 0
        return True

    def _may_pass(self, record: logging.LogRecord) -> bool:
        address = getattr(record, "address", None)
        if address is None:
            return True
        kind = record.msg, address
        if kind not in self._by_address and len(self._by_address) >= ADDRESS_LIMIT:
            kind = "", ""
        count = self._by_address[kind] = self._by_address.get(kind, 0) + 1
        return count <= LINES_OF_ADDRESS


class LineFormatter(logging.Formatter):
    """Writes a record as one line; the lines of a traceback are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line."""
        record.message = escape_text(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: ExceptionInfo) -> str:
        """Return the end of a traceback, because errors repeat texts from outside."""
        lines = super().formatException(ei).splitlines()[-TRACE_LINES:]
        return "\n".join(f"  {Foreign(line, TRACE_LINE_LIMIT)}" for line in lines)
