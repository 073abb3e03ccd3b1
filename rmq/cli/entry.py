"""EntryGroup: what every command of `rmq` and `rmq-spark` has around it.

Only the process itself gets it, not a test that calls a command.
"""

import sys
from collections.abc import Sequence
from typing import Any

import click

from rmq.cli.end_signals import handle_end_signals
from rmq.cli.lazy_group import LazyGroup


class EntryGroup(click.Group):
    """The group that the process calls."""

    servers: frozenset[str] = frozenset()
    """Commands that handle signals themselves."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *arguments: Any,  # noqa: ANN401 - click's own
        **options: Any,  # noqa: ANN401 - click's own
    ) -> Any:  # noqa: ANN401 - click's own
        """Run the command of the process; other calls as click does."""
        if args is not None:
            return super().main(args, prog_name, *arguments, **options)
        if not self.servers.isdisjoint(sys.argv[1:2]):
            return super().main(None, prog_name, *arguments, **options)
        with handle_end_signals():
            return super().main(None, prog_name, *arguments, **options)


class RootGroup(EntryGroup, LazyGroup):
    """The commands of `rmq`."""

    servers = frozenset({"broker", "container", "controller", "namesrv"})
