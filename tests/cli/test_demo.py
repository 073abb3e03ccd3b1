"""`rmq demo` as a person runs it: traffic, an end by time or Ctrl-C, nothing left."""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmq.cli import main
from rmq.cli.nouns.catalogue import NOUNS

LINE = re.compile(r"sent (\d+)   billing (\d+)   mailer (\d+), (\d+) behind")


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rmq", "demo", "--no-open", "--rate", "50", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {
            "TMPDIR": str(folder),
            "PYTHONUNBUFFERED": "1",
            "NAMESRV_ADDR": "127.0.0.1:9",  # of another cluster
        },
    )


def test_it_ends_after_its_seconds(tmp_path):
    output, errors = start(tmp_path, "--seconds", "6").communicate(timeout=50)
    assert not errors
    offered = re.findall(r"^  rmq (.+)$", output, re.MULTILINE)
    assert len(offered) >= 3
    for words in map(str.split, offered):
        path = words[: 2 if words[0] in NOUNS else 1]
        shown = CliRunner().invoke(main, [*path, "--help"])
        assert shown.exit_code == 0, words
    sent, billed, mailed, behind = map(int, LINE.search(output).groups())
    assert billed > mailed > 0
    assert sent - mailed == behind > 0
    assert output.endswith("the broker has stopped, and its store is removed\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_its_broker(tmp_path, number):
    with start(tmp_path) as process:
        line = ""
        while not LINE.match(line):
            line = process.stdout.readline()
            assert line, process.stderr.read()
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
    assert not errors
    assert "its store is removed" in output
    assert process.returncode == (0 if number == signal.SIGINT else 143)
    assert not list(tmp_path.iterdir())


def test_a_kill_ends_its_broker_too(tmp_path):
    with start(tmp_path) as process:
        line = ""
        while "Ctrl-C stops it all" not in line:
            line = process.stdout.readline()
            assert line, process.stderr.read()
        (child,) = (
            int(text)
            for text in Path(f"/proc/{process.pid}/task/{process.pid}/children")
            .read_text()
            .split()
        )
        descriptor = os.pidfd_open(child)
        process.kill()
    ended, _, _ = select.select([descriptor], [], [], 20)
    os.close(descriptor)
    assert ended
