# tidy: long — one check for each kind of problem
"""The problems of a broker: sentences, each with the action that ends the problem.

`problems` is a pure function of a `BrokerSnapshot`.  The console, `rmq doctor`, `rmq
top`, `/metrics` and `/api/problems` show the same list, the worst first.
"""

from collections.abc import Callable, Iterator, Sequence
from shlex import quote
from typing import Final

import msgspec

from rmq.core.humanize import count, count_text, names_text, time_span
from rmq.observe.failures import ServiceFailure
from rmq.observe.reasons import GroupFacts, Level, why_behind

CLOCK_TOLERANCE_MS: Final = 2_000
FORECAST_HOURS: Final = 72
"""A disk that will be full within these hours is a problem."""

SOON_HOURS: Final = 1
"""Maximum number of hours of a forecast that is based on the growth of the last
seconds.
"""

MIN_GROWTH: Final = 1 << 20
"""Minimum growth in bytes per hour; a forecast from slower growth means nothing."""

OPEN_TRANSACTION_MS: Final = 60_000
"""Age of an open transaction that is a problem: its sender may need some time for the
outcome.
"""

MIN_REPEATS: Final = 10
"""Minimum number of repeated sends that are a problem: a few answers may be late by
more than a second.
"""

REPLICA_LAG: Final = 64 << 20
NEARLY_FULL: Final = 0.9
MAX_PROBLEMS: Final = 200
"""Maximum number of problems in the list; a sentence has the number of further
problems.
"""

LEVELS: Final[tuple[Level, ...]] = ("bad", "warn", "note")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence about one thing that an operator should look at."""

    level: Level
    kind: str
    subject: str
    """A group, a topic, or the broker itself."""

    message: str
    action: str
    command: str = ""
    summary: str = ""
    """The message in a few words, for a column; only for groups."""

    details: tuple[str, ...] = ()
    group: str = ""
    """The group, if the problem is about a group."""

    since_ms: int = 0
    """Time when the problem was first seen; 0 without a monitor."""


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """The disk of the log."""

    total: int
    used: int
    early_ratio: float
    """Used part of the disk above which old files are deleted early."""

    refuse_ratio: float
    growth_per_hour: float | None = None
    lately_per_hour: float | None = None
    """Growth in bytes per hour, from the last seconds."""

    kept_ms: int | None = None
    """Age of the oldest message."""

    reserved_ms: int = 0
    """Age at which messages are deleted; from then on the log does not grow."""

    @property
    def ratio(self) -> float:
        """The used part, 0 to 1."""
        return self.used / max(1, self.total)

    @property
    def hours_left(self) -> float | None:
        """Hours until old files are deleted early; None: never, or not known."""
        soon = self._hours_at(self.lately_per_hour)
        if soon is not None and soon < SOON_HOURS:
            return soon
        return self._hours_at(self.growth_per_hour)

    def _hours_at(self, growth: float | None) -> float | None:
        if growth is None or growth < MIN_GROWTH or self.ratio >= self.early_ratio:
            return None
        if not self.total:
            return None  # ramfs does not report its size
        if self.kept_ms is not None and self.kept_ms >= self.reserved_ms:
            return None  # as many bytes are deleted as arrive
        hours = (self.early_ratio * self.total - self.used) / growth
        left_ms = self.reserved_ms - (self.kept_ms or 0)
        return hours if hours * 3_600_000 < left_ms else None


class BrokerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a broker at one moment."""

    broker: str
    now_ms: int
    refusal: str = ""
    """Reason why messages are refused; empty if they are accepted."""

    put_error: str = ""
    """Reason why there is no room for the next message, while the store still accepts
    messages.
    """

    disk: Disk | None = None
    skews: Sequence[tuple[str, int]] = ()
    """Hosts of senders, and the milliseconds by which their clocks are ahead."""

    open_transactions: int = 0
    """Transactions that their senders did not end in time."""

    silent_senders: Sequence[str] = ()
    """Groups of such senders that have no connected member, so that the broker cannot
    ask.
    """

    oldest_transaction_ms: int | None = None
    dead_letters: Sequence[tuple[str, int]] = ()
    """Groups, each with the number of its new dead letters in the last hour."""

    repeated_keys: Sequence[tuple[str, int, str]] = ()
    """For each producer group: its name, the number of its sends whose key was stored
    more than a second before, and the topic.
    """

    once_window: tuple[int, int] = (0, 0)
    """Milliseconds that the table of keys covers, and milliseconds that topics need."""

    lost_name_servers: Sequence[tuple[str, str]] = ()
    """Addresses that do not know this broker, each with the error."""

    name_servers: int = 0
    replicas: Sequence[tuple[str, int, bool]] = ()
    """For each slave: its address, the bytes that it lacks, whether it is in sync."""

    not_following: str = ""
    """Reason why this slave does not follow its master."""

    log_losses: Sequence[str] = ()
    """Damage of the log that the start found, and by which messages were lost."""

    log_healed: Sequence[str] = ()
    """Damage of the log that the start replaced with bytes of another broker."""

    log_holes: Sequence[str] = ()
    """Blocks of the log whose bytes differ from the written bytes."""

    late_scrub: tuple[int, int] = (0, 0)
    """Days since the oldest scrub of a log file, if this scrub is late; and
    `rmq.scrubDays`.
    """

    table_losses: Sequence[str] = ()
    """Changes that were lost at the start, because a table's file was damaged."""

    connections: tuple[int, int] = (0, 0)
    """Open connections, and the limit."""

    failures: Sequence[ServiceFailure] = ()
    """Services that could not handle a record, or failed as a whole."""


