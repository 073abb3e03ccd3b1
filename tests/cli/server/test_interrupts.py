"""Ctrl-C and SIGTERM at any moment of a start and of a stop: no traceback."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.interop.processes import ROOT
from tests.waiting import wait_until

MOMENTS = 60
START_S = 1.5
"""A start takes less on an idle machine."""

STOP_S = 0.3
LINE = "rmq: stopped before it was ready; the next start checks the log\n"
SERVERS = {
    "broker": ("--set", "rmq.namesrv.listenPort=0"),
    "namesrv": (),
    "controller": ("--set", "rmq.controller.listenPort=0"),
    "container": (
        "--set",
        "brokerConfigPaths=",
        "--set",
        "rmq.namesrv.listenPort=0",
    ),
}


class Starting:
    """A server that starts; its handlers are there when this returns."""

    def __init__(self, folder, name="broker"):
        environment = os.environ | {"HOME": str(folder)}
        settings = ["--set", "listenPort=0", *SERVERS[name]]
        if name == "broker":
            settings += ["--set", f"storePathRootDir={folder / 'store'}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rmq", name, *settings],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.begun = time.monotonic()
        wait_until(self.catches, "the process has handlers", 10)

    def catches(self):
        """Whether the process handles SIGTERM: Python itself only handles SIGINT."""
        try:
            text = Path(f"/proc/{self.process.pid}/status").read_text()
        except FileNotFoundError:
            return True
        mask = int(re.search(r"SigCgt:\s+(\w+)", text)[1], 16)
        return mask >> (signal.SIGTERM - 1) & 1

    def await_moment(self, seconds):
        time.sleep(max(0, self.begun + seconds - time.monotonic()))

    def end(self, number):
        self.process.send_signal(number)
        _, text = self.process.communicate(timeout=30)
        return self.process.returncode, text


def check(code, text, number):
    """The end is silent, has one sentence, or is an orderly stop."""
    assert "Traceback" not in text, text
    assert "Error" not in text, text
    assert "Aborted" not in text, text
    assert "report this" not in text, text
    if "ready " in text:
        assert code == 0, text
    else:
        assert code in (128 + number, 0), (code, text)
        assert "rmq: " not in text or LINE in text, text


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("part", range(3))
def test_a_broker_that_starts(disk_path, number, part):
    """The store is the same in all moments: a start comes after each end."""
    for moment in range(part, MOMENTS, 3):
        starting = Starting(disk_path)
        starting.await_moment(START_S * moment / MOMENTS)
        check(*starting.end(number), number)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", SERVERS)
def test_other_servers_that_start(disk_path, name):
    for moment in range(10):
        starting = Starting(disk_path, name)
        starting.await_moment(START_S * moment / 10)
        check(*starting.end(signal.SIGINT), signal.SIGINT)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(3))
def test_a_broker_that_stops(disk_path, part):
    """A second interrupt ends it at once; the next start checks the log."""
    for moment in range(part, MOMENTS, 3):
        starting = Starting(disk_path)
        for line in starting.process.stderr:
            if line.startswith("ready "):
                break
        starting.process.send_signal(signal.SIGINT)
        time.sleep(STOP_S * moment / MOMENTS)
        code, text = starting.end(signal.SIGINT)
        assert "Traceback" not in text, text
        assert "Error" not in text, text
        forced = "stopped at once; the next start checks the log\n" in text
        ends = (0, 1, 128 + signal.SIGINT, -signal.SIGINT)  # the last by Python's end
        assert code in ((1,) if forced else ends), (code, text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_moment(tmp_path, number):
    starting = Starting(tmp_path)
    code, text = starting.end(number)
    check(code, text, number)
    assert code == 128 + number
