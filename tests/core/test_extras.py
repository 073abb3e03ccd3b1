"""Texts name libraries that can be installed: rmq has no name on an index."""

import re
from pathlib import Path

from rmq.core.extras import install_command

ROOT = Path(__file__).resolve().parents[2]
NOT_PUBLISHED = re.compile(r"pip install\s+[\"'`]?rmq(?!-)[\[ `'\"\s]")
FORMS = {".py", ".md", ".ipynb", ".service", ".yaml", ".pyx", ".conf"}


def test_an_extra_is_its_libraries():
    assert install_command("tools") == "pip install 'numpy>=2'"
    assert "'duckdb>=2'" in install_command("sql")
    assert "rmq" not in install_command("spark")


def test_every_extra_that_a_text_names_exists():
    used = set()
    for folder in ("rmq", "plugins", "spark"):
        for path in (ROOT / folder).rglob("*.py"):
            found = re.findall(r"install_command\([\"']([a-z-]+)", path.read_text())
            used |= set(found)
    assert {"tools", "sql", "controller"} <= used
    text = (ROOT / "pyproject.toml").read_text()
    for extra in used:
        assert re.search(rf"^{extra} = \[", text, re.MULTILINE), extra


def test_no_text_installs_a_name_that_is_not_published():
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in ("rmq", "plugins", "spark", "docs", "examples", "packaging")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in FORMS
        for match in NOT_PUBLISHED.finditer(path.read_text())
    ]
    assert not found
