"""Columns of the tables of `rmq top`: titles, widths, texts and order of rows."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from rmq.cli.terminal.table import cut_middle
from rmq.cli.terminal.text import escape_controls, short_number
from rmq.cli.top.overview import Row
from rmq.core.humanize import time_span

NAME_WIDTH: Final = 16
LONG_NAME_WIDTH: Final = 32
LONG_NAMES_FROM: Final = 160
"""Minimum width of a terminal on which names have `LONG_NAME_WIDTH`."""

WIDE_FROM: Final = 120
"""Minimum width of a terminal on which groups have trend, retries and dead letters.
"""

REST: Final = 200
"""Width of a last column that gets the remaining width of the terminal."""

UNSORTED: Final = frozenset({"message", "short_reason", "trend", "kind", "heard_ms"})

View = Literal["groups", "topics", "clients", "brokers"]


class Choice(NamedTuple):
    """The view and order that the user chose; `at` is the row that Enter opens."""

    view: View = "groups"
    sort: str = "lag"
    is_ascending: bool = False
    filter: str = ""
    at: int = 0


class Column(NamedTuple):
    """A column of a table; `key` is the attribute of the row."""

    key: str
    title: str
    width: int
    text: Callable[[Any], str]
    is_left: bool = False

    def cell_text(self, row: Row) -> str:
        """Return the text of a row, as wide as the column."""
        text = cut_middle(self.text(getattr(row, self.key)), self.width)
        return f"{text:{self.width}}" if self.is_left else f"{text:>{self.width}}"

    def title_text(self, choice: Choice) -> str:
        """Return the title; `^` or `v` marks the column that orders the rows."""
        order = " ^" if choice.is_ascending else " v"
        text = f"{self.title}{order if self.key == choice.sort else ''}"
        text = text[: max(self.width, len(self.title))]
        return f"{text:{self.width}}" if self.is_left else f"{text:>{self.width}}"


def _text(value: object) -> str:
    return "-" if value is None else escape_controls(str(value))


def _percent_text(part: float) -> str:
    return f"{100 * part:.0f} %"


def _span_text(length_ms: int) -> str:
    return time_span(length_ms) if length_ms else ""


def _number_columns(**titles: str) -> list[Column]:
    return [Column(key, title, 8, short_number) for key, title in titles.items()]


def columns_of(view: View, width: int) -> list[Column]:
    """Return the columns of a view for a terminal of this width."""
    size = NAME_WIDTH if width < LONG_NAMES_FROM else LONG_NAME_WIDTH
    if view == "topics":
        return [
            Column("name", "TOPIC", size, _text, is_left=True),
            *_number_columns(
                incoming="IN/S", outgoing="OUT/S", lag="LAG", stored="STORED"
            ),
            *_number_columns(queues="QUEUES"),
        ]
    if view == "clients":
        return [
            Column("name", "GROUP", size, _text, is_left=True),
            Column("kind", "KIND", 8, _text, is_left=True),
            Column("library", "LIBRARY", 11, _text, is_left=True),
            Column("heard_ms", "SEEN", 8, _span_text),
            Column("client", "CLIENT", max(14, width - size - 39), _text, is_left=True),
        ]
    if view == "brokers":
        return [
            Column("name", "BROKER", size, _text, is_left=True),
            Column("version", "VERSION", 12, _text, is_left=True),
            *_number_columns(incoming="IN/S", outgoing="OUT/S", connections="CLIENTS"),
            Column("disk", "DISK", 6, _percent_text),
            Column("message", "", REST, _text, is_left=True),
        ]
    wide = [
        Column("trend", "LAST 2 MIN", 16, _text, is_left=True),
        Column("retries", "RETRY/S", 9, short_number),
        Column("dead", "DLQ", 6, short_number),
    ]
    return [
        Column("name", "GROUP", size, _text, is_left=True),
        Column("lag", "LAG", 8, short_number),
        Column("waits_ms", "WAIT", 10, _span_text),
        Column("outgoing", "OUT/S", 8, short_number),
        Column("clients", "CL", 4, short_number),
        *(wide if width >= WIDE_FROM else ()),
        Column("short_reason", "WHY", REST, _text, is_left=True),
    ]


def sort_keys(view: View) -> list[str]:
    """Return the attributes that can order the rows of a view, the default first."""
    columns = columns_of(view, WIDE_FROM)
    keys = [each.key for each in columns if each.key not in UNSORTED]
    default = {"groups": "lag", "topics": "incoming"}.get(view, keys[0])
    return [default, *(key for key in keys if key != default)]


def select_rows(rows: Sequence[Row], choice: Choice) -> list[Row]:
    """Return the rows that match the filter, in the chosen order; unknown values are
    the smallest.
    """
    wanted, value_of = choice.filter.lower(), attrgetter(choice.sort)
    found = [row for row in rows if wanted in row.search_text.lower()]
    is_text = choice.sort in ("name", "client", "version", "library")

    def sort_key(row: Row) -> Any:  # noqa: ANN401 - a number or a text
        value = value_of(row)
        return -1 if value is None else value

    return sorted(found, key=sort_key, reverse=choice.is_ascending == is_text)
