r"""Writes rows as a table for people, CSV, JSON, JSON lines or Parquet.

Times are ISO 8601 in UTC.  Bytes are text; bytes that are not UTF-8 become `\xff`.
Null is empty in a table and in CSV.  Parquet has the values unchanged.
"""

import contextlib
import csv
import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow as pa

from rmq.cli.terminal.table import MIN_COLUMN_WIDTH, align_columns
from rmq.cli.terminal.text import escape_controls, escape_json
from rmq.core.errors import StoreError
from rmq_spark.sql.database import Result

SHOWN_ROWS: Final = 1_000
"""Limit of rows in a table for people."""
PREFERRED: Final = (
    "text", "keys", "queueId", "queueOffset", "storeTimestamp", "tags", "topic",
)  # fmt: skip
"""Columns of messages that a narrow terminal shows first."""

Row = tuple[Any, ...]


def write_rows(result: Result, form: str, out: TextIO) -> None:
    """Write the rows in one of the text formats."""
    _WRITERS[form](result, out)


def write_parquet(result: Result, path: Path) -> None:
    """Write a Parquet file, which appears when it is complete."""
    # imported on use: it takes 20 ms
    from pyarrow.parquet import ParquetWriter

    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("wb") as file, ParquetWriter(file, result.schema) as writer:
            for batch in result.batches:
                writer.write_batch(batch)
        draft.replace(path)
    except pa.ArrowNotImplementedError as error:
        raise StoreError(f"Parquet cannot hold these columns: {error}") from error
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _write_table(result: Result, out: TextIO) -> None:
    rows = list(itertools.islice(_rows(result), SHOWN_ROWS + 1))
    width = shutil.get_terminal_size().columns if out.isatty() else 1 << 16
    names = [escape_controls(name) for name in result.schema.names]
    texts = [[_cell(value) for value in row] for row in rows[:SHOWN_ROWS]]
    columns = [*zip(names, *texts, strict=True)]
    shown = _choose_columns(columns, width)
    fields = [*result.schema]
    lines = align_columns(
        [names[at] for at in shown],
        [[row[at] for at in shown] for row in texts],
        [_is_number(fields[at].type) for at in shown],
        width,
    )
    for line in lines:
        print(line, file=out)
    if len(rows) > SHOWN_ROWS:
        print(f"only the first {SHOWN_ROWS:,} rows; --format csv prints all", file=out)
    if len(shown) < len(names):
        rest = [name for at, name in enumerate(names) if at not in shown]
        print(f"columns that do not fit: {', '.join(rest)}", file=out)


def _choose_columns(columns: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the positions of the columns that fit: the preferred ones, then others.

    A column is its name and its texts.
    """
    needs = [min(MIN_COLUMN_WIDTH, max(map(len, column))) + 2 for column in columns]
    ranks = {name: rank for rank, name in enumerate(PREFERRED)}
    room = width + 2
    chosen: list[int] = []
    order = sorted(
        range(len(columns)), key=lambda at: ranks.get(columns[at][0], len(ranks))
    )
    if sum(needs) <= room:
        return sorted(order)
    for at in order:
        if needs[at] <= room or not chosen:
            chosen.append(at)
            room -= needs[at]
    return sorted(chosen)


def _write_csv(result: Result, out: TextIO) -> None:
    show = escape_controls if out.isatty() else str
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.schema.names)
    for row in _rows(result):
        writer.writerow([show(_text(value)) for value in row])


def _write_json(result: Result, out: TextIO) -> None:
    before = "["
    for line in _json_objects(result):
        out.write(f"{before}\n{line}")
        before = ","
    out.write("[]\n" if before == "[" else "\n]\n")


def _write_json_lines(result: Result, out: TextIO) -> None:
    out.writelines(f"{line}\n" for line in _json_objects(result))


_WRITERS: Final[dict[str, Callable[[Result, TextIO], None]]] = {
    "table": _write_table,
    "csv": _write_csv,
    "json": _write_json,
    "jsonl": _write_json_lines,
}


def _json_objects(result: Result) -> Iterator[str]:
    """Yield each row as a JSON object with unique names."""
    names = _unique_names(result.schema.names)
    for row in _rows(result):
        yield escape_json(dict(zip(names, row, strict=True)))


def _unique_names(names: list[str]) -> list[str]:
    """Return unique names; a repeated name gets a number, as in DuckDB."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, -1) + 1
        unique.append(f"{name}_{seen[name]}" if seen[name] else name)
    return unique


def _rows(result: Result) -> Iterator[Row]:
    for batch in result.batches:
        yield from zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    """Convert the values of a column to JSON values."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        texts = column.cast(pa.string()).to_pylist()
        return [None if text is None else _iso_time(text) for text in texts]
    return [_json_value(value) for value in column.to_pylist(maps_as_pydicts="lossy")]


def _iso_time(text: str) -> str:
    """Convert `2025-11-13 02:14:00.123000Z` to `2025-11-13T02:14:00.123Z`."""
    moment, dot, fraction = text.replace(" ", "T").removesuffix("Z").partition(".")
    kept = fraction[:3] + fraction[3:].rstrip("0")
    return moment + dot + kept + ("Z" if text.endswith("Z") else "")


def _json_value(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Convert any value to a JSON value."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {
            str(_json_value(name)): _json_value(each) for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_json_value(each) for each in value]
    return str(value)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return escape_json(value)
    return str(value)


def _cell(value: object) -> str:
    return escape_controls(_text(value))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    )
