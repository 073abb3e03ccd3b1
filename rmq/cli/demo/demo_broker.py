"""DemoBroker: a process with a broker, on free ports, with a store to throw away."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from rmq.container.child import READY, die_with_parent
from rmq.core.errors import ConfigError

STOP_LIMIT_S: Final = 10.0
LOOK_PAUSE_S: Final = 0.02


class DemoBroker(NamedTuple):
    """The addresses of a broker that runs."""

    name_server: str
    console: str

    @classmethod
    @contextmanager
    def run_in(cls, folder: Path) -> Iterator[Self]:
        """Start a broker with its store in a folder; stop it at the end.

        ConfigError with the broker's last line if it does not start.
        """
        port = _free_port()
        values = {
            "brokerName": "demo",
            "listenPort": 0,
            "rmq.namesrv.listenPort": 0,
            "storePathRootDir": folder,
            "rmq.console": "true",
            "rmq.consolePort": port,
        }
        settings = [
            text for key in values for text in ("--set", f"{key}={values[key]}")
        ]
        command = [sys.executable, "-m", "rmq", "broker", "--log-level", "warning"]
        log = folder / "broker.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [*command, *settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=_own_environment() | {"HOME": str(folder)},
                process_group=0,  # Ctrl-C of a terminal ends the traffic first
                preexec_fn=die_with_parent,
            )
        try:
            name_server = _wait_ready(process, log)
            yield cls(name_server, f"http://127.0.0.1:{port}")
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_LIMIT_S)
            process.kill()
            process.wait()


def _own_environment() -> dict[str, str]:
    """Return the environment without the keys of a broker, such as name servers."""
    return {
        name: text
        for name, text in os.environ.items()
        if name != "NAMESRV_ADDR" and not name.startswith("RMQ_")
    }


def _wait_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the address of the name server from the line `ready` of the log."""
    while process.poll() is None:
        for line in log.read_text(errors="replace").splitlines():
            if found := READY.match(line):
                return found["namesrv"]
        time.sleep(LOOK_PAUSE_S)
    text = log.read_text(errors="replace").strip() or "it printed nothing"
    raise ConfigError(f"the broker did not start: {text.splitlines()[-1]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
