"""LazyGroup: a click group that imports a command when it is used.

Names and summaries are listed in advance, so that `--help` imports no command.
"""

from collections.abc import Callable, Mapping
from typing import Any

import click

from rmq.cli.argument_texts import check_texts


class LazyGroup(click.Group):
    """A group with listed commands."""

    def __init__(
        self,
        name: str | None = None,
        *,
        summaries: Mapping[str, str],
        load: Callable[[str], click.Command],
        **options: Any,  # noqa: ANN401 - click's own
    ) -> None:
        """`summaries` are by command name; `load` imports a command."""
        super().__init__(name, **options)
        self.summaries = summaries
        self.load = load

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all command names."""
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command; None for an unknown name."""
        known = cmd_name in self.summaries
        return check_texts(self.load(cmd_name)) if known else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; fail with the most similar name if it is unknown."""
        name = args[0]
        if name not in self.summaries and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}.{_suggest_name(name, self.summaries)}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write names and summaries without importing the commands."""
        with formatter.section("Commands"):
            write_commands(formatter, self.summaries)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete names with their summaries, without importing the commands."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=summary)
            for name, summary in self.summaries.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def write_commands(
    formatter: click.HelpFormatter, summaries: Mapping[str, str]
) -> None:
    """Write names and summaries; wrap long lines only, because wrapping is slow."""
    width = max(map(len, summaries))
    room = formatter.width - formatter.current_indent - width - 2
    start = " " * formatter.current_indent
    for name, summary in summaries.items():
        lines = [summary] if len(summary) <= room else _wrap_text(summary, room)
        formatter.write(f"{start}{name:<{width}}  {lines[0]}\n")
        for line in lines[1:]:
            formatter.write(f"{start}{'':<{width}}  {line}\n")


def _wrap_text(text: str, room: int) -> list[str]:
    """Break a text at blanks into lines of at most `room` characters."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > room:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]


def _suggest_name(name: str, known: Mapping[str, str]) -> str:
    # imported on use: few names are wrong
    import difflib

    lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    return f" Did you mean {lower[near[0]]}?" if near else ""
