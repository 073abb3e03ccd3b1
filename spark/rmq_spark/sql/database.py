"""Database: DuckDB with the tables of stores or brokers, and access to nothing else.

Tables: `messages`; `all_messages`, with system topics; `queues`; `segments`; and one
for each topic.  The database creates tables of the first topics at its start, and
others when a statement names them.  With an archive, `archive` has the exported
messages, `after_archive` the later messages of the logs, and `everything` both.

An `Origin` provides the messages: stores, or running brokers.

The database does not trust SQL.  A statement reads neither files nor Python variables,
uses no network, loads no extension, and changes no setting. The memory of a statement
is limited, and DuckDB writes no data to a disk.
"""

import difflib
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa

from rmq.cli.terminal.progress import Progress
from rmq.core.errors import RmqError
from rmq_spark.sql.archive import Archive
from rmq_spark.sql.dataset import MessageDataset
from rmq_spark.sql.origin import Origin

TOPICS_AT_START: Final = 100
"""Maximum number of topics whose tables are created at the start; each takes 0.3 ms."""
MAX_NEW_TABLES: Final = 1_000
"""Maximum number of topics that one statement may name."""
BATCH_ROWS: Final = 8_192
PROGRESS_S: Final = 0.2
INTERRUPT_S: Final = 0.05
"""Interval of interrupts: DuckDB ignores an interrupt before the statement has started.
"""
_CLOSED: Final = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_persistent_secrets": "false",
    "temp_directory": "",
}
_QUEUES: Final = """
    CREATE VIEW queues AS
    SELECT topic, brokerName, queueId, min(queueOffset) AS minOffset,
        max(queueOffset) + 1 AS maxOffset, count(*) AS messages,
        min(storeTimestamp) AS firstTimestamp, max(storeTimestamp) AS lastTimestamp
    FROM all_messages GROUP BY ALL ORDER BY ALL
"""
_OWN: Final = ("messages", "all_messages", "queues", "segments")
_ARCHIVED: Final = ("archive", "after_archive", "everything")
_GIVES_ROWS: Final = [duckdb.ExpectedResultType.QUERY_RESULT]
_REPORTS: Final = (["Count"], ["Success"])
"""The columns of results of CREATE, INSERT and SET."""
_MISSING: Final = re.compile(r"Table with name (.+?) does not exist")
_log: Final = logging.getLogger(__name__)


class SqlError(RmqError):
    """A statement cannot be run."""


