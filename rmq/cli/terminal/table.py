"""Table: named columns and rows for a terminal, a pipe, JSON, or in mqadmin's form.

terminal  titles in capitals, numbers to the right, local times; a line never exceeds
          the terminal, because the widest texts are shortened in their middle
pipe      tabs between columns, titles are the keys of the JSON objects, times are ISO
          8601 in UTC; scripts read these columns, so they never change
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rmq.cli.terminal.text import escape_controls, local_time, utc_time
from rmq.core.humanize import time_span
from rmq.protocol.client_versions import version_text
from rmq.protocol.json_dialect import ObjectKey

TIMES: Final = frozenset(
    {
        "lastTime", "lastTimestamp", "lastUpdateTimestamp", "storeTimestamp",
        "bornTimestamp", "timestamp",
    }
)  # fmt: skip
"""Columns that hold milliseconds since 1970."""

KINDS: Final = {
    "CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop",
}  # fmt: skip
SPANS: Final = frozenset({"waitsMs"})
"""Columns in milliseconds; a terminal shows them with a unit."""

MIN_COLUMN_WIDTH: Final = 12
"""Minimum width of a column, in characters."""


class Table(NamedTuple):
    """Rows with named columns; JSON objects have the same names."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""
    """A sentence below the table; not written to a pipe."""

    of_mqadmin: int | None = None
    """Number of leading columns that mqadmin has too; None for all."""

    def as_json(self) -> list[dict[str, object]]:
        """Return one object for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def for_terminal(self, width: int) -> list[str]:
        """Return lines of at most `width` characters."""
        titles = [_title_text(name.removesuffix("Ms")).upper() for name in self.columns]
        texts = [self._cell_texts(row, is_terminal=True) for row in self.rows]
        lines = align_columns(titles, texts, self._are_numbers(), width)
        return [*lines, self.note] if self.note else lines

    def for_pipe(self, *, header: bool = True) -> list[str]:
        """Return lines with tabs between cells; cells have no tab and no line break."""
        lines = [
            "\t".join(self._cell_texts(row, is_terminal=False)) for row in self.rows
        ]
        return ["\t".join(self.columns), *lines] if header else lines

    def as_mqadmin(self) -> list[str]:
        """Return lines with mqadmin's titles and raw values, for scripts."""
        titles = ["#" + _title_text(name) for name in self.columns[: self.of_mqadmin]]
        texts = [
            [escape_controls(plain_text(cell)) for cell in row[: self.of_mqadmin]]
            for row in self.rows
        ]
        lines = align_columns(titles, texts, [False] * len(titles), None)
        return [*lines, self.note] if self.note else lines

    def _are_numbers(self) -> list[bool]:
        """Return for each column whether all its values are numbers."""
        return [
            name not in {*TIMES, "version"}
            and any(isinstance(row[at], int | float) for row in self.rows)
            and all(isinstance(row[at], int | float | None) for row in self.rows)
            for at, name in enumerate(self.columns)
        ]

    def _cell_texts(self, row: Sequence[object], *, is_terminal: bool) -> list[str]:
        return [
            cell_text(name, cell, is_terminal=is_terminal)
            for name, cell in zip(self.columns, row, strict=True)
        ]


class Sheet(NamedTuple):
    """Facts about one thing, and a table of its parts."""

    facts: dict[str, Any]
    parts: str
    """The key of the table in JSON."""

    table: Table

    def as_json(self) -> dict[str, object]:
        """Return one object with the facts and a list of the parts."""
        return {**self.facts, self.parts: self.table.as_json()}


def cell_text(name: str, cell: object, *, is_terminal: bool) -> str:
    """Return the text of a cell; format times, spans and versions by column name."""
    if name in TIMES and isinstance(cell, int):
        return (local_time if is_terminal else utc_time)(cell) if cell > 0 else ""
    if name in SPANS and isinstance(cell, int) and is_terminal:
        return time_span(cell)
    if name == "version" and isinstance(cell, int):
        return version_name(cell)
    text = plain_text(cell)
    return escape_controls(KINDS.get(text, text))


def version_name(number: int) -> str:
    """Return Java's name of a client version, such as V5_5_0."""
    text = version_text(number).replace("-", "_").replace(".", "_")
    return f"V{text}" if text else str(number or "")


def plain_text(value: object) -> str:
    """Return the text of a value; lists and dictionaries become JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, dict | list):
        return json.dumps(json_value(value), ensure_ascii=False)
    return "" if value is None else str(value)


def json_value(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value for `json.dumps`: keys and bytes become text."""
    if isinstance(value, dict):
        return {
            _queue_name(name) if isinstance(name, ObjectKey) else str(name): json_value(
                each
            )
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value


def _queue_name(key: ObjectKey) -> str:
    return f"{key['topic']}@{key['brokerName']}@{key['queueId']}"


def _title_text(name: str) -> str:
    """Turn brokerName into `Broker Name`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return words[0].upper() + words[1:]


def align_columns(
    titles: list[str], texts: list[list[str]], numbers: list[bool], room: int | None
) -> list[str]:
    """Return aligned lines; `room` is the longest line; texts are shortened."""
    assert all(len(row) == len(titles) for row in texts), titles
    widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    while room is not None and sum(widths) + 2 * (len(widths) - 1) > room:
        widest = max(range(len(widths)), key=widths.__getitem__)
        if widths[widest] <= MIN_COLUMN_WIDTH:
            break
        widths[widest] -= 1
    lines = []
    for row in [titles, *texts]:
        cells = [
            cut_middle(text, width) for text, width in zip(row, widths, strict=True)
        ]
        line = "  ".join(
            text.rjust(width) if is_number else text.ljust(width)
            for text, width, is_number in zip(cells, widths, numbers, strict=True)
        ).rstrip()
        lines.append(line if room is None else line[:room])
    return lines


def cut_middle(text: str, width: int) -> str:
    """Return a text of at most `width` characters; `…` marks a missing middle."""
    if len(text) <= width:
        return text
    right = (width - 1) // 2
    return text[: width - 1 - right] + "…" + text[len(text) - right :]
