"""`rmq sql`: runs SQL over the log of a store, or over the topics of brokers.

The command imports DuckDB and Arrow when it runs.
"""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

import click

from rmq.cli.name_server_option import add_name_server_option
from rmq.cli.terminal.progress import Progress
from rmq.core.errors import ConfigError, RmqError
from rmq.core.exit_codes import FAILED, INTERRUPTED
from rmq.core.extras import install_command

if TYPE_CHECKING:
    from rmq_spark.sql.database import Database
    from rmq_spark.sql.live import LiveTopics
    from rmq_spark.sql.origin import Stores

FORMATS: Final = ("table", "csv", "json", "jsonl", "parquet")
DEFAULT_STORE: Final = os.path.expanduser("~/store")
"""The default folder of brokers."""
MAX_SCRIPT_BYTES: Final = 1 << 20
NEEDED: Final = ("duckdb", "pyarrow")


class Output(NamedTuple):
    """Format and target of rows; without a path this is standard output."""

    form: str
    path: Path | None


@click.command()
@click.argument("query", required=False)
@click.option(
    "-s",
    "--store",
    "stores",
    multiple=True,
    metavar="[NAME=]DIR",
    help="Folder of a store, ~/store by default; NAME is its broker. May be repeated.",
)
@add_name_server_option(
    "Read the topics of running brokers, not a store. Separate several by `;`.",
    "--name-server",
)
@click.option(
    "--archive",
    metavar="DIR",
    help="Folder of an export of rmq-spark, or s3://BUCKET/PREFIX.",
)
@click.option(
    "-f",
    "--file",
    "script",
    type=click.File("rb"),
    help="Run the statements of a file.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Format. Default with -o: the ending of its file name, or csv; without -o: "
    "table on a terminal, csv in a pipe.",
)
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file.",
)
@click.option(
    "--memory-limit",
    default="1GB",
    show_default=True,
    metavar="SIZE",
    help="Memory for sorting, joining and grouping.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=lambda: len(os.sched_getaffinity(0)),
    help="Number of threads; all cores by default.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop a statement that takes longer.",
)
@click.option("--skip-corrupt", is_flag=True, help="Skip damaged records.")
@click.option("--allow-loss", is_flag=True, help="Continue if segments are missing.")
def sql(
    query: str | None,
    stores: Sequence[str],
    script: Any,  # noqa: ANN401 - a file
    form: str | None,
    path: Path | None,
    **given: Any,  # noqa: ANN401 - options, each of its type
) -> None:
    """Query the log of a store in SQL. It needs no broker, but a broker may run at the
    same time.

    With -n it queries the topics of running brokers.

    The tables are messages, all_messages (with system topics), queues, segments, and
    one for each topic. Without QUERY and -f the command reads statements from standard
    input, or shows a prompt on a terminal.

    \b
    rmq sql 'SELECT topic, count(*) FROM messages GROUP BY topic'
    rmq sql 'SELECT keys, text FROM "my-topic" LIMIT 10' --store /data/store
    """  # noqa: D301 - click wants the character itself
    logging.basicConfig(format="rmq: %(message)s", level=logging.WARNING)
    if query is not None and script is not None:
        raise click.UsageError("give a query or -f, not both")
    output = _choose_output(form, path)
    with _report_failures():
        database = _open_database(stores, given)
        try:
            if query is None and script is None and sys.stdin.isatty():
                _run_prompt(database, output)
            else:
                text = query if query is not None else _read(script or sys.stdin.buffer)
                _run(database, text, output)
        finally:
            database.close()


def _choose_output(form: str | None, path: Path | None) -> Output:
    """Return the requested format, or the default for the target."""
    if form is None and path is not None:
        suffix = path.suffix.removeprefix(".").lower()
        form = suffix if suffix in FORMATS else "csv"
    if form is None:
        form = "table" if sys.stdout.isatty() else "csv"
    if form == "parquet" and path is None:
        raise click.UsageError("parquet needs a file: add -o FILE.parquet")
    return Output(form, path)


