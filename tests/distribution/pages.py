"""Runs the commands of a page: its `sh` blocks in order, in one folder.

A block that begins with `rmq broker` or `rmq namesrv` is a server: it gets free ports,
and the other blocks come when it is ready. `127.0.0.1:9876` and `:10911` become its
real addresses. Variables that a block exports are there in the next ones, as in a shell
that stays open.
"""

import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.processes import free_port

BLOCK = re.compile(r"^( *)```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
READY = re.compile(r"ready broker=\S+ address=(\S+) namesrv=(\S+)")
LIMIT_S = 300


def blocks(page: Path) -> list[str]:
    found = []
    for indent, text in BLOCK.findall(page.read_text()):
        found.append(
            "".join(line.removeprefix(indent) for line in text.splitlines(True))
        )
    return found


def _free_ports() -> str:
    """Options for ports as by default: rmq doctor looks for the fast one two below."""
    return f"--set listenPort={free_port()} --set rmq.namesrv.listenPort=0"


class Shell:
    """The reader's terminals."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._server: subprocess.Popen[str] | None = None
        self._addresses: dict[str, str] = {}

    def run(self, block: str) -> str:
        """Run a block; AssertionError with its output if a command of it fails."""
        if block.startswith(("rmq broker", "rmq namesrv")):
            self._serve(block.strip())
            return ""
        block = self.with_real_addresses(block)
        script = f"{self._checked(block)}\nexport -p > .variables"
        if (self._folder / ".variables").exists():
            server = shlex.quote(self._environment.get("NAMESRV_ADDR", ""))
            script = f". ./.variables\nexport NAMESRV_ADDR={server}\n{script}"
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        return done.stdout

    def with_real_addresses(self, text: str) -> str:
        """Replace the addresses that a page shows."""
        for shown, real in self._addresses.items():
            text = text.replace(shown, real)
        return text

    @staticmethod
    def _checked(block: str) -> str:
        """`! command` does not end a shell with -e if the command succeeds."""
        return re.sub(
            r"^! (.*)$", r"if \1; then exit 99; fi", block, flags=re.MULTILINE
        )

    def _serve(self, command: str) -> None:
        assert self.close() == 0, "the server before it"
        own = {k: v for k, v in self._environment.items() if k != "NAMESRV_ADDR"}
        self._server = subprocess.Popen(
            ["bash", "-c", f"exec {command} {_free_ports()}"],
            cwd=self._folder,
            env=own,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._server.stderr is not None
        lines = []
        for line in self._server.stderr:
            lines.append(line)
            match = READY.match(line)
            if match:
                address, name_server = match.groups()
                self._addresses = {
                    "127.0.0.1:9876": name_server, "127.0.0.1:10911": address,
                }  # fmt: skip
                self._environment = self._environment | {"NAMESRV_ADDR": name_server}
                return
        raise AssertionError("".join(lines))

    def close(self) -> int:
        """Stop the server as its user would; return its exit code."""
        if self._server is None:
            return 0
        self._server.send_signal(signal.SIGTERM)
        self._server.communicate()
        return self._server.wait(30)


@contextmanager
def shell(folder: Path, environment: dict[str, str]) -> Iterator[Shell]:
    opened = Shell(folder, environment)
    try:
        yield opened
    finally:
        code = opened.close()
    assert code == 0
