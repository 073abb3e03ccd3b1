"""What an operator sees of a running broker: the console's API, `rmq doctor`, top."""

import fcntl
import http.client
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import contextmanager

from tests.interop.processes import ROOT, broker_arguments, free_port, serving

NAMED_S = 15
GONE_S = 45
SIZE = 40, 250
LINE = re.compile(r"\x1b\[(\d+);1H(?:\x1b\[\d+m)?([^\x1b]*)(?:\x1b\[0m)?\x1b\[K")
TIMES = {}
"""Seconds until each door showed an incident, and until none did any more."""


class Top:
    """`rmq top` on a terminal, and the lines that it shows."""

    def __init__(self, namesrv):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", *SIZE, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rmq", "top", "-n", namesrv],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT,
            env={k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")},
        )  # fmt: skip
        os.close(theirs)
        self._terminal = ours
        self._lines = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        kept = ""
        while True:
            try:
                data = os.read(self._terminal, 65_536)
            except OSError:  # the other end is closed
                return
            kept += data.decode(errors="replace")
            end = 0
            for match in LINE.finditer(kept):
                self._lines[int(match[1])] = match[2]
                end = match.end()
            kept = kept[end:]

    @property
    def screen(self):
        return "\n".join(text for _, text in sorted(self._lines.items()))

    def end(self):
        self._process.kill()
        self._process.wait()
        self._reader.join(5)
        os.close(self._terminal)


class Doors:
    """All doors of one broker."""

    def __init__(self, server, port, top):
        self.server, self._port, self._top = server, port, top

    def api(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        connection.request("GET", f"/api/{path}")
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert answer.status == 200, (path, body)
        return json.loads(body)

    def doctor(self):
        command = [sys.executable, "-m", "rmq", "doctor", "-n", self.server.namesrv]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
        ).stdout

    def of(self, view):
        """How to ask each door, the quickest to ask first."""
        return {
            "problems": lambda: _text(self.api("problems")["rows"]),
            view: lambda: _text(self.api(view)),
            "top": lambda: self._top.screen,
            "doctor": self.doctor,
        }


def _text(value):
    return json.dumps(value, ensure_ascii=False)


class Incident:
    """An incident that begins now: the doors must show its sentence in time."""

    def __init__(self, doors, name, view, sentence):
        self._doors, self._name = doors.of(view), name
        self._sentence = re.compile(sentence)
        assert not self._is_in(self._doors["problems"]())
        self._began = time.monotonic()

    def _is_in(self, text):
        return bool(self._sentence.search(text))

    def is_named(self):
        """Wait until all doors show the sentence."""
        self._wait(NAMED_S, True)

    def is_mended(self):
        """Wait, from now on, until no door shows it."""
        self._began = time.monotonic()
        self._wait(GONE_S, False)

    def _wait(self, most_s, is_wanted):
        left = dict(self._doors)
        while left:
            for door, ask in list(left.items()):
                text = ask()
                passed_s = time.monotonic() - self._began
                if self._is_in(text) == is_wanted:
                    del left[door]
                    times = TIMES.setdefault(self._name, {})
                    times.setdefault(door.partition("?")[0], []).append(passed_s)
                assert passed_s < most_s, (
                    f"{door} after {passed_s:.0f} s: "
                    f"{self._sentence.pattern!r} {is_wanted=}\n{text}"
                )
            time.sleep(0.1)


@contextmanager
def watched(folder, *settings, inside=()):
    """A broker with its console, somebody who looks at it, and `rmq top`."""
    port = free_port()
    settings = ("rmq.console=true", f"rmq.consolePort={port}", *settings)
    with serving(*broker_arguments(folder, *settings), inside=inside) as server:
        top = Top(server.namesrv)
        try:
            yield Doors(server, port, top)
        finally:
            top.end()
