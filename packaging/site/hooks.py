"""Hooks of MkDocs: the pages that are made, and the links that leave docs/.

Made are a page for each command, from its `--help`, and a page of the Python reference
for each package, from its docstrings. CHANGELOG.md and the other pages of the root come
in a folder of their own. A link to a file that is on no page becomes the file's path.

Each version has a folder; `versions.json` lists them for the choice on each page.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import NamedTuple

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "spark")]

from rmq import __version__  # noqa: E402 - the checkout's own
from rmq.cli import main as rmq_command  # noqa: E402

PACKAGES = {
    "rmq.client": "The Python client, for asyncio and trio",
    "rmq.client.blocking": "The Python client, for threads",
    "rmq.testing": "Helpers for tests",
    "rmq.plugin": "The plugin API",
    "rmq_spark": "Stores as data frames",
}
"""The packages with names for other programs, and their titles."""

NAMES = {
    "rmq.client.blocking": ("Client", "Consumer", "MessageTrace", "Producer"),
    "rmq_spark": (
        "options.Options",
        "segments.plan.plan_ranges",
        "segments.reader.read_range",
        "segments.reader.read_settings",
        "segments.schema.columns_of",
        "session.start_session",
    ),
}
"""The public names of packages without `__all__`; docs/ shows how to use them."""

ROOT_PAGES = {
    f"{name}.md": f"project/{name.lower()}.md"
    for name in ("CHANGELOG", "CONTRIBUTING", "STYLE", "ARCHITECTURE", "SECURITY")
} | {"examples/README.md": "examples.md"}
"""Pages outside of docs/, by their place in the site."""

SITES = ROOT / "build" / "site"
HELP_WIDTH = 88
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"\s*(```|~~~)")
_ITEM = re.compile(r"([-*]|\d+\.) +")
INDENT = 4
"""Spaces with which Python-Markdown continues an item of a list; GitHub takes fewer."""

REDIRECT = '<meta http-equiv="refresh" content="0; url={}/index.html">\n'


class MadePage(NamedTuple):
    """A page without a file."""

    place: str
    text: str


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name the version, and put the made pages into the navigation."""
    config.site_name = f"rmq {__version__}"
    config.site_dir = str(SITES / __version__)
    lists = {
        "COMMANDS": [page.place for page in command_pages()],
        "PYTHON": [page.place for page in package_pages()],
        "INTERNALS": [
            f"internals/{path.name}"
            for path in sorted((ROOT / "docs" / "internals").glob("*.md"))
        ],
    }
    for part in config.nav or []:
        for entry in next(iter(part.values())) if isinstance(part, dict) else ():
            if isinstance(entry, dict):
                for title, value in entry.items():
                    entry[title] = lists[value]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the made pages, and the pages outside of docs/."""
    for source, place in ROOT_PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text()))
    for page in (*command_pages(), *package_pages()):
        files.append(File.generated(config, page.place, content=page.text))
    return files


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a page reach the pages of the site."""
    place = page.file.src_uri
    sources = {place: source for source, place in ROOT_PAGES.items()}
    source = sources.get(place, f"docs/{place}")
    is_code, lines = False, []
    for line in widened_items(text.splitlines()):
        is_code ^= bool(_FENCE.match(line))
        if not is_code:
            line = _LINK.sub(lambda link: moved_link(link, source, place, files), line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def on_post_build(config: MkDocsConfig) -> None:
    """List the versions that were built; the folder opens the newest one."""
    found = sorted(
        (path.parent for path in SITES.glob("*/index.html")),
        key=lambda folder: folder.stat().st_mtime,
        reverse=True,
    )
    versions = [{"version": each.name, "title": each.name} for each in found]
    (SITES / "versions.json").write_text(json.dumps(versions))
    (SITES / "index.html").write_text(REDIRECT.format(found[0].name))


def widened_items(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines; the lines of an item after its first get the wide indent."""
    width = 0
    for line in lines:
        item = _ITEM.match(line)
        if item:
            width = item.end()
        elif line and not line.startswith(" " * width):
            width = 0
        elif width and line:
            line = " " * INDENT + line[width:]
        yield line


def moved_link(link: re.Match[str], source: str, place: str, files: Files) -> str:
    """Return a link of the page that is at `source` in the checkout."""
    mark, text, target = link.groups()
    path, _, anchor = target.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return link[0]
    wanted = normpath(join(dirname(source), path))
    found = ROOT_PAGES.get(wanted, wanted.removeprefix("docs/"))
    if files.get_file_from_path(found) is None:
        if not (ROOT / wanted).exists():
            return link[0]  # MkDocs reports it
        return text if text.strip("`") == path else f"{text} (`{wanted}`)"
    end = f"#{anchor}" if anchor else ""
    return f"{mark}[{text}]({relpath(found, dirname(place) or '.')}{end})"


def command_pages() -> Iterator[MadePage]:
    """Yield a page for each command of `rmq`."""
    context = click.Context(rmq_command, info_name="rmq", max_content_width=HELP_WIDTH)
    for name in rmq_command.list_commands(context):
        command = rmq_command.get_command(context, name)
        assert command is not None, name
        yield MadePage(
            f"reference/commands/{name}.md", "\n".join(help_of(command, name, context))
        )


def help_of(
    command: click.Command, name: str, parent: click.Context, level: int = 1
) -> Iterator[str]:
    """Yield the lines of a command's help, and of the commands below it."""
    context = click.Context(
        command, parent, info_name=name, max_content_width=HELP_WIDTH
    )
    yield f"{'#' * level} {context.command_path}\n"
    yield f"```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            if below is not None and not below.hidden:
                yield from help_of(below, each, context, level + 1)


def package_pages() -> Iterator[MadePage]:
    """Yield a page of the Python reference for each package."""
    for package, title in PACKAGES.items():
        names = public_names(package)
        text = f"# {package}\n\n{title}.\n\n" + "".join(
            f"::: {package}.{name}\n\n" for name in names
        )
        yield MadePage(f"reference/python/{package}.md", text)


def public_names(package: str) -> Sequence[str]:
    """Return the names that a package gives to other programs."""
    if package in NAMES:
        return NAMES[package]
    return sorted(import_module(package).__all__, key=str.lower)
