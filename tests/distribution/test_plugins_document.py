"""docs/develop/plugins.md, word for word: its plugins are built, installed and
called.
"""

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
from rmq.plugin import RmqError
from rmq.protocol.command import Command


@pytest.fixture
def rmq_broker_settings():
    return {"plugins.disabled": "shout,levels,reports"}


def test_they_are_gone(rmq_broker):
    assert rmq_broker.request(Command.request(30001, body=b"hello")).code == 3
    assert rmq_broker.messages("Reports") == []
    rmq_broker.send("Alarms", b"smoke", properties={"level": "some"})
    assert "levelChecked" not in rmq_broker.messages("Alarms")[0].properties
"""

LISTED = """
import sys

from rmq.protocol.bodies.plugins import LoadedPluginsBody
from rmq.protocol.command import Command


def test_they_are_listed(rmq_broker):
    answer = rmq_broker.request(Command.request(20001))
    listed = {each.name: each for each in LoadedPluginsBody.decode(answer.body).plugins}
    assert listed["shout"].version == "1.0"
    assert listed["shout"].codes == [30001]
    assert listed["reports"].registered == ["service"]
    assert {"send", "pull", "client", "admin"} <= listed.keys()
"""

NATIVE = """
import ping
from rmq.protocol.codes import SerializeType
from rmq.protocol.command import Command
from rmq.testing import check_plugin


def counts(rmq_broker):
    return rmq_broker.node.server.native_counts()["main", ping.PING]


def test_the_compiled_handler_serves(rmq_broker):
    answer = rmq_broker.request(Command.request(ping.PING))
    assert (answer.code, answer.body) == (0, b"")
    assert counts(rmq_broker)[0] == 1


def test_what_it_declines_is_answered_too(rmq_broker):
    assert rmq_broker.request(Command.request(ping.PING, body=b"x")).code == 0
    binary = Command.request(ping.PING)
    binary.serialize_type = SerializeType.ROCKETMQ
    assert rmq_broker.request(binary).code == 0
    assert counts(rmq_broker)[0] == 0


def test_it_is_a_good_plugin():
    assert check_plugin(ping).codes == (ping.PING,)
"""

EACH = """
import json
import threading
import time

import archive
import bell
import limits
import pytest
import runes
import totals
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing import BrokerThread, RawClient, check_plugin


def change(rmq_broker, text):
    request = Command.request(RequestCode.UPDATE_BROKER_CONFIG, body=text)
    return rmq_broker.request(request)


def test_limits(rmq_broker, caplog):
    long = Command.request(archive.ARCHIVED, body=b"1" * 20)
    assert rmq_broker.request(long).code == 0
    assert change(rmq_broker, b"plugin.limits.maxBody=0").code == 16
    assert change(rmq_broker, b"plugin.limits.maxBody=19").code == 0
    assert "bodies may have 19 bytes now" in caplog.text
    answer = rmq_broker.request(long)
    assert (answer.code, answer.remark) == (13, "the body has more than 19 bytes")


def facts(broker):
    return broker.node.broker.context.facts("totals")


def test_totals_are_told_and_kept(tmp_path):
    with BrokerThread(tmp_path) as broker:
        broker.send("T", b"a", queue_id=1)
        broker.send("T", b"b", queue_id=1)
        assert facts(broker)["T 1"] == 2
    saved = json.loads((tmp_path / "config" / "totals.json").read_text())
    assert saved["ends"]["T 1"] == 2
    with BrokerThread(tmp_path) as broker:
        assert facts(broker)["T 1"] == 2


def wait(broker, into):
    into.append(broker.request(Command.request(bell.WAIT)).body)


def rung(broker):
    return int(broker.request(Command.request(bell.RING)).body)


def test_the_bell_rings(rmq_broker):
    answers = []
    waiting = threading.Thread(target=wait, args=(rmq_broker, answers))
    waiting.start()
    while not rung(rmq_broker):
        time.sleep(0.01)
    waiting.join(5)
    assert answers == [b"ding"]


async def ask_and_leave(address):
    async with RawClient.connect(address) as client:
        with pytest.raises(Exception):
            await client.call(Command.request(bell.WAIT), 0.1)


def test_who_left_is_forgotten(rmq_broker):
    rmq_broker.run(ask_and_leave, rmq_broker.address)
    time.sleep(0.1)
    assert rung(rmq_broker) == 0


def test_a_stop_rings_the_bell(tmp_path):
    answers = []
    with BrokerThread(tmp_path) as broker:
        waiting = threading.Thread(target=wait, args=(broker, answers))
        waiting.start()
        time.sleep(0.3)
    waiting.join(5)
    assert answers == [b"ding"]


def test_the_log_is_kept(rmq_broker):
    needed_from = rmq_broker.node.broker.context.registered.needed_from
    assert needed_from() is None
    assert rmq_broker.request(Command.request(archive.ARCHIVED, body=b"x")).code == 29
    assert rmq_broker.request(Command.request(archive.ARCHIVED, body=b"70")).code == 0
    assert needed_from() == 70


def test_a_character_has_a_name(rmq_broker):
    answer = rmq_broker.request(Command.request(runes.NAME, body="ł".encode()))
    assert answer.body == b"LATIN SMALL LETTER L WITH STROKE"


@pytest.mark.parametrize("plugin", [archive, bell, limits, runes, totals])
def test_they_are_good_plugins(plugin):
    check_plugin(plugin)
"""


PACKAGE = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "each"
version = "1.0"

[project.entry-points."rmq.plugins"]
{points}

[tool.setuptools]
py-modules = {modules}
"""


def blocks(*, of: str) -> dict[str, str]:
    """The files that a section of the document shows."""
    document = (ROOT / "docs/develop/plugins.md").read_text()
    section = document.split(f"## {of}\n")[1].split("\n## ")[0]
    return {match["name"]: match["text"] for match in BLOCK.finditer(section)}


def write(folder, files: dict[str, str]) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(textwrap.dedent(text).lstrip())


def test_the_tutorial(environment):
    files = blocks(of="The first plugin")
    tests = {name: files.pop(name) for name in ("test_plugins.py",)}
    assert files.keys() == {"shout.py", "levels.py", "reports.py", "pyproject.toml"}
    write(environment.folder / "my-plugins", files)
    environment.install("--no-build-isolation", "./my-plugins")
    project = environment.folder / "tests-of-my-plugins"
    write(project, {**tests, "test_gone.py": GONE, "test_listed.py": LISTED})
    output = environment.run("-m", "pytest", "-q", "-W", "error", cwd=project)
    assert "8 passed" in output
    environment.run("-m", "pip", "uninstall", "-q", "-y", "my-plugins")


def test_an_example_of_each(environment):
    files = blocks(of="An example of each")
    names = {"limits", "totals", "bell", "archive", "runes"}
    assert files.keys() == {f"{name}.py" for name in names}
    files["pyproject.toml"] = PACKAGE.format(
        points="\n".join(f'{name} = "{name}"' for name in names),
        modules=sorted(names),
    )
    write(environment.folder / "each", files)
    environment.install("--no-build-isolation", "./each")
    project = environment.folder / "tests-of-each"
    write(project, {"test_each.py": EACH})
    output = environment.run("-m", "pytest", "-q", "-W", "error", cwd=project)
    assert "12 passed" in output
    environment.run("-m", "pip", "uninstall", "-q", "-y", "each")


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
