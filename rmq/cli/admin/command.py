"""`rmq admin`: the commands of mqadmin with their names and flags.

The module of a command is imported when it is called, so that commands start fast.
"""

from importlib import import_module
from typing import Final

import click

from rmq.cli.admin.catalogue import ENTRIES, UNSERVED
from rmq.cli.lazy_group import LazyGroup, write_commands

SUMMARIES: Final = {
    name: entry.help.partition("\n")[0] for name, entry in sorted(ENTRIES.items())
}


def load(name: str) -> click.Command:
    """Import one command."""
    import_module(f"rmq.cli.admin.{ENTRIES[name].module}")
    command = import_module("rmq.cli.admin.base").registry[name]
    assert isinstance(command, click.Command), name
    return command


class AdminGroup(LazyGroup):
    """The commands of mqadmin; help lists the commands that rmq does not serve
    separately.
    """

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the served commands with summaries, then the names of the other
        commands.
        """
        served = {k: text for k, text in SUMMARIES.items() if k not in UNSERVED}
        with formatter.section("Commands"):
            write_commands(formatter, served)
        with formatter.section("Not served by rmq; each prints an alternative"):
            formatter.write_text(", ".join(sorted(UNSERVED)))


admin_command = AdminGroup(
    "admin",
    summaries=SUMMARIES,
    load=load,
    help="""Inspect and change running brokers and name servers.

    The commands and flags are those of mqadmin. Name servers come from -n or
    NAMESRV_ADDR; the default is 127.0.0.1:9876. -b is the address of a broker, -B its
    name.

    \b
    rmq admin clusterList
    rmq admin updateTopic -B broker-a -t Orders -r 16 -w 16
    rmq admin topicStatus -t Orders --json
    rmq admin consumerProgress -g billing

    Without -b, -B and -c a command uses the only cluster.

    Exit codes: 0 success, 1 failed, 2 usage, 3 unreachable, 5 refused.
    """,
    context_settings={"help_option_names": ["-h", "--help"]},
)
