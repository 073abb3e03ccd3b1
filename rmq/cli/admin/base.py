"""The common part of all `rmq admin` commands: options, errors, output.

A command is a function of an `AdminClient` and its options. It returns a `Table`, a
dictionary or lines. Its help text is in the catalogue. Exit codes: 0 success, 1 refused
or failed, 2 usage, 3 unreachable.
"""

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click

from rmq.cli import completion
from rmq.cli.admin.catalogue import ENTRIES
from rmq.cli.admin.option_help import OPTION_HELP
from rmq.cli.failures import Subject, exit_with_error
from rmq.cli.terminal.table import Table, cell_text, json_value, plain_text
from rmq.cli.terminal.text import escape_controls, escape_json
from rmq.cli.tool_settings import connection_options, settings_or_exit
from rmq.client.admin import AdminClient, BrokerAddress
from rmq.core.errors import RmqError

__all__ = ["Output", "Table", "print_output", "register_command", "resolve_brokers"]

UNSHOWN_DEFAULTS: Final = frozenset({None, -1, "0", str((1 << 63) - 1)})
"""Defaults that mean that the option is not given."""

registry: dict[str, click.Command] = {}


Output = Table | dict[str, Any] | list[str]
Function = Callable[..., Output]


def register_command(name: str) -> Callable[[Function], Function]:
    """Register a function as the command of this name in the catalogue."""

    def register(function: Function) -> Function:
        own: list[click.Parameter] = getattr(function, "__click_params__", [])
        for each in own:
            if isinstance(each, click.Option) and not each.help:
                each.help = OPTION_HELP.get(each.opts[-1])
                each.show_default = each.default not in UNSHOWN_DEFAULTS

        def run(
            *,
            as_json: bool,
            as_mqadmin: bool,
            no_header: bool,
            broker_name: str | None = None,
            **options: Any,  # noqa: ANN401 - one for each option
        ) -> None:
            with settings_or_exit(options).admin_client() as admin:
                try:
                    if broker_name:
                        options["broker"] = admin.address_of(broker_name)
                    shown = function(admin, **options)
                except RmqError as error:
                    topic, group = options.get("topic"), options.get("group")
                    exit_with_error(
                        error, admin, Subject(str(topic or ""), str(group or ""))
                    )
            print_output(
                shown, as_json=as_json, as_mqadmin=as_mqadmin, header=not no_header
            )

        registry[name] = click.Command(
            name,
            callback=run,
            params=[*_common_options(), *reversed(own)],
            help=ENTRIES[name].help,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        return function

    return register


def _common_options() -> list[click.Parameter]:
    return [
        *connection_options(),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
        click.Option(
            ["--mqadmin", "as_mqadmin"], is_flag=True, help="Print in mqadmin's format."
        ),
        click.Option(
            ["-H", "--no-header", "no_header"], is_flag=True, help="Print no titles."
        ),
    ]


def print_output(
    shown: Output, *, as_json: bool, as_mqadmin: bool = False, header: bool = True
) -> None:
    """Print the output of a command in one of its forms."""
    if as_json:
        value = shown.as_json() if isinstance(shown, Table) else shown
        if isinstance(value, list) and value and isinstance(value[0], str):
            value = {"result": value}
        click.echo(escape_json(json_value(value), indent=2))
        return
    for line in _output_lines(shown, as_mqadmin=as_mqadmin, header=header):
        click.echo(line)


def _output_lines(shown: Output, *, as_mqadmin: bool, header: bool) -> list[str]:
    is_tty = sys.stdout.isatty()
    if isinstance(shown, Table):
        if as_mqadmin:
            return shown.as_mqadmin()
        if is_tty:
            return shown.for_terminal(shutil.get_terminal_size().columns)
        return shown.for_pipe(header=header)
    if isinstance(shown, dict):
        width = max(map(len, shown), default=0)
        texts = {
            key: escape_controls(plain_text(value))
            if as_mqadmin
            else cell_text(key, value, is_terminal=is_tty)
            for key, value in shown.items()
        }
        if is_tty and any(isinstance(each, dict | list) for each in shown.values()):
            return escape_json(json_value(shown), indent=2).split("\n")
        if is_tty or as_mqadmin:
            return [f"{key:{width}}  {text}" for key, text in texts.items()]
        return [f"{key}\t{text}" for key, text in texts.items()]
    return [escape_controls(line) for line in shown]


# -- options of several commands


def broker_option(function: Function) -> Function:
    """Add -b with the address of a broker, and -B with its name."""
    name = click.option(
        "-B", "--brokerName", "broker_name", metavar="NAME", help="Name of a broker.",
        shell_complete=completion.brokers,
    )  # fmt: skip
    address = click.option(
        "-b",
        "--brokerAddr",
        "--broker",
        "broker",
        metavar="HOST:PORT",
        help="Address of a broker.",
    )
    decorated: Function = address(name(function))
    return decorated


interval_option = click.option(
    "-i", "--interval", type=click.FloatRange(0), help="Seconds between two outputs."
)
cluster_option = click.option(
    "-c", "--clusterName", "cluster", metavar="NAME", help="Name of a cluster."
)
topic_option = click.option(
    "-t",
    "--topic",
    "topic",
    required=True,
    help="Topic.",
    shell_complete=completion.topics,
)
group_option = click.option(
    "-g",
    "--groupName",
    "group",
    required=True,
    help="Consumer group.",
    shell_complete=completion.groups,
)


def bool_option(*names: str, default: bool | None = None) -> Callable[..., Any]:
    """Return an option with the value true or false, as in mqadmin."""
    return click.option(*names, type=click.BOOL, default=default, metavar="true|false")


def broker_or_cluster(function: Function) -> Function:
    """Add -b, -B and -c; `resolve_brokers` requires one of them."""
    return broker_option(cluster_option(function))


def resolve_brokers(
    admin: AdminClient, broker: str | None, cluster: str | None, *, slaves: bool = False
) -> list[BrokerAddress]:
    """Return the broker of -b, or the masters of -c; with `slaves` all of -c."""
    if broker:
        return [BrokerAddress("", broker, "0", broker)]
    if not cluster:
        raise click.UsageError("give a broker with -b or -B, or a cluster with -c")
    found = admin.brokers(cluster) if slaves else admin.masters(cluster)
    if not found:
        raise click.UsageError(f"no broker of cluster {cluster} is registered")
    return found


def send_to_brokers(
    admin: AdminClient,
    brokers: Iterable[BrokerAddress],
    code: int,
    fields: Mapping[str, object] | None = None,
    body: bytes = b"",
    *,
    text: str = "{} success",
) -> list[str]:
    """Send one request to each broker; return a line for each, from its address."""
    lines = []
    for each in brokers:
        admin.request(each.address, code, fields, body)
        lines.append(text.format(each.address))
    return lines


def sort_rows(rows: Iterable[Sequence[object]]) -> list[Sequence[object]]:
    """Return rows in the order of the texts of their cells."""
    return sorted(rows, key=lambda row: [str(cell) for cell in row])
