"""rmq as child processes, the way users start it."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READY = re.compile(
    r"ready (?:(?:broker=(\S+) address|container)=(\S+) )?"
    r"(?:namesrv=(\S+))? ?(?:controller=(\S+))?"
)

READY_S = float(os.environ.get("RMQ_INTEROP_READY_S", "20"))
"""Time in which a process must be ready; a busy machine needs more."""


class Server:
    """`python -m rmq broker`, `namesrv` or `controller`; ready when this object exists.

    `inside`: a command that starts it; `folder`: where.
    """

    def __init__(
        self,
        *arguments: str,
        timeout_s: float = READY_S,
        inside: tuple[str, ...] = (),
        folder: Path = ROOT,
    ) -> None:
        self._process = subprocess.Popen(
            [*inside, sys.executable, "-m", "rmq", *arguments],
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(timeout_s):
            self.kill()
            raise AssertionError("not ready:\n" + "".join(self.lines))

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line)
            match = READY.match(line)
            if match:
                self.broker, self.address, self.namesrv, self.controller = (
                    match.groups()
                )
                self._ready.set()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._ended()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._ended()

    def pause(self) -> None:
        """SIGSTOP: it does nothing, and its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _ended(self) -> int:
        code = self._process.wait(20)
        self._reader.join(5)
        if self._process.stderr is not None:
            self._process.stderr.close()
        return code

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


@contextmanager
def serving(*arguments: str, inside: tuple[str, ...] = ()) -> Iterator[Server]:
    server = Server(*arguments, inside=inside)
    try:
        yield server
    finally:
        if server.is_running:
            server.kill()


def free_port() -> int:
    """A port that is free with the two below it, where a broker listens too.

    It lies below those that the system gives to outgoing connections: a JVM takes
    seconds until it binds.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        if all(_is_free(port - below) for below in range(3)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def broker_arguments(folder: Path, *settings: str) -> list[str]:
    """A broker on free ports that keeps its files in `folder`.

    RMQ_INTEROP_SETTINGS adds keys to all of them, such as rmq.nativeHandlers=false.
    """
    arguments = ["broker", "--log-level", "warning"]
    for setting in (
        "listenPort=0",
        "rmq.namesrv.listenPort=0",
        f"storePathRootDir={folder}",
        *os.environ.get("RMQ_INTEROP_SETTINGS", "").split(),
        *settings,
    ):
        arguments += ["--set", setting]
    return arguments
