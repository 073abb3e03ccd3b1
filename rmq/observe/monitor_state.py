"""MonitorState: the measurements of a broker's samples, and its list of problems.

`sampling.sample` writes the state, and views read it, all in the trio thread.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from rmq._fastpath.log.flush_times import FLUSH_BOUNDS_S
from rmq._fastpath.reactor.rpc_times import RPC_BOUNDS_MS, RpcTime
from rmq.core.clock import Clock
from rmq.core.humanize import time_span
from rmq.core.measure import RollingPercentile, TimeSeriesTable
from rmq.observe.departures import Departures
from rmq.observe.events import Events
from rmq.observe.failures import ServiceFailures
from rmq.observe.group_progress import GroupProgress
from rmq.observe.machine import DeadLetters, LogGrowth, SenderClocks
from rmq.observe.queries import ListOrder
from rmq.store.queues.consume_queues import QueueKey

if TYPE_CHECKING:
    from rmq.observe.findings import Problem
    from rmq.observe.java_broker import JavaBroker
    from rmq.plugin.tables import Audit

LOOKED_AT_MS: Final = 15_000
"""Time after the last view in which the broker counts as viewed."""

MAX_SET_BY: Final = 300
MAX_SINCE: Final = 1_000


class MonitorState:
    """The problems and measurements of one broker; only the trio thread uses them."""

    def __init__(
        self,
        clock: Clock,
        connection_count: Callable[[], int],
        rpc_times: Callable[[], list[RpcTime]],
    ) -> None:
        self._clock = clock
        self.connection_count = connection_count
        self.rpc_times = rpc_times
        self.departures = Departures(clock)
        self.progress = GroupProgress()
        self.log_growth = LogGrowth()
        self.sender_clocks = SenderClocks()
        self.dead_letters = DeadLetters()
        self.failures = ServiceFailures()
        self.events = Events()
        self.group_lags = TimeSeriesTable()
        """The lag of groups over the last hour."""

        self.topic_arrivals = TimeSeriesTable()
        """Arrivals of the viewed topics, over the last hour."""

        self.failing_groups: dict[str, int] = {}
        """Groups with redelivered messages, and the times of the redeliveries."""

        self.touched_queues: dict[QueueKey, int] = {}
        """Ends of queues with new messages, until a sample is complete: a sample that
        begins meanwhile must see them, too.
        """

        self.problems: list[Problem] = []
        self.problem_by_group: dict[str, Problem] = {}
        """The worst problem of each group that has one."""

        self._dead_of: dict[str, int] = {}
        self.sampled_ms = 0
        """Time when the last sample was complete; 0: never."""

        self.orders: dict[str, ListOrder] = {}
        """Orders of the overview's lists by `sort`, while the overview is viewed."""

        self.other_brokers: dict[str, JavaBroker] = {}
        """Brokers of Java that were viewed, by address."""

        self.send_times = RollingPercentile(RPC_BOUNDS_MS)
        """Times from the arrival of a send to its answer."""

        self.flush_times = RollingPercentile(
            [bound * 1_000 for bound in FLUSH_BOUNDS_S]
        )
        self._since: dict[tuple[str, str], int] = {}
        self._urgent: set[tuple[str, str]] = set()
        """Problems of the last list with a level above `note`."""

        self._set_by: dict[str, str] = {}
        self._looked_ms = -LOOKED_AT_MS
        self._wanted = trio.Event()
        self.has_uncertain_group = False
        """Whether it is not certain yet that a group has no consumer."""

    def mark_viewed(self) -> None:
        """Take samples more often for a while."""
        was_unseen = self._clock.steady_ms() - self._looked_ms >= LOOKED_AT_MS
        self._looked_ms = self._clock.steady_ms()
        if was_unseen:
            self._wanted.set()

    @property
    def is_viewed(self) -> bool:
        """Whether a view was requested recently."""
        return self._clock.steady_ms() - self._looked_ms < LOOKED_AT_MS

    def update_problems(self, found: "list[Problem]", now_ms: int) -> None:
        """Replace the list; each problem keeps the time when it was first seen."""
        keys = [(each.subject, each.kind) for each in found[:MAX_SINCE]]
        urgent = {
            key: each
            for each, key in zip(found, keys, strict=False)
            if each.level != "note"
        }
        for key, each in urgent.items():
            if key not in self._urgent:
                self.events.add_problem(each)
        self._urgent = set(urgent)
        self._since = {key: self._since.get(key, now_ms) for key in keys}
        self.problems = [
            msgspec.structs.replace(each, since_ms=self._since[each.subject, each.kind])
            for each in found[:MAX_SINCE]
        ]
        self._dead_of = dict(self.dead_letters.of_hour(now_ms))
        self.problem_by_group = {p.group: p for p in reversed(self.problems) if p.group}
        kinds = {each.kind for each in found}
        if "paused" not in kinds:
            self._set_by.clear()
        self.sampled_ms = now_ms

    def shift_times(self, step_ms: int) -> None:
        """Move all times of the past, because the clock was set."""
        for part in (
            self.progress, self.log_growth, self.dead_letters, self.group_lags,
            self.topic_arrivals, self.send_times, self.flush_times,
        ):  # fmt: skip
            part.shift_times(step_ms)
        self._since = {key: at_ms + step_ms for key, at_ms in self._since.items()}
        self.failing_groups = {
            group: at_ms + step_ms for group, at_ms in self.failing_groups.items()
        }

    def dead_letters_of(self, group: str) -> int:
        """Return the new dead letters of a group, as the last sample saw them."""
        return self._dead_of.get(group, 0)

    def changed_by(self, audit: "Audit", subject: str) -> str:
        """Return the last change of a subject as the end of a sentence, or nothing."""
        known = self._set_by.get(subject)
        if known is not None:
            return known
        text = ""
        for change in audit.all():
            if subject in change.subject:
                ago = time_span(max(0, self._clock.now_ms() - change.time_ms))
                text = f", set by {change.user or change.source} {ago} ago"
        if len(self._set_by) < MAX_SET_BY:
            self._set_by[subject] = text
        return text
