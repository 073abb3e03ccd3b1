"""`rmq sql`: a question in SQL to the log of a store, or to the topics of brokers.

DuckDB and Arrow are imported when the command runs.
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

from rmq.core.errors import ConfigError, RmqError

if TYPE_CHECKING:
    from rmq_spark.sql.database import Database
    from rmq_spark.sql.live import LiveTopics
    from rmq_spark.sql.origin import Stores

FAILED: Final = 1
INTERRUPTED: Final = 130
"""As a shell reports Ctrl-C."""
FORMATS: Final = ("table", "csv", "json", "jsonl", "parquet")
DEFAULT_STORE: Final = os.path.expanduser("~/store")
"""Where brokers have it, unless they are told otherwise."""
MAX_SCRIPT_BYTES: Final = 1 << 20
NEEDED: Final = ("duckdb", "pyarrow")


class Output(NamedTuple):
    """How rows are written, and where to; no path is standard output."""

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
@click.option(
    "--name-server",
    metavar="HOST:PORT",
    help="Ask running brokers instead, by their name servers; several with ; between.",
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
    help="Default: table on a terminal, csv elsewhere, or as the file is named.",
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
    help="Threads, all cores by default.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End a statement that takes longer.",
)
@click.option("--skip-corrupt", is_flag=True, help="Pass over damaged records.")
@click.option("--allow-loss", is_flag=True, help="Continue if segments are missing.")
def sql(
    query: str | None,
    stores: Sequence[str],
    script: Any,  # noqa: ANN401 - a file
    form: str | None,
    path: Path | None,
    **given: Any,  # noqa: ANN401 - options, each of its type
) -> None:
    """Ask the log of a store in SQL; no broker is needed, and one may run.

    With --name-server it asks the topics of running brokers.

    Tables are messages, all_messages (topics of the system, too), queues, segments, and
    one for each topic. Without QUERY and -f it reads statements from the standard
    input, or has a prompt on a terminal.

    \b
    rmq sql 'SELECT topic, count(*) FROM messages GROUP BY topic'
    rmq sql 'SELECT keys, text FROM "my-topic" LIMIT 10' --store /data/store
    """  # noqa: D301 - click wants the character itself
    logging.basicConfig(format="rmq: %(message)s", level=logging.WARNING)
    if query is not None and script is not None:
        raise click.UsageError("give a query or -f, not both")
    output = _output(form, path)
    with _sentences():
        database = _open(stores, given)
        try:
            if query is None and script is None and sys.stdin.isatty():
                _prompt(database, output)
            else:
                text = query if query is not None else _read(script or sys.stdin.buffer)
                _run(database, text, output)
        finally:
            database.close()


def _output(form: str | None, path: Path | None) -> Output:
    """The format that is asked for, or the one that suits."""
    if form is None and path is not None:
        suffix = path.suffix.removeprefix(".").lower()
        form = suffix if suffix in FORMATS else "csv"
    if form is None:
        form = "table" if sys.stdout.isatty() else "csv"
    if form == "parquet" and path is None:
        raise click.UsageError("parquet is written to a file: add -o FILE.parquet")
    return Output(form, path)


def _open(stores: Sequence[str], given: dict[str, Any]) -> "Database":
    """The tables that the options name."""
    archive, name_servers = given["archive"], given["name_server"]
    if name_servers is not None and (stores or archive is not None):
        raise click.UsageError("--name-server reads no --store and no --archive")
    origin = (
        _stores(stores, given)
        if name_servers is None
        else _live(name_servers, given["threads"])
    )
    from rmq_spark.sql.archive import Archive
    from rmq_spark.sql.database import Database

    return Database(
        origin,
        given["memory_limit"],
        threads=given["threads"],
        timeout_s=given["timeout"],
        archive=None if archive is None else Archive(archive),
    )


def _stores(stores: Sequence[str], given: dict[str, Any]) -> "Stores":
    """The stores, whose logs are walked while DuckDB is imported."""
    # imported on use: help needs no compiled decoder
    from rmq_spark.sql.log_snapshot import named_logs

    if not stores and not os.path.isdir(DEFAULT_STORE):
        raise ConfigError(f"there is no {DEFAULT_STORE}: which store? --store DIR")
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


def _live(name_servers: str, threads: int) -> "LiveTopics":
    """The topics of brokers; user and TLS are those of all tools."""
    _check_libraries()
    # imported on use: most questions are for stores
    from rmq.cli.tool_settings import connection_options, take_settings
    from rmq_spark.live.client import ClientSettings
    from rmq_spark.segments.selection import TopicSelection
    from rmq_spark.sql.live import LiveTopics

    # no flags, so that they come from the environment and from the file of the tools
    flags = dict.fromkeys(str(each.name) for each in connection_options())
    settings = take_settings(flags | {"namesrv": name_servers})
    live = ClientSettings(settings.name_servers, settings.identity, TopicSelection())
    return LiveTopics(live, threads=threads)


def _check_libraries() -> None:
    """Import what takes longest; a sentence says what is missing."""
    try:
        import rmq_spark.sql.database  # noqa: F401 - used after this
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        raise ConfigError(
            f"rmq sql needs {error.name}: pip install 'duckdb>=2' 'pyarrow>=18'"
        ) from error


def _read(file: Any) -> str:  # noqa: ANN401 - a file
    data = file.read(MAX_SCRIPT_BYTES + 1)
    if len(data) > MAX_SCRIPT_BYTES:
        raise ConfigError(f"a script has at most {MAX_SCRIPT_BYTES:,} bytes")
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the script is no UTF-8: {error}") from error


def _prompt(database: "Database", output: Output) -> None:
    # imported on use: most questions come as an argument
    from rmq_spark.sql.prompt import run_prompt

    def run(text: str) -> None:
        try:
            _run(database, text, output)
        except RmqError as error:
            _tell(error)

    run_prompt(run, database.tables, database.columns)


def _run(database: "Database", text: str, output: Output) -> None:
    """Run each statement of a text, and write its rows."""
    from rmq_spark.sql.output import write_parquet, write_rows

    results = 0
    for statement in database.statements(text):
        result = database.run(statement)
        if result is None:
            continue
        results += 1
        if results > 1 and output.path is not None:
            raise ConfigError(f"{output.path} takes the rows of one statement only")
        if output.form == "parquet" and output.path is not None:
            write_parquet(result, output.path)
            continue
        with _opened(output.path) as out:
            write_rows(result, output.form, out)


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    with path.open("w", encoding="utf-8", newline="") as out:
        yield out


@contextmanager
def _sentences() -> Iterator[None]:
    """Turn an expected error into one sentence and an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("rmq: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except RmqError as error:
        _tell(error)
        sys.exit(FAILED)
    except OSError as error:
        if isinstance(error, BrokenPipeError) or not error.filename:
            raise
        _tell(f"{error.filename}: {(error.strerror or str(error)).lower()}")
        sys.exit(FAILED)


def _tell(error: object) -> None:
    click.echo(f"rmq: {error}", err=True)
