"""Celery's workers as processes, and the files that their tasks write."""

import importlib
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from tests.interop.processes import ROOT, Server, broker_arguments, free_port

APP = "tests.integrations.celery_app"
READY = "ready."


def import_app(patch, url: str):
    """The module of the application, newly imported for a broker."""
    patch.setenv("RMQ_TEST_URL", url)
    sys.modules.pop(APP, None)
    return importlib.import_module(APP)


class Worker:
    """`celery worker`; `log` is the path of its output."""

    def __init__(self, log: Path, url: str, *options: str, **variables: str) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", APP, "worker", *options],
                cwd=ROOT,
                env={**os.environ, "RMQ_TEST_URL": url, **variables},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.text
        return READY in self.text

    def stop(self) -> int:
        """Warm shutdown; the exit code."""
        self.process.terminate()
        return self.process.wait(30)

    def kill(self) -> None:
        """SIGKILL to the worker and the processes of its pool."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
        self.process.wait(10)


@contextmanager
def working(log: Path, url: str, *options: str, **variables: str):
    worker = Worker(log, url, *options, **variables)
    try:
        yield worker
    finally:
        worker.kill()


class Broker:
    """A broker that can be killed, and started again on its ports."""

    def __init__(self, folder: Path, *settings: str) -> None:
        port = free_port()
        self.arguments = broker_arguments(
            folder,
            *settings,
            f"listenPort={port}",
            f"rmq.namesrv.listenPort={port + 3}",
        )
        self.start()

    def start(self) -> None:
        self.server = Server(*self.arguments)
        self.url = f"rmq://{self.server.namesrv}//"

    def stop(self) -> None:
        if self.server.is_running:
            self.server.kill()


def lines_of(path: Path) -> list[str]:
    """First two words of each line: `begin x`, `end x`."""
    if not path.exists():
        return []
    return [" ".join(line.split()[:2]) for line in path.read_text().splitlines()]
