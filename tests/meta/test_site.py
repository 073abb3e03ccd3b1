"""The documentation site: made pages, links that leave docs/, lists, docstrings."""

import importlib
import importlib.util
import inspect
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="make dev installs the site's tools")

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location(
    "site_hooks", ROOT / "packaging/site/hooks.py"
)
hooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hooks)


class Pages:
    """The files of a site with these pages."""

    def __init__(self, *places):
        self.places = places

    def get_file_from_path(self, place):
        return place if place in self.places else None


@pytest.mark.parametrize(
    ("line", "source", "place", "moved"),
    [
        (
            "[a](../operate/admin.md#x)", "docs/start/install.md", "start/install.md",
            "[a](../operate/admin.md#x)",
        ),
        (
            "[s](../../SECURITY.md)", "docs/start/install.md", "start/install.md",
            "[s](../project/security.md)",
        ),
        (
            "[i](docs/start/install.md)", "CHANGELOG.md", "project/changelog.md",
            "[i](../start/install.md)",
        ),
        (
            "[job](../../Makefile)", "docs/start/install.md", "start/install.md",
            "job (`Makefile`)",
        ),
        ("[n](nowhere.md)", "docs/README.md", "README.md", "[n](nowhere.md)"),
        ("[x](#here)", "docs/README.md", "README.md", "[x](#here)"),
        ("[w](https://a.b/c)", "docs/README.md", "README.md", "[w](https://a.b/c)"),
    ],
)  # fmt: skip
def test_a_link_reaches_its_page(line, source, place, moved):
    pages = Pages("start/install.md", "operate/admin.md", "project/security.md")
    found = hooks._LINK.sub(
        lambda link: hooks.moved_link(link, source, place, pages), line
    )
    assert found == moved


def test_the_lines_of_an_item_get_the_wide_indent():
    lines = ["1. a", "   b", "", "   ```", "   c", "   ```", "2. d", "", "text", "   e"]
    assert list(hooks.widened_items(lines)) == [
        "1. a", "    b", "", "    ```", "    c", "    ```", "2. d", "", "text", "   e",
    ]  # fmt: skip


def test_each_command_has_a_page_with_its_help():
    pages = {page.place: page.text for page in hooks.command_pages()}
    assert "Usage: rmq topic create" in pages["reference/commands/topic.md"]
    assert len(pages) > 20


@pytest.mark.parametrize("package", hooks.PACKAGES)
def test_each_public_name_has_a_docstring(package):
    module = importlib.import_module(package)
    for name in hooks.public_names(package):
        *path, last = name.split(".")
        home = importlib.import_module(".".join([package, *path])) if path else module
        found = getattr(home, last)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert inspect.getdoc(found), name
