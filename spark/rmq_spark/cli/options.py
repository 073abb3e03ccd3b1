"""Options that several commands have."""

import re
from collections.abc import Callable
from typing import Any, Final

import click
import msgspec

from rmq.cli.name_server_option import add_name_server_option
from rmq_spark.export.body_schema import FORMATS as BODY_FORMS
from rmq_spark.export.body_schema import ON_ERROR
from rmq_spark.export.committers import FORMATS
from rmq_spark.export.source import BATCH_ROWS, ExportLimits
from rmq_spark.option_values import parse_bytes

_INTERVAL: Final = re.compile(r"(\d+)(ms|s|m|h)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one exported table, as click has parsed them."""

    out: str
    table_format: str
    broker_name: str
    on_error: str
    max_bad: float
    table: str
    properties_format: str
    include_system_topics: bool
    split_bytes: int
    batch_bytes: int
    batch_rows: int
    allow_loss: bool
    skip_corrupt: bool
    single_writer: bool
    master: str
    store: str | None
    name_server: str | None
    broker: str | None
    topics: str | None
    columns: str | None
    body: str | None
    schema: str | None
    avro_schemas: str | None
    report_as: str | None
    confirm_offset: int | None = None

    def limits(self) -> ExportLimits:
        """Return the limits of a batch; UsageError for options that contradict each
        other.
        """
        if self.report_as and not self.broker:
            raise click.UsageError(
                "--report-as needs --broker, the broker that gets the reports"
            )
        if self.single_writer and self.table_format == "delta":
            raise click.UsageError(
                "a Delta table needs a store with conditional writes: --single-writer "
                "does not help"
            )
        return ExportLimits(
            batch_bytes=self.batch_bytes,
            split_bytes=self.split_bytes,
            confirm_offset=self.confirm_offset,
            broker=self.broker,
            allow_loss=self.allow_loss,
            skip_corrupt=self.skip_corrupt,
            single_writer=self.single_writer,
            batch_rows=self.batch_rows,
        )


def parse_size(value: str) -> int:
    """Parse a size such as 128m."""
    try:
        return parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not {error}") from error


def parse_interval(value: str) -> float:
    """Parse an interval such as 30s; returns seconds."""
    match = _INTERVAL.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not an interval such as 30s")
    return int(match[1]) * _SECONDS[match[2]]


def check_folder(
    _: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Refuse the empty path, which is the current folder."""
    if value == "":
        raise click.BadParameter("give the path of a folder", param=parameter)
    return value


def _check_broker_name(_: click.Context, parameter: click.Parameter, value: str) -> str:
    if value in ("", ".", ".."):
        raise click.BadParameter("give the name of a broker", param=parameter)
    return value


def add_options(*options: Decorator) -> Decorator:
    """Add options to a command, in the order of its help."""

    def decorated(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


# fmt: off
OUT: Final = click.option("--out", required=True, metavar="DIR", callback=check_folder,
    help="Folder of the export, or s3://BUCKET/PREFIX.")
SOURCE: Final = add_options(
    click.option("--store", metavar="DIR", callback=check_folder,
        help="Folder of the store."),
    add_name_server_option(
        "Read the topics of a running broker. Separate several servers by `;`.",
        "--name-server", parameter="name_server"),
    OUT,
)
BROKER: Final = click.option("--broker", metavar="HOST:PORT",
    help="Broker to ask for the end of its log.")
CONFIRM_OFFSET: Final = click.option("--confirm-offset", type=int,
    help="Physical offset of the end of the log.")
TABLE_BROKER: Final = click.option("--broker-name",
    help="Broker, if the table has messages of several.")

_BODIES: Final = (
    click.option("--body", type=click.Choice(BODY_FORMS),
        help="Format of the bodies that become columns. Needs --schema and --topics."),
    click.option("--schema", metavar="COLUMNS",
        help="Columns of bodies and their types: 'order bigint, sku string'."),
    click.option("--on-error", type=click.Choice(ON_ERROR), default="quarantine",
        show_default=True,
        help="Action for messages whose bodies do not fit the schema."),
    click.option("--max-bad", type=click.FloatRange(0, 1), default=0.01,
        show_default=True, help="Maximum share of bodies in a batch that do not fit."),
    click.option("--avro-schemas", metavar="DIR|URL",
        help="Schemas of Avro bodies: a folder of *.avsc files, or a registry."),
)
_TABLE: Final = (
    click.option("--format", "table_format", type=click.Choice(FORMATS),
        default="parquet", show_default=True, help="Format of the table."),
    click.option("--broker-name", default="broker-a", show_default=True,
        callback=_check_broker_name,
        help="Broker of the store: in file names and in column brokerName."),
    click.option("--topics", metavar="NAMES", help="Only these topics (with commas)."),
    click.option("--columns", metavar="NAMES", help="Columns of the table."),
    *_BODIES,
    click.option("--table", default="messages", show_default=True, metavar="NAME",
        help="Name of an Iceberg table in its catalog."),
    click.option("--properties-format", type=click.Choice(["map", "string", "none"]),
        default="map", show_default=True,
        help="Properties as a map, as one string, or not at all."),
    click.option("--include-system-topics", is_flag=True,
        help="Export system topics too, such as BenchmarkTest of rmq bench."),
)
_RUN: Final = (
    click.option("--report-as", metavar="NAME",
        help="Report the progress to the broker under this name."),
    click.option("--split-bytes", type=parse_size, metavar="BYTES", default="128m",
        show_default=True, help="Log bytes of one task."),
    click.option("--allow-loss", is_flag=True,
        help="Continue if segments are missing."),
    click.option("--skip-corrupt", is_flag=True, help="Skip damaged records."),
    click.option("--single-writer", is_flag=True,
        help="Export to an object store without conditional writes."),
)
# fmt: on


def export_options(*, master: str, batch_bytes: str) -> Decorator:
    """Return the options of the commands that export, with the given defaults."""
    return add_options(
        SOURCE,
        BROKER,
        *_TABLE,
        *_RUN,
        click.option(
            "--master",
            default=master,
            show_default=True,
            help="Spark master. `none` runs in this process, without Java.",
        ),
        click.option(
            "--batch-bytes",
            type=parse_size,
            metavar="BYTES",
            default=batch_bytes,
            show_default=True,
            help="Log bytes of one commit.",
        ),
        click.option(
            "--batch-rows",
            type=click.IntRange(1),
            metavar="NUMBER",
            default=BATCH_ROWS,
            show_default=True,
            help="Messages of one commit, with --name-server.",
        ),
    )
