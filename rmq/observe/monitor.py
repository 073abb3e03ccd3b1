"""Watch: samples a broker, and keeps the list of what is wrong with it.

A sample comes every 10 s, or every 2 s while somebody looks, after a client left a
group, and until it is certain whether a group has no consumer.  It pauses after each
0.3 ms of work, so that a broker of any size serves meanwhile.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from rmq._fastpath import FLUSH_BOUNDS_S, RPC_BOUNDS_MS, RpcTime
from rmq.broker.arrivals import QueueKey
from rmq.core.clock import Clock
from rmq.core.humanize import span
from rmq.observe.departures import Departures
from rmq.observe.events import Events
from rmq.observe.group_progress import Progress
from rmq.observe.machine import DeadLetters, Growth, SenderClocks
from rmq.observe.measure import RollingPercentile, TimeSeriesTable
from rmq.observe.queries import Busiest

if TYPE_CHECKING:
    from rmq.broker.context import BrokerContext
    from rmq.observe.findings import Problem
    from rmq.observe.java_broker import JavaBroker
    from rmq.observe.reasons import GroupFacts

SAMPLE_S: Final = 10.0
LOOKED_AT_SAMPLE_S: Final = 2.0
LOOKED_AT_MS: Final = 15_000
"""Somebody who looks asks at least so often."""

TURN_S: Final = 0.0003
SEEN_AT_ONCE: Final = 500
"""Queues with new messages that are taken between two looks at the clock."""

MAX_SET_BY: Final = 300
MAX_SINCE: Final = 1_000
MAX_FOLLOWERS: Final = 16
"""Requests that follow the log at the same time, and as many that wait."""


class Watch:
    """The problems of one broker; everything belongs to the trio thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.departures = Departures(clock)
        self.progress = Progress()
        self.growth = Growth()
        self.clocks = SenderClocks()
        self.dead = DeadLetters()
        self.events = Events()
        self.of_groups = TimeSeriesTable()
        """What waited for groups."""

        self.of_topics = TimeSeriesTable()
        """What came to the topics that somebody looks at."""

        self.failing: dict[str, int] = {}
        """Groups that got messages again, and when."""

        self.touched: dict[QueueKey, int] = {}
        """Ends of queues with new messages, until a sample is complete: another that
        begins meanwhile must see them, too."""

        self.problems: list[Problem] = []
        self.by_group: dict[str, Problem] = {}
        """The worst problem of each group that has one."""

        self._dead_of: dict[str, int] = {}
        self.sampled_ms = 0
        """When the last sample was complete; 0: never."""

        self.busiest: Busiest | None = None
        self.furthest: Busiest | None = None
        """Topics, and groups, for the overview, while somebody looks at it."""

        self.others: dict[str, JavaBroker] = {}
        """Brokers of Java that somebody looked at, by address."""

        self.sends = RollingPercentile(RPC_BOUNDS_MS)
        """From the arrival of a send to its answer."""

        self.flushes = RollingPercentile([bound * 1_000 for bound in FLUSH_BOUNDS_S])
        self.connection_count: Callable[[], int] = lambda: 0
        self.rpc_times: Callable[[], list[RpcTime]] = list
        self._broker: BrokerContext | None = None
        self._since: dict[tuple[str, str], int] = {}
        self._urgent: set[tuple[str, str]] = set()
        """Problems of the last list that were more than notes."""

        self._set_by: dict[str, str] = {}
        self._looked_ms = -LOOKED_AT_MS
        self._wanted = trio.Event()
        self.is_uncertain = False
        """Whether it is not sure yet that a group has no consumer."""

    def attach(self, broker: "BrokerContext") -> None:
        """Watch this broker."""
        self._broker = broker
        tails = broker.store.queues.tails
        tails.take_unseen(len(broker.store.queues))  # what recovery has added
        broker.consumers.on_leave.append(self.departures.add)
        broker.consumers.on_leave.append(lambda *_: self.look())
        broker.offsets.on_reset.append(self.progress.suspect)
        self.events.attach(broker)

    def look(self) -> None:
        """Have samples come more often for a while."""
        was_unseen = self._clock.steady_ms() - self._looked_ms >= LOOKED_AT_MS
        self._looked_ms = self._clock.steady_ms()
        if was_unseen:
            self._wanted.set()

    @property
    def is_looked_at(self) -> bool:
        """Whether somebody looked lately."""
        return self._clock.steady_ms() - self._looked_ms < LOOKED_AT_MS

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Sample until cancelled: the service of the watch."""
        task_status.started()
        while True:
            is_soon = self.is_looked_at or self.is_uncertain
            pause_s = LOOKED_AT_SAMPLE_S if is_soon else SAMPLE_S
            with trio.move_on_after(pause_s):
                await self._wanted.wait()
            self._wanted = trio.Event()
            began = trio.current_time()
            for _ in self._sample():
                if trio.current_time() - began >= TURN_S:
                    await self._pause()
                    began = trio.current_time()

    async def _pause(self) -> None:
        assert self._broker is not None, "attach it first"
        await self._broker.next_turn()

    def sample(self) -> None:
        """Take a sample at once."""
        for _ in self._sample():
            pass

    def group(self, name: str) -> "Generator[None, None, GroupFacts]":
        """Return the facts about a group; the caller may pause at each step."""
        assert self._broker is not None, "attach it first"
        from rmq.observe.snapshot import group_facts

        return group_facts(self._broker, self, name)

    def _sample(self) -> Iterator[None]:
        assert self._broker is not None, "attach it first"
        # imported on use: the first sample comes seconds after the start
        from rmq.observe.sampling import sample

        return sample(self._broker, self)

    def take_touched(self) -> Iterator[dict[QueueKey, int]]:
        """Yield the ends of queues that got messages since the last sample."""
        assert self._broker is not None, "attach it first"
        store = self._broker.store
        for queues in iter(partial(store.queues.tails.take_unseen, SEEN_AT_ONCE), []):
            yield {
                queue.key: store.reads.max_offset(*queue.key)
                for queue in queues
                if not queue.is_deleted
            }

    async def show(
        self, name: str, query: Mapping[str, str], require: Callable[[str], object]
    ) -> dict[str, Any]:
        """Return a view; `require` is asked for the right to topics."""
        assert self._broker is not None, "attach it first"
        from rmq.observe.views import show_view

        return await show_view(self._broker, name, query, require)

    async def follow(
        self, query: Mapping[str, str], may_read: Callable[[str], bool]
    ) -> dict[str, Any]:
        """Return what came to the log, and events."""
        assert self._broker is not None, "attach it first"
        from rmq.observe.log_follower import follow_log

        return await follow_log(self._broker, query, may_read)

    def keep(self, found: "list[Problem]", now_ms: int) -> None:
        """Replace the list; each problem keeps the time when it was first seen."""
        keys = [(each.place, each.kind) for each in found[:MAX_SINCE]]
        urgent = {
            key: each
            for each, key in zip(found, keys, strict=False)
            if each.level != "note"
        }
        for key, each in urgent.items():
            if key not in self._urgent:
                self.events.problem(each)
        self._urgent = set(urgent)
        self._since = {key: self._since.get(key, now_ms) for key in keys}
        self.problems = [
            msgspec.structs.replace(each, since_ms=self._since[each.place, each.kind])
            for each in found[:MAX_SINCE]
        ]
        self._dead_of = dict(self.dead.of_hour(now_ms))
        self.by_group = {p.group: p for p in reversed(self.problems) if p.group}
        kinds = {each.kind for each in found}
        if "paused" not in kinds:
            self._set_by.clear()
        self.sampled_ms = now_ms

    def dead_of(self, group: str) -> int:
        """Return the new dead letters of a group, as the last sample saw them."""
        return self._dead_of.get(group, 0)

    def set_by(self, subject: str) -> str:
        """Return who changed something last, as the end of a sentence, or nothing."""
        assert self._broker is not None, "attach it first"
        known = self._set_by.get(subject)
        if known is not None:
            return known
        text = ""
        for change in self._broker.audit.all():
            if subject in change.subject:
                ago = span(max(0, self._clock.now_ms() - change.time_ms))
                text = f", set by {change.user or change.source} {ago} ago"
        if len(self._set_by) < MAX_SET_BY:
            self._set_by[subject] = text
        return text
