"""The command line: `rmq-spark export | follow | status | forget | vacuum | optimize`.

Exit codes: 0 success, 1 refused or failed with one sentence on stderr, 2 usage.
"""

import json
import re
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from rmq import __version__
from rmq.cli.tool_settings import connection_options, take_settings
from rmq.config.option import nearest
from rmq.core.clock import SystemClock
from rmq.core.errors import RmqError
from rmq_spark.export.body_schema import FORMATS as BODY_FORMS
from rmq_spark.export.body_schema import ON_ERROR, Bodies, parse_fields
from rmq_spark.export.committers import FORMATS
from rmq_spark.export.exporter import Exporter, LocalRunner, Runner, SparkRunner
from rmq_spark.export.follow import ExportService, LowWatermark, serve
from rmq_spark.export.live_source import LiveSource
from rmq_spark.export.maintenance import compact_files, only_broker, status, vacuum
from rmq_spark.export.manifest import (
    STORE,
    TOPICS,
    ExportLog,
    Manifest,
    Settings,
    escaped,
)
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.source import BATCH_ROWS, ExportLimits, ExportSource
from rmq_spark.export.store_source import StoreSource
from rmq_spark.live.client import ClientSettings
from rmq_spark.option_values import parse_bytes
from rmq_spark.segments import commit_log
from rmq_spark.segments.broker_requests import (
    forget_exporter,
    parse_address,
    report_offset,
)
from rmq_spark.segments.schema import EXPORTED
from rmq_spark.segments.selection import TopicSelection
from rmq_spark.session import start_session

