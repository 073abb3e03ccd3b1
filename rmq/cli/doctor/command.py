"""`rmq doctor`: find problems and their remedies, or plan the capacity of a load."""

import json
import sys
import time

import click

from rmq.cli.config.sources import gather_values
from rmq.cli.doctor.diagnosis import run_checks
from rmq.cli.doctor.findings import Finding
from rmq.cli.doctor.plan import plan_capacity
from rmq.cli.failures import add_connection_options, exit_with_error
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.config.broker import BrokerConfig
from rmq.core.errors import RmqError
from rmq.core.exit_codes import FAILED
from rmq.core.humanize import count_text
from rmq.core.logs import escape_text
from rmq.store.config import StoreConfig


@click.command("doctor")
@click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(dir_okay=False),
    help="Configuration file of the broker.",
)
@click.option(
    "--set",
    "values",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one key. Repeatable.",
)
@click.option(
    "--plan",
    "load",
    metavar="NAME=NUMBER,…",
    help=(
        "Print the capacity that a load needs. Names: topics, queues (per topic), "
        "clients, pulls (held), transactions (open), rate (messages/s), size (bytes), "
        "groups, hours (of retention)."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@with_settings
def doctor_command(
    settings: ToolSettings,
    path: str | None,
    values: tuple[str, ...],
    load: str | None,
    *,
    as_json: bool,
) -> None:
    """Check configuration, machine and running brokers.

    It prints problems with remedies; exit code 1 if there is a problem. Options for
    name servers, TLS and user take precedence over the configuration file.

    \b
    rmq doctor                              a broker on loopback
    rmq doctor -c broker.conf               the broker of this file
    rmq doctor --plan topics=10000,rate=5000,size=512
                                            capacity for this load on this machine
    """  # noqa: D301 - click wants the character itself
    began = time.monotonic()
    try:
        gathered = gather_values(path, values, (BrokerConfig, StoreConfig))
        findings = (
            plan_capacity(load, gathered)
            if load
            else run_checks(gathered, settings, is_configured=bool(path or values))
        )
    except RmqError as error:
        exit_with_error(error)
    _print_findings(findings, time.monotonic() - began, as_json=as_json)
    if any(each.is_problem for each in findings):
        sys.exit(FAILED)


def _print_findings(findings: list[Finding], seconds: float, *, as_json: bool) -> None:
    if as_json:
        rows = [
            each._replace(command=add_connection_options(each.command))._asdict()
            for each in findings
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    width = max((len(each.subject) for each in findings), default=0)
    for each in findings:
        mark = "PROBLEM" if each.is_problem else "note" if each.remedy else "ok"
        click.echo(f"{mark:7}  {each.subject:{width}}  {escape_text(each.text)}")
        commands = [add_connection_options(each.command)] if each.command else []
        for line in filter(None, [each.remedy, *commands]):
            click.echo(f"         -> {line}")
    count = sum(each.is_problem for each in findings)
    problems = count_text(count, "problem") if count else "no problems"
    click.echo(f"{count_text(len(findings), 'check')}, {problems}, {seconds:.1f} s")
