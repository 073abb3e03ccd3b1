"""Frame: what `rmq top` shows at one moment, as lines of text that fit.

Pure: the states of brokers in, lines out; nothing is wrapped, and what others named
cannot drive the terminal.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from rmq.cli.terminal.table import cut
from rmq.cli.terminal.text import clock, harmless
from rmq.core.humanize import span

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 12
HEAD_LINES: Final = 4
NAME_WIDTH: Final = 16
WIDE: Final = 120
"""From here on groups have their last two minutes, and what fails."""

LAST_BOUND_MS: Final = 3_000
"""The last of the bounds for times of sends."""

WIDEST_NAME: Final = 32
WHOLE_NAMES: Final = 160

View = Literal["groups", "topics", "clients", "brokers"]
Row = Mapping[str, Any]
Style = Literal["plain", "head", "bad", "warn", "note", "chosen", "dim"]


class Choice(NamedTuple):
    """What the user chose to see; `at` is the row that Enter opens."""

    view: View = "groups"
    sort: str = "lag"
    is_up: bool = False
    filter: str = ""
    at: int = 0


class Rates(NamedTuple):
    """Messages a second over the last period; None before the second answer."""

    incoming: float | None = None
    outgoing: float | None = None


class Picture(NamedTuple):
    """Lines, how each looks, and the names of the rows that Enter may open."""

    lines: list[str]
    styles: dict[int, Style]
    names: list[str]


class Column(NamedTuple):
    """A column: the key of the row, its title, its width, how a value is said."""

    key: str
    title: str
    width: int
    text: Callable[[Any], str]
    is_left: bool = False

    def cell(self, row: Row) -> str:
        """Return the text of a row, as wide as the column."""
        text = cut(self.text(row.get(self.key)), self.width)
        return f"{text:{self.width}}" if self.is_left else f"{text:>{self.width}}"

    def head(self, mark: str) -> str:
        """Return the title; `mark` says that rows are in the order of this column."""
        text = f"{self.title}{mark}"[: max(self.width, len(self.title))]
        return f"{text:{self.width}}" if self.is_left else f"{text:>{self.width}}"


def short(number: float | None) -> str:
    """Return a number in few characters: 2,140, 18.4 k, 8.7 M; - if it is not told."""
    if number is None:
        return "-"
    if number < 10_000:
        return f"{number:,.0f}"
    for size, unit in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
        if number < size * 999.95:
            return f"{number / size:.1f} {unit}"
    return f"{number / 1e12:.1f} T"


def at_most(length_ms: float) -> str:
    """Return the bound that the sends of a broker kept, or that they kept none."""
    if length_ms > LAST_BOUND_MS:
        return f"> {span(LAST_BOUND_MS)}"
    return f"\u2264 {span(int(length_ms))}"


def _waits(length_ms: int | None) -> str:
    return span(length_ms) if length_ms else ""


def _text(value: object) -> str:
    return "-" if value is None else harmless(str(value))


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.0f} %"


def columns_of(view: View, width: int) -> list[Column]:
    """Return the columns of a view; the last text of a row takes the rest."""
    size = NAME_WIDTH if width < WHOLE_NAMES else WIDEST_NAME
    if view == "topics":
        amounts = [
            ("in", "IN/S"),
            ("out", "OUT/S"),
            ("lag", "BEHIND"),
            ("kept", "KEPT"),
        ]
        return [
            Column("name", "TOPIC", size, _text, is_left=True),
            *(Column(key, title, 8, short) for key, title in amounts),
            Column("queues", "QUEUES", 8, short),
        ]
    if view == "clients":
        return [
            Column("group", "GROUP", size, _text, is_left=True),
            Column("kind", "KIND", 8, _text, is_left=True),
            Column("language", "LIBRARY", 8, _text, is_left=True),
            Column("heard_ms", "HEARD", 8, _waits),
            Column("client", "CLIENT", max(14, width - size - 36), _text, is_left=True),
        ]
    if view == "brokers":
        return [
            Column("name", "BROKER", size, _text, is_left=True),
            Column("version", "VERSION", 12, _text, is_left=True),
            *(Column(key, title, 8, short) for key, title in (
                ("in", "IN/S"), ("out", "OUT/S"), ("connections", "CLIENTS"),
            )),
            Column("disk", "DISK", 6, _percent),
            Column("say", "", 200, _text, is_left=True),
        ]  # fmt: skip
    wide = [
        Column("trend", "LAST 2 MIN", 16, _text, is_left=True),
        Column("again", "AGAIN/S", 9, short),
        Column("dead", "DEAD", 6, short),
    ]
    return [
        Column("name", "GROUP", size, _text, is_left=True),
        Column("lag", "BEHIND", 8, short),
        Column("waits_ms", "WAITS", 10, _waits),
        Column("out", "OUT/S", 8, short),
        Column("clients", "CL", 4, short),
        *(wide if width >= WIDE else ()),
        Column("brief", "WHY", 200, _text, is_left=True),
    ]


NOT_SORTED: Final = frozenset({"say", "brief", "trend", "kind", "heard_ms"})


def sorts(view: View) -> list[str]:
    """Return what the rows of a view can be sorted by; the first is the usual one."""
    keys = [each.key for each in columns_of(view, WIDE) if each.key not in NOT_SORTED]
    usual = {"groups": "lag", "topics": "in"}.get(view, keys[0])
    return [usual, *(key for key in keys if key != usual)]


def merged(states: Sequence[Mapping[str, Any]], key: str) -> list[dict[str, Any]]:
    """Return the rows of all brokers, those of the same name as one.

    Amounts are added; waits, clients, queues and groups are the largest of a broker.
    What a broker does not tell is None, and left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for state in states:
        for row in state[key]:
            known = found.get(row["name"])
            if known is None:
                found[row["name"]] = dict(row)
                continue
            for name, value in row.items():
                if value is None or known[name] is None:
                    known[name] = value if known[name] is None else known[name]
                elif name in ("lag", "out", "in", "kept", "again", "dead"):
                    known[name] += value
                elif name in ("waits_ms", "clients", "topics", "groups", "queues"):
                    known[name] = max(known[name], value)
            if known.get("level") == "ok":
                known |= {
                    key: row[key] for key in ("level", "say", "brief") if key in row
                }
    return list(found.values())


