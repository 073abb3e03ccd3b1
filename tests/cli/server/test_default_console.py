"""A broker without a configuration file serves the console, and prints where."""

import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import AsyncExitStack

import pytest

from rmq.cli.server.broker import default_console
from rmq.config.option import build
from rmq.console.config import ConsoleConfig
from rmq.console.server import ConsoleServer
from rmq.core.errors import ConfigError
from rmq.remoting.tls import TlsConfig
from tests.cli.test_ipv6 import has_ipv6


def test_it_is_on_unless_a_flag_says_otherwise():
    assert default_console({}) == {"rmq.console": "true", "rmq.consoleAnyPort": "true"}
    assert default_console({"rmq.console": "false"}) == {}
    assert default_console({"rmq.consolePort": "1"}) == {"rmq.console": "true"}
    assert default_console({"rmq.consoleAnyPort": "false"}) == {"rmq.console": "true"}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
@pytest.mark.parametrize("any_port", [True, False])
async def test_a_port_that_another_process_has(host, any_port):
    if ":" in host and not has_ipv6():
        pytest.skip("no IPv6 here")
    async with AsyncExitStack() as stack:
        first = await opened(stack, host, 0, any_port)
        if any_port:
            second = await opened(stack, host, first.port, any_port)
            assert second.port != first.port
            assert second.address.endswith(f":{second.port}")
        else:
            with pytest.raises(ConfigError, match=r"set rmq\.consolePort"):
                await opened(stack, host, first.port, any_port)


async def opened(stack, host, port, any_port):
    keys = {
        "rmq.consoleHost": host, "rmq.consolePort": str(port),
        "rmq.consoleAnyPort": str(any_port).lower(),
    }  # fmt: skip
    server = ConsoleServer(build(ConsoleConfig, keys), TlsConfig())
    await server.open()
    stack.push_async_callback(server.close)
    return server


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