class Result(NamedTuple):
    """The rows of a statement; they can be read once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


class Database:
    """The tables of an origin; each statement sees a snapshot of it."""

    def __init__(
        self,
        origin: Origin,
        memory: str,
        *,
        threads: int = 1,
        timeout_s: float | None = None,
        archive: Archive | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`progress` shows the share of the logs that a statement has read."""
        self._progress = progress
        self._origin = origin
        self._archive = archive
        self.timeout_s = timeout_s
        self._deadline_s: float | None = None
        self._own = _OWN + (_ARCHIVED if archive is not None else ())
        self._tables: set[str] = set()
        self._topics: set[str] = set()
        self._worker = ThreadPoolExecutor(1)
        settings = _CLOSED | {"threads": str(threads), "memory_limit": memory}
        try:
            self._connection = duckdb.connect(":memory:", config=settings)
        except duckdb.Error as error:
            raise SqlError(f"memory limit {memory}: {_error_text(error)}") from error
        self._datasets: list[MessageDataset] = [origin.messages, origin.all_messages]
        self._connection.execute("SET TimeZone = 'UTC'")
        for name, dataset in zip(_OWN, self._datasets, strict=False):
            self._connection.register(name, dataset)
        self._connection.register("segments", origin.list_segments())
        if origin.queues is None:
            self._connection.execute(_QUEUES)
        else:
            self._connection.register("queues", origin.queues)
        if archive is not None:
            if origin.after_archive is None:
                raise SqlError("an archive needs the stores whose messages it has")
            self._datasets.append(origin.after_archive)
            self._register_archive(archive)
        self._topics = origin.topics()
        if not self._topics:
            self._freeze()
            self._topics = origin.recent_topics()
        for topic in sorted(self._topics)[:TOPICS_AT_START]:
            self._make_table(topic)
        self._connection.execute("SET lock_configuration = true")

    def close(self) -> None:
        """Close DuckDB and the origin."""
        self._worker.shutdown()
        self._connection.close()
        self._origin.close()

    def split_statements(self, text: str) -> list[str]:
        """Return the statements of a text."""
        with self._convert_errors():
            parsed = self._connection.extract_statements(text)
            return [statement.query for statement in parsed]

    def run(self, statement: str) -> Result | None:
        """Run one statement; returns None if it has no rows, such as CREATE TABLE."""
        if self.timeout_s is not None:
            self._deadline_s = time.monotonic() + self.timeout_s
        self._freeze()
        with self._convert_errors():
            parsed = self._connection.extract_statements(statement)
            if len(parsed) != 1:
                raise SqlError("give one statement")
            reader = self._call(lambda: self._reader(statement))
        if reader is None:
            return None
        if self._progress is not None:
            self._progress.begin("read", self._origin.all_messages.log_bytes() or None)
        always_rows = parsed[0].expected_result_type == _GIVES_ROWS
        if reader.schema.names in _REPORTS and not always_rows:
            return None
        return Result(reader.schema, self._read_batches(reader))

    def tables(self) -> list[str]:
        """Return the names of all tables."""
        self._topics = self._origin.topics() | self._origin.recent_topics()
        topics = sorted(name for name in self._topics if not self._is_ambiguous(name))
        return [*self._own, *topics]

    def columns(self) -> list[str]:
        """Return the names of the columns of messages."""
        return list(self._datasets[0].schema.names)

    def _freeze(self) -> None:
        # freeze the archive first: it must not be newer than the logs
        archived = None if self._archive is None else self._archive.freeze()
        self._origin.freeze(archived)
        for dataset in self._datasets:
            dataset.failure = None
            dataset.left_out.clear()
            dataset.scanned_bytes = dataset.scanned_rows = 0
        self._connection.register("segments", self._origin.list_segments())
        if archived is not None:
            self._connection.register("archive", archived.dataset)

    def _register_archive(self, archive: Archive) -> None:
        """Create the tables of exported messages and of the messages after them."""
        dataset = archive.freeze().dataset
        self._connection.register("archive", dataset)
        self._connection.register("after_archive", self._datasets[-1])
        ours = self._datasets[-1].schema
        both = [field for field in dataset.schema if field in list(ours)]
        names = ", ".join(f'"{field.name}"' for field in both)
        self._connection.execute(
            f"CREATE VIEW everything AS SELECT {names} FROM archive "
            f"UNION ALL SELECT {names} FROM after_archive"
        )

    def _read_batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with self._convert_errors():
            while (batch := self._call(lambda: next(reader, None))) is not None:
                yield batch
        if self._progress is not None:
            self._progress.finish()
        self._origin.finish()
        for topic in sorted(self._datasets[0].left_out):
            _log.warning(
                "table messages has no system topics: %s is in table all_messages",
                topic,
            )

    def _call(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - what `work` has
        """Call `work` in another thread, because DuckDB would block Ctrl-C."""
        done = self._worker.submit(work)
        deadline_s = self._deadline_s
        left_s = None if deadline_s is None else max(0, deadline_s - time.monotonic())
        try:
            finished = self._wait(done, left_s)
        except (KeyboardInterrupt, SystemExit):
            self._interrupt_statement(done)
            raise
        if not finished:
            self._interrupt_statement(done)
            raise SqlError(
                f"the statement was stopped after {self.timeout_s:g} s, --timeout"
            )
        return done.result()

    def _wait(self, done: Future[Any], left_s: float | None) -> bool:
        """Wait for a result, and show progress; False if the time is over."""
        if self._progress is None:
            return bool(wait([done], left_s).done)
        end_s = None if left_s is None else time.monotonic() + left_s
        while not done.done():
            self._show_progress(self._progress)
            rest_s = None if end_s is None else end_s - time.monotonic()
            if rest_s is not None and rest_s <= 0:
                return False
            wait([done], PROGRESS_S if rest_s is None else min(PROGRESS_S, rest_s))
        return True

    def _show_progress(self, progress: Progress) -> None:
        rows = sum(each.scanned_rows for each in self._datasets)
        size = sum(each.scanned_bytes for each in self._datasets)
        progress.show_messages(size, rows)

    def _interrupt_statement(self, done: Future[Any]) -> None:
        """Interrupt a statement again and again until it has ended."""
        while not done.done():
            self._connection.interrupt()
            wait([done], INTERRUPT_S)

    def _reader(self, statement: str) -> pa.RecordBatchReader | None:
        """Start a statement; creates the tables of topics that it names."""
        for _ in range(MAX_NEW_TABLES):
            try:
                relation = self._connection.sql(statement)
                if relation is None:
                    return None
                return relation.to_arrow_reader(BATCH_ROWS)
            except duckdb.CatalogException as error:
                missing = _MISSING.search(str(error))
                if missing is None:
                    raise
                self._add_table(missing[1].strip('"'))
        raise SqlError(f"a statement names at most {MAX_NEW_TABLES} topics")

    def _add_table(self, name: str) -> None:
        tables = self.tables()
        found = sorted(each for each in self._topics if each.lower() == name.lower())
        if len(found) > 1:
            raise SqlError(
                f"topics {' and '.join(found)} differ in case only, which SQL "
                f"ignores: SELECT ... FROM messages WHERE topic = '{found[0]}'"
            )
        if not found or found[0] in self._tables:
            raise SqlError(_no_table(name, tables))
        self._make_table(found[0])

    def _make_table(self, topic: str) -> None:
        """Create the view of a topic, with the body as text if it is UTF-8."""
        if self._is_ambiguous(topic):
            return
        self._tables.add(topic)
        name, value = topic.replace('"', '""'), topic.replace("'", "''")
        self._connection.execute(
            f'CREATE VIEW "{name}" AS SELECT *, try(decode(body)) AS "text" '
            f"FROM all_messages WHERE topic = '{value}'"
        )

    def _is_ambiguous(self, topic: str) -> bool:
        """Return whether another table differs in case only."""
        names = [*self._own, *self._topics]
        return sum(each.lower() == topic.lower() for each in names) > 1

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Convert errors of DuckDB and Arrow; raises the cause if a scan failed."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for dataset in self._datasets:
                if dataset.failure is not None:
                    raise dataset.failure from error
            raise SqlError(_error_text(error)) from error


def _no_table(name: str, tables: Sequence[str]) -> str:
    """Return a sentence with the table that is most similar to a wrong name."""
    by_lower = {each.lower(): each for each in tables}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if near:
        return f"there is no table {name}; did you mean {by_lower[near[0]]}?"
    return f"there is no table {name}, and no topic of this name has messages"


def _error_text(error: Exception) -> str:
    """Return DuckDB's text, without the kind of the error and blank lines."""
    if isinstance(error, duckdb.PermissionException):
        return "SQL has access to the tables only: " + _strip_kind(error)
    if isinstance(error, duckdb.OutOfMemoryException):
        return "the statement needs more memory than --memory-limit allows"
    return _strip_kind(error)


def _strip_kind(error: Exception) -> str:
    text = re.sub(r"^[A-Z][A-Za-z ]* Error: ", "", str(error))
    return "\n".join(line for line in text.splitlines() if line.strip())
