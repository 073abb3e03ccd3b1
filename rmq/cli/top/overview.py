"""Typed answers of brokers for `rmq top`, and the rows of all brokers merged.

Some fields have clearer names than in the JSON. The value None means unknown: Java's
brokers do not report every figure.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self, TypeVar

import msgspec
from msgspec import field

from rmq.cli.terminal.text import short_number
from rmq.core.humanize import count_text, time_span


class Problem(msgspec.Struct):
    """A problem that a broker reports."""

    subject: str
    message: str
    level: str = "warn"


class Row(msgspec.Struct, kw_only=True):
    """A row of a table; Enter opens the page of its `name`."""

    name: str
    level: str = "ok"

    @property
    def search_text(self) -> str:
        """The text that the filter matches."""
        return self.name


class GroupRow(Row, kw_only=True):
    """A consumer group on one broker, or on all brokers after `merge`."""

    lag: int
    waits_ms: int
    outgoing: float = field(name="out")
    clients: int | None
    retries: float | None = field(name="again")
    dead: int | None
    message: str = ""
    summary: str | None = None
    trend: str = ""
    """Lag of the last two minutes as blocks; the screen sets it."""

    @property
    def short_reason(self) -> str:
        """The short form of the problem; older brokers have the sentence only."""
        return self.message if self.summary is None else self.summary

    def merge(self, other: Self) -> None:
        """Add the figures of the same group on another broker."""
        self.lag += other.lag
        self.outgoing += other.outgoing
        self.retries = _sum_known(self.retries, other.retries)
        self.dead = _sum_known(self.dead, other.dead)
        self.waits_ms = max(self.waits_ms, other.waits_ms)
        if other.clients is not None:
            self.clients = max(self.clients or 0, other.clients)
        if self.level == "ok":
            self.level, self.message = other.level, other.message
            self.summary = other.summary


class TopicRow(Row, kw_only=True):
    """A topic on one broker, or on all brokers after `merge`."""

    incoming: float = field(name="in")
    outgoing: float = field(name="out")
    lag: int
    stored: int | None = field(name="kept")
    queues: int = 0

    def merge(self, other: Self) -> None:
        """Add the figures of the same topic on another broker."""
        self.incoming += other.incoming
        self.outgoing += other.outgoing
        self.lag += other.lag
        self.stored = _sum_known(self.stored, other.stored)
        self.queues = max(self.queues, other.queues)


class ClientRow(Row, kw_only=True):
    """A producer or consumer; `name` is the name of its group."""

    name: str = field(name="group")
    kind: str
    client: str
    language: str
    heard_ms: int
    protocol: str = "remoting"

    @property
    def library(self) -> str:
        """The language, and gRPC if the client speaks it."""
        return f"{self.language} gRPC" if self.protocol == "grpc" else self.language

    @property
    def search_text(self) -> str:
        """The text that the filter matches."""
        return f"{self.name} {self.client}"


class BrokerRow(Row, kw_only=True):
    """One broker; its rates come from two overviews."""

    version: str
    incoming: float | None
    outgoing: float | None
    connections: int | None
    disk: float
    message: str


Merged = TypeVar("Merged", GroupRow, TopicRow)
Number = TypeVar("Number", int, float)


class Disk(msgspec.Struct):
    """The disk of a store; Java's brokers report the used part only."""

    share: float | None = None
    used: int = 0
    total: int = 0
    growth_per_hour: float | None = None

    @property
    def used_part(self) -> float:
        """The used part, 0 to 1; 0 if it is unknown."""
        return self.used / self.total if self.total else self.share or 0.0


class Member(msgspec.Struct):
    """A broker of a group with a controller."""

    id: int
    in_set: bool
    lag_bytes: int | None = field(name="behind")
    """Lag of the broker; None if it is not connected."""


class Membership(msgspec.Struct):
    """The state of a broker in its group, if the group has a controller."""

    epoch: int
    is_master: bool
    members: list[Member] | None = None


class Overview(msgspec.Struct):
    """The view `overview` of one broker; `put` and `got` count messages."""

    now_ms: int = field(name="now")
    node: str
    cluster: str
    version: str
    uptime_ms: int = field(name="up_ms")
    problems: list[Problem]
    put: int
    got: int
    writable: bool
    connections: int | None
    disk: Disk
    groups: list[GroupRow]
    groups_total: int | None
    topics: list[TopicRow]
    topics_total: int | None
    due: float | None = None
    """Deliveries per second that the topic would have if no group lagged."""

    send_p99_ms: float | None = None
    group: Membership | None = None


class Rates(NamedTuple):
    """Messages a second over the last period; None before the second answer."""

    incoming: float | None = None
    outgoing: float | None = None


def merge_rows(rows: Iterable[Merged]) -> list[Merged]:
    """Merge the rows of one name: sums of amounts, maxima of waits and clients."""
    found: dict[str, Merged] = {}
    for row in rows:
        if row.name in found:
            found[row.name].merge(row)
        else:
            found[row.name] = msgspec.structs.replace(row)
    return list(found.values())


def compute_rates(before: Sequence[Overview], now: Sequence[Overview]) -> Rates:
    """Return the rates between two answers of the same brokers."""
    past = {state.node: state for state in before}
    pairs = [(past[state.node], state) for state in now if state.node in past]
    elapsed_s = max((b.now_ms - a.now_ms for a, b in pairs), default=0) / 1_000
    if elapsed_s <= 0:
        return Rates()
    return Rates(
        sum(max(0, b.put - a.put) for a, b in pairs) / elapsed_s,
        sum(max(0, b.got - a.got) for a, b in pairs) / elapsed_s,
    )


def broker_rows(before: Sequence[Overview], now: Sequence[Overview]) -> list[BrokerRow]:
    """Return a row for each broker, with rates since the overviews `before`."""
    rows = []
    for state in now:
        rates = compute_rates(before, [state])
        count = len(state.problems)
        parts = [
            "" if state.writable else "NOT WRITABLE",
            _membership_text(state.group),
            f"up {time_span(state.uptime_ms)}",
            count_text(count, "problem") if count else "",
        ]
        rows.append(
            BrokerRow(
                name=state.node,
                version=state.version,
                incoming=rates.incoming,
                outgoing=rates.outgoing,
                connections=state.connections,
                disk=state.disk.used_part,
                level="warn" if count else "ok",
                message="; ".join(part for part in parts if part),
            )
        )
    return rows


def _membership_text(group: Membership | None) -> str:
    """Return epoch and role; of a master also the sync state set and its lag.

    >>> members = [Member(1, True, 0), Member(2, False, 1_200)]
    >>> _membership_text(Membership(3, True, members))
    'epoch 3, in sync 1, 2 lags 1,200 bytes'
    """
    if group is None:
        return ""
    if not group.is_master:
        return f"epoch {group.epoch}, slave"
    members = group.members or []
    parts = [f"epoch {group.epoch}"]
    parts.append("in sync " + " ".join(str(m.id) for m in members if m.in_set))
    for each in members:
        if each.lag_bytes is None:
            parts.append(f"{each.id} is not connected")
        elif each.lag_bytes or not each.in_set:
            parts.append(f"{each.id} lags {short_number(each.lag_bytes)} bytes")
    return ", ".join(parts)


def _sum_known(one: Number | None, other: Number | None) -> Number | None:
    return other if one is None else one if other is None else one + other
