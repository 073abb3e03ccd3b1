"""Child: a broker process, which the container starts again when it ends without a
request.

The child leads a process group of its own. So Ctrl-C in a terminal reaches only the
container, which then stops all children cleanly. When the container is killed, the
kernel sends SIGTERM to its children.  The children's lines go to the container's log
with the name of the broker.
"""

import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

import trio

logger = logging.getLogger(__name__)

READY = re.compile(
    r"ready broker=\S* address=(?P<address>\S+) namesrv=(?P<namesrv>\S+)"
    r"( metrics=(?P<metrics>\S+))?"
)
"""The line of a broker that serves; see `rmq/cli/server/broker.py`."""

LINE_LIMIT = 1 << 16
"""Maximum bytes of a line; longer lines come in parts."""

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
"""Maximum pause before a start; the pause doubles with each failure."""

STEADY_S = 60.0
"""Run time of a broker after which its next restart has the first pause again."""

LAST_LINES_S = 1.0
"""Time for the lines that an ended process has left."""

NOT_STARTED = 126
"""The exit code of a process that could not be made."""

_PR_SET_PDEATHSIG = 1
_C = ctypes.CDLL(None, use_errno=True)


class BrokerIdentity(NamedTuple):
    """The key of a broker in its container.  Known in Java as `BrokerIdentity`."""

    cluster: str
    name: str
    number: int

    def __str__(self) -> str:
        """Return Java's name, which its remarks have."""
        return f"{self.cluster}_{self.name}_{self.number}"


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent has ended; runs in the child."""
    _C.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class Child:
    """A broker that should run."""

    def __init__(
        self,
        identity: BrokerIdentity,
        arguments: Sequence[str],
        write_line: Callable[[str, str], None],
        *,
        is_slave: bool = False,
    ) -> None:
        """`write_line` gets the broker's name and each line."""
        self.identity = identity
        self.is_slave = is_slave
        self.address = ""
        """Address of the broker; empty while it does not serve."""

        self.metrics_address = ""
        self.starts = 0
        self.last_line = ""
        self.settled = trio.Event()
        """Event: the first start has succeeded or failed."""

        self.ended = trio.Event()
        """Event: the broker does not run, and will not start again."""

        self._arguments = arguments
        self._write_line = write_line
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = trio.CancelScope()
        self._is_stopping = False

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if there is a process."""
        if self._process is not None:
            self._process.send_signal(number)

    async def run(self) -> None:
        """Keep the broker running until `stop`."""
        pause_s = FIRST_PAUSE_S
        try:
            with self._wanted:
                while not self._is_stopping:
                    began = trio.current_time()
                    code = await self._run_once()
                    self.settled.set()
                    if self._is_stopping:
                        break
                    if trio.current_time() - began >= STEADY_S:
                        pause_s = FIRST_PAUSE_S
                    logger.error(
                        "broker %s ended with %s; the container restarts it in %.0f s",
                        self.identity.name,
                        _exit_text(code),
                        pause_s,
                    )
                    await trio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        finally:
            self.settled.set()
            self.ended.set()

    async def stop(self, timeout_s: float) -> None:
        """Request a clean shutdown; kill the process after the time-out."""
        self._is_stopping = True
        if self._process is None:
            self._wanted.cancel()
        self.send(signal.SIGTERM)
        with trio.move_on_after(timeout_s) as scope:
            await self.ended.wait()
        if scope.cancelled_caught:
            logger.error(
                "broker %s did not stop in %.0f s: killing it",
                self.identity.name,
                timeout_s,
            )
            self.send(signal.SIGKILL)
            await self.ended.wait()

    async def _run_once(self) -> int:
        """Start the process and wait for its end; return its exit code."""
        command = [sys.executable, "-m", "rmq", "broker", *self._arguments]
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 - it takes 2 ms, and a child of another thread would die with that
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                process_group=0,
                preexec_fn=die_with_parent,
            )
        except OSError as error:  # no memory, or too many processes
            self.last_line = f"cannot start the broker: {error.strerror}"
            return NOT_STARTED
        self._process = process
        self.starts += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, process)
                await _wait_for_end(process)
                nursery.cancel_scope.deadline = trio.current_time() + LAST_LINES_S
        finally:
            if process.poll() is None:
                process.kill()
            self._process = None
            self.address = self.metrics_address = ""
        return process.wait()

    async def _read(self, process: subprocess.Popen[bytes]) -> None:
        """Pass the broker's lines to `write_line`; record the addresses in the line
        that reports that the broker is ready.
        """
        assert process.stderr is not None
        pipe = trio.lowlevel.FdStream(os.dup(process.stderr.fileno()))
        process.stderr.close()
        async with aclosing(_lines(pipe)) as lines:
            async for line in lines:
                self.last_line = line
                self._write_line(self.identity.name, line)
                found = READY.match(line)
                if found:
                    self.address = found["address"]
                    self.metrics_address = found["metrics"] or ""
                    self.settled.set()


async def _wait_for_end(process: subprocess.Popen[bytes]) -> None:
    descriptor = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)


async def _lines(pipe: trio.lowlevel.FdStream) -> AsyncGenerator[str]:
    """Yield the lines that come, and close the pipe at their end."""
    async with pipe:
        data = b""
        async for piece in pipe:
            *whole, data = (data + piece).split(b"\n")
            if len(data) > LINE_LIMIT:
                whole, data = [*whole, data], b""
            for line in whole:
                yield line.decode(errors="replace")
        if data:
            yield data.decode(errors="replace")


def _exit_text(code: int) -> str:
    """Return how a process has ended."""
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
