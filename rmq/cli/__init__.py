"""The command line: `rmq broker`, `rmq namesrv`, `rmq config`, `rmq store`."""

import click

from rmq import __version__
from rmq.cli.broker import broker
from rmq.cli.config import config
from rmq.cli.namesrv import namesrv
from rmq.cli.store import store


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rmq")
def main() -> None:
    """Run a RocketMQ-compatible message broker and name server.

    Start one with its own name server on loopback: rmq broker
    """


main.add_command(broker)
main.add_command(namesrv)
main.add_command(config)
main.add_command(store)
