"""TerminalScreen: draws a full screen and restores the terminal at the end.

It uses the alternate screen, so the terminal shows its earlier content again. Only
changed lines are written, in one synchronised update.
"""

import os
import re
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Mapping, Sequence
from types import FrameType, TracebackType
from typing import Final, Self

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
BEGIN_UPDATE: Final = "\x1b[?2026h"
END_UPDATE: Final = "\x1b[?2026l"
CLEAR_LINE: Final = "\x1b[K"
PLAIN: Final = "\x1b[0m"
STYLES: Final = {"head": "\x1b[1m", "chosen": "\x1b[7m", "dim": "\x1b[2m"}
COLOURS: Final = {"bad": "\x1b[31m", "warn": "\x1b[33m"}
"""Escape sequences of colours; not used if the variable NO_COLOR is set."""

KEYS: Final = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down",
    "\x1b[C": ">", "\x1bOC": ">", "\x1b[D": "<", "\x1bOD": "<",
}  # fmt: skip
"""Names of keys by the escape sequences that terminals send."""

MAX_KEY_BYTES: Final = 64
"""Maximum bytes of one read from the keyboard."""


_KEY: Final = re.compile(r"\x1b[\[O][A-Z]|.", re.DOTALL)


class TerminalScreen:
    """A context in which keys come one by one, and lines can be drawn."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._size = (0, 0)
        self._codes = {**STYLES, **({} if os.environ.get("NO_COLOR") else COLOURS)}
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
        """Return the current number of columns and lines."""
        return tuple(shutil.get_terminal_size())  # type: ignore[return-value] # a pair

    def draw_lines(
        self, lines: Sequence[str], styles: Mapping[int, str], size: tuple[int, int]
    ) -> None:
        """Write the lines that have changed; `styles` are by line number."""
        lines = [
            f"{self._codes[styles[number]]}{line}{PLAIN}"
            if self._codes.get(styles.get(number, ""))
            else line
            for number, line in enumerate(lines)
        ]
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
        self._shown = lines
        if out:
            _write(BEGIN_UPDATE + "".join(out) + END_UPDATE)

    def read_keys(self, wait_s: float) -> list[str]:
        """Return the keys typed within `wait_s`: characters, `up`, `down` or `gone`."""
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, wait_s))
        if not ready:
            return []
        typed = os.read(sys.stdin.fileno(), MAX_KEY_BYTES)
        if not typed:  # the terminal was closed
            return ["gone"]
        return split_keys(typed.decode("utf-8", "replace"))


def split_keys(typed: str) -> list[str]:
    r"""Return the names of the keys in a text from a terminal.

    >>> split_keys("j\x1b[Ag")
    ['j', 'up', 'g']
    """
    return [KEYS.get(each, each) for each in _KEY.findall(typed)]


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
