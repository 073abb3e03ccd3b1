"""The reason why a consumer group lags: one sentence, its evidence, and the remedy.

`why_behind` is a pure function of `GroupFacts`. It tries the rows of `ROWS` in the
order of their certainty. The first row that applies gives the sentence; the other rows
that apply are its evidence. None means unknown, never zero.
"""

# tidy: long — one table of rules, whose order is what they mean

from collections.abc import Callable, Iterator, Sequence
from shlex import quote
from typing import Final, Literal

import msgspec

from rmq.core.humanize import count, members, names_text, rate_text, time_span

Level = Literal["ok", "note", "warn", "bad"]

BEHIND_MS: Final = 60_000
"""Waiting time of a message above which its group lags."""

NOBODY_MS: Final = 4_000
"""Waiting time without a commit after which a group without members is a problem."""

STILL_MS: Final = 60_000
"""Time after which a client that has messages in flight and finishes none is blocked.
"""

EARLY_MS: Final = 7_000
"""Waiting time of a message that gets a reason, though its group does not lag yet.

Clients commit their finished messages every 5 s.
"""

PARTING_MS: Final = 12_000
"""Time after a client left in which samples may still see its last commits."""

SLOW_FACTOR: Final = 8
"""A client is slow if its rate is at most the median of the other clients divided by
this factor.
"""

FAILED_SHARE: Final = 0.05
HOT_FACTOR: Final = 3
LEAST_RATE: Final = 0.1
"""Minimum rate, in messages per second, of a sentence that compares rates or shares."""

FAULTS_PER_S: Final = 10


class ClientFacts(msgspec.Struct, frozen=True):
    """A member of a group."""

    id: str
    address: str = ""
    library: str = ""
    done_per_s: float | None = None
    """Messages per second that the client finished, as its commits show; None before
    two samples.
    """


class QueueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a group in one queue."""

    topic: str
    queue_id: int
    lag: int
    end: int = 0
    committed: int | None = None
    in_flight: int = 0
    """Messages that clients have fetched and not committed."""

    owner: str | None = None
    """The client that got messages last."""

    arriving_per_s: float = 0.0
    done_per_s: float | None = None
    still_ms: int = 0
    """Time for which the committed offset has not moved although messages wait."""

    waits_ms: int = 0
    """Minimum time that the oldest message has waited."""


class Departure(msgspec.Struct, frozen=True):
    """The last client that left a group."""

    client: str
    at_ms: int
    is_clean: bool


class GroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a group."""

    name: str
    now_ms: int
    clients: Sequence[ClientFacts] = ()
    queues: Sequence[QueueFacts] = ()
    is_broadcast: bool = False
    last_departure: Departure | None = None
    pauses: Sequence[str] = ()
    """Sentences about the settings that keep the group from consuming."""

    sides: Sequence[tuple[int, str]] = ()
    """Numbers of members and their subscriptions, if the subscriptions differ."""

    again_per_s: float = 0.0
    """Messages per second that failed and come again."""

    again_before_per_s: float | None = None
    """Messages per second that failed and came again in the hour before."""

    faults_per_s: float = 0.0
    """Pages per second that the broker reads from its disk."""

    deleted_in_ms: int | None = None
    """Time until the oldest waiting message is deleted unread."""

    @property
    def lag(self) -> int:
        """Messages that wait."""
        return sum(queue.lag for queue in self.queues)

    @property
    def waits_ms(self) -> int:
        """The minimum time that the oldest message has waited."""
        return max((queue.waits_ms for queue in self.queues if queue.lag), default=0)

    @property
    def arriving_per_s(self) -> float:
        """Messages per second that arrive for the group."""
        return sum(queue.arriving_per_s for queue in self.queues)

    @property
    def done_per_s(self) -> float | None:
        """Messages per second that the group finishes; None if any part is unknown."""
        rates = [queue.done_per_s for queue in self.queues]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known and len(known) == len(rates) else None

    @property
    def is_behind(self) -> bool:
        """Whether a message waits for too long."""
        return self.lag > 0 and self.waits_ms >= BEHIND_MS


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence, the evidence for it, and the remedy."""

    level: Level
    kind: str
    message: str
    summary: str = ""
    """The sentence in a few words, for a column."""

    details: tuple[str, ...] = ()
    action: str = ""
    command: str = ""
    catch_up: str = ""
    """Text: the time when the group will have caught up."""


def why_behind(group: GroupFacts) -> Reason:
    """Return the reason why a group lags, or the sentence that the group keeps up."""
    found = [reason for row in ROWS if (reason := row(group)) is not None]
    if not found:
        return Reason(level="ok", kind="keeps-up", message="The group keeps up.")
    first, *rest = found
    more = first.details + tuple(
        each.message for each in rest if each.kind != "unexplained"
    )
    later = "" if first.kind == "catches-up" else _catch_up_text(group)
    return msgspec.structs.replace(first, details=more, catch_up=later)


# -- the rows


def _explain_no_client(group: GroupFacts) -> Reason | None:
    """Report a group without members soon, as a warning: a client may restart."""
    if group.clients or group.waits_ms < NOBODY_MS or not group.lag:
        return None
    waiting = [q for q in group.queues if q.lag and q.waits_ms >= NOBODY_MS]
    if min(queue.still_ms for queue in waiting) < NOBODY_MS:
        return None
    left = group.last_departure
    if _is_in_use(group):
        return None
    how, brief = "", "nobody consumes"
    if left is not None:
        order = "clean shutdown" if left.is_clean else "its connection was lost"
        ago = time_span(max(0, group.now_ms - left.at_ms))
        how = f" The last client left {ago} ago ({order})."
        brief = f"nobody for {ago}"
    return Reason(
        level="bad" if group.is_behind else "warn",
        kind="nobody",
        summary=brief,
        message=f"No client consumes; {count(group.lag)} wait.{how}",
        details=() if left is None else (f"It was {left.client}.",),
        action=f"Start a client of the group.{_deletion_text(group)}",
        command=f"rmq group info {quote(group.name)}",
    )


def _explain_pause(group: GroupFacts) -> Reason | None:
    if not group.pauses or not (group.lag or group.clients):
        return None
    return Reason(
        level="bad" if group.is_behind else "warn",
        kind="paused",
        summary=f"paused: {group.pauses[0]}",
        message=f"The group may not consume: {'; '.join(group.pauses)}.",
        action="Allow consumption again if the pause is over.",
        command="rmq admin auditLog",
    )


def _explain_mismatch(group: GroupFacts) -> Reason | None:
    if len(group.sides) < 2:
        return None
    sides = [f"{members(number)} want {what}" for number, what in group.sides]
    return Reason(
        level="warn",
        kind="members-differ",
        summary="members want different messages",
        message="Members have different subscriptions, so some messages are skipped.",
        details=tuple(sides[:3]),
        action="Give all members the same subscriptions, or use a group for each "
        "subscription.",
        command=f"rmq admin consumerConnection -g {quote(group.name)}",
    )


def _explain_unowned_queue(group: GroupFacts) -> Reason | None:
    """No client fetches from a queue, although the group has members."""
    still = [
        queue
        for queue in group.queues
        if queue.lag and not queue.in_flight and queue.still_ms >= STILL_MS
    ]
    if group.is_broadcast or not group.clients or not still:
        return None
    verb = "has" if len(still) == 1 else "have"
    number = "a queue" if len(still) == 1 else f"{len(still)} queues"
    return Reason(
        level="bad" if group.is_behind else "warn",
        kind="unowned",
        summary=f"{number} {verb} no owner",
        message=f"{queues_text(still)} {verb} no owner: no client fetches from "
        f"{'it' if len(still) == 1 else 'them'}.",
        details=(f"{count(sum(q.lag for q in still))} wait there.",),
        action="Restart a client: members share the queues again within 20 s.",
        command=f"rmq admin consumerProgress -g {quote(group.name)}",
    )


def _explain_blocked_client(group: GroupFacts) -> Reason | None:
    """Report a blocked client early, as a note, because a message may need some
    seconds.
    """
    stuck = [q for q in group.queues if q.in_flight and q.still_ms >= EARLY_MS]
    if not group.clients or not stuck:
        return None
    who = sorted({queue.owner for queue in stuck if queue.owner})
    for_ms = max(queue.still_ms for queue in stuck)
    is_sure = for_ms >= STILL_MS
    name = names_text(who) or "A client"
    levels: tuple[Level, Level] = "note", "warn"
    if group.is_behind:  # before, its reason was unknown
        levels = "warn", "bad"
    return Reason(
        level=levels[is_sure],
        kind="blocked",
        summary=f"{name}: nothing done for {time_span(for_ms)}",
        message=f"{name} finished nothing for {time_span(for_ms)}, with "
        f"{count(sum(q.in_flight for q in stuck))} in flight: a "
        f"{'' if is_sure else 'slow or '}blocked handler.",
        details=(f"This client has {queues_text(stuck)}.",),
        action=(
            "Look at the threads of this client; restart it if it makes no progress."
        ),
        command=_status_command(group, who),
    )


def _median_of(rates: list[float]) -> float:
    """Return the median; the module `statistics` takes 3 ms of every start."""
    ordered = sorted(rates)
    half = len(ordered) // 2
    return (ordered[half] + ordered[~half]) / 2


def _explain_slow_client(group: GroupFacts) -> Reason | None:
    late = [q for q in group.queues if q.lag and q.waits_ms >= EARLY_MS]
    if len(group.clients) < 2:
        return None
    behind = {queue.owner for queue in late if queue.owner}
    rates = {c.id: c.done_per_s for c in group.clients if c.done_per_s is not None}
    for client in sorted(behind & rates.keys(), key=lambda each: rates[each]):
        others = [rate for name, rate in rates.items() if name != client]
        usual = _median_of(others) if others else 0.0
        if usual < LEAST_RATE or rates[client] * SLOW_FACTOR > usual:
            continue
        own = [queue for queue in group.queues if queue.owner == client]
        share = 100 * sum(queue.lag for queue in own) // max(1, group.lag)
        return Reason(
            level="bad" if group.is_behind else "warn",
            kind="slow-client",
            summary=f"{client}: {rate_text(rates[client])}, others {rate_text(usual)}",
            message=f"One of {members(len(group.clients))} is slow. {client} finishes "
            f"{rate_text(rates[client])}, the others {rate_text(usual)}.",
            details=(
                f"{client} has {queues_text(own)}, with {share} % of the waiting "
                f"messages.",
            ),
            action=(
                "Look at its threads, or stop it: then the other clients get its "
                "queues."
            ),
            command=_status_command(group, [client]),
        )
    return None


def _explain_failures(group: GroupFacts) -> Reason | None:
    done = group.done_per_s or 0.0
    again, before = group.again_per_s, group.again_before_per_s
    whole = max(done, again)
    if again < LEAST_RATE:
        return None
    is_sudden = before is not None and again > 10 * max(before, LEAST_RATE)
    if again <= FAILED_SHARE * whole and not is_sudden:
        return None
    share = f"{100 * again / whole:.0f} % of its messages"
    more = f"{rate_text(again)} are retried"
    if before is not None:
        more += f"; in the hour before it was {rate_text(before)}"
    return Reason(
        level="warn",
        kind="fails",
        summary=f"{100 * again / whole:.0f} % fail and are retried",
        message=f"{share} fail and are retried.",
        details=(f"{more}.",),
        action="Read the log of the clients before these messages become dead letters.",
        command=f"rmq consume {quote(f'%RETRY%{group.name}')}",
    )


def _explain_hot_queue(group: GroupFacts) -> Reason | None:
    for topic in sorted({queue.topic for queue in group.queues}):
        own = [queue for queue in group.queues if queue.topic == topic]
        total = sum(queue.arriving_per_s for queue in own)
        hot = max(own, key=lambda queue: queue.arriving_per_s)
        if len(own) <= HOT_FACTOR or total < LEAST_RATE:
            continue
        if not hot.lag or hot.waits_ms < EARLY_MS:
            continue
        if hot.arriving_per_s <= HOT_FACTOR * total / len(own):
            continue
        share = f"{100 * hot.arriving_per_s / total:.0f} %"
        return Reason(
            level="warn",
            kind="hot-queue",
            summary=f"queue {hot.queue_id} gets {share}",
            message=f"Queue {hot.queue_id} of {topic} gets {share} of the messages: "
            "senders choose queues by a key that occurs often.",
            action="Choose queues by a key with more values, or without a key.",
            command=f"rmq admin topicStatus -t {quote(topic)}",
        )
    return None


def _explain_few_queues(group: GroupFacts) -> Reason | None:
    busy = {queue.owner for queue in group.queues if queue.lag}
    if not group.is_behind or not group.clients or _catches_up(group):
        return None
    lagging = [queue for queue in group.queues if queue.lag]
    if len(group.clients) < len(group.queues) or len(lagging) < len(group.queues):
        return None
    if None in busy:
        return None
    topic = group.queues[0].topic
    more = 2 * sum(queue.topic == topic for queue in group.queues)
    return Reason(
        level="bad",
        kind="too-few-queues",
        summary=f"{len(group.clients)} clients, {_queue_count(group)}, all busy",
        message=f"{members(len(group.clients))}, {_queue_count(group)}, all busy: "
        "more clients do not help, more queues do.",
        action="Give the topic more queues, or make the handler faster.",
        command=f"rmq topic set {quote(topic)} --queues {more}",
    )


def _explain_slow_group(group: GroupFacts) -> Reason | None:
    done, arriving = group.done_per_s, group.arriving_per_s
    if not group.is_behind or not group.clients or not done or done >= arriving:
        return None
    wanted = -(-arriving * len(group.clients) // done)
    return Reason(
        level="bad",
        kind="too-slow",
        summary=f"{len(group.clients)} clients, needs {wanted:.0f}",
        message=(
            f"{members(len(group.clients)).capitalize()} "
            f"finish{'es' if len(group.clients) == 1 else ''} {rate_text(done)}, "
            f"{rate_text(arriving)} arrive. The group needs {wanted:.0f} clients."
        ),
        action="Start more clients, or make the handler faster.",
        command=f"rmq admin consumerProgress -g {quote(group.name)}",
    )


def _explain_disk_reads(group: GroupFacts) -> Reason | None:
    if not group.is_behind or not group.clients or group.faults_per_s < FAULTS_PER_S:
        return None
    return Reason(
        level="warn",
        kind="reads-disk",
        summary="reads from the disk",
        message="The group reads messages that are no longer in memory: "
        f"{group.faults_per_s:.0f} pages per second come from the disk.",
        action="Wait until the group has caught up, or give the broker a faster disk.",
    )


def _explain_catch_up(group: GroupFacts) -> Reason | None:
    if not group.is_behind or not _catches_up(group):
        return None
    return Reason(
        level="note",
        kind="catches-up",
        summary=_catch_up_text(group),
        message=f"The group will be {_catch_up_text(group)}.",
        action="Nothing needs to be done.",
    )


def _explain_nothing(group: GroupFacts) -> Reason | None:
    if not group.is_behind:
        return None
    return Reason(
        level="warn",
        kind="unexplained",
        summary="the reason is unknown",
        message=f"The group lags by {count(group.lag)}, and the reason is unknown.",
        action="Read the log of the group's clients.",
        command=f"rmq admin consumerProgress -g {quote(group.name)}",
    )


ROWS: Final[tuple[Callable[[GroupFacts], Reason | None], ...]] = (
    _explain_no_client,
    _explain_pause,
    _explain_mismatch,
    _explain_unowned_queue,
    _explain_blocked_client,
    _explain_slow_client,
    _explain_failures,
    _explain_hot_queue,
    _explain_few_queues,
    _explain_slow_group,
    _explain_disk_reads,
    _explain_catch_up,
    _explain_nothing,
)


def _is_in_use(group: GroupFacts) -> bool:
    """Return whether a client that is no member commits, or may do so soon.

    After a member has left, its last messages and commits prove nothing.
    """
    queues, left = group.queues, group.last_departure
    if left is not None:
        since_ms = group.now_ms - left.at_ms - PARTING_MS
        queues = [queue for queue in queues if queue.still_ms < since_ms]
    if any(queue.done_per_s for queue in queues):
        return True
    return not group.is_behind and any(queue.in_flight for queue in queues)


# -- words


def _queue_count(group: GroupFacts) -> str:
    return "one queue" if len(group.queues) == 1 else f"{len(group.queues)} queues"


def _catches_up(group: GroupFacts) -> bool:
    return (group.done_per_s or 0.0) > group.arriving_per_s


def _catch_up_text(group: GroupFacts) -> str:
    """Return when the group will have caught up at this speed."""
    done = group.done_per_s
    if not group.is_behind or not done:
        return ""
    gain = done - group.arriving_per_s
    if gain <= 0:
        return f"never caught up at {rate_text(done)}"
    return f"caught up in {time_span(int(1_000 * group.lag / gain))} at this speed"


def _deletion_text(group: GroupFacts) -> str:
    if group.deleted_in_ms is None:
        return ""
    return (
        f" In {time_span(max(0, group.deleted_in_ms))} the oldest are deleted unread."
    )


def _status_command(group: GroupFacts, clients: Sequence[str]) -> str:
    if not clients:
        return f"rmq admin consumerProgress -g {quote(group.name)}"
    return f"rmq admin consumerStatus -g {quote(group.name)} -i {quote(clients[0])} -s"


def queues_text(queues: Sequence[QueueFacts]) -> str:
    """Return `Queues 4 to 7 of order-paid`, runs of numbers together."""
    parts = []
    for topic in sorted({queue.topic for queue in queues}):
        ids = sorted(queue.queue_id for queue in queues if queue.topic == topic)
        runs = [_run_text(*pair) for pair in _number_runs(ids)]
        noun = "Queue" if len(ids) == 1 else "Queues"
        parts.append(f"{noun} {names_text(runs)} of {topic}")
    return names_text(parts)


def _number_runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = last = ids[0]
    for each in ids[1:]:
        if each != last + 1:
            yield first, last
            first = each
        last = each
    yield first, last


def _run_text(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {last}" if last > first + 1 else f"{first}, {last}"
