"""The parity table of docs/clients/python.md: its tests run against rmq and Java's
brokers.

Each row names tests of `tests/client`; a column says whether they pass with a broker.
Here they run with it, under asyncio: what the page says must be so.
"""

import os
import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from .conftest import prepared
from .parity import servers_of
from .processes import ROOT

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

COLUMNS = ("Java 5.5.0", "Java 4.9.7", "rmq")
YES, NO = "yes", "\N{EN DASH}"
ROW = re.compile(
    r"^\| ([^|]+) \|[^|]*\| ([^|]+) \| (\S+) \| (\S+) \| (\S+) \|$", re.MULTILINE
)


def rows():
    """Return, for each row of the table, its name, its tests and its columns."""
    page = (ROOT / "docs/clients/python.md").read_text()
    table = page.partition("## Comparison with Java's client")[2].partition("\n## ")[0]
    return [
        (
            name,
            re.findall(r"`(test_\w+)`", tests),
            dict(zip(COLUMNS, cells, strict=True)),
        )
        for name, tests, *cells in ROW.findall(table)
    ]


def outcomes(broker, tests, folder):
    """Run tests of `tests/client` with a broker; return the outcome by name."""
    report = folder / "report.xml"
    wanted = " or ".join(f"{each}[" for each in tests)
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "--timeout=300",
            "-m", "slow or not slow", "-k", f"({wanted}) and asyncio",
            f"--junitxml={report}", "tests/client",
        ],
        cwd=ROOT,
        env=os.environ | {"RMQ_CLIENT_BROKER": broker},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )  # fmt: skip
    assert report.exists(), done.stdout
    print(done.stdout)
    found = {}
    for case in ET.parse(report).iter("testcase"):
        name = case.get("name").partition("[")[0]
        passed = not any(
            case.find(each) is not None for each in ("failure", "error", "skipped")
        )
        found[name] = found.get(name, True) and passed
    return found


@pytest.mark.parametrize("broker", COLUMNS)
def test_the_table_says_what_is_so(broker, tmp_path):
    if broker != "rmq":
        prepared(servers_of(broker))
    table = [(name, tests, cells[broker]) for name, tests, cells in rows() if tests]
    assert len(table) > 20
    assert {cell for _, _, cell in table} <= {YES, NO}
    offered = [each for _, tests, cell in table if cell == YES for each in tests]
    found = outcomes(broker, offered, tmp_path)
    assert {each: found.get(each) for each in offered} == dict.fromkeys(offered, True)
