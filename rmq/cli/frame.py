"""Frame: what `rmq top` shows at one moment, as lines of text that fit.

Pure: the states of brokers in, lines out; nothing is wrapped, and what others named
cannot drive the terminal.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rmq.cli.table import cut
from rmq.cli.text import clock, harmless
from rmq.words import span

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 12
HEAD_LINES: Final = 4
GROUP_SORTS: Final = ("lag", "waits_ms", "out", "clients", "name")
NAME_WIDTH: Final = 16
WIDE: Final = 100

Row = Mapping[str, Any]


class Choice(NamedTuple):
    """What the user chose to see."""

    sort: str = "lag"
    is_up: bool = False
    filter: str = ""
    topics_first: bool = False


class Rates(NamedTuple):
    """Messages a second over the last period; None before the second answer."""

    incoming: float | None = None
    outgoing: float | None = None


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
                elif name in ("lag", "out", "in", "kept"):
                    known[name] += value
                elif name in ("waits_ms", "clients", "topics", "groups", "queues"):
                    known[name] = max(known[name], value)
            if known.get("level") == "ok":
                known["level"], known["say"] = row["level"], row["say"]
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


def frame(
    states: Sequence[Mapping[str, Any]],
    flow: Rates,
    choice: Choice,
    *,
    size: tuple[int, int],
    note: str = "",
) -> list[str]:
    """Return at most as many lines as fit into `size`, columns and lines."""
    width, height = size
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return [f"rmq top needs {LEAST_WIDTH} x {LEAST_HEIGHT}"[:width]]
    lines = [*_head(states, flow, width), ""]
    groups = _chosen(merged(states, "groups"), choice)
    topics = _chosen(merged(states, "topics"), choice._replace(sort="in", is_up=False))
    room = height - len(lines) - 4
    parts = [(_groups(groups, width), 2 * room // 3), (_topics(topics, width), room)]
    if choice.topics_first:
        parts = [(parts[1][0], 2 * room // 3), (parts[0][0], room)]
    for rows, most in parts:
        shown = rows[: 1 + max(0, min(most, room))]
        room -= len(shown) - 1
        lines += [*shown, ""]
    lines += [""] * (height - len(lines) - 1)
    total = sum(state["groups_total"] or 0 for state in states)
    of_topics = sum(state["topics_total"] or 0 for state in states)
    foot = note or f"{total:,} groups, {of_topics:,} topics"
    keys = "g t  < > sort  r turn  / filter  space  q quit"
    return [*lines[: height - 1], _spread(foot, keys, width)]


def _chosen(rows: list[dict[str, Any]], choice: Choice) -> list[dict[str, Any]]:
    rows = [row for row in rows if choice.filter.lower() in row["name"].lower()]
    is_name = choice.sort == "name"
    rows.sort(
        key=lambda row: -1 if row[choice.sort] is None else row[choice.sort],
        reverse=choice.is_up == is_name,
    )
    return rows


def _head(states: Sequence[Mapping[str, Any]], flow: Rates, width: int) -> list[str]:
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
    left += f" disk {100 * _used(disk):.0f} %{grows}"
    if not all(state["writable"] for state in states):
        left += "  TAKES NO MESSAGES"
    problems = [each for state in states for each in state["problems"]]
    worst = "nothing is wrong"
    if problems:
        each = problems[0]
        worst = f"! {harmless(each['place'])}: {harmless(each['say'])}"
    more = f"rmq doctor shows {len(problems) - 1} more" if len(problems) > 1 else ""
    return [
        _spread(f"{title}  up {up}", clock(first["now"])[:8], width),
        left[:width],
        _spread(worst, more, width),
    ]


def _used(disk: Row) -> float:
    """Return the used part of a disk; 0 if it is not told."""
    if "share" in disk:
        return disk["share"] or 0.0
    return float(disk["used"] / max(1, disk["total"]))


def _groups(rows: Sequence[Row], width: int) -> list[str]:
    name = NAME_WIDTH if width < WIDE else 2 * NAME_WIDTH
    lines = [f"{'GROUP':{name}}    BEHIND       WAITS     OUT/S    CL  WHY"[:width]]
    for row in rows:
        waits = span(row["waits_ms"]) if row["lag"] else ""
        text = (
            f"{cut(harmless(row['name']), name):{name}}  {short(row['lag']):>8}  "
            f"{waits:>10}  {short(row['out']):>8}  {short(row['clients']):>4}  "
        )
        say = _fit(harmless(row["say"]), width - len(text))
        lines.append((text + say)[:width].rstrip())
    return lines


def _topics(rows: Sequence[Row], width: int) -> list[str]:
    name = NAME_WIDTH if width < WIDE else 2 * NAME_WIDTH
    head = f"{'TOPIC':{name}}      IN/S     OUT/S    BEHIND      KEPT  QUEUES"
    lines = [head[:width]]
    for row in rows:
        amounts = (short(row[key]) for key in ("in", "out", "lag", "kept"))
        cells = "  ".join(f"{amount:>8}" for amount in amounts)
        text = f"{cut(harmless(row['name']), name):{name}}  {cells}  {row['queues']:>6}"
        lines.append(text[:width])
    return lines


def _fit(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"


def _spread(left: str, right: str, width: int) -> str:
    """Return two texts at the ends of a line; the left one gives way."""
    room = width - len(right) - 2
    if not right or room < 1:
        return _fit(left, width)
    return f"{_fit(left, room):{room}}  {right}"
