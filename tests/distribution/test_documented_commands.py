"""The commands of the pages, in an environment with a wheel and nothing else."""

from pathlib import Path

import pytest

from .pages import BLOCK, blocks, shell

pytestmark = [pytest.mark.distribution, pytest.mark.timeout(900)]

DOCS = Path(__file__).resolve().parents[2] / "docs"
ELSEWHERE = {
    "clients/grpc.md": "tests/examples: it needs Maven",
    "start/install.md": "test_wheels.py",
    "clients/static-topics.md": "tests/cli/admin/test_static_topics.py: three brokers",
    "start/tutorials.md": "tests/examples: it needs Maven",
    "start/quickstart.md": "test_recording.py",
}


@pytest.fixture
def reader(environment, own_environment, tmp_path):
    """The variables of a reader who has activated the environment."""
    folder = Path(environment.python).parent
    return own_environment | {
        "HOME": str(tmp_path), "PATH": f"{folder}:{own_environment['PATH']}",
    }  # fmt: skip


@pytest.mark.slow
def test_secure(tmp_path, reader):
    """Everybody gets what the page promises, and the log names who did it."""
    said = []
    with shell(tmp_path, reader) as opened:
        for block in blocks(DOCS / "operate/securing.md"):
            said.append(opened.run(block))
    text = "".join(said)
    assert "server.pem: OK" in text
    assert "user shop has no permission for this on Topic:Payments" in text
    assert "rmq user allow shop Topic:Others" in text
    assert "wants TLS" in text
    assert "this broker requires a user" in text
    assert "Verification: OK" in text
    for change in ("UPDATE_AND_CREATE_TOPIC", "AUTH_CREATE_USER", "AUTH_CREATE_ACL"):
        assert change in said[-1]
    assert "an order" in text


@pytest.mark.slow
def test_sql(tmp_path, reader, environment):
    """The page's statements, while its broker runs."""
    environment.install("duckdb>=2", "pyarrow>=18")
    said = []
    with shell(tmp_path, reader) as opened:
        for block in blocks(DOCS / "data/sql.md"):
            said.append(opened.run(block))
    assert "Orders,3,2" in said[-3]
    assert said[-2] == "item,pieces\napples,8\npears,12\n"
    assert said[-2] in (DOCS / "data/sql.md").read_text()
    assert '"keys": "o-2"' in said[-1]


@pytest.mark.parametrize("page", ["operate/upgrade.md"])
def test_a_page_of_checks(page, tmp_path, reader):
    (tmp_path / "broker.conf").write_text("brokerName=a\n")
    with shell(tmp_path, reader) as opened:
        for block in blocks(DOCS / page):
            opened.run(block)


def test_no_page_is_forgotten():
    pages = {
        each.relative_to(DOCS).as_posix()
        for each in DOCS.rglob("*.md")
        if BLOCK.search(each.read_text())
    }
    assert pages == {
        "operate/securing.md", "data/sql.md", "operate/upgrade.md", *ELSEWHERE,
    } - {"start/quickstart.md"}  # fmt: skip
