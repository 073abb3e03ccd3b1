"""Commands that run until they are ended, and the signals that end them."""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rmq.testing import BrokerThread
from tests.waiting import wait_until

ENDS = {signal.SIGINT: 0, signal.SIGTERM: 143, signal.SIGHUP: 129}
LIMIT_S = 2.0
"""Time from the signal to the end."""

AS_FIRST = ["unshare", "-pf", "--kill-child", "--mount-proc"]
"""Makes a command process 1 of its own, as in a container."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerThread(tmp_path_factory.mktemp("broker")) as running:
        running.create_topic("T", 1)
        running.send("T", b"shown")
        yield running


@contextmanager
def started(*line, **options):
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        **options,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def rmq(broker, name, *words):
    return [sys.executable, "-m", "rmq", name, "-n", broker.name_server, *words]


def end(process, number):
    """Send the signal; the code, what it printed, and the seconds."""
    began = time.monotonic()
    process.send_signal(number)
    output, errors = process.communicate(timeout=20)
    return process.returncode, output, errors, time.monotonic() - began


def until_shown(process, broker):
    """Send messages until the command has printed something."""
    while not select.select([process.stdout], [], [], 0.1)[0]:
        broker.send("T", b"shown")
        assert process.poll() is None


def until_connected(process):
    """Wait until the command has asked a server; then it waits for something."""
    folder = Path(f"/proc/{process.pid}/fd")

    def has_socket():
        assert process.poll() is None
        with suppress(FileNotFoundError):
            return any("socket:" in os.readlink(each) for each in folder.iterdir())
        return False

    wait_until(has_socket, "a connection")
    time.sleep(0.3)


def check(ended, number, codes=ENDS):
    code, _, errors, seconds = ended
    assert b"Traceback" not in errors, errors.decode()
    assert code == codes[number], errors.decode()
    assert seconds < LIMIT_S


@pytest.mark.slow
@pytest.mark.parametrize("number", ENDS)
def test_consume_commits_what_it_has_shown(broker, number):
    group = f"g-{number.name}"
    line = rmq(broker, "consume", "T", "-g", group, "--from", "first")
    with started(*line) as process:
        assert b"shown" in process.stdout.readline()
        ended = end(process, number)
    check(ended, number)
    assert b"committed queue 0 up to 1" in ended[2]
    again = subprocess.run(
        rmq(broker, "consume", "T", "-g", group, "-e"),
        capture_output=True, check=True, timeout=20,
    )  # fmt: skip
    assert again.stdout == b""


def test_consume_in_the_background_commits_at_the_end(broker):
    """A shell without job control ignores SIGINT for it."""
    line = rmq(broker, "consume", "T", "-g", "background", "--from", "first")
    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    with started(*line, preexec_fn=ignore) as process:
        assert b"shown" in process.stdout.readline()
        ended = end(process, signal.SIGTERM)
    check(ended, signal.SIGTERM)
    assert b"committed queue 0 up to 1" in ended[2]


@pytest.mark.slow
@pytest.mark.parametrize("number", ENDS)
def test_send_reports_what_was_stored(broker, number):
    broker.create_topic("S", 1)
    with started(*rmq(broker, "send", "S", "--lines")) as process:
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        for _ in range(2):
            assert process.stdout.readline()
        process.send_signal(number)
        errors = process.stderr.read()
        assert process.wait(20) == {**ENDS, signal.SIGINT: 130}[number]
    assert errors == b"sent 2, refused 0, without an answer 0\n"


FOLLOWING = {
    "tail": (["tail"], 0),
    "top": (["top"], 0),
    "consume": (["consume", "T", "--from", "first"], 0),
    "bench": (["bench", "--seconds", "60"], 1),
    "admin": (["admin", "clusterList", "-i", "1"], 1),
    "consume a topic that comes later": (["consume", "Later"], 0),
    "consume a group's topic that comes later": (["consume", "Later", "-g", "g"], 0),
    "reply": (["reply", "T", "answer"], 0),
    "reply to a topic that comes later": (["reply", "Later", "answer"], 0),
    "request": (["request", "T", "question", "--timeout", "60"], 1),
}
QUIET = {name for name in FOLLOWING if "later" in name} | {
    "bench", "reply", "request"
}  # fmt: skip
"""They print nothing until they end."""


@pytest.mark.slow
@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize("name", FOLLOWING)
def test_the_others_end(broker, name, number):
    words, interrupted = FOLLOWING[name]
    where = ["-n", broker.name_server]
    line = [sys.executable, "-m", "rmq", *words, *where]
    with started(*line) as process:
        if name in QUIET:
            until_connected(process)
        else:
            until_shown(process, broker)
        ended = end(process, number)
    check(ended, number, {**ENDS, signal.SIGINT: interrupted})


def can_be_first():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*AS_FIRST, "true"], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize("name", ["consume", "tail", "top", "send"])
def test_process_1_of_a_container_ends(broker, name, number):
    if not can_be_first():
        pytest.skip("no right to make a process namespace")
    words = {"consume": ["T", "--from", "first"], "send": ["T", "--lines"]}
    with started(*AS_FIRST, *rmq(broker, name, *words.get(name, ()))) as process:
        if name == "send":
            process.stdin.write(b"one\n")
            process.stdin.flush()
        until_shown(process, broker)
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        with open(children) as file:
            (child,) = map(int, file.read().split())
        began = time.monotonic()
        os.kill(child, number)
        errors = process.stderr.read()
        process.wait(20)
        assert time.monotonic() - began < LIMIT_S
    assert b"Traceback" not in errors, errors.decode()


@pytest.mark.slow
def test_nohup_is_respected(broker):
    with started("nohup", *rmq(broker, "consume", "T", "--from", "first")) as process:
        assert process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        broker.send("T", b"after the signal")
        while b"after the signal" not in process.stdout.readline():
            assert process.poll() is None
        check(end(process, signal.SIGTERM), signal.SIGTERM)
