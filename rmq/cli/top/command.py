"""`rmq top`: problems, groups and topics of running brokers, again and again."""

import sys
import time
from typing import Final

import click

from rmq.cli.failures import end
from rmq.cli.terminal.table import Table
from rmq.cli.terminal.text import harmless_json
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.cli.top.poller import Looking
from rmq.cli.top.render import merged
from rmq.client.admin import AdminClient
from rmq.core.errors import RmqError

COLUMNS: Final = ("group", "behind", "waitsMs", "outPerSecond", "clients", "why")


@click.command()
@click.option(
    "-d", "--delay", type=click.FloatRange(0.2, 60), default=1.0, show_default=True,
    metavar="SECONDS", help="Pause between two looks.",
)  # fmt: skip
@click.option("-b", "--broker", metavar="HOST:PORT", help="Only this broker.")
@click.option("--once", is_flag=True, help="One table, then end.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a look.")
@with_settings
def top(
    settings: ToolSettings,
    delay: float,
    broker: str | None,
    *,
    once: bool,
    as_json: bool,
) -> None:
    """Show what is wrong, and the groups and topics with the most to do.

    \b
    rmq top                     all masters that the name server knows
    rmq top --once              one table, for scripts
    rmq top --once --json       the same as JSON

    Keys: g t c b groups, topics, clients, brokers; j k Enter one of them; < > sort, r
    turn, / filter, space pause, d delay, ? help, q quit.
    """  # noqa: D301 - click wants the character itself
    try:
        with settings.admin() as admin:
            if once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
                _print(admin, broker, delay, once=once, as_json=as_json)
            else:
                # imported on use: a pipe needs no terminal
                from rmq.cli.top.app import Watching

                Watching(Looking(admin, broker), delay).run()
    except RmqError as error:
        end(error)
    except KeyboardInterrupt:
        return


def _print(
    admin: AdminClient, broker: str | None, delay: float, *, once: bool, as_json: bool
) -> None:
    """Print a table, or an object, a look."""
    looking = Looking(admin, broker)
    while True:
        states = looking.look()
        if as_json:
            click.echo(harmless_json(states))
        else:
            rows = sorted(merged(states, "groups"), key=lambda row: -row["lag"])
            cells = [
                (r["name"], r["lag"], r["waits_ms"], r["out"], r["clients"], r["say"])
                for r in rows
            ]
            click.echo("\n".join(Table(COLUMNS, cells).for_pipe()))
        sys.stdout.flush()
        if once:
            return
        time.sleep(delay)