FAILED: Final = 1
_INTERVAL: Final = re.compile(r"(\d+)(ms|s|m|h)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
_BAR: Final = 30
_TABLES: Final = "rmq_spark.tables"
"""Where a file with options leaves those of the tables of topics."""
_NOT_INHERITED: Final[dict[str, Any]] = {
    "columns": None, "body": None, "schema": None, "avro_schemas": None
}  # fmt: skip
_OF_TOPICS: Final = (
    "out", "format", "table", "columns", "properties-format", "body", "schema",
    "on-error", "max-bad", "avro-schemas",
)  # fmt: skip
"""Options of a section; the other ones are those of the command."""
SHOWN_TOPICS: Final = 10
"""Topics that are named when an export has left them out."""


def _size(value: str) -> int:
    try:
        return parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not {error}") from error


def _seconds(value: str) -> float:
    match = _INTERVAL.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not an interval such as 30s")
    return int(match[1]) * _SECONDS[match[2]]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rmq-spark")
def main() -> None:
    """Export RocketMQ stores or topics to tables, each message exactly once."""


def _folder(
    _: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    if value == "":
        raise click.BadParameter("give the path of a folder", param=parameter)
    return value


def _broker_name(_: click.Context, parameter: click.Parameter, value: str) -> str:
    if value in ("", ".", ".."):
        raise click.BadParameter("give the name of a broker", param=parameter)
    return value


def _folders(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--out",
            required=True,
            metavar="DIR",
            callback=_folder,
            help="Folder of the export, or s3://BUCKET/PREFIX.",
        ),
        click.option(
            "--name-server",
            metavar="HOST:PORT",
            help="Take the topics of a running broker; several with ; between.",
        ),
        click.option(
            "--store", metavar="DIR", callback=_folder, help="Folder of the store."
        ),
    ):
        command = option(command)
    return command


_broker = click.option(
    "--broker", metavar="HOST:PORT", help="Broker to ask where its log ends."
)
_confirm_offset = click.option(
    "--confirm-offset", type=int, help="End of the log, if you know it."
)
_EXPORTED = (
    click.option(
        "--format",
        "table_format",
        type=click.Choice(FORMATS),
        default="parquet",
        show_default=True,
        help="Format of the table.",
    ),
    click.option(
        "--broker-name",
        default="broker-a",
        show_default=True,
        callback=_broker_name,
        help="Broker of the store: in names of files and in brokerName.",
    ),
    click.option("--topics", metavar="NAMES", help="Only these topics (with commas)."),
    click.option("--columns", metavar="NAMES", help="Columns of the table."),
    click.option(
        "--body",
        type=click.Choice(BODY_FORMS),
        help="Make columns of bodies of this form; needs --schema and --topics.",
    ),
    click.option(
        "--schema",
        metavar="COLUMNS",
        help="Columns of bodies and their types: 'order bigint, sku string'.",
    ),
    click.option(
        "--on-error",
        type=click.Choice(ON_ERROR),
        default="quarantine",
        show_default=True,
        help="What becomes of messages whose bodies do not fit.",
    ),
    click.option(
        "--max-bad",
        type=click.FloatRange(0, 1),
        default=0.01,
        show_default=True,
        help="Stop if a larger part of a batch does not fit.",
    ),
    click.option(
        "--avro-schemas",
        metavar="DIR|URL",
        help="Schemas of Avro bodies: folder of *.avsc files, or a registry.",
    ),
    click.option(
        "--table",
        default="messages",
        show_default=True,
        metavar="NAME",
        help="Name of an Iceberg table in its catalog.",
    ),
    click.option(
        "--properties-format",
        type=click.Choice(["map", "string", "none"]),
        default="map",
        show_default=True,
        help="Properties as map or as one string.",
    ),
    click.option(
        "--include-system-topics",
        is_flag=True,
        help="Also topics of the system, such as BenchmarkTest of rmq bench.",
    ),
    click.option(
        "--report-as",
        metavar="NAME",
        help="Report the progress to the broker under this name.",
    ),
    click.option(
        "--split-bytes",
        type=_size,
        metavar="BYTES",
        default="128m",
        show_default=True,
        help="Log bytes of one task.",
    ),
    click.option(
        "--allow-loss", is_flag=True, help="Continue if segments are missing."
    ),
    click.option("--skip-corrupt", is_flag=True, help="Skip damaged records."),
    click.option(
        "--single-writer",
        is_flag=True,
        help="Export to an object store without conditional writes.",
    ),
)
_which_broker = click.option(
    "--broker-name", help="Which broker of a table that has several."
)


def _exporting(*, master: str, batch_bytes: str) -> Callable[..., Any]:
    """The options of both commands that export, with their defaults."""
    options: list[Callable[[Callable[..., Any]], Callable[..., Any]]] = [
        _folders,
        _broker,
        *_EXPORTED,
        click.option(
            "--master",
            default=master,
            show_default=True,
            help="Spark master; `none` runs in this process, without Java.",
        ),
        click.option(
            "--batch-bytes",
            type=_size,
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
    ]

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def _limits(given: dict[str, Any]) -> ExportLimits:
    if given["report_as"] and not given["broker"]:
        raise click.UsageError(
            "--report-as needs --broker, the broker that gets the reports"
        )
    if given["single_writer"] and given["table_format"] == "delta":
        raise click.UsageError(
            "a Delta table needs a store with conditional writes, so --single-writer "
            "is of no use"
        )
    return ExportLimits(
        given["batch_bytes"],
        given["split_bytes"],
        given.get("confirm_offset"),
        given["broker"],
        given["allow_loss"],
        given["skip_corrupt"],
        given["single_writer"],
        given["batch_rows"],
    )


def _feed(
    given: dict[str, Any],
    limits: ExportLimits,
    topics: Collection[str],
    broker_name: str,
) -> ExportSource:
    """The log of a store, or live topics of a broker."""
    name_servers = given["name_server"]
    if bool(given["store"]) == bool(name_servers):
        raise click.UsageError(
            "give one of --store, the folder of a store, and --name-server"
        )
    if given["store"]:
        commit_log.find_segments(given["store"])
        return StoreSource(given["store"], limits)
    if limits.broker or limits.confirm_offset is not None:
        raise click.UsageError(
            "--broker and --confirm-offset are for --store: live topics end where "
            "their broker says"
        )
    chosen = TopicSelection(
        frozenset(topics) or None, None, given.get("include_system_topics", False)
    )
    # no flags: user and TLS are those of all tools
    flags = dict.fromkeys(str(each.name) for each in connection_options())
    settings = take_settings(flags | {"namesrv": name_servers})
    asked = ClientSettings(settings.name_servers, settings.identity, chosen)
    return LiveSource(asked, broker_name, limits)


def _bodies(given: dict[str, Any]) -> Bodies | None:
    form = given["body"]
    if form is None:
        if given["schema"] or given["avro_schemas"]:
            raise click.UsageError("--schema and --avro-schemas need --body")
        return None
    if not given["schema"] or not given["topics"]:
        raise click.UsageError("--body needs --schema, and --topics that have it")
    if (form == "avro") != bool(given["avro_schemas"]):
        raise click.UsageError("--body avro and --avro-schemas need each other")
    return Bodies(
        form,
        parse_fields(given["schema"]),
        given["on_error"],
        given["max_bad"],
        given["avro_schemas"] or "",
    )


def _exporter(given: dict[str, Any], limits: ExportLimits) -> Exporter:
    bodies = _bodies(given)
    columns = [name for name in EXPORTED if bodies is None or name != "body"]
    settings = Settings(
        given["broker_name"],
        given["table_format"],
        given["columns"].split(",") if given["columns"] else columns,
        given["properties_format"],
        given["include_system_topics"],
        sorted({name.strip() for name in (given["topics"] or "").split(",")} - {""}),
        bodies,
        given["table"],
        STORE if given["store"] else TOPICS,
    )
    feed = _feed(given, limits, settings.topics, settings.broker_name)
    runner: Runner = LocalRunner()
    if given["master"] != "none":
        runner = SparkRunner(start_session(given["master"]))
    return Exporter(feed, given["out"], settings, runner, limits)


@main.command()
@_exporting(master="local[*]", batch_bytes="1g")
@_confirm_offset
def export(**given: Any) -> None:  # noqa: ANN401 - options, each of its type
    """Export what is new in a store: plan, write, commit, batch after batch."""
    limits = _limits(given)
    with _sentences():
        exporter = _exporter(given, limits)
        report = _Report(exporter.feed, limits, given["report_as"])
        with closing(exporter.feed):
            report.tell(exporter.position())
            while (manifest := exporter.run_batch()) is not None:
                report.batch(manifest)
        report.finish()


def _from_file(context: click.Context, _: click.Parameter, path: str | None) -> None:
    """Take options from a TOML file; those of the command line come first.

    Sections `[topics.NAME]` are tables of one topic, beside the table of the options.
    """
    if path is None:
        return
    try:
        values = tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path} cannot be read: {error}") from error
    known = {
        each.opts[0].lstrip("-"): each
        for each in context.command.params
        if each.expose_value
    }
    topics = values.get("topics")
    if isinstance(topics, dict):
        del values["topics"]
        context.meta[_TABLES] = list(_tables_of_topics(context, path, topics))
    checked = _checked(path, values, known)
    context.default_map = {known[name].name: checked[name] for name in checked}


def _checked(
    where: str, values: dict[str, Any], known: Collection[str]
) -> dict[str, str | bool]:
    """The values as click takes them."""
    for name, value in values.items():
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean {near}?" if near else ""
            raise click.BadParameter(f"{where}: there is no option {name}{hint}")
        if not isinstance(value, bool | int | float | str):
            raise click.BadParameter(f"{where}: {name} is neither text nor number")
    return {n: v if isinstance(v, bool) else str(v) for n, v in values.items()}


def _tables_of_topics(
    context: click.Context, path: str, topics: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """The options of each section: `[topics.NAME]`, or several `[[topics.NAME]]`."""
    known = {each.opts[0].lstrip("-"): each for each in context.command.params}
    for topic, entry in topics.items():
        for section in entry if isinstance(entry, list) else [entry]:
            where = f"{path}: topics.{topic}"
            if not isinstance(section, dict):
                raise click.BadParameter(f"{where} is no section")
            values = _checked(where, section, _OF_TOPICS)
            if "out" not in values:
                raise click.BadParameter(f"{where} needs out, the folder of its table")
            yield {
                str(known[name].name): known[name].process_value(context, value)
                for name, value in values.items()
            } | {"topics": topic}


def _tables(given: dict[str, Any]) -> list[dict[str, Any]]:
    """The options of each table: that of the command, and those of topics."""
    sections = click.get_current_context().meta.get(_TABLES, [])
    tables = [given, *(given | _NOT_INHERITED | section for section in sections)]
    outs = Counter(str(each["out"]).rstrip("/") for each in tables)
    for out, count in outs.items():
        if count > 1:
            raise click.UsageError(f"{count} tables have the folder {out}")
    return tables


@main.command("follow")
@click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=_from_file,
    help="TOML file with these options, without their dashes in front.",
)
@_exporting(master="none", batch_bytes="256m")
@click.option(
    "--interval",
    type=_seconds,
    metavar="INTERVAL",
    default="60s",
    show_default=True,
    help="Look for new messages at this interval.",
)
@click.option(
    "--listen", metavar="HOST:PORT", help="Serve /healthz and /metrics at this address."
)
@click.option(
    "--compact",
    is_flag=True,
    help="Merge small files by itself.",
)
def follow_store(
    interval: float,
    listen: str | None,
    report_as: str | None,
    compact: bool,
    **given: Any,  # noqa: ANN401 - options, each of its type
) -> None:
    """Keep the table complete, as a service: export what is new at each interval.

    One line of JSON on stdout tells what a round has done. SIGTERM and Ctrl-C end the
    service after the batch that is running; a second one ends it at once, and the next
    start finishes the batch.
    """
    tables = _tables(given | {"report_as": report_as})
    limits = [_limits(each) for each in tables]

    def report(position: int) -> None:
        if report_as and given["broker"]:
            report_offset(given["broker"], report_as, position)

    reports = LowWatermark(len(tables), report)
    with _sentences(), ExitStack() as held:
        address = parse_address(listen) if listen else None
        followers = []
        for each, its_limits in zip(tables, limits, strict=True):
            out, exporter = each["out"], _exporter(each, its_limits)
            held.callback(exporter.feed.close)
            broker_name = escaped(each["broker_name"])
            held.enter_context(open_folder(out).following(broker_name))
            followers.append(
                ExportService(
                    exporter,
                    interval_s=interval,
                    report=partial(reports.tell, out),
                    tell=lambda line: click.echo(json.dumps(line)),
                    clock=SystemClock(),
                    upkeep=partial(compact_files, exporter) if compact else None,
                    table=out if len(tables) > 1 else "",
                )
            )
        serve(followers, address)


def _feed_of_table(
    given: dict[str, Any], limits: ExportLimits, out: str, broker_name: str | None
) -> ExportSource:
    """Where the messages of a table come from, which says which topics it has."""
    folder = open_folder(out)
    broker = only_broker(folder, broker_name) or ""
    last = ExportLog(folder, broker).last()
    if last is None:
        return _feed(given, limits, (), broker)
    every = {"include_system_topics": last.settings.with_system_topics}
    return _feed(given | every, limits, last.settings.topics, broker)


@main.command("status")
@_folders
@_broker
@_confirm_offset
@_which_broker
def show_status(
    out: str,
    confirm_offset: int | None,
    broker: str | None,
    broker_name: str | None,
    **given: Any,  # noqa: ANN401 - where messages come from
) -> None:
    """Show how far an export has come, as JSON: lag in bytes, rows and seconds."""
    with _sentences():
        limits = ExportLimits(confirm_offset=confirm_offset, broker=broker)
        with closing(_feed_of_table(given, limits, out, broker_name)) as feed:
            seen = status(feed, out, broker_name)
        click.echo(json.dumps(seen, indent=2))


@main.command()
@click.option(
    "--broker", required=True, metavar="HOST:PORT", help="Broker that has the exporter."
)
@click.option(
    "--report-as", required=True, metavar="NAME", help="Name of the exporter."
)
def forget(broker: str, report_as: str) -> None:
    """Remove an exporter from a broker, which then keeps no files for it."""
    with _sentences():
        forget_exporter(broker, report_as)


@main.command("vacuum")
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    callback=_folder,
    help="Folder of the export, or s3://BUCKET/PREFIX.",
)
@click.option(
    "--older-than-hours",
    type=float,
    default=24.0,
    show_default=True,
    help="Keep younger files: a writer may be at work.",
)
def remove_orphans(out: str, older_than_hours: float) -> None:
    """Remove files that are not part of the table."""
    with _sentences():
        removed = vacuum(out, older_than_hours=older_than_hours, now=time.time())
        for path in removed:
            click.echo(path)
        click.echo(f"{len(removed)} files removed", err=True)


