"""The common part of all `rmq admin` commands: options, errors, output.

A command is a function of an `AdminClient` and its options. It returns a `Table`, a
dictionary or lines. Its help text is in the catalogue. `rmq.core.exit_codes` has the
exit codes.
"""

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click

from rmq.cli import completion
from rmq.cli.admin.catalogue import ENTRIES
from rmq.cli.admin.option_help import OPTION_HELP
from rmq.cli.failures import Subject, exit_with_error
from rmq.cli.terminal.table import Sheet, Table, cell_text, json_value, plain_text
from rmq.cli.terminal.text import escape_controls, escape_json
from rmq.cli.tool_settings import connection_options, settings_or_exit
from rmq.client.admin import AdminClient, BrokerAddress, NoBroker
from rmq.core.errors import RmqError

__all__ = [
    "Output",
    "Sheet",
    "Table",
    "make_command",
    "print_output",
    "register_command",
    "resolve_broker",
    "resolve_brokers",
]

UNSHOWN_DEFAULTS: Final = frozenset({None, -1, "0", str((1 << 63) - 1)})
"""Defaults that mean that the option was not given; help does not show them."""

ACTIONS: Final = (
    ("Pub", re.compile("send(?!MsgStatus)|request|checkMsgSendRT")),
    ("Get,Create", re.compile("update(Topic|SubGroup)|create$")),
    ("Get,Delete", re.compile("delete(Topic|SubGroup)|rm$|clear$")),
    ("Get,Sub", re.compile("print|consumeMessage|queryMsgByOffset")),
    ("Get,Update", re.compile(
        "update|create|delete|reset|skip|clone|copy|set|clean|remove|add|wipe|elect"
        "|remapping|export|resend|trigger|allow|deny|revoke"
    )),
)  # fmt: skip
"""Actions that commands need, by a pattern of their names; all other commands need Get.
A command that changes something reads first.
"""

registry: dict[str, click.Command] = {}


Output = Table | Sheet | dict[str, Any] | list[str]
Function = Callable[..., Output]


def register_command(name: str) -> Callable[[Function], Function]:
    """Register a function as the command of this name in the catalogue."""

    def register(function: Function) -> Function:
        for each in getattr(function, "__click_params__", []):
            if isinstance(each, click.Option) and not each.help:
                each.help = OPTION_HELP.get(each.opts[-1])
                each.show_default = each.default not in UNSHOWN_DEFAULTS
        raw = click.Option(
            ["--mqadmin", "as_mqadmin"], is_flag=True, help="Print in mqadmin's format."
        )
        registry[name] = make_command(name, function, ENTRIES[name].help, raw)
        return function

    return register


def make_command(
    name: str, function: Function, text: str, *more: click.Parameter
) -> click.Command:
    """Return a command that calls a function and prints its output."""

    def run(
        *,
        as_json: bool,
        no_header: bool,
        as_mqadmin: bool = False,
        broker_name: str | None = None,
        **options: Any,  # noqa: ANN401 - one for each option
    ) -> None:
        with settings_or_exit(options).admin_client() as admin:
            try:
                if broker_name:
                    options["broker"] = admin.address_of(broker_name)
                shown = function(admin, **options)
            except RmqError as error:
                exit_with_error(error, admin, _subject_of(name, options))
        print_output(
            shown, as_json=as_json, as_mqadmin=as_mqadmin, header=not no_header
        )

    own: list[click.Parameter] = getattr(function, "__click_params__", [])
    complete_names(own)
    return click.Command(
        name,
        callback=run,
        params=[*_common_options(), *more, *reversed(own)],
        help=text,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _subject_of(name: str, options: Mapping[str, Any]) -> Subject:
    """Return topic and group of a command, and the action that it needs."""
    topic, group = options.get("topic"), options.get("group")
    action = next(
        (action for action, start in ACTIONS if start.match(name)), Subject.action
    )
    return Subject(str(topic or ""), str(group or ""), action)


COMPLETERS: Final = {
    "topic": completion.topics, "group": completion.groups,
    "cluster": completion.clusters, "broker_name": completion.brokers,
}  # fmt: skip
"""Completions by the name of a parameter."""


def complete_names(parameters: Iterable[click.Parameter]) -> None:
    """Let shells complete the topics, groups, clusters and brokers of a command."""
    for each in parameters:
        complete = COMPLETERS.get(each.name or "")
        if complete is not None and each._custom_shell_complete is None:
            each._custom_shell_complete = complete


def _common_options() -> list[click.Parameter]:
    return [
        *connection_options(),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
        click.Option(
            ["-H", "--no-header", "no_header"], is_flag=True, help="Print no titles."
        ),
    ]


def print_output(
    shown: Output, *, as_json: bool, as_mqadmin: bool = False, header: bool = True
) -> None:
    """Print the output of a command in one of its forms."""
    if as_json:
        value = shown.as_json() if isinstance(shown, Table | Sheet) else shown
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
    if isinstance(shown, Sheet):
        texts = {
            key: ", ".join(value) if isinstance(value, list) else value
            for key, value in shown.facts.items()
        }
        facts = _output_lines(texts, as_mqadmin=False, header=header)
        rows = _output_lines(shown.table, as_mqadmin=False, header=header)
        return [*facts, "", *rows] if shown.table.rows else facts
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
cluster_option, one_cluster_option = (
    click.option(
        "-c", "--clusterName", "cluster", metavar="NAME",
        help=f"Name of a cluster.{default}", shell_complete=completion.clusters,
    )
    for default in ("", " [default: the only one]")
)  # fmt: skip
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
    """Add -b, -B and -c; `resolve_brokers` reads them."""
    return broker_option(one_cluster_option(function))


def resolve_brokers(
    admin: AdminClient, broker: str | None, cluster: str | None, *, slaves: bool = False
) -> list[BrokerAddress]:
    """Return the broker of -b, or the masters of -c; with `slaves` also the slaves of
    -c.

    Without both options the function uses the only cluster.
    """
    if broker:
        return [BrokerAddress("", broker, "0", broker)]
    cluster = cluster or admin.only_cluster()
    found = admin.brokers(cluster) if slaves else admin.masters(cluster)
    if not found:
        raise NoBroker(admin.name_servers, cluster)
    return found


def resolve_broker(admin: AdminClient, broker: str | None) -> BrokerAddress:
    """Return the broker of -b; without it the only master."""
    return resolve_brokers(admin, broker, None)[0] if broker else admin.only_master()


def send_to_brokers(
    admin: AdminClient,
    brokers: Iterable[BrokerAddress],
    code: int,
    fields: Mapping[str, object] | None = None,
    body: bytes = b"",
    *,
    text: str = "{} success",
) -> list[str]:
    """Send one request to each broker; return one line for each: `text` with the
    address of the broker.
    """
    lines = []
    for each in brokers:
        admin.request(each.address, code, fields, body)
        lines.append(text.format(each.address))
    return lines


def sort_rows(rows: Iterable[Sequence[object]]) -> list[Sequence[object]]:
    """Return rows in the order of the texts of their cells."""
    return sorted(rows, key=lambda row: [str(cell) for cell in row])
