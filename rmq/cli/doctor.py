"""`rmq doctor`: check for the usual problems, and name the remedy of each."""

import json
import sys
from typing import TYPE_CHECKING

import click

from rmq.cli.options import FAILED, gather_values
from rmq.errors import RmqError

if TYPE_CHECKING:
    from rmq.cli.diagnosis import Finding


@click.command()
@click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(dir_okay=False),
    help="The broker's configuration file.",
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set one key."
)
@click.option(
    "-n",
    "--namesrvAddr",
    "namesrv",
    envvar="NAMESRV_ADDR",
    metavar="HOST:PORT;…",
    help="Name servers to ask; default: those of the file, or the broker's own.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--timeout", type=click.FloatRange(0.1), default=3.0, show_default=True)
def doctor(
    path: str | None,
    settings: tuple[str, ...],
    namesrv: str | None,
    timeout: float,
    *,
    as_json: bool,
) -> None:
    """Check configuration, machine and running brokers; name problems and remedies.

    \b
    rmq doctor                              a broker on loopback
    rmq doctor -c broker.conf               the broker of that file

    Exit code 1 if there is a problem.
    """  # noqa: D301 - click wants the character itself
    from rmq.broker.config import BrokerConfig
    from rmq.cli.diagnosis import diagnose
    from rmq.store.config import StoreConfig

    try:
        values = gather_values(path, settings, (BrokerConfig, StoreConfig))
    except RmqError as error:
        click.echo(f"rmq: {error}", err=True)
        sys.exit(FAILED)
    if namesrv:
        values["namesrvAddr"] = namesrv
    findings = diagnose(values, timeout_s=timeout)
    _show(findings, as_json=as_json)
    if any(each.is_problem for each in findings):
        sys.exit(FAILED)


def _show(findings: "list[Finding]", *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([each._asdict() for each in findings], indent=2))
        return
    for each in findings:
        click.echo(
            f"{'PROBLEM' if each.is_problem else 'ok':7}  {each.subject}: {each.text}"
        )
        if each.remedy:
            click.echo(f"         -> {each.remedy}")
    count = sum(each.is_problem for each in findings)
    click.echo(
        f"{len(findings)} checks, {count or 'no'} problem{'' if count == 1 else 's'}"
    )
