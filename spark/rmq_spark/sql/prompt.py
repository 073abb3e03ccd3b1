"""The prompt of `rmq sql`: statements that end with a semicolon, and four words."""

import contextlib
from collections.abc import Callable
from typing import Final

import click

from rmq.cli.terminal.text import escape_controls

HELP: Final = """\
A statement ends with ; and may have several lines. Ctrl-C ends it, Ctrl-D the prompt.
.tables   all tables; those of topics are named like them: SELECT * FROM "my-topic"
.columns  the columns of messages
.quit     the end"""
ENDS: Final = frozenset({".quit", ".exit", "\\q"})
MAX_STATEMENT_CHARACTERS: Final = 1 << 20


def run_prompt(
    run: Callable[[str], None],
    tables: Callable[[], list[str]],
    columns: Callable[[], list[str]],
) -> None:
    """Read and run statements until the end of the input; `run` reports its errors."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - input() then has its keys

    words = {
        ".help": lambda: [HELP],
        ".tables": lambda: [escape_controls(name) for name in tables()],
        ".columns": columns,
    }
    click.echo("rmq sql: .help says more, .quit ends", err=True)
    while True:
        try:
            text = _statement()
            if text is None or text.strip().lower() in ENDS:
                return
            _serve(text, words, run)
        except KeyboardInterrupt:  # while a statement runs, or just before
            click.echo("rmq: interrupted", err=True)


def _serve(
    text: str, words: dict[str, Callable[[], list[str]]], run: Callable[[str], None]
) -> None:
    """Answer a word, or run a statement."""
    word = text.strip().lower()
    if word in words:
        click.echo("\n".join(words[word]()))
    elif word.startswith((".", "\\")):
        click.echo(f"rmq: {word} is unknown: .help", err=True)
    elif word:
        run(text)


def _statement() -> str | None:
    """The lines up to a semicolon, or one word; None at the end of the input."""
    lines: list[str] = []
    size = 0
    while size < MAX_STATEMENT_CHARACTERS:
        try:
            line = input("...> " if lines else "rmq> ")
        except EOFError:
            click.echo(err=True)
            return None
        except KeyboardInterrupt:
            click.echo(err=True)
            return ""
        lines.append(line)
        size += len(line)
        is_word = len(lines) == 1 and line.lstrip().startswith((".", "\\"))
        if is_word or not "".join(lines).strip() or line.rstrip().endswith(";"):
            return "\n".join(lines)
    click.echo(f"rmq: more than {MAX_STATEMENT_CHARACTERS:,} characters", err=True)
    return ""
