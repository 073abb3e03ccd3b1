"""The prompt of `rmq sql`: statements that end with a semicolon, and dot commands."""

import contextlib
from collections.abc import Callable
from typing import Final

import click

from rmq.cli.terminal.text import escape_controls

HELP: Final = """\
A statement ends with ; and may have several lines. Ctrl-C stops it, Ctrl-D quits.
.tables   lists tables; each topic is a table: SELECT * FROM "my-topic"
.columns  lists the columns of messages
.quit     quits"""
ENDS: Final = frozenset({".quit", ".exit", "\\q"})
MAX_STATEMENT_CHARACTERS: Final = 1 << 20


def run_prompt(
    run: Callable[[str], None],
    tables: Callable[[], list[str]],
    columns: Callable[[], list[str]],
) -> None:
    """Read and run statements until the end of the input; `run` reports its errors."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() its editing keys

    words = {
        ".help": lambda: [HELP],
        ".tables": lambda: [escape_controls(name) for name in tables()],
        ".columns": columns,
    }
    click.echo("rmq sql: .help shows commands, .quit quits", err=True)
    while True:
        try:
            text = _read_statement()
            if text is None or text.strip().lower() in ENDS:
                return
            _handle_line(text, words, run)
        except KeyboardInterrupt:  # while a statement runs, or just before
            click.echo("rmq: interrupted", err=True)


def _handle_line(
    text: str, words: dict[str, Callable[[], list[str]]], run: Callable[[str], None]
) -> None:
    """Run a dot command, or a statement."""
    word = text.strip().lower()
    if word in words:
        click.echo("\n".join(words[word]()))
    elif word.startswith((".", "\\")):
        click.echo(f"rmq: there is no command {word}; .help lists them", err=True)
    elif word:
        run(text)


def _read_statement() -> str | None:
    """Read lines up to a semicolon, or one dot command; None at the end."""
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
