"""The groups of verbs: `rmq topic`, `rmq group` and others.

The module of a noun is imported when one of its verbs is called.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final

import click

from rmq.cli.lazy_group import LazyGroup
from rmq.cli.nouns.catalogue import EXAMPLES, NOUNS, OTHER_NAMES, SUMMARIES

verbs: Final[dict[tuple[str, str], click.Command]] = {}
"""The commands of the imported nouns, by noun and verb."""


class NounGroup(LazyGroup):
    """The verbs of one noun; users may also type the verbs of other tools."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a verb, also by its name in other tools."""
        other = OTHER_NAMES.get(args[0], "")
        if args[0] not in self.summaries and other in self.summaries:
            args = [other, *args[1:]]
        return super().resolve_command(ctx, args)


def load_noun(noun: str) -> click.Command:
    """Return the group of a noun."""
    return NounGroup(
        noun,
        summaries=NOUNS[noun],
        load=_make_loader(noun),
        help=f"{SUMMARIES[noun]}\n\n\b{EXAMPLES[noun].rstrip()}",
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _make_loader(noun: str) -> Callable[[str], click.Command]:
    def load(verb: str) -> click.Command:
        import_module(f"rmq.cli.nouns.{noun}")
        return verbs[noun, verb]

    return load