@main.command()
@_folders
@_which_broker
def optimize(out: str, broker_name: str | None, **given: Any) -> None:  # noqa: ANN401
    """Merge the small files of past days.

    Until the next vacuum a plain reader of the folder sees both old and new files; a
    reader of the manifests sees each row once.
    """
    with _sentences():
        folder = open_folder(out)
        last = ExportLog(folder, only_broker(folder, broker_name) or "").last()
        if last is None:
            click.echo(f"{out} has no export", err=True)
            return
        with closing(_feed_of_table(given, ExportLimits(), out, broker_name)) as feed:
            exporter = Exporter(feed, out, last.settings, LocalRunner())
            manifest = exporter.optimize()
        merged = len(manifest.removed) if manifest else 0
        click.echo(
            f"{merged} files merged into {len(manifest.added) if manifest else 0}"
        )


class _sentences:
    """Turns an expected error into one sentence and exit code 1."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, RmqError):
            _fail(str(error))
        if isinstance(error, FileExistsError):
            _fail(f"{error.filename} is a file, not a folder")
        if isinstance(error, OSError) and error.filename and error.strerror:
            _fail(f"{error.filename}: {error.strerror.lower()}")
        if error is not None and type(error).__module__.startswith(("pyspark", "py4j")):
            _fail(_of_worker(str(error)))


def _fail(sentence: str) -> None:
    click.echo(f"rmq-spark: {sentence}", err=True)
    sys.exit(FAILED)


def _of_worker(trace: str) -> str:
    """The sentence in the traceback of a worker."""
    found = re.findall(r"^rmq[\w.]*\.\w+: (.+)$", trace, re.MULTILINE)
    return found[-1] if found else trace


def _told(left_out: Counter[str]) -> str:
    """What was left out, the topics with most messages first."""
    shown = left_out.most_common(SHOWN_TOPICS)
    parts = [f"{topic} {messages}" for topic, messages in shown]
    if len(left_out) > len(shown):
        parts.append(f"{len(left_out) - len(shown)} more topics")
    return (
        f"{left_out.total()} messages in topics of the system are left out: "
        f"{', '.join(parts)}; --include-system-topics takes them"
    )


class _Report:
    """A progress bar on a terminal, else one line of JSON for each batch."""

    def __init__(
        self, feed: ExportSource, limits: ExportLimits, exporter: str | None
    ) -> None:
        self._feed = feed
        self._limits = limits
        self._exporter = exporter
        self._start = time.monotonic()
        self._rows = self._bytes = 0
        self._left_out: Counter[str] = Counter()

    def tell(self, position: int) -> None:
        """Report the progress to the broker, if --report-as was given."""
        if self._exporter and self._limits.broker:
            report_offset(self._limits.broker, self._exporter, position)

    def batch(self, manifest: Manifest) -> None:
        """Count a committed batch."""
        self.tell(manifest.end)
        self._rows += sum(file.rows for file in manifest.added)
        self._left_out.update(manifest.left_out)
        self._bytes += manifest.end - manifest.start
        seconds = max(time.monotonic() - self._start, 1e-6)
        lag = max(0, self._feed.end(manifest) - manifest.end)
        if sys.stderr.isatty():
            self._draw(lag, seconds)
            return
        line = {
            "batch": manifest.seq,
            "end": manifest.end,
            "files": len(manifest.added),
            "rows": sum(file.rows for file in manifest.added),
            "rows_per_second": round(self._rows / seconds),
            f"lag_{self._feed.unit}": lag,
            "lost": manifest.lost,
            "left_out": manifest.left_out,
        }
        click.echo(json.dumps(line))

    def finish(self) -> None:
        """End the bar and print the number of rows."""
        if sys.stderr.isatty():
            click.echo("", err=True)
        click.echo(f"{self._rows} rows exported", err=True)
        if self._left_out:
            click.echo(_told(self._left_out), err=True)

    def _draw(self, lag: int, seconds: float) -> None:
        part = self._bytes / max(1, self._bytes + lag)
        left = seconds * lag / max(1, self._bytes)
        bar = "#" * round(_BAR * part)
        click.echo(
            f"\r[{bar:<{_BAR}}] {part:4.0%} {self._rows:,} rows "
            f"{self._rows / seconds:,.0f}/s {left:.0f} s left ",
            err=True,
            nl=False,
        )


if __name__ == "__main__":
    main()
