"""EntryGroup: handles signals, streams and errors around every command of `rmq` and
`rmq-spark`.

It handles signals only in the process of a command, not in a test that calls a command.
"""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import click

from rmq.cli.argument_texts import check_texts
from rmq.cli.end_signals import handle_end_signals
from rmq.cli.lazy_group import LazyGroup
from rmq.cli.standard_streams import (
    OutputFailed,
    discard_stdout,
    open_standard_streams,
)
from rmq.core.exit_codes import FAILED, INTERRUPTED, OUTPUT_FAILED


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
        """Run the command of the process; for other calls do as click does."""
        if args is not None:
            return super().main(args, prog_name, *arguments, **options)
        open_standard_streams()
        is_server = not self.servers.isdisjoint(sys.argv[1:2])
        try:
            with nullcontext() if is_server else handle_end_signals():
                try:
                    return super().main(None, prog_name, *arguments, **options)
                finally:
                    sys.stdout.flush()
        except OutputFailed as error:
            discard_stdout()
            reason = f"the output cannot be written: {error.reason}"
            click.echo(f"{prog_name or self.name}: {reason}", err=True)
            sys.exit(OUTPUT_FAILED)
        except BrokenPipeError:
            discard_stdout()
            sys.exit(FAILED)
        except KeyboardInterrupt:  # before or after click's own handling
            sys.exit(INTERRUPTED)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command that refuses arguments that are not UTF-8."""
        command = super().get_command(ctx, cmd_name)
        return None if command is None else check_texts(command)


class RootGroup(EntryGroup, LazyGroup):
    """The commands of `rmq`."""

    servers = frozenset({"broker", "container", "controller", "namesrv"})
