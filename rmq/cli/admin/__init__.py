"""`rmq admin`: mqadmin's commands by their names and flags.

A command's module is imported when it is called, so that commands start fast.
"""

from importlib import import_module

import click

from rmq.cli.admin.catalogue import ENTRIES


class AdminGroup(click.Group):
    """Commands by name; listed from the catalogue, loaded on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        return sorted(ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        entry = ENTRIES.get(cmd_name)
        if entry is None:
            return None
        import_module(f"rmq.cli.admin.{entry.module}")
        command = import_module("rmq.cli.admin.command").registry[cmd_name]
        assert isinstance(command, click.Command), cmd_name
        return command


admin = AdminGroup(
    "admin",
    help="""Look at running brokers and name servers, and change them.

    The commands and flags are those of mqadmin; --json prints one document. Name
    servers: -n or NAMESRV_ADDR, else 127.0.0.1:9876.

    \b
    rmq admin clusterList
    rmq admin topicStatus -t Orders --json

    Exit codes: 0 success, 1 refused or failed, 2 usage, 3 not reachable.
    """,
    context_settings={"help_option_names": ["-h", "--help"]},
)
