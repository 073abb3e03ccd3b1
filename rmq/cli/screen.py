"""Screen: a terminal that is drawn as a whole, and mended when we leave it.

The other screen of the terminal is used, so that what was there comes back; only lines
that differ are written, within a synchronised update.
"""

import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Final, Self

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
BEGIN_UPDATE: Final = "\x1b[?2026h"
END_UPDATE: Final = "\x1b[?2026l"
CLEAR_LINE: Final = "\x1b[K"
MAX_KEYS: Final = 64
"""Bytes that one read takes from the keyboard."""


class Screen:
    """A context: keys come one by one in it."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._size = (0, 0)
        self._saved = termios.tcgetattr(sys.stdin)

    def __enter__(self) -> Self:
        self._begin()
        signal.signal(signal.SIGTSTP, self._suspend)
        signal.signal(signal.SIGCONT, self._resume)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        self._end()

    def _begin(self) -> None:
        tty.setcbreak(sys.stdin)
        self._shown = []
        _write(ENTER)

    def _end(self) -> None:
        _write(LEAVE)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._saved)

    def _suspend(self, _number: int, _frame: FrameType | None) -> None:
        self._end()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)

    def _resume(self, _number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTSTP, self._suspend)
        self._begin()

    def size(self) -> tuple[int, int]:
        """Return columns and lines now."""
        return tuple(shutil.get_terminal_size())  # type: ignore[return-value] # a pair

    def draw(self, lines: Sequence[str], size: tuple[int, int]) -> None:
        """Write the lines that differ from what is shown."""
        if size != self._size:
            self._shown, self._size = [], size
            _write("\x1b[2J")
        out = [
            f"\x1b[{number};1H{line}{CLEAR_LINE}"
            for number, line in enumerate(lines, 1)
            if number > len(self._shown) or self._shown[number - 1] != line
        ]
        if len(self._shown) > len(lines):
            out.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        self._shown = list(lines)
        if out:
            _write(BEGIN_UPDATE + "".join(out) + END_UPDATE)

    def keys(self, wait_s: float) -> str:
        """Return what was typed within this time; empty if nothing was."""
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, wait_s))
        if not ready:
            return ""
        typed = os.read(sys.stdin.fileno(), MAX_KEYS)
        return typed.decode("utf-8", "replace") or "q"  # the terminal is gone


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
