"""The page of one group or topic in `rmq top`: its queues as bars, and who reads them.

Pure: the views `group` or `topic` of brokers in, lines out, as many as there are.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rmq.cli.terminal.text import harmless
from rmq.cli.top.render import short
from rmq.core.humanize import span

BAR: Final = 24
EIGHTHS: Final = " ▏▎▍▌▋▊▉"
FULL: Final = "█"

HELP: Final = (
    "g t c b        groups, topics, clients, brokers",
    "j k, arrows    the row before or after; Enter opens a group or topic, q closes it",
    "< > r          another column to sort by; turn the order",
    "/              filter by a part of the name; Enter or Esc ends typing",
    "space          pause; d another pause between two looks",
    "?              this page; q ends",
)

Row = Mapping[str, Any]


def bar(part: float, width: int = BAR) -> str:
    """Return a bar for a part from 0 to 1, in eighths of a character.

    >>> bar(0.5, 4), bar(0.28, 4)
    ('██', '█▏')
    """
    eighths = round(max(0.0, min(1.0, part)) * width * 8)
    return (FULL * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()


def page(kind: str, name: str, views: Sequence[Row]) -> list[str]:
    """Return the lines of a page; `views` are those of the brokers that know it."""
    lines = [f"{kind} {harmless(name)}", ""]
    if not views:
        return [
            *lines,
            "no broker of rmq tells of it; Java's tell what the list has",
        ]
    for view in views:
        lines += _group(view) if kind == "group" else _topic(view)
        lines.append("")
    return lines


def _group(view: Row) -> Iterator[str]:
    row, why = view["row"], view["why"]
    yield (
        f"{harmless(view['node'])}   behind {short(row['lag'])}   "
        f"waits {span(row['waits_ms'])}   arrive {short(view['arriving'])}/s   "
        f"done {short(view['done'])}/s   again {short(view['again'])}/s   "
        f"dead {short(view['dead'])}"
    )
    yield harmless(why["say"])
    for each in why["more"]:
        yield f"  {harmless(each)}"
    for each in (why["do"], why["command"]):
        if each:
            yield f"  -> {harmless(each)}"
    yield ""
    most = max((queue["lag"] for queue in view["queues"]), default=0)
    yield f"{'QUEUE':24}  {'BEHIND':>8}  {'':{BAR}}  OWNER"
    for queue in sorted(view["queues"], key=lambda queue: -queue["lag"]):
        place = harmless(f"{queue['topic']} {queue['queue_id']}")
        filled = bar(queue["lag"] / most if most else 0)
        owner = harmless(queue["owner"] or "nobody")
        yield f"{place[:24]:24}  {short(queue['lag']):>8}  {filled:{BAR}}  {owner}"
    yield ""
    yield f"{'CLIENT':40}  {'DONE/S':>8}  LIBRARY"
    for client in view["clients"]:
        done = short(client["done_per_s"])
        name, library = harmless(client["id"]), harmless(client["library"])
        yield f"{name[:40]:40}  {done:>8}  {library}"


def _topic(view: Row) -> Iterator[str]:
    row = view["row"]
    yield (
        f"{harmless(view['node'])}   in {short(row['in'])}/s   "
        f"out {short(row['out'])}/s   behind {short(row['lag'])}   "
        f"kept {short(row['kept'])}"
    )
    yield ""
    most = max((queue["in"] for queue in view["queues"]), default=0)
    titles = f"{'KEPT':>8}  {'FIRST':>12}  {'END':>12}"
    yield f"{'QUEUE':>5}  {'IN/S':>8}  {'':{BAR}}  {titles}"
    for queue in view["queues"]:
        filled = bar(queue["in"] / most if most else 0)
        yield (
            f"{queue['queue']:>5}  {short(queue['in']):>8}  {filled:{BAR}}  "
            f"{short(queue['kept']):>8}  {queue['first']:>12}  {queue['end']:>12}"
        )
    yield ""
    yield f"{'GROUP':32}  {'BEHIND':>8}  WHY"
    for each in view["groups"]:
        say = harmless(each["say"])
        yield f"{harmless(each['name'])[:32]:32}  {short(each['lag']):>8}  {say}"