def _open_database(stores: Sequence[str], given: dict[str, Any]) -> "Database":
    """Open the database over the stores or brokers of the options."""
    archive, name_servers = given["archive"], given["namesrv"]
    if name_servers is not None and (stores or archive is not None):
        raise click.UsageError("-n cannot be combined with --store or --archive")
    origin = (
        _open_stores(stores, given)
        if name_servers is None
        else _open_live(name_servers, given["threads"], given["skip_corrupt"])
    )
    from rmq_spark.sql.archive import Archive
    from rmq_spark.sql.database import Database

    return Database(
        origin,
        given["memory_limit"],
        threads=given["threads"],
        timeout_s=given["timeout"],
        archive=None if archive is None else Archive(archive),
        progress=Progress("read") if sys.stderr.isatty() else None,
    )


def _open_stores(stores: Sequence[str], given: dict[str, Any]) -> "Stores":
    """Open the stores; walks their logs while DuckDB is imported."""
    # imported on use: help needs no compiled decoder
    from rmq_spark.sql.log_snapshot import named_logs

    if not stores and not os.path.isdir(DEFAULT_STORE):
        raise ConfigError(
            f"there is no store at {DEFAULT_STORE}: name one with --store DIR"
        )
    allow_loss = given["allow_loss"]
    logs = named_logs(stores or [DEFAULT_STORE], fails_on_loss=not allow_loss)
    with ThreadPoolExecutor(len(logs)) as pool:
        walks = [pool.submit(log.freeze) for log in logs]
        _check_libraries()
    for walk in walks:
        walk.result()
    from rmq_spark.sql.dataset import ScanSettings
    from rmq_spark.sql.origin import Stores

    return Stores(
        logs, ScanSettings(given["threads"], given["skip_corrupt"], allow_loss)
    )


def _open_live(name_servers: str, threads: int, skip_corrupt: bool) -> "LiveTopics":
    """Open the topics of brokers; all tools share user and TLS."""
    _check_libraries()
    # imported on use: most queries read stores
    from rmq.cli.tool_settings import connection_options, take_settings
    from rmq_spark.live.client import ClientSettings
    from rmq_spark.segments.selection import TopicSelection
    from rmq_spark.sql.live import LiveTopics

    # no flags, so that they come from the environment and from the file of the tools
    flags = dict.fromkeys(str(each.name) for each in connection_options())
    settings = take_settings(flags | {"namesrv": name_servers})
    live = ClientSettings(settings.name_servers, settings.identity, TopicSelection())
    return LiveTopics(live, threads=threads, skip_corrupt=skip_corrupt)


def _check_libraries() -> None:
    """Import DuckDB and Arrow; ConfigError if one of them is missing."""
    try:
        import rmq_spark.sql.database  # noqa: F401 - used after this
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        raise ConfigError(
            f"rmq sql needs {error.name}: {install_command('sql')}"
        ) from error


def _read(file: Any) -> str:  # noqa: ANN401 - a file
    data = file.read(MAX_SCRIPT_BYTES + 1)
    if len(data) > MAX_SCRIPT_BYTES:
        raise ConfigError(f"a script has at most {MAX_SCRIPT_BYTES:,} bytes")
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the script is not UTF-8: {error}") from error


def _run_prompt(database: "Database", output: Output) -> None:
    # imported on use: most queries are arguments
    from rmq_spark.sql.prompt import run_prompt

    def run(text: str) -> None:
        try:
            _run(database, text, output)
        except RmqError as error:
            _report_error(error)

    run_prompt(run, database.tables, database.columns)


def _run(database: "Database", text: str, output: Output) -> None:
    """Run each statement of a text, and write its rows."""
    from rmq_spark.sql.output import write_parquet, write_rows

    results = 0
    for statement in database.split_statements(text):
        result = database.run(statement)
        if result is None:
            continue
        results += 1
        if results > 1 and output.path is not None:
            raise ConfigError(f"{output.path} can have the rows of one statement only")
        if output.form == "parquet" and output.path is not None:
            write_parquet(result, output.path)
            continue
        with _open_output(output.path) as out:
            write_rows(result, output.form, out)


@contextmanager
def _open_output(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    with path.open("w", encoding="utf-8", newline="") as out:
        yield out


@contextmanager
def _report_failures() -> Iterator[None]:
    """Report an expected error in one sentence, and exit."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("rmq: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except RmqError as error:
        _report_error(error)
        sys.exit(FAILED)
    except OSError as error:
        if isinstance(error, BrokenPipeError) or not error.filename:
            raise
        _report_error(f"{error.filename}: {(error.strerror or str(error)).lower()}")
        sys.exit(FAILED)


def _report_error(error: object) -> None:
    click.echo(f"rmq: {error}", err=True)
