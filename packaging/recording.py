"""Records the first minute: clone, run, send, consume, as text with times.

    python packaging/recording.py [PAGE]

Plays docs/start/quickstart.md's commands in two terminals of 80 columns, with a home
folder of its own, and writes what they show between the marks of the page. It needs the
ports of a broker, and takes as long as a compilation. A line that a terminal writes
again and again is recorded as it was at last.
"""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- recording: begin -->\n", "<!-- recording: end -->\n"
LIMIT_S = 600
ROWS, COLUMNS = 24, 80
CTRL_C = b"\x03"


class Terminal:
    """A command in a terminal; each line that it shows goes to the recording."""

    def __init__(self, recording: "Recording", command: str, folder: Path) -> None:
        self._recording = recording
        self._ours, theirs = pty.openpty()
        size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=recording.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            # Ctrl-C goes to the session that owns the terminal
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._shown = ""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        os.close(self._ours)

    def _read(self) -> None:
        rest = ""
        while True:
            try:
                data = os.read(self._ours, 65_536)
            except OSError:  # the other end is closed
                break
            *lines, rest = (rest + data.decode("utf-8", "replace")).split("\n")
            with self._changed:
                self._shown += data.decode("utf-8", "replace")
                for line in lines:
                    self._recording.add(line.rstrip("\r").rpartition("\r")[2])
                self._changed.notify_all()

    def wait(self, pattern: str) -> re.Match[str]:
        """Wait until a pattern is shown."""
        with self._changed:
            self._changed.wait_for(lambda: re.search(pattern, self._shown), LIMIT_S)
            match = re.search(pattern, self._shown)
        if match is None:
            sys.exit(f"{pattern!r} was not shown:\n{self._shown}")
        return match

    def type(self, data: bytes) -> None:
        """Press keys."""
        os.write(self._ours, data)

    def end(self) -> None:
        """Wait for the end of the command; stop unless it is a good one."""
        code = self._process.wait(LIMIT_S)
        self._reader.join()
        if code not in (0, -signal.SIGINT):
            sys.exit(f"exit code {code}:\n{self._shown}")


class Recording:
    """Lines with the seconds since the start."""

    def __init__(self, home: Path) -> None:
        self._started = time.monotonic()
        self.lines: list[str] = []
        self.hidden: list[tuple[str, str]] = []
        """What a reader would not have typed, and what he would have."""

        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "RMQ_", "VIRTUAL_ENV", "MAKE"))
            and name not in ("NAMESRV_ADDR", "XDG_CONFIG_HOME")
        }
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.environment = kept | {
            "HOME": str(home), "TERM": "xterm", "PIP_CACHE_DIR": str(cache / "pip"),
        }  # fmt: skip

    def add(self, line: str) -> None:
        """Add a line that was shown now."""
        for real, shown in self.hidden:
            line = line.replace(real, shown)
        seconds = time.monotonic() - self._started
        self.lines.append(f"{seconds:5.0f} s  {line}".rstrip())

    def text(self) -> str:
        """Return the block for the page."""
        return "\n".join(("```text", *self.lines, "```", ""))


def record(home: Path, arguments: str = "") -> str:
    """Play everything in an empty home folder; `arguments` are for the broker."""
    recording = Recording(home)
    recording.hidden = [(f"{home}/", "~/"), (str(ROOT), "…/rmq")]
    if arguments:
        recording.hidden.append((f" {arguments}", ""))
    checkout = home / "rmq"
    recording.add("$ git clone -q …/rmq")
    with Terminal(recording, f"git clone -q {ROOT} rmq", home) as terminal:
        terminal.end()
    recording.add("$ cd rmq; make run")
    with Terminal(recording, f'make run ARGS="{arguments}"', checkout) as first:
        name_server = first.wait(r"ready .*namesrv=(\S+)")[1]
        first.wait("No message is lost")
        recording.environment["NAMESRV_ADDR"] = name_server
        recording.add("")
        recording.add("in a second terminal")
        words = 'send Hello "hello, rmq"'
        recording.add(f"$ .venv/bin/rmq {words}")
        with Terminal(recording, f".venv/bin/rmq {words}", checkout) as second:
            second.end()
        recording.add("$ .venv/bin/rmq consume Hello")
        with Terminal(recording, ".venv/bin/rmq consume Hello", checkout) as second:
            second.wait("hello, rmq")
            second.type(CTRL_C)
            second.end()
        recording.add("")
        recording.add("in the first one")
        first.type(CTRL_C)
        first.end()
    return recording.text()


def put(text: str, page: Path) -> None:
    """Replace what is between the marks of a page."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, mark, after = rest.partition(END)
    assert mark, page
    page.write_text(before + BEGIN + text + END + after)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        recorded = record(Path(folder))
    put(
        recorded,
        Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs/start/quickstart.md",
    )
    print(recorded)
