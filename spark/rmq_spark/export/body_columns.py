"""Parses JSON bodies to columns with DuckDB, and separates the bodies that do not fit.

A body fits if it is a JSON object in UTF-8, and each declared column has a value of its
type.  A missing value becomes null.  Numbers and booleans may be in quotes.  A `string`
accepts every value: objects and numbers as their JSON text.  A `bigint` accepts no
fraction.  A `timestamp` is ISO 8601 (UTC without a zone) or a number of ms since 1970.
If a name occurs twice in an object, the first value counts.

A row whose body does not fit goes to the quarantine, with its body and the reason.
With `on_error` null it stays in the table, with null in the columns that do not fit.
"""

import json
from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa

from rmq.core.errors import ConfigError
from rmq.core.extras import install_command
from rmq_spark.export.body_schema import ERROR, Bodies

try:
    import duckdb
except ImportError as error:
    raise ConfigError(
        f"bodies as columns need duckdb: {install_command('sql')}"
    ) from error

_NO_OBJECT: Final = "the body is no JSON object"
_MAX_MS: Final = 253_402_300_800_000
"""Milliseconds until the year 10000, after which calendars have no dates."""
_TIME: Final = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?"
_SETTINGS: Final = {
    "threads": "1",
    "memory_limit": "1GB",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
"""One thread per worker; DuckDB has no access to files, because the texts come from
producers.
"""


class ParsedBatch(NamedTuple):
    """The rows with bodies that fit, with the columns of their bodies, and the other
    rows.
    """

    rows: pa.RecordBatch
    quarantined: pa.RecordBatch
    misfits: int
    """Number of bodies that do not fit, also of rows that stay."""
    example: str
    """The first reason."""


def _whole_number(text: str, kind: str) -> str:
    """Return SQL for a number without fraction and exponent."""
    value = f"TRY_CAST({text} AS {kind})"
    return f"CASE WHEN {value}::VARCHAR = {text} THEN {value} END"


def _finite_number(text: str, kind: str) -> str:
    value = f"TRY_CAST({text} AS {kind})"
    return f"CASE WHEN isfinite({value}) THEN {value} END"


def _parse_timestamp(text: str) -> str:
    ms = f"TRY_CAST({text} AS BIGINT)"
    return (
        f"CASE WHEN {ms}::VARCHAR = {text} THEN CASE WHEN {ms} BETWEEN -{_MAX_MS} AND "
        f"{_MAX_MS} THEN make_timestamptz({ms} * 1000) END "
        f"WHEN regexp_full_match({text}, '{_TIME}') "
        f"THEN TRY_CAST({text} AS TIMESTAMPTZ) END"
    )


_CONVERSIONS: Final[dict[str, Callable[[str], str]]] = {
    "boolean": lambda text: (
        f"CASE {text} WHEN 'true' THEN true WHEN 'false' THEN false END"
    ),
    "int": lambda text: _whole_number(text, "INTEGER"),
    "bigint": lambda text: _whole_number(text, "BIGINT"),
    "float": lambda text: _finite_number(text, "FLOAT"),
    "double": lambda text: _finite_number(text, "DOUBLE"),
    "string": lambda text: text,
    "date": lambda text: (
        f"CASE WHEN length({text}) = 10 THEN {_whole_number(text, 'DATE')} END"
    ),
    "timestamp": _parse_timestamp,
}


class BodyParser:
    """Parses the bodies of batches; one thread at a time uses it."""

    def __init__(self, bodies: Bodies, *, keeps_body: bool) -> None:
        self._bodies = bodies
        self._keeps_body = keeps_body
        """Whether the table has the column `body`, too."""
        self._texts: Callable[[pa.Array], tuple[pa.Array, pa.Array]] | None = None
        if bodies.form == "avro":
            # imported on use: fastavro is an extra
            from rmq_spark.export.avro import AvroDecoder

            self._texts = AvroDecoder(bodies.schemas)
        self._connection = duckdb.connect(":memory:", config=_SETTINGS)
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET lock_configuration = true")
        self._query = _build_query(bodies)

    def parse_batch(self, batch: pa.RecordBatch) -> ParsedBatch:
        """Parse the bodies of a batch, which has the column `body`."""
        body = batch.column("body")
        problems = pa.nulls(len(body), pa.string())
        if self._texts is not None:
            body, problems = self._texts(body)
        given = pa.table({"body": body, "problem": problems})
        self._connection.register("given", given)
        values = self._connection.sql(self._query).to_arrow_table()
        (values,) = values.combine_chunks().to_batches() or [
            pa.RecordBatch.from_pylist([], values.schema)
        ]
        errors = values.column(ERROR)
        misfits = len(errors) - errors.null_count
        example = next((str(e) for e in errors if e.is_valid), "") if misfits else ""
        rows = batch if self._keeps_body else batch.drop_columns(["body"])
        for field in self._bodies.schema:
            rows = rows.append_column(field, values.column(field.name).cast(field.type))
        if not misfits or self._bodies.on_error == "null":
            return ParsedBatch(rows, batch.slice(0, 0), misfits, example)
        is_bad = errors.is_valid()
        bad = batch.append_column(pa.field(ERROR, pa.string()), errors).filter(is_bad)
        return ParsedBatch(rows.filter(errors.is_null()), bad, misfits, example)

    def close(self) -> None:
        """Free the memory of DuckDB."""
        self._connection.close()


def _build_query(bodies: Bodies) -> str:
    """Return SQL that makes the declared columns and the reason from the table `given`.

    Inner columns have numbers as names, so that any declared name is safe.
    """
    wanted = json.dumps({name: "VARCHAR" for name, _ in bodies.fields})
    numbered = ", ".join(f"t{number}" for number in range(len(bodies.fields)))
    texts, values, reasons, names = [], [], [], []
    for number, (name, kind) in enumerate(bodies.fields):
        texts.append(f"v.{_quote_name(name)} AS t{number}")
        values.append(f"{_CONVERSIONS[kind](f't{number}')} AS c{number}")
        names.append(f"c{number} AS {_quote_name(name)}")
        if kind != "string":
            reason = _quote_text(f"column {name} is no {kind}")
            reasons.append(
                f"WHEN t{number} IS NOT NULL AND c{number} IS NULL THEN {reason}"
            )
    return f"""
        SELECT {", ".join(names)}, CASE
            WHEN problem IS NOT NULL THEN problem
            WHEN NOT is_object THEN {_quote_text(_NO_OBJECT)}
            {" ".join(reasons)} END AS {ERROR}
        FROM (SELECT problem, is_object, {numbered}, {", ".join(values)}
            FROM (SELECT problem, v IS NOT NULL AS is_object, {", ".join(texts)}
                FROM (SELECT problem, CASE
                        WHEN (starts_with(text, '{{')
                                OR starts_with(ltrim(text, E' \\t\\r\\n'), '{{'))
                            AND json_valid(text)
                        THEN json_transform(text, {_quote_text(wanted)}) END AS v
                    FROM (SELECT problem, TRY(decode(body)) AS text FROM given))))
    """


def _quote_name(name: str) -> str:
    escape_name = name.replace('"', '""')
    return f'"{escape_name}"'


def _quote_text(text: str) -> str:
    escape_name = text.replace("'", "''")
    return f"'{escape_name}'"
