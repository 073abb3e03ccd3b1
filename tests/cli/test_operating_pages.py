"""The commands of the pages for operators work as they stand."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmq.cli import main
from rmq.testing import running_node
from tests.distribution.pages import blocks, shell

DOCS = Path(__file__).resolve().parents[2] / "docs" / "operate"


@pytest.fixture
def reader(tmp_path):
    """The environment of a reader: a home folder of its own, and `rmq` in the path."""
    folder = Path(sys.executable).parent
    known = {
        name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ
    }
    path = f"{folder}:{os.environ['PATH']}"
    return known | {"HOME": str(tmp_path), "PATH": path}


@pytest.mark.slow
def test_backup_and_restore(tmp_path, reader):
    pytest.importorskip("numpy", reason="rmq store needs numpy")
    said = []
    with shell(tmp_path, reader) as opened:
        for block in blocks(DOCS / "backup.md"):
            said.append(opened.run(block))
    text = "".join(said)
    assert "no damaged places" in text
    assert "two apples" in said[-1]
    assert re.search(r"^lag\t0$", said[-1], re.MULTILINE), "the offsets are there"
    exported = (tmp_path / "backup/definitions").rglob("*.json")
    assert any("Orders" in path.read_text() for path in exported)


def table_commands():
    """Return the commands in the second column of the table of troubles."""
    rows = re.findall(
        r"^\| [^|]+ \| `(rmq [^`]+)` \|",
        (DOCS / "troubles.md").read_text(),
        re.MULTILINE,
    )
    assert len(rows) > 12
    return sorted(set(rows))


LOCAL = ("rmq config", "rmq store", "rmq health")
"""Commands that ask no broker; they have tests of their own."""


@pytest.mark.parametrize("text", table_commands())
async def test_each_command_of_the_table_works(text, tmp_path, command):
    if text.startswith(LOCAL):
        words = shlex.split(text)[1:]
        result = CliRunner().invoke(main, [*words[:2], "--help"])
        assert result.exit_code == 0
        return
    async with running_node(tmp_path / "store") as node:
        where = "-n", node.name_servers[0]
        await command("topic", "create", "Orders", *where)
        await command("send", "Orders", "x", "-k", "o-1", *where)
        await command("consume", "Orders", "-g", "billing", "-e", *where)
        result = await command(*shlex.split(text)[1:], *where)
    assert result.exit_code == 0 or text.startswith("rmq doctor"), result.output


def test_the_table_of_rates_is_what_the_plan_prints():
    page = (DOCS / "capacity.md").read_text()
    rows = re.findall(
        r"^\| ([\d,]+) \| ([\d.]+ [GT]iB) \| (\d+ MiB) \| ([\d,]+) \| (\d+ %) of",
        page,
        re.MULTILINE,
    )
    assert len(rows) == 3
    for rate, *wanted in rows:
        load = f"topics=100,clients=200,groups=2,size=1024,rate={rate.replace(',', '')}"
        shown = CliRunner().invoke(main, ["doctor", "--plan", load]).stdout
        for text in wanted:
            assert f" {text} " in shown, (rate, text)
