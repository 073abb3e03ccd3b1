"""The common part of all `rmq admin` commands: options, errors, output.

A command is a function of an `AdminClient` and its options that returns its output: a
`Table`, a dictionary, or lines. Exit codes: 0 success, 1 refused or failed, 2 usage, 3
not reachable.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import click

from rmq.cli.failures import Subject, end
from rmq.cli.tool_settings import connection_options, settings_of
from rmq.client.admin import AdminClient, BrokerAddress
from rmq.errors import RmqError
from rmq.protocol.json_dialect import ObjectKey

registry: dict[str, click.Command] = {}


class Table(NamedTuple):
    """Rows under names; the JSON objects have the same names."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    def as_json(self) -> list[dict[str, object]]:
        """Return one object for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def lines(self) -> list[str]:
        """Return titles and rows as columns of text."""
        assert all(len(row) == len(self.columns) for row in self.rows), self.columns
        titles = ["#" + _spaced(name) for name in self.columns]
        texts = [[_shown(cell) for cell in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
        return [
            "  ".join(
                text.ljust(width) for text, width in zip(row, widths, strict=True)
            ).rstrip()
            for row in [titles, *texts]
        ]


Shown = Table | dict[str, Any] | list[str]
Function = Callable[..., Shown]


def admin_command(name: str) -> Callable[[Function], Function]:
    """Register a function as the command of this name."""

    def register(function: Function) -> Function:
        own: list[click.Parameter] = getattr(function, "__click_params__", [])

        def run(
            *,
            as_json: bool,
            broker_name: str | None = None,
            **options: Any,  # noqa: ANN401
        ) -> None:
            with settings_of(options).admin() as admin:
                try:
                    if broker_name:
                        options["broker"] = admin.address_of(broker_name)
                    shown = function(admin, **options)
                except RmqError as error:
                    topic, group = options.get("topic"), options.get("group")
                    end(error, admin, Subject(str(topic or ""), str(group or "")))
            emit(shown, as_json=as_json)

        registry[name] = click.Command(
            name,
            callback=run,
            params=[*_common(), *reversed(own)],
            help=function.__doc__,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        return function

    return register


def _common() -> list[click.Parameter]:
    return [
        *connection_options(),
        click.Option(["--json", "as_json"], is_flag=True, help="One JSON document."),
    ]


def emit(shown: Shown, *, as_json: bool) -> None:
    """Print the output of a command."""
    if as_json:
        value = shown.as_json() if isinstance(shown, Table) else shown
        if isinstance(value, list) and value and isinstance(value[0], str):
            value = {"result": value}
        click.echo(json.dumps(_plain(value), indent=2, ensure_ascii=False))
    elif isinstance(shown, Table):
        for line in shown.lines():
            click.echo(line)
    elif isinstance(shown, dict):
        width = max(map(len, shown), default=0)
        for key, value in shown.items():
            click.echo(f"{key:{width}}  {_shown(value)}")
    else:
        for line in shown:
            click.echo(line)


def _plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Convert objects that are names of members to text."""
    if isinstance(value, dict):
        return {
            _name(name) if isinstance(name, ObjectKey) else str(name): _plain(each)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value


def _name(key: ObjectKey) -> str:
    return f"{key['topic']}@{key['brokerName']}@{key['queueId']}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, dict | list):
        return json.dumps(_plain(value), ensure_ascii=False)
    return "" if value is None else str(value)


def _spaced(name: str) -> str:
    """Turn brokerName into `Broker Name`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return words[0].upper() + words[1:]


# -- options that several commands have


def broker_option(function: Function) -> Function:
    """Add -b with an address, and -B with a name."""
    name = click.option("-B", "--brokerName", "broker_name", metavar="NAME")
    address = click.option(
        "-b", "--brokerAddr", "--broker", "broker", metavar="HOST:PORT"
    )
    decorated: Function = address(name(function))
    return decorated


cluster_option = click.option("-c", "--clusterName", "cluster", metavar="NAME")
topic_option = click.option("-t", "--topic", "topic", required=True)
group_option = click.option("-g", "--groupName", "group", required=True)


def flag(*names: str, default: bool | None = None) -> Callable[..., Any]:
    """Declare an option that takes true or false, as in mqadmin."""
    return click.option(*names, type=click.BOOL, default=default, metavar="true|false")


def broker_or_cluster(function: Function) -> Function:
    """Add -b and -c, of which one must be given."""
    return broker_option(cluster_option(function))


def targets(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    *,
    slaves: bool = False,
) -> list[BrokerAddress]:
    """Return the brokers of -b or -c."""
    if broker:
        return [BrokerAddress("", broker, "0", broker)]
    if not cluster:
        raise click.UsageError("name the broker with -b or -B, or the cluster with -c")
    found = admin.brokers(cluster) if slaves else admin.masters(cluster)
    if not found:
        raise click.UsageError(f"the name server knows no broker of cluster {cluster}")
    return found


def pick(rows: Iterable[Sequence[object]]) -> list[Sequence[object]]:
    """Return rows in the order of their cells."""
    return sorted(rows, key=lambda row: [str(cell) for cell in row])
