"""`rmq demo`: start a broker with traffic, and print commands that show it."""

import tempfile
import webbrowser
from contextlib import suppress
from pathlib import Path

import click

from rmq.cli.end_signals import run_until_ended
from rmq.core.errors import RmqError


@click.command("demo")
@click.option(
    "--rate", type=click.IntRange(1, 1_000), default=20, show_default=True,
    help="Messages in a second.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), help="Stop after this time."
)
@click.option(
    "--open/--no-open", "opens", default=True, help="Open the console in a browser."
)
def demo_command(rate: int, seconds: float | None, *, opens: bool) -> None:
    """Start a broker with a producer, a fast and a slow group. Ctrl-C stops it.

    The broker has free ports on loopback, and a store that is removed at the end.

    \b
    rmq demo                    until Ctrl-C, with the console in a browser
    rmq demo --no-open --seconds 10
    """  # noqa: D301 - click wants the character itself
    # imported on use: the help needs no client
    from rmq.cli.consume.stream import mute_client_log
    from rmq.cli.demo.demo_broker import DemoBroker
    from rmq.cli.demo.traffic import GROUP, SLOW_GROUP, TOPIC, Traffic

    mute_client_log()
    with tempfile.TemporaryDirectory(prefix="rmq-demo-") as folder:
        try:
            with DemoBroker.run_in(Path(folder)) as broker:
                click.echo(
                    f"a broker is ready, with the name server {broker.name_server}\n"
                    f"\n  {broker.console}  the console, in a browser"
                    f"\n  rmq top -n {broker.name_server}"
                    f"\n  rmq consume {TOPIC} -n {broker.name_server}"
                    f"\n  rmq group info {SLOW_GROUP} -n {broker.name_server}"
                    "\n\n"
                    f"A producer sends {rate} messages per second. The group {GROUP} "
                    f"keeps up,\nand {SLOW_GROUP} is too slow. Ctrl-C stops it all.\n"
                )
                if opens:
                    webbrowser.open(broker.console)
                traffic = Traffic(broker.name_server, rate, seconds)
                with suppress(KeyboardInterrupt):
                    run_until_ended(traffic.run())
        except RmqError as error:
            raise click.ClickException(str(error)) from error
    click.echo("the broker has stopped, and its store is removed")
