"""LazyGroup: commands that are imported when they are used.

Names and sentences are known beforehand, so that `--help` imports no command.
"""

from collections.abc import Callable, Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """A group whose commands have known names."""

    def __init__(
        self,
        name: str | None = None,
        *,
        sentences: Mapping[str, str],
        load: Callable[[str], click.Command],
        **more: Any,  # noqa: ANN401 - click's own
    ) -> None:
        """`sentences` are by name; `load` imports a command."""
        super().__init__(name, **more)
        self.sentences = sentences
        self.load = load

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        return list(self.sentences)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command; None if there is none of that name."""
        return self.load(cmd_name) if cmd_name in self.sentences else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one ends with the nearest name."""
        name = args[0]
        if name not in self.sentences and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}.{_hint(name, self.sentences)}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write names and sentences without importing the commands."""
        with formatter.section("Commands"):
            write_commands(formatter, self.sentences)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete names with their sentences, without importing the commands."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=sentence)
            for name, sentence in self.sentences.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def write_commands(
    formatter: click.HelpFormatter, sentences: Mapping[str, str]
) -> None:
    """Write names and sentences; only long lines cost the time of wrapping."""
    width = max(map(len, sentences))
    room = formatter.width - formatter.current_indent - width - 2
    start = " " * formatter.current_indent
    for name, sentence in sentences.items():
        lines = [sentence] if len(sentence) <= room else _wrapped(sentence, room)
        formatter.write(f"{start}{name:<{width}}  {lines[0]}\n")
        for line in lines[1:]:
            formatter.write(f"{start}{'':<{width}}  {line}\n")


def _wrapped(sentence: str, room: int) -> list[str]:
    """Break a sentence at blanks."""
    lines, line = [], ""
    for word in sentence.split():
        if line and len(line) + 1 + len(word) > room:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]


def _hint(name: str, known: Mapping[str, str]) -> str:
    # imported on use: few names are wrong
    import difflib

    lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    return f" Did you mean {lower[near[0]]}?" if near else ""
