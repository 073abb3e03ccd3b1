"""Every `rmq …` line of the pages is a command with options that it has.

`make lab NAME=distribution` runs the commands of the pages that can run anywhere; this
looks at all of them, also at those that need a certain store or cluster.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rmq.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "examples/README.md", *ROOT.glob("docs/**/*.md")]
FENCE = re.compile(r"^ *```[a-z]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINE = re.compile(
    r"^ *(?:! |\$ |seq \d+ \| )?(?:\S*bin/|python -m )?rmq +(\S.*)$", re.MULTILINE
)
INLINE = re.compile(r"`(?:python -m )?rmq ([a-z][^`\n]*)`")
REMARK = re.compile(r"(?<!\\)(?: {2,}| # | \| ).*$")
PLACEHOLDER = re.compile(r"…|\.\.\.")


def commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        text = page.read_text()
        for block in FENCE.findall(text):
            for line in LINE.findall(block):
                yield page.name, REMARK.sub("", line)
        for line in INLINE.findall(FENCE.sub("", text)):
            yield page.name, line


def parse(words: list[str]) -> None:
    """Let click read the words, without running anything."""
    command: click.Command | None = main
    context: click.Context | None = None
    while isinstance(command, click.Group):
        if not words or words[0].startswith("-"):
            return
        context = click.Context(command, parent=context)
        command = command.get_command(context, words[0])
        words = words[1:]
    assert command is not None, "there is no such command"
    command.make_context(command.name, words, parent=context)


def test_there_are_many():
    assert len(set(commands())) > 100


@pytest.mark.parametrize(
    ("page", "line"),
    sorted(found for found in set(commands()) if not PLACEHOLDER.search(found[1])),
)
def test_click_takes_it(page, line):
    words = shlex.split(line)
    try:
        parse(words)
    except click.exceptions.Exit:  # --help, --version
        return
    except click.MissingParameter:
        assert len(words) <= 2, line  # a name in a sentence
    except click.BadParameter as error:
        if "exist" not in str(error) and "No such file" not in str(error):
            raise  # files of the reader are not here
