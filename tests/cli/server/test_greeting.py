"""What a person at a terminal sees around `ready`."""

import os
import pty
import re
import shlex
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from rmq.cli import main
from rmq.cli.server import greeting

USUAL = ["127.0.0.1:9876"]


@pytest.mark.parametrize(
    ("servers", "where"),
    [(USUAL, ""), (["127.0.0.1:36095"], " -n 127.0.0.1:36095"),
     (["a:1", "b:2"], " -n 'a:1;b:2'")],
)  # fmt: skip
def test_commands_find_a_name_server_on_another_port(servers, where, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert f'send Hello "hello, rmq"{where} ' in greeting.next_steps(servers)
    monkeypatch.setenv("NAMESRV_ADDR", ";".join(servers))
    assert ' send Hello "hello, rmq"  ' in greeting.next_steps(servers)


def test_the_commands_to_type_next_exist():
    commands = re.findall(r"^    \S+ (.+?)  ", greeting.next_steps(USUAL), re.MULTILINE)
    assert len(commands) >= 3
    for command in commands:
        words = shlex.split(command)
        path = words[:2] if words[0] == "admin" else words[:1]
        shown = CliRunner().invoke(main, [*path, "--help"])
        assert shown.exit_code == 0, shown.output
        for option in (word for word in words if word.startswith("-")):
            assert re.search(rf"(^| ){option}[, ]", shown.output), option


def test_the_tool_is_named_as_this_shell_finds_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / ".venv/bin/rmq"), "broker"])
    assert "    .venv/bin/rmq " in greeting.next_steps(USUAL)
    tool = tmp_path / "rmq"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert "    rmq " in greeting.next_steps(USUAL)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "0 s"), (252, "4 min 12 s"), (7320, "2 h 2 min")]
)
def test_durations_have_two_units_at_most(seconds, said):
    assert greeting.duration_text(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 B"), (4096, "4.1 kB"), (78_700_000_000, "78.7 GB")]
)
def test_sizes_have_three_digits_at_most(count, said):
    assert greeting.size_text(count) == said


@pytest.mark.slow
def test_a_terminal_shows_the_lines_and_a_pipe_does_not(tmp_path):
    settings = [
        f"--set={setting}"
        for setting in (
            "brokerName=b",
            "listenPort=0",
            "rmq.namesrv.listenPort=0",
            f"storePathRootDir={tmp_path / 'store'}",
        )
    ]
    command = [sys.executable, "-m", "rmq", "broker", *settings]
    environment = {k: v for k, v in os.environ.items() if k != "NAMESRV_ADDR"}
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stderr=theirs, env=environment) as child:
        os.close(theirs)
        text = ""
        while "Ctrl-C" not in text:
            text += os.read(ours, 4096).decode()
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 0
        text += os.read(ours, 4096).decode()
    os.close(ours)
    assert re.search(
        r"rmq \S+  store \S*store, empty, [\d.]+ [kMGT]?B free  loopback only, no "
        r"authentication\r\nready broker=b .*\r\n\r\n  in another shell:\r\n",
        text,
    ), text
    assert re.search(r"stopped after \d+ s: 0 messages in, 0 out", text), text
    piped = subprocess.Popen(
        command, stderr=subprocess.PIPE, env=environment, text=True
    )
    with piped as child:
        for line in child.stderr:
            if line.startswith("ready "):
                break
        child.terminate()
        rest = child.stderr.read()
        assert child.wait(20) == 0
    assert "another shell" not in rest
    assert "stopped after" in rest
