"""A broker without a configuration file serves the console, and prints where."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from rmq.cli.server.broker import default_console
from tests.cli.test_ipv6 import has_ipv6


@pytest.fixture
def busy():
    """Return a port of loopback that another process has."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_it_is_on_unless_a_flag_says_otherwise(monkeypatch, busy):
    from rmq.console.config import ConsoleConfig

    monkeypatch.setattr(
        ConsoleConfig.__dataclass_fields__["console_port"], "default", busy
    )
    assert default_console({}) == {"rmq.console": "true", "rmq.consolePort": "0"}
    assert default_console({"rmq.console": "false"}) == {}
    assert default_console({"rmq.consolePort": str(busy)}) == {"rmq.console": "true"}


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_the_usual_port_of_ipv6_is_kept_if_it_is_free(monkeypatch):
    from rmq.console.config import ConsoleConfig

    given = {"rmq.consoleHost": "::1"}
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        port = listener.getsockname()[1]
        field = ConsoleConfig.__dataclass_fields__["console_port"]
        monkeypatch.setattr(field, "default", port)
        assert default_console(given)["rmq.consolePort"] == "0"
    assert default_console(given) == {"rmq.console": "true"}


def start(tmp_path, *words):
    """Start a broker; return its log up to the line `ready`, and the process."""
    line = [
        sys.executable, "-m", "rmq", "broker", "--set", "listenPort=0",
        "--set", "rmq.namesrv.listenPort=0", "--set", f"storePathRootDir={tmp_path}/s",
        *words,
    ]  # fmt: skip
    child = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    said = ""
    for text in child.stderr:
        said += text
        if text.startswith("ready "):
            break
    return said, child


def end(child):
    child.send_signal(signal.SIGTERM)
    with child.stderr:
        child.stderr.read()
    assert child.wait(20) == 0


def test_the_log_says_where_and_it_answers_there(tmp_path):
    said, child = start(tmp_path)
    try:
        address = re.search(r"the console is on (http://127\.0\.0\.1:\d+)\n", said)[1]
        with urllib.request.urlopen(f"{address}/", timeout=5) as answer:
            assert b"rmq" in answer.read()
    finally:
        end(child)


def test_with_a_file_it_is_as_the_file_says(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("bindAddress=127.0.0.1\n")
    said, child = start(tmp_path, "-c", str(path))
    end(child)
    assert "the console is on" not in said
