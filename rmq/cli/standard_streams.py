"""stdin, stdout and stderr of the process: missing, full, or not in UTF-8.

A shell can close a descriptor (`>&-`), and a daemon may not have it. Then /dev/null
gets the number of this descriptor, so that no socket gets it. A write to a missing
stdout fails. Output that cannot be written is an `OutputFailed`. Characters that a
terminal cannot show are written as escapes.
"""

import contextlib
import errno
import io
import os
import sys
from typing import Final, TextIO

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2


class OutputFailed(OSError):
    """Stdout cannot be written."""

    @property
    def reason(self) -> str:
        """Reason why the output cannot be written."""
        if self.errno == errno.EBADF:
            return "it is closed"
        return (self.strerror or "unknown reason").lower()


class _Output(io.FileIO):
    """The descriptor of stdout."""

    def write(self, data: "bytes | memoryview", /) -> int:  # type: ignore[override] # of FileIO: any buffer
        """Write as FileIO does; a closed pipe raises the error that click expects."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputFailed(error.errno, error.strerror) from error


class _Messages(io.FileIO):
    """The descriptor of stderr: a message that cannot be written is lost."""

    def write(self, data: "bytes | memoryview", /) -> int:  # type: ignore[override] # as above
        """Write as FileIO does, without errors."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def open_standard_streams() -> None:
    """Make the three streams safe to use; streams that a program has replaced stay."""
    for number in (STDIN, STDOUT, STDERR):
        _open_if_missing(number)
    if sys.stdin is None:
        sys.stdin = open(STDIN, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    if sys.stdout is sys.__stdout__:
        sys.stdout = _wrap(_Output(STDOUT, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _wrap(_Messages(STDERR, "w", closefd=False), sys.stderr)


def _open_if_missing(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        mode = os.O_WRONLY if number == STDERR else os.O_RDONLY
        os.open(os.devnull, mode)  # `open` returns the lowest free number


def _wrap(output: io.FileIO, stream: TextIO | None) -> io.TextIOWrapper:
    """Return a text stream to a descriptor, with the settings of Python's stream."""
    encoding, errors, is_buffered_by_line = "utf-8", "strict", False
    if isinstance(stream, io.TextIOWrapper):
        encoding, errors = stream.encoding, stream.errors or errors
        is_buffered_by_line = bool(stream.line_buffering)
    return io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding,
        "backslashreplace" if errors == "strict" else errors,
        line_buffering=is_buffered_by_line,
    )


def discard_stdout() -> None:
    """Prevent writes to stdout at the end of the process."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, STDOUT)
        os.close(null)
