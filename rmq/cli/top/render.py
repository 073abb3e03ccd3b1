"""Render the screen of `rmq top` as lines of text.

A pure function of the overviews of brokers; it returns lines. No line is wrapped, and
names from outside cannot control the terminal.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from rmq.cli.terminal.text import escape_controls, fit_line, short_number, time_of_day
from rmq.cli.top.columns import Choice, View, columns_of, select_rows, sort_keys
from rmq.cli.top.overview import Overview, Problem, Rates, Row, merge_rows
from rmq.core.humanize import time_span

MIN_WIDTH: Final = 60
MIN_HEIGHT: Final = 12
HEAD_LINES: Final = 4
KEYS: Final = "g t c b  < > sort  / filter  q quit"
LAST_BOUND_MS: Final = 3_000
"""The last bound of the histogram of send latencies."""

Style = Literal["plain", "head", "bad", "warn", "chosen", "dim"]


class Screen(NamedTuple):
    """Lines, styles by line, and the names of the rows that Enter may open."""

    lines: list[str]
    styles: dict[int, Style]
    names: list[str]


def render_screen(
    states: Sequence[Overview],
    rates: Rates,
    choice: Choice,
    *,
    size: tuple[int, int],
    rows: Sequence[Row] = (),
    trends: Mapping[str, str] | None = None,
    period_s: float = 1.0,
    status: str = "",
) -> Screen:
    """Render the screen for a terminal of `size`: columns and lines.

    `rows` come from the views clients and brokers; `trends` are by group. `status`
    replaces the counts in the last line.
    """
    width, height = size
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        text = f"rmq top needs {MIN_WIDTH} x {MIN_HEIGHT}"
        return Screen([text[:width]], {}, [])
    problems = [each for state in states for each in state.problems]
    lines = [
        _title_line(states, width, period_s),
        _traffic_line(states, rates)[:width],
        _problem_line(problems, width),
        "",
    ]
    styles: dict[int, Style] = {0: "head"}
    if problems:
        styles[2] = _style_of(problems[0])
    tables = _tables(states, choice, rows, trends or {})
    room = height - HEAD_LINES - 2 * len(tables)
    parts = []
    for own, found in tables:
        part = _visible_part(select_rows(found, own), own, room, len(tables))
        for row, line in _table_lines(part.rows, own, width):
            styles[len(lines)] = _style_of(row, part.chosen)
            lines.append(line)
        lines.append("")
        room -= len(part.rows)
        parts.append((own.view, part))
    lines = [*lines, *[""] * height][: height - 1]
    foot = status or _counts_text(states, parts, len(rows))
    return Screen([*lines, _spread_line(foot, KEYS, width)], styles, parts[0][1].names)


# -- the head


def _title_line(states: Sequence[Overview], width: int, period_s: float) -> str:
    first = states[0]
    nodes = ", ".join(escape_controls(state.node) for state in states)
    uptime = time_span(max(state.uptime_ms for state in states))
    return _spread_line(
        f"rmq top  {escape_controls(first.cluster)}  {nodes}  {first.version}  "
        f"up {uptime}",
        f"{time_of_day(first.now_ms)[:8]}  every {period_s:g} s   ? help",
        width,
    )


def _traffic_line(states: Sequence[Overview], rates: Rates) -> str:
    text = f"in {short_number(rates.incoming)}/s  out {short_number(rates.outgoing)}/s"
    dues = [state.due for state in states if state.due is not None]
    if len(dues) == len(states):
        text += f" of {short_number(sum(dues))} due"
    parts = [text]
    latencies = [ms for state in states if (ms := state.send_p99_ms) is not None]
    if latencies:
        parts.append(f"send p99 {latency_text(max(latencies))}")
    disk = max((state.disk for state in states), key=lambda disk: disk.used_part)
    growth = disk.growth_per_hour
    parts.append(
        f"disk {100 * disk.used_part:.0f} %"
        + ("" if growth is None else f" +{growth / 1e9:.1f} GB/h")
    )
    if not all(state.writable for state in states):
        parts.append("NOT WRITABLE")
    return "   ".join(parts)


def latency_text(latency_ms: float) -> str:
    """Format a p99: `≤ 3 ms`, or `> 3.0 s` above the last histogram bound."""
    if latency_ms > LAST_BOUND_MS:
        return f"> {time_span(LAST_BOUND_MS)}"
    return f"\u2264 {time_span(int(latency_ms))}"


def _problem_line(problems: Sequence[Problem], width: int) -> str:
    if not problems:
        return "no problems"
    first, more = problems[0], len(problems) - 1
    text = f"! {escape_controls(first.subject)}: {escape_controls(first.message)}"
    return _spread_line(text, f"rmq doctor shows {more} more" if more else "", width)


# -- the tables


class _Part(NamedTuple):
    """The visible rows of a table; `names` has the names of all its rows."""

    rows: Sequence[Row]
    first: int
    chosen: Row | None
    names: list[str]


def _tables(
    states: Sequence[Overview],
    choice: Choice,
    rows: Sequence[Row],
    trends: Mapping[str, str],
) -> list[tuple[Choice, Sequence[Row]]]:
    """Return the tables of a view; groups and topics share one screen."""
    if choice.view in ("clients", "brokers"):
        return [(choice, rows)]
    groups = merge_rows(row for state in states for row in state.groups)
    for row in groups:
        row.trend = trends.get(row.name, "")
        row.waits_ms = row.waits_ms if row.lag else 0
    topics = merge_rows(row for state in states for row in state.topics)
    second: View = "topics" if choice.view == "groups" else "groups"
    other = Choice(second, sort_keys(second)[0], filter=choice.filter, at=-1)
    found: dict[View, Sequence[Row]] = {"groups": groups, "topics": topics}
    return [(choice, found[choice.view]), (other, found[second])]


def _visible_part(rows: Sequence[Row], choice: Choice, room: int, tables: int) -> _Part:
    """Return the rows that fit, with the chosen row.

    The first of two tables gets two thirds of the lines.
    """
    most = room if tables == 1 or choice.at < 0 else 2 * room // 3
    at = min(choice.at, len(rows) - 1)
    first = max(0, at + 1 - most)
    return _Part(
        rows[first : first + max(0, most)],
        first,
        rows[at] if at >= 0 else None,
        [row.name for row in rows],
    )


def _table_lines(
    rows: Sequence[Row], choice: Choice, width: int
) -> Iterator[tuple[Row | None, str]]:
    """Yield the line of titles, then one line for each row."""
    columns = columns_of(choice.view, width)
    yield None, _join_cells([each.title_text(choice) for each in columns], width)
    for row in rows:
        yield row, _join_cells([each.cell_text(row) for each in columns], width)


def _style_of(row: Row | Problem | None, chosen: Row | None = None) -> Style:
    if row is None:
        return "head"
    if row is chosen:
        return "chosen"
    styles: dict[str, Style] = {"bad": "bad", "warn": "warn"}
    return styles.get(row.level, "plain")


def _counts_text(
    states: Sequence[Overview], parts: Sequence[tuple[View, _Part]], row_count: int
) -> str:
    totals = {
        "groups": sum(state.groups_total or 0 for state in states),
        "topics": sum(state.topics_total or 0 for state in states),
    }
    return ", ".join(
        f"{part.first + 1 if part.rows else 0}-{part.first + len(part.rows)} of "
        f"{totals.get(view, row_count):,} {view}"
        for view, part in parts
    )


def _join_cells(cells: Sequence[str], width: int) -> str:
    """Return cells as a line; `…` marks a shortened last cell."""
    *others, last = cells
    text = "".join(f"{cell}  " for cell in others)
    return (text + fit_line(last.rstrip(), width - len(text)))[:width].rstrip()


def _spread_line(left: str, right: str, width: int) -> str:
    """Return a line with texts at both ends; the left text is shortened if needed."""
    room = width - len(right) - 2
    if not right or room < 1:
        return fit_line(left, width)
    return f"{fit_line(left, room):{room}}  {right}"