def find_problems(
    snapshot: BrokerSnapshot, of_groups: Sequence[Problem] = ()
) -> list[Problem]:
    """Return the problems that an operator should look at, the worst first."""
    found = [each for row in CHECKS for each in row(snapshot)]
    found += of_groups
    found.sort(key=lambda each: LEVELS.index(each.level))
    if len(found) > MAX_PROBLEMS:
        rest = len(found) - MAX_PROBLEMS
        found[MAX_PROBLEMS:] = [
            Problem(
                level=found[MAX_PROBLEMS].level,
                kind="more",
                subject=snapshot.broker,
                message=f"{rest:,} more problems are not listed.",
                action="Begin with the first problem of this list.",
            )
        ]
    return found


def group_problems(group: GroupFacts) -> list[Problem]:
    """Return the problem of a group, with its reason; nothing for a healthy group."""
    reason = why_behind(group)
    if reason.level == "ok":
        return []
    problem = Problem(
        level=reason.level,
        kind=reason.kind,
        subject=group.name,
        message=reason.message,
        action=reason.action,
        command=reason.command,
        summary=reason.summary,
        details=reason.details + ((f"{reason.catch_up}.",) if reason.catch_up else ()),
        group=group.name,
    )
    return [problem]


# -- the checks


def _check_refusal(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    if snapshot.refusal:
        yield Problem(
            level="bad",
            kind="refuses",
            subject=snapshot.broker,
            message=f"The broker refuses messages: {snapshot.refusal}.",
            action="Read the broker's log; if its disk is full, free space there.",
            command="rmq doctor",
        )
    elif snapshot.put_error:
        yield Problem(
            level="bad",
            kind="put-error",
            subject=snapshot.broker,
            message=f"The broker cannot store messages: {snapshot.put_error}.",
            action="Check the folder of this error, and the limits of the process "
            "(ulimit -a).",
        )


def _check_disk(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    disk = snapshot.disk
    if disk is None:
        return
    percent, hours = round(100 * disk.ratio), disk.hours_left
    if disk.ratio >= disk.early_ratio:
        yield Problem(
            level="bad" if disk.ratio >= disk.refuse_ratio else "warn",
            kind="disk",
            subject=snapshot.broker,
            message=f"{percent} % of the disk is used: the broker deletes old files "
            f"early, and refuses messages from {disk.refuse_ratio:.0%} on.",
            action="Free disk space, add a disk, or lower fileReservedTime.",
            command=f"rmq admin updateBrokerConfig -B {quote(snapshot.broker)} "
            "-k fileReservedTime -v 36",
        )
    elif hours is not None and hours < FORECAST_HOURS:
        yield Problem(
            level="warn" if hours < FORECAST_HOURS / 3 else "note",
            kind="disk-forecast",
            subject=snapshot.broker,
            message=f"The disk reaches {disk.early_ratio:.0%} in "
            f"{time_span(int(hours * 3_600_000))}; then the broker deletes old files "
            "early.",
            action="Add a disk, or lower fileReservedTime.",
            command=f"rmq admin updateBrokerConfig -B {quote(snapshot.broker)} "
            "-k fileReservedTime -v 36",
        )


def _check_clocks(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    wrong = [(host, ms) for host, ms in snapshot.skews if abs(ms) >= CLOCK_TOLERANCE_MS]
    if not wrong:
        return
    host, worst = max(wrong, key=lambda each: abs(each[1]))
    side = "ahead" if worst > 0 else "late"
    yield Problem(
        level="warn",
        kind="clock",
        subject=snapshot.broker,
        message=f"The clock of sender {host} is {time_span(abs(worst))} {side}.",
        action=(
            "Let NTP set the clocks: delays, ages and queries by time need correct "
            "clocks."
        ),
        details=tuple(f"{each}: {ms} ms" for each, ms in wrong[:3] if each != host),
    )


def _check_transactions(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    oldest = snapshot.oldest_transaction_ms
    if not snapshot.open_transactions or oldest is None:
        return
    number = snapshot.open_transactions
    noun = "transaction is" if number == 1 else "transactions are"
    why_open, do = "although the sender was asked", "Let the sender's"
    if silent := snapshot.silent_senders:
        why_open = f"and no sender of {names_text(silent)} is connected"
        do = f"Start a sender of {silent[0]}: let its"
    yield Problem(
        level="warn" if oldest >= OPEN_TRANSACTION_MS else "note",
        kind="transactions",
        subject=snapshot.broker,
        message=f"{number:,} {noun} open {why_open}; "
        f"the oldest for {time_span(oldest)}.",
        action=f"{do} checkLocalTransaction answer commit or rollback.",
        command=f"rmq admin producer -B {quote(snapshot.broker)}",
    )


def _check_dead_letters(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    for group, number in snapshot.dead_letters:
        if number <= 0:
            continue
        yield Problem(
            level="warn",
            kind="dead-letters",
            subject=group,
            message=f"{count(number)} became dead letters in the last hour.",
            action="Fix the consumer, then resend the dead letters.",
            command=f"rmq consume {quote(f'%DLQ%{group}')}",
            summary=f"{number:,} dead letters in an hour",
            group=group,
        )


def _check_repeated_keys(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    """Find programs that send one message object twice on purpose."""
    for group, number, topic in snapshot.repeated_keys:
        if number < MIN_REPEATS:
            continue
        yield Problem(
            level="note",
            kind="repeated-keys",
            subject=group,
            message=f"Producers of {group} sent {count(number)} again more than a "
            f"second after the first send; {topic} stores each key once.",
            action="If the program sends the same message object twice on purpose, "
            f"create a new object for each send, or disable store once for {topic}.",
            command=f"rmq topic set {quote(topic)} -a rmq.once.window.ms=0",
        )


def _check_once_window(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    window_ms, asked_ms = snapshot.once_window
    if window_ms >= asked_ms:
        return
    yield Problem(
        level="warn",
        kind="once-window",
        subject=snapshot.broker,
        message=f"The table of keys is full: it has the keys of the last "
        f"{time_span(window_ms)}, and topics need {time_span(asked_ms)}.",
        action="Raise rmq.onceTableBytes in the configuration file, then restart the "
        "broker.",
    )


def _check_name_servers(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    lost = snapshot.lost_name_servers
    if not lost:
        return
    is_alone = len(lost) == snapshot.name_servers
    address, error = lost[0]
    yield Problem(
        level="bad" if is_alone else "warn",
        kind="name-server",
        subject=snapshot.broker,
        message=f"{names_text([each for each, _ in lost])} "
        f"{'does' if len(lost) == 1 else 'do'} not know this broker"
        f"{f': {error}' if error else ''}.",
        action=f"Start the name server {address}, or correct namesrvAddr.",
        command=f"rmq doctor -n {address}",
    )


def _check_slaves(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    for address, behind, is_in_sync in snapshot.replicas:
        if not is_in_sync or behind > REPLICA_LAG:
            yield Problem(
                level="warn",
                kind="replica",
                subject=snapshot.broker,
                message=(
                    f"The slave {address} lacks {behind / 2**20:,.0f} MiB of the log."
                ),
                action=(
                    "Check the slave's disk and the network between the two brokers."
                ),
                command=f"rmq admin haStatus -B {quote(snapshot.broker)}",
            )
    if snapshot.not_following:
        yield Problem(
            level="bad",
            kind="not-following",
            subject=snapshot.broker,
            message=f"This slave does not follow: {snapshot.not_following}.",
            action="docs/operate/replication.md explains each reason and its remedy.",
        )


def _check_limits(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    used, limit = snapshot.connections
    if limit and used >= NEARLY_FULL * limit:
        yield Problem(
            level="warn",
            kind="connections",
            subject=snapshot.broker,
            message=f"{used:,} of {limit:,} connections are open.",
            action="Raise rmq.maxConnections, or find out which client opens so many.",
        )


def _check_services(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    for each in snapshot.failures:
        if each.records:
            find = f"rmq admin queryMsgById -i {each.message_id}"
            yield Problem(
                level="bad",
                kind=f"passed-records-{each.service}",
                subject=snapshot.broker,
                message=(
                    f"The service {each.service} could not handle "
                    f"{count(each.records)} and skipped them; the last is at "
                    f"{each.last_record}."
                ),
                action="The broker's log lists all of them. Check the last record.",
                command=find if each.message_id else "",
            )
        if each.stops:
            yield Problem(
                level="bad",
                kind=f"failed-service-{each.service}",
                subject=snapshot.broker,
                message=(
                    f"The service {each.service} failed and started again "
                    f"({each.stops:,} since the start): {each.last_stop}."
                ),
                action="The broker's log shows where the error occurred.",
            )


def _check_log(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    for loss in snapshot.log_losses:
        yield Problem(
            level="bad",
            kind="damaged",
            subject=snapshot.broker,
            message=f"{loss}.",
            action="Check the disk. If another broker has the messages, stop this "
            "broker and move its store away: it then copies the log of the other "
            "broker. If no other broker has them, `rmq store repair --restore` "
            "stores the messages in cut/ again. Next time, run `rmq store heal` "
            "before the start: it copies the damaged bytes from another broker. "
            "`rmq store accept-loss` loses only the damaged messages. The next "
            "start ends this problem.",
        )
    for healed in snapshot.log_healed:
        yield Problem(
            level="warn",
            kind="healed",
            subject=snapshot.broker,
            message=f"{healed}.",
            action="Check the disk. The next start ends this problem.",
        )


def _check_blocks(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    holes = snapshot.log_holes
    if not holes:
        return
    others = len(holes) - 1
    more = f"; and {count_text(others, 'further block')}" if others else ""
    yield Problem(
        level="bad",
        kind="hole",
        subject=snapshot.broker,
        message=f"The log is damaged: {holes[0]}{more}.",
        action="Check the disk. When another broker with the bytes runs, this broker "
        "copies them. Without such a broker, readers skip the messages whose "
        "checksum is wrong. The problem ends when the file expires, or after `rmq "
        "store repair`, which accepts the current bytes.",
    )


def _check_scrub(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    late, wanted = snapshot.late_scrub
    if not late:
        return
    yield Problem(
        level="note",
        kind="scrub",
        subject=snapshot.broker,
        message=f"A file of the log was compared with its digests {late} days ago; "
        f"rmq.scrubDays is {wanted}.",
        action="If the broker was stopped for days, wait: the scrub now reads at full "
        "rate. If it was not, raise rmq.scrubBytesPerSecond, or rmq.scrubDays.",
    )


def _check_tables(snapshot: BrokerSnapshot) -> Iterator[Problem]:
    for loss in snapshot.table_losses:
        yield Problem(
            level="bad",
            kind="torn",
            subject=snapshot.broker,
            message=f"{loss}.",
            action="Check the disk, and repeat the lost changes; the damaged file has "
            "the ending .bad. The next start ends this problem.",
        )


CHECKS: Final[tuple[Callable[[BrokerSnapshot], Iterator[Problem]], ...]] = (
    _check_refusal,
    _check_log,
    _check_blocks,
    _check_scrub,
    _check_tables,
    _check_clocks,
    _check_disk,
    _check_transactions,
    _check_dead_letters,
    _check_repeated_keys,
    _check_once_window,
    _check_name_servers,
    _check_slaves,
    _check_limits,
    _check_services,
)


def level_counts(found: Sequence[Problem]) -> dict[str, int]:
    """Return the number of problems of each level."""
    return {level: sum(each.level == level for each in found) for level in LEVELS}
