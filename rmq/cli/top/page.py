"""The page of one group or topic in `rmq top`: queues as bars, clients, groups.

A pure function of the views `group` or `topic` of brokers; it returns lines.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import field

from rmq.cli.terminal.text import escape_controls, short_number
from rmq.cli.top.overview import GroupRow, TopicRow
from rmq.core.humanize import time_span

BAR_WIDTH: Final = 24
EIGHTHS: Final = " ▏▎▍▌▋▊▉"
FULL: Final = "█"

HELP: Final = (
    "g t c b        groups, topics, clients, brokers",
    "j k, arrows    previous or next row; Enter opens a group or topic, q closes it",
    "< > r          sort by another column; reverse the order",
    "/              filter by a part of the name; Enter or Esc ends typing",
    "space          pause; d changes the time between two polls",
    "?              this page; q quits",
)
NOT_SERVED: Final = (
    "no broker of rmq has this name; Java's brokers are only in the lists"
)


class Reason(msgspec.Struct):
    """The reason why a group lags, and the remedy."""

    message: str
    details: list[str]
    action: str
    command: str


class QueueLag(msgspec.Struct):
    """A queue of a group; `owner` is a client id."""

    topic: str
    queue_id: int
    lag: int
    owner: str | None


class Consumer(msgspec.Struct):
    """A client of a group."""

    id: str
    done_per_s: float | None
    library: str


class GroupView(msgspec.Struct):
    """The view `group` of one broker; rates are messages a second."""

    node: str
    row: GroupRow
    why: Reason
    arriving: float
    done: float | None
    retries: float = field(name="again")
    dead: int | None
    queues: list[QueueLag]
    clients: list[Consumer]


class TopicQueue(msgspec.Struct):
    """A queue of a topic; `first` and `end` are queue offsets."""

    queue: int
    incoming: float = field(name="in")
    stored: int = field(name="kept")
    first: str
    end: str


class TopicView(msgspec.Struct):
    """The view `topic` of one broker."""

    node: str
    row: TopicRow
    queues: list[TopicQueue]
    groups: list[GroupRow]
    stored_once: int = 0
    """Number of retried sends whose message the topic already had."""


def bar_text(part: float, width: int = BAR_WIDTH) -> str:
    """Return a bar for a part from 0 to 1, in eighths of a character.

    >>> bar_text(0.5, 4), bar_text(0.28, 4)
    ('██', '█▏')
    """
    eighths = round(max(0.0, min(1.0, part)) * width * 8)
    return (FULL * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()


def group_page(name: str, views: Sequence[GroupView]) -> list[str]:
    """Return the lines of a group; `views` come from the brokers that know it."""
    lines = [f"group {escape_controls(name)}", ""]
    for view in views:
        lines += [*_group_lines(view), ""]
    return lines if views else [*lines, NOT_SERVED]


def topic_page(name: str, views: Sequence[TopicView]) -> list[str]:
    """Return the lines of a topic; `views` come from the brokers that know it."""
    lines = [f"topic {escape_controls(name)}", ""]
    for view in views:
        lines += [*_topic_lines(view), ""]
    return lines if views else [*lines, NOT_SERVED]


def _group_lines(view: GroupView) -> Iterator[str]:
    row, why = view.row, view.why
    yield (
        f"{escape_controls(view.node)}   lag {short_number(row.lag)}   "
        f"wait {time_span(row.waits_ms)}   in {short_number(view.arriving)}/s   "
        f"done {short_number(view.done)}/s   retry {short_number(view.retries)}/s   "
        f"DLQ {short_number(view.dead)}"
    )
    yield escape_controls(why.message)
    for each in why.details:
        yield f"  {escape_controls(each)}"
    for each in (why.action, why.command):
        if each:
            yield f"  -> {escape_controls(each)}"
    yield ""
    most = max((queue.lag for queue in view.queues), default=0)
    yield f"{'QUEUE':24}  {'LAG':>8}  {'':{BAR_WIDTH}}  OWNER"
    for queue in sorted(view.queues, key=lambda queue: -queue.lag):
        name = escape_controls(f"{queue.topic} {queue.queue_id}")
        filled = bar_text(queue.lag / most if most else 0)
        owner = escape_controls(queue.owner or "none")
        yield (
            f"{name[:24]:24}  {short_number(queue.lag):>8}  {filled:{BAR_WIDTH}}  "
            f"{owner}"
        )
    yield ""
    yield f"{'CLIENT':40}  {'DONE/S':>8}  LIBRARY"
    for client in view.clients:
        name, library = escape_controls(client.id), escape_controls(client.library)
        yield f"{name[:40]:40}  {short_number(client.done_per_s):>8}  {library}"


def _topic_lines(view: TopicView) -> Iterator[str]:
    row = view.row
    yield (
        f"{escape_controls(view.node)}   in {short_number(row.incoming)}/s   "
        f"out {short_number(row.outgoing)}/s   lag {short_number(row.lag)}   "
        f"stored {short_number(row.stored)}"
        + (f"   retries {short_number(view.stored_once)}" if view.stored_once else "")
    )
    yield ""
    most = max((queue.incoming for queue in view.queues), default=0)
    titles = f"{'STORED':>8}  {'FIRST':>12}  {'END':>12}"
    yield f"{'QUEUE':>5}  {'IN/S':>8}  {'':{BAR_WIDTH}}  {titles}"
    for queue in view.queues:
        filled = bar_text(queue.incoming / most if most else 0)
        yield (
            f"{queue.queue:>5}  {short_number(queue.incoming):>8}  "
            f"{filled:{BAR_WIDTH}}  {short_number(queue.stored):>8}  "
            f"{queue.first:>12}  {queue.end:>12}"
        )
    yield ""
    yield f"{'GROUP':32}  {'LAG':>8}  WHY"
    for each in view.groups:
        name, why = escape_controls(each.name), escape_controls(each.message)
        yield f"{name[:32]:32}  {short_number(each.lag):>8}  {why}"
