"""docs/reference/configuration.md is what the generator prints."""

from pathlib import Path

from click.testing import CliRunner

from rmq.cli import main

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/configuration.md"


def test_the_page_is_what_the_generator_prints(monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "elsewhere:9876")
    printed = CliRunner().invoke(main, ["config", "document"]).output
    assert printed == PAGE.read_text(), (
        "rmq config document > docs/reference/configuration.md"
    )


def test_nothing_of_this_machine_is_on_the_page():
    text = PAGE.read_text()
    assert str(Path.home()) + "/" not in text
    assert "`$HOME/store`" in text