def rates(before: Sequence[Row], now: Sequence[Row]) -> Rates:
    """Return what came and went between two answers of the same brokers."""
    past = {state["node"]: state for state in before}
    pairs = [(past[s["node"]], s) for s in now if s["node"] in past]
    elapsed_s = max((b["now"] - a["now"] for a, b in pairs), default=0) / 1_000
    if elapsed_s <= 0:
        return Rates()
    return Rates(
        sum(max(0, b["put"] - a["put"]) for a, b in pairs) / elapsed_s,
        sum(max(0, b["got"] - a["got"]) for a, b in pairs) / elapsed_s,
    )


def broker_rows(before: Sequence[Row], now: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a row for each broker."""
    rows = []
    for state in now:
        flow = rates(
            [each for each in before if each["node"] == state["node"]], [state]
        )
        problems = state["problems"]
        rows.append({
            "name": state["node"], "version": state["version"], "in": flow.incoming,
            "out": flow.outgoing, "connections": state["connections"],
            "disk": _used(state["disk"]), "level": "ok" if not problems else "warn",
            "say": ("" if state["writable"] else "TAKES NO MESSAGES; ")
            + _place(state.get("group"))
            + f"up {span(state['up_ms'])}"
            + (f"; {len(problems)} problems" if problems else ""),
        })  # fmt: skip
    return rows


def _place(group: Row | None) -> str:
    """Say what a broker is in a group with a controller, and who has what.

    >>> members = [{"id": 1, "is_own": True, "in_set": True, "behind": 0},
    ...            {"id": 2, "is_own": False, "in_set": False, "behind": 1_200}]
    >>> _place({"epoch": 3, "is_master": True, "members": members, "unconfirmed": 0})
    'epoch 3, in sync 1, 2 lacks 1,200 bytes; '
    """
    if group is None:
        return ""
    if not group["is_master"]:
        return f"epoch {group['epoch']}, slave; "
    members = group["members"] or []
    parts = [f"epoch {group['epoch']}"]
    parts.append("in sync " + " ".join(str(m["id"]) for m in members if m["in_set"]))
    for each in members:
        if each["behind"] is None:
            parts.append(f"{each['id']} is not connected")
        elif each["behind"] or not each["in_set"]:
            parts.append(f"{each['id']} lacks {short(each['behind'])} bytes")
    return ", ".join(parts) + "; "


def frame(
    states: Sequence[Mapping[str, Any]],
    flow: Rates,
    choice: Choice,
    *,
    size: tuple[int, int],
    rows: Sequence[Row] = (),
    trends: Mapping[str, str] | None = None,
    period_s: float = 1.0,
    note: str = "",
) -> Picture:
    """Return what fits into `size`, columns and lines.

    `rows` are those of clients or brokers; `trends` say how far groups were behind.
    """
    width, height = size
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        text = f"rmq top needs {LEAST_WIDTH} x {LEAST_HEIGHT}"
        return Picture([text[:width]], {}, [])
    lines = [*_head(states, flow, width, period_s), ""]
    styles: dict[int, Style] = {0: "head"}
    problems = [each for state in states for each in state["problems"]]
    if problems:
        styles[2] = _style_of(problems[0])
    groups = merged(states, "groups")
    for row in groups:
        row["trend"] = (trends or {}).get(row["name"], "")
        row["waits_ms"] = row["waits_ms"] if row["lag"] else None
        row.setdefault("brief", row.get("say"))
    tables: dict[View, Sequence[Row]] = {
        "groups": groups, "topics": merged(states, "topics"),
    }  # fmt: skip
    if choice.view == "topics":
        tables = dict(reversed(tables.items()))
    elif choice.view != "groups":
        tables = {choice.view: rows}
    room, names, shown = height - HEAD_LINES - 2 * len(tables), None, []
    for view, found in tables.items():
        is_second = names is not None
        own = choice
        if is_second:
            own = Choice(view, sorts(view)[0], filter=choice.filter, at=-1)
        part = _part(_chosen(found, own), own, room, is_whole=len(tables) == 1)
        names = part.names if names is None else names
        for shown_row, line in _table(part.rows, own, width):
            styles[len(lines)] = _style_of(shown_row, part.chosen)
            lines.append(line)
        lines.append("")
        room -= len(part.rows)
        shown.append((view, part.first, len(part.rows)))
    lines += [""] * (height - len(lines) - 1)
    keys = "g t c b  < > sort  / filter  q quit"
    foot = note or _foot(states, shown, rows)
    lines = [*lines[: height - 1], _spread(foot, keys, width)]
    return Picture(lines, styles, names or [])


class _Part(NamedTuple):
    """The rows of a table that are shown; `names` are those of all of them."""

    rows: Sequence[Row]
    first: int
    chosen: Row | None
    names: list[str]


def _part(rows: Sequence[Row], choice: Choice, room: int, *, is_whole: bool) -> _Part:
    """Return the rows for which there is room, the chosen one among them."""
    most = room if is_whole or choice.at < 0 else 2 * room // 3
    at = min(choice.at, len(rows) - 1)
    first = max(0, at + 1 - most)
    return _Part(
        rows[first : first + max(0, most)],
        first,
        rows[at] if at >= 0 else None,
        [str(row.get("name") or row.get("group")) for row in rows],
    )


def _table(
    rows: Sequence[Row], choice: Choice, width: int
) -> Iterator[tuple[Row | None, str]]:
    """Return the line of the titles, and one for each row."""
    columns = columns_of(choice.view, width)
    yield None, _joined([each.head(_mark(each, choice)) for each in columns], width)
    for row in rows:
        yield row, _joined([each.cell(row) for each in columns], width)


def _mark(column: Column, choice: Choice) -> str:
    return "" if column.key != choice.sort else " ^" if choice.is_up else " v"


def _style_of(row: Row | None, chosen: Row | None = None) -> Style:
    if row is None:
        return "head"
    if row is chosen:
        return "chosen"
    level = row.get("level")
    if level == "bad":
        return "bad"
    return "warn" if level == "warn" else "plain"


def _foot(
    states: Sequence[Row], shown: Sequence[tuple[View, int, int]], rows: Sequence[Row]
) -> str:
    totals = {
        "groups": sum(state["groups_total"] or 0 for state in states),
        "topics": sum(state["topics_total"] or 0 for state in states),
        "clients": len(rows), "brokers": len(rows),
    }  # fmt: skip
    return ", ".join(
        f"{first + 1 if count else 0}-{first + count} of {totals[view]:,} {view}"
        for view, first, count in shown
    )


def _chosen(rows: Sequence[Row], choice: Choice) -> list[Row]:
    wanted = choice.filter.lower()
    found = [
        row
        for row in rows
        if wanted in str(row.get("name") or "").lower()
        or wanted in f"{row.get('group', '')} {row.get('client', '')}".lower()
    ]
    is_text = choice.sort in ("name", "group", "client", "version", "language")
    unknown: object = "" if is_text else -1

    def key(row: Row) -> Any:  # noqa: ANN401 - a number or a text
        value = row.get(choice.sort)
        return unknown if value is None else value

    found.sort(key=key, reverse=choice.is_up == is_text)
    return found


def _head(
    states: Sequence[Mapping[str, Any]], flow: Rates, width: int, period_s: float
) -> list[str]:
    first = states[0]
    nodes = ", ".join(harmless(state["node"]) for state in states)
    title = f"rmq top  {harmless(first['cluster'])}  {nodes}  {first['version']}"
    up = span(max(state["up_ms"] for state in states))
    disk = max((state["disk"] for state in states), key=_used)
    growth = disk["growth_per_hour"]
    grows = "" if growth is None else f" +{growth / 1e9:.1f} GB/h"
    left = " ".join(
        f"{word} {'-' if rate is None else short(rate)}/s "
        for word, rate in (("in", flow.incoming), ("out", flow.outgoing))
    )
    dues = [state.get("due") for state in states]
    if all(due is not None for due in dues):
        left = f"{left.rstrip()} of {short(sum(dues))} due  "  # type: ignore[arg-type] # none is None
    times = [ms for state in states if (ms := state.get("send_p99_ms")) is not None]
    if times:
        left = f"{left.rstrip()}   send p99 {at_most(max(times))}  "
    left += f" disk {100 * _used(disk):.0f} %{grows}"
    if not all(state["writable"] for state in states):
        left += "  TAKES NO MESSAGES"
    problems = [each for state in states for each in state["problems"]]
    worst = "nothing is wrong"
    if problems:
        each = problems[0]
        worst = f"! {harmless(each['place'])}: {harmless(each['say'])}"
    more = f"rmq doctor shows {len(problems) - 1} more" if len(problems) > 1 else ""
    right = f"{clock(first['now'])[:8]}  every {period_s:g} s   ? help"
    return [
        _spread(f"{title}  up {up}", right, width),
        left[:width],
        _spread(worst, more, width),
    ]


def _used(disk: Row) -> float:
    """Return the used part of a disk; 0 if it is not told."""
    if "share" in disk:
        return disk["share"] or 0.0
    return float(disk["used"] / max(1, disk["total"]))


def _joined(cells: Sequence[str], width: int) -> str:
    """Return cells as a line; the last one may be cut with `…`."""
    *others, last = cells
    text = "".join(f"{cell}  " for cell in others)
    return (text + _fit(last.rstrip(), width - len(text)))[:width].rstrip()


def _fit(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"


def _spread(left: str, right: str, width: int) -> str:
    """Return two texts at the ends of a line; the left one gives way."""
    room = width - len(right) - 2
    if not right or room < 1:
        return _fit(left, width)
    return f"{_fit(left, room):{room}}  {right}"
