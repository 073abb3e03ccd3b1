"""examples/: each program with its real client against a real broker.

The commands are those of examples/README.md, word for word. A language whose tools are
not on the machine is skipped.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distribution.pages import blocks, shell
from tests.interop.processes import broker_arguments, serving
from tests.interop.toolchains import cache_folder

pytestmark = [pytest.mark.examples, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LIMIT_S = 600
SECTION = re.compile(
    r"^## ([\w/]+)\n(?:(?!^## ).)*?^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL
)
TOOLS = {
    "asyncio": [], "worker": [], "celery": [], "django": [], "python": [],
    "java": ["java", "mvn"], "go": ["go"], "cpp": ["g++", "make"],
    "node": ["node", "npm"], "grpc/rust": ["cargo"], "once": ["java", "mvn"],
    "junit": ["java", "mvn"], "testcontainers": ["java", "mvn"],
}  # fmt: skip
SAID = {
    "asyncio": "received: hello from asyncio", "worker": "hello bread",
    "celery": "chord: 90", "django": "result: ordered bread",
    "python": "received: hello from Python", "java": "received: hello from Java",
    "go": "received: hello from Go", "cpp": "received: hello from C++",
    "node": "received: hello from Node", "grpc/rust": "received: hello from Rust",
    "once": "stored once", "junit": "", "testcontainers": "",
}  # fmt: skip


def sections() -> dict[str, str]:
    page = (EXAMPLES / "README.md").read_text()
    return {match[1]: match[2] for match in SECTION.finditer(page)}


def test_every_folder_has_a_section():
    folders = {each.name for each in EXAMPLES.iterdir() if each.is_dir()}
    assert (
        sections().keys()
        == TOOLS.keys()
        == SAID.keys()
        == folders - {"grpc", "notebook", "tutorials"} | {"grpc/rust"}
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    with serving(*broker_arguments(folder)) as started:
        yield started


@pytest.fixture
def environment(server, tmp_path):
    """As a reader's shell; commands of this checkout are found."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return plain | {
        "NAMESRV_ADDR": server.namesrv,
        "ENDPOINTS": server.address,
        "CARGO_TARGET_DIR": str(cache_folder() / "rust-example"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "ROCKETMQ_CLIENT_LOGROOT": str(tmp_path),
    }


@pytest.mark.parametrize("language", TOOLS)
def test_the_commands_of_the_page(language, environment, tmp_path):
    missing = [tool for tool in TOOLS[language] if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on this machine")
    folder = tmp_path / language
    shutil.copytree(
        EXAMPLES / language,
        folder,
        ignore=shutil.ignore_patterns("venv", "target", "node_modules", "go.sum"),
    )
    done = subprocess.run(
        ["bash", "-e", "-c", sections()[language]],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert SAID[language] in done.stdout, done.stdout[-4000:]


def test_the_extension_really_runs_its_test(environment, tmp_path):
    """Maven is content with a folder that has no tests."""
    if shutil.which("mvn") is None:
        pytest.skip("no mvn on this machine")
    folder = tmp_path / "junit"
    shutil.copytree(EXAMPLES / "junit", folder, ignore=shutil.ignore_patterns("target"))
    subprocess.run(["mvn", "-q", "-B", "test"], cwd=folder, env=environment, check=True)
    (report,) = (folder / "target/surefire-reports").glob("*.txt")
    assert "Tests run: 1, Failures: 0, Errors: 0, Skipped: 0" in report.read_text()


def test_the_tutorials(environment, tmp_path):
    """docs/start/tutorials.md from top to bottom, in a copy of their folder."""
    if shutil.which("mvn") is None:
        pytest.skip("no mvn on this machine")
    folder = tmp_path / "tutorials"
    shutil.copytree(
        EXAMPLES / "tutorials", folder, ignore=shutil.ignore_patterns("target")
    )
    environment.pop("NAMESRV_ADDR")
    with shell(folder, environment) as opened:
        said = [opened.run(block) for block in blocks(ROOT / "docs/start/tutorials.md")]
    _, _, delays, retries, transactions, filters = said
    assert "in five seconds" in delays
    for text in (
        "failed, after 0 retries",
        "failed, after 1 retries",
        "one that fails",
    ):
        assert text in retries
    *_, listed = transactions.partition("asked about: unknown at first")
    assert "committed" in listed
    assert "unknown at first" in listed
    assert "rolled back" not in listed
    assert filters.count("received: ") == 1
    assert "received: good red" in filters
    assert filters.count("good red") == 2, "each of the two shows it once"


def test_the_page_about_grpc(environment, tmp_path):
    """docs/clients/grpc.md from top to bottom, at the broker itself."""
    folder = tmp_path / "grpc"
    left_out = shutil.ignore_patterns("rust", "venv", "store", "logs")
    shutil.copytree(EXAMPLES / "grpc", folder, ignore=left_out)
    environment.pop("NAMESRV_ADDR")
    with shell(folder, environment) as opened:
        _install, serve, *others = blocks(ROOT / "docs/clients/grpc.md")
        opened.run(serve)
        address = opened.with_real_addresses("127.0.0.1:10911")
        opened.run(f"export ENDPOINTS={address}")
        said = [opened.run(block) for block in others]
    _topics, _sdk, orders, reminders, bookings, steps = said
    assert "received: an order" in orders
    assert "received: in five seconds" in reminders
    assert "never" not in reminders
    assert "asked about: unknown at first" in bookings
    assert "received: committed" in bookings
    assert "received: unknown at first" in bookings
    received = [line for line in steps.splitlines() if line.startswith("received")]
    assert received == ["received: first", "received: second", "received: third"]
