"""LazyGroup: commands that are imported when they are used.

Names and sentences are known beforehand, so that `--help` imports no command.
"""

from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """A group whose `sentences` are by name; subclasses load a command."""

    sentences: Mapping[str, str] = {}

    def load(self, name: str) -> click.Command:
        """Import a command."""
        raise NotImplementedError

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
            formatter.write_dl(list(self.sentences.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete names with their sentences, without importing the commands."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=sentence)
            for name, sentence in self.sentences.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def _hint(name: str, known: Mapping[str, str]) -> str:
    # imported on use: few names are wrong
    import difflib

    lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    return f" Did you mean {lower[near[0]]}?" if near else ""
