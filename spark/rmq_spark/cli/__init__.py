"""The command line `rmq-spark`: exports to tables, and maintenance of these tables.

Exit codes: 0 success, 1 refused or failed with one sentence on stderr, 2 usage. A
command is imported when it is called: help needs no Arrow.
"""

from importlib import import_module
from typing import Final

import click

from rmq import __version__
from rmq.cli.entry import EntryGroup
from rmq.cli.lazy_group import LazyGroup
from rmq_spark.cli.failures import exit_without_library

COMMANDS: Final = {
    "export": "Export all new messages: plan, write and commit, batch after batch.",
    "follow": "Run as a service that exports new messages at each interval.",
    "forget": "Remove an exporter from a broker, so that the broker keeps no files for "
    "it.",
    "optimize": "Merge the small files of past days.",
    "status": "Show the progress of an export as JSON: its lag in bytes, rows and "
    "seconds.",
    "vacuum": "Remove files that are not part of the table.",
}
"""Summaries of the commands."""

FUNCTIONS: Final = {
    "export": ("export", "export_messages"), "follow": ("follow", "follow_source"),
    "forget": ("maintenance", "forget_exporter"),
    "optimize": ("maintenance", "merge_past_days"),
    "status": ("maintenance", "show_status"),
    "vacuum": ("maintenance", "remove_orphans"),
}  # fmt: skip
"""Module and name of each command."""


def load(name: str) -> click.Command:
    """Import a command; exit with a sentence if a library is missing."""
    module, function = FUNCTIONS[name]
    try:
        command = getattr(import_module(f"rmq_spark.cli.{module}"), function)
    except ModuleNotFoundError as error:
        exit_without_library(error)
    assert isinstance(command, click.Command), name
    return command


class SparkGroup(EntryGroup, LazyGroup):
    """The commands of `rmq-spark`."""

    servers = frozenset({"follow"})


@click.group(
    cls=SparkGroup,
    summaries=COMMANDS,
    load=load,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="rmq-spark")
def main() -> None:
    """Export RocketMQ stores or topics to tables, each message exactly once."""
