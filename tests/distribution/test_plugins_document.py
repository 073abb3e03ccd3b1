"""docs/plugins.md, word for word: its plugins are built, installed and called."""

import re
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"```\w+\n# (?P<name>[\w.-]+)(?: of \w+)?\n(?P<text>.*?)```", re.DOTALL
)

GONE = """
import pytest
from rmq.errors import RmqError
from rmq.protocol.command import Command


@pytest.fixture
def rmq_broker_settings():
    return {"plugins.disabled": "shout,levels,reports"}


def test_they_are_gone(rmq_broker):
    assert rmq_broker.ask(Command.request(30001, body=b"hello")).code == 3
    assert rmq_broker.messages("Reports") == []
    rmq_broker.send("Alarms", b"smoke", properties={"level": "some"})
    assert "levelChecked" not in rmq_broker.messages("Alarms")[0].properties
"""

LISTED = """
import sys

from rmq.protocol.bodies.plugins import LoadedPluginsBody
from rmq.protocol.command import Command


def test_they_are_listed(rmq_broker):
    answer = rmq_broker.ask(Command.request(20001))
    listed = {each.name: each for each in LoadedPluginsBody.decode(answer.body).plugins}
    assert listed["shout"].version == "1.0"
    assert listed["shout"].codes == [30001]
    assert listed["reports"].hooks == ["rmq_services"]
    assert {"send", "pull", "client", "admin"} <= listed.keys()
"""

NATIVE = """
import ping
from rmq.protocol.codes import SerializeType
from rmq.protocol.command import Command
from rmq.testing import check_plugin


def test_the_compiled_handler_serves(rmq_broker):
    before = ping.handler.served
    answer = rmq_broker.ask(Command.request(30002))
    assert (answer.code, answer.body) == (0, b"")
    assert ping.handler.served == before + 1


def test_what_it_declines_is_answered_too(rmq_broker):
    before = ping.handler.served
    assert rmq_broker.ask(Command.request(30002, body=b"x")).code == 0
    binary = Command.request(30002)
    binary.serialize_type = SerializeType.ROCKETMQ
    assert rmq_broker.ask(binary).code == 0
    assert ping.handler.served == before


def test_it_is_a_good_plugin(monkeypatch):
    monkeypatch.setenv("RMQ_LOAD_PLUGINS", "send,pull,client,admin")
    assert check_plugin(ping).codes == (30002,)
"""


def blocks(*, of: str) -> dict[str, str]:
    """The files that a section of the document shows."""
    document = (ROOT / "docs/plugins.md").read_text()
    section = document.split(f"## {of}\n")[1].split("\n## ")[0]
    return {match["name"]: match["text"] for match in BLOCK.finditer(section)}


def write(folder, files: dict[str, str]) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(textwrap.dedent(text).lstrip())


def test_the_tutorial(environment):
    files = blocks(of="A plugin from nothing")
    tests = {name: files.pop(name) for name in ("test_plugins.py",)}
    assert files.keys() == {"shout.py", "levels.py", "reports.py", "pyproject.toml"}
    write(environment.folder / "my-plugins", files)
    environment.install("--no-build-isolation", "./my-plugins")
    project = environment.folder / "tests-of-my-plugins"
    write(project, {**tests, "test_gone.py": GONE, "test_listed.py": LISTED})
    output = environment.run("-m", "pytest", "-q", "-W", "error", cwd=project)
    assert "8 passed" in output
    environment.run("-m", "pip", "uninstall", "-q", "-y", "my-plugins")


def test_the_compiled_handler(environment):
    files = blocks(of="Compiled handlers")
    assert files.keys() == {"ping.pyx", "pyproject.toml"}
    write(environment.folder / "ping", files)
    environment.install("--no-build-isolation", "./ping")
    project = environment.folder / "tests-of-ping"
    write(project, {"test_ping.py": NATIVE})
    output = environment.run("-m", "pytest", "-q", "-W", "error", cwd=project)
    assert "3 passed" in output
    environment.run("-m", "pip", "uninstall", "-q", "-y", "ping")
