"""`rmq health`: it finds the server and its ports, and needs no configuration."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from rmq.cli import main


@contextmanager
def serving(*words):
    """Run a server until the end of the block."""
    line = [sys.executable, "-m", "rmq", *words]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as child:
        try:
            for text in child.stderr:
                if text.startswith("ready "):
                    break
            yield child
        finally:
            child.send_signal(signal.SIGCONT)
            child.send_signal(signal.SIGTERM)
            child.stderr.read()


def health(child, *words):
    result = CliRunner().invoke(main, ["health", "--pid", str(child.pid), *words])
    return result.exit_code, result.output


ROLES = {
    "broker": ["--set", "listenPort=0", "--set", "rmq.namesrv.listenPort=0"],
    "namesrv": ["--set", "listenPort=0"],
}


@pytest.mark.parametrize("role", ROLES)
def test_each_role_answers_and_a_stopped_one_does_not(tmp_path, role):
    store = ["--set", f"storePathRootDir={tmp_path}/store"] if role == "broker" else []
    with serving(role, *ROLES[role], *store) as child:
        code, text = health(child)
        assert (code, text.endswith((" answers\n", " answer\n"))) == (0, True), text
        child.send_signal(signal.SIGSTOP)
        code, text = health(child, "--timeout", "0.2")
        assert code == 3
        assert "did not answer" in text


def test_a_process_that_is_no_server():
    with subprocess.Popen(["sleep", "9"]) as child:
        code, text = health(child)
        child.kill()
    assert code == 3
    assert "listens on no port yet" in text


def test_the_server_is_found():
    with serving("namesrv", "--set", "listenPort=0"):
        result = CliRunner().invoke(main, ["health"])
    assert result.exit_code == 0, result.output
