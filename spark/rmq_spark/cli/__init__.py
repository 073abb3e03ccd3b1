"""The command line `rmq-spark`: exports to tables, and what keeps the tables in order.

Exit codes: 0 success, 1 refused or failed with one sentence on stderr, 2 usage.
"""

import click

from rmq import __version__
from rmq.cli.entry import EntryGroup
from rmq_spark.cli.export import export_messages
from rmq_spark.cli.follow import follow_source
from rmq_spark.cli.maintenance import (
    forget_exporter,
    merge_past_days,
    remove_orphans,
    show_status,
)


class SparkGroup(EntryGroup):
    """The commands of `rmq-spark`."""

    servers = frozenset({"follow"})


@click.group(cls=SparkGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rmq-spark")
def main() -> None:
    """Export RocketMQ stores or topics to tables, each message exactly once."""


for command in (
    export_messages,
    follow_source,
    show_status,
    forget_exporter,
    remove_orphans,
    merge_past_days,
):
    main.add_command(command)
