"""Containers as users start them, with brokers on free ports."""

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import wait_until

READY = re.compile(
    r"ready container=(\S+) namesrv=(\S+) brokers=(\S*)( metrics=(\S+))?\n"
)
CHILD = re.compile(r"\[(\S+)\] ready broker=(\S+) address=(\S+)")


class Running:
    """A container process; what its log has said so far."""

    def __init__(self, *arguments):
        environment = {k: v for k, v in os.environ.items() if k != "NAMESRV_ADDR"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rmq", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.lines = []
        self.address = None
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait(lambda: self.address, "the container is ready")

    def _read(self):
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                found = READY.match(line)
                if found:
                    self.address, self.namesrv, names, _, self.metrics = found.groups()
                    self.names = names.split(",") if names else []
                self._changed.notify_all()

    def wait(self, condition, what, timeout_s=30):
        with self._changed:
            met = self._changed.wait_for(condition, timeout_s)
        assert met, what + ":\n" + "".join(self.lines)

    def addresses(self, name):
        """Where a broker has served, in the order of its starts."""
        found = [CHILD.match(line) for line in list(self.lines)]
        return [each[3] for each in found if each and each[1] == name]

    def pids(self):
        """Its children, by the names of their brokers."""
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        found = {}
        for pid in Path(children).read_text().split():
            words = Path(f"/proc/{pid}/cmdline").read_text()
            for name in re.findall(r"(broker-\w+|own-\d)", words)[-1:]:
                found[name] = int(pid)
        return found

    def page(self, path):
        """Status and text of a page."""
        try:
            with urllib.request.urlopen(
                f"http://{self.metrics}{path}", timeout=20
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def stop(self, timeout_s=30):
        self.process.send_signal(signal.SIGTERM)
        return self.wait_for_end(timeout_s)

    def wait_for_end(self, timeout_s=20):
        """Read the last lines; the exit code."""
        code = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        self.process.stderr.close()
        return code


@pytest.fixture
def started():
    """Starts containers and ends them."""
    containers = []

    def start(*arguments):
        containers.append(Running(*arguments))
        return containers[-1]

    yield start
    for one in containers:
        pids = one.pids().values() if one.process.poll() is None else ()
        one.process.kill()
        for pid in pids:
            with_pid_gone(pid)
        one.wait_for_end()


def with_pid_gone(pid, timeout_s=20):
    """Wait until a process has ended."""
    process = f"/proc/{pid}"
    what = f"process {pid} still runs"
    wait_until(lambda: not os.path.exists(process), what, timeout_s)


@pytest.fixture
def broker_file(tmp_path):
    """Writes the file of a broker."""

    def write(name, **settings):
        values = {
            "brokerName": name, "listenPort": 0, "bindAddress": "127.0.0.1",
            "storePathRootDir": tmp_path / name, "mappedFileSizeCommitLog": 1 << 20,
        } | settings  # fmt: skip
        path = tmp_path / f"{name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return path

    return write


@pytest.fixture
def container(started, broker_file):
    """Starts a container with brokers broker-a, broker-b and so on."""

    def start(count, *settings, brokers=()):
        files = [broker_file(f"broker-{'abc'[number]}") for number in range(count)]
        paths = ":".join(map(str, [*files, *brokers]))
        arguments = ["container", "-b", paths]
        for setting in ("listenPort=0", "rmq.namesrv.listenPort=0", *settings):
            arguments += ["--set", setting]
        return started(*arguments)

    return start


@contextmanager
def silent(pid):
    """Stop a process; it goes on at the end."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
