"""Progress: one line on a terminal's stderr, with rate and time left.

    sent  63,412 of 100,000   19,998/s   [############.......]  2 s left
    checked  3,677,736 messages   2,221,670/s   [####...............]  9 s left

Work over a log counts messages for people, and bytes for the bar. Without a terminal
nothing is written. The line never exceeds the terminal's width.
"""

import os
import sys
import time
from types import TracebackType
from typing import Final, Self, TextIO

INTERVAL_S: Final = 0.2
BAR_SIZE: Final = 20
WIDTH: Final = 80


class Progress:
    """Shows the amount that is done and, if `total` is known, the whole amount."""

    def __init__(
        self, verb: str, total: int | None = None, stream: TextIO | None = None
    ) -> None:
        self._verb = verb
        self._total = total
        self._stream = stream or sys.stderr
        self._is_on = self._stream.isatty()
        self._began = self._shown = time.monotonic()
        self._done = 0
        self._messages: int | None = None
        self._note = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_line(is_complete=kind is None)

    def _end_line(self, *, is_complete: bool) -> None:
        if not self._is_on or self._shown == self._began:
            return
        if is_complete and self._total is not None:
            self._done = max(self._done, self._total)
        self._write(time.monotonic())
        self._stream.write("\n")
        self._stream.flush()

    def begin(self, verb: str, total: int | None) -> None:
        """End the work so far, and begin the next part."""
        self._end_line(is_complete=True)
        self._verb, self._total = verb, total
        self._began = self._shown = time.monotonic()
        self._done, self._messages, self._note = 0, None, ""

    def add(self, count: int, messages: int | None = None) -> None:
        """Count more as done: parts of the total, and messages if people count them."""
        if messages is not None:
            self._messages = (self._messages or 0) + messages
        self.update(self._done + count)

    def show_messages(self, done: int, messages: int) -> None:
        """Show the number of finished messages, and their share of the total."""
        self._messages = messages
        self.update(done)

    def finish(self) -> None:
        """End the line."""
        self._end_line(is_complete=False)
        self._shown = self._began

    def update(self, done: int, note: str = "") -> None:
        """Show the progress; write at most once in `INTERVAL_S`."""
        self._done, self._note = done, note
        now = time.monotonic()
        if self._is_on and now - self._shown >= INTERVAL_S:
            self._shown = now
            self._write(now)

    def _write(self, now: float) -> None:
        line = self.format_line(now - self._began)[: _terminal_width(self._stream) - 1]
        self._stream.write(f"\r{line}\x1b[K")
        self._stream.flush()

    def format_line(self, seconds: float) -> str:
        """Return the line after `seconds` of work."""
        done, total, messages = self._done, self._total, self._messages
        rate = done / seconds if seconds > 0 else 0.0
        count = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        shown_rate = rate
        if messages is not None:
            count = f"{messages:,} message" + "s" * (messages != 1)
            shown_rate = messages / seconds if seconds > 0 else 0.0
        parts = [f"{self._verb}  {count}", f"{shown_rate:,.0f}/s"]
        if self._note:
            parts.append(self._note)
        if total:
            filled = min(BAR_SIZE, BAR_SIZE * done // total)
            left_s = max(0, total - done) / rate if rate else 0
            bar = "#" * filled + "." * (BAR_SIZE - filled)
            parts.append(f"[{bar}]  {left_s:,.0f} s left")
        return "   ".join(parts)


def _terminal_width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH
