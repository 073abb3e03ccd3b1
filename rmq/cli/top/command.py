"""`rmq top`: problems, groups and topics of running brokers every second."""

import shutil
import sys
import time
from typing import Final

import click
import msgspec

from rmq.cli.failures import exit_with_error
from rmq.cli.terminal.table import Table
from rmq.cli.terminal.text import escape_json
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.cli.top.overview import Overview, merge_rows
from rmq.cli.top.poller import Poller
from rmq.core.errors import RmqError

COLUMNS: Final = ("group", "behind", "waitsMs", "outPerSecond", "clients", "why")


@click.command("top")
@click.option(
    "-d", "--delay", type=click.FloatRange(0.2, 60), default=1.0, show_default=True,
    metavar="SECONDS", help="Time between two polls.",
)  # fmt: skip
@click.option(
    "-b",
    "--broker",
    metavar="HOST:PORT",
    help="Only this broker. [default: all masters]",
)
@click.option("--once", is_flag=True, help="Print one table of groups and exit.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON array of the brokers per poll.",
)
@with_settings
def top_command(
    settings: ToolSettings,
    delay: float,
    broker: str | None,
    *,
    once: bool,
    as_json: bool,
) -> None:
    """Show problems, groups and topics of running brokers every second.

    \b
    rmq top                     all masters that the name server knows
    rmq top --once              one table of groups, for scripts
    rmq top --once --json       one JSON array, for scripts

    \b
    Keys: g t c b   groups, topics, clients, brokers
          j k       next, previous row; Enter opens it
          < > r     sort by another column, reverse the order
          / space d filter, pause, change the delay
          ? q       help, quit
    """  # noqa: D301 - click wants the character itself
    try:
        with settings.admin_client() as admin:
            poller = Poller(admin, broker)
            if once or as_json or not (is_terminal() and sys.stdin.isatty()):
                _print_polls(poller, delay, once=once, as_json=as_json)
            else:
                # imported on use: a pipe needs no terminal
                from rmq.cli.top.app import App

                App(poller, delay).run()
    except RmqError as error:
        exit_with_error(error)
    except KeyboardInterrupt:
        return


def _print_polls(poller: Poller, delay: float, *, once: bool, as_json: bool) -> None:
    """Print a table, or an array, for each poll."""
    while True:
        states = poller.poll_json()
        click.echo(escape_json(states) if as_json else "\n".join(_group_lines(states)))
        sys.stdout.flush()
        if once:
            return
        time.sleep(delay)


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def _group_lines(states: list[dict[str, object]]) -> list[str]:
    groups = (row for each in states for row in msgspec.convert(each, Overview).groups)
    cells = [
        (row.name, row.lag, row.waits_ms, row.outgoing, row.clients, row.message)
        for row in sorted(merge_rows(groups), key=lambda row: -row.lag)
    ]
    table = Table(COLUMNS, cells)
    if is_terminal():
        return table.for_terminal(shutil.get_terminal_size().columns)
    return table.for_pipe()
