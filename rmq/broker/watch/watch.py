"""Watch: samples a broker, and keeps the list of what is wrong with it.

A sample comes every 10 s, or every 2 s while somebody looks, after a client left a
group, and until it is certain whether a group has no consumer.  It pauses after each
millisecond of work, so that a broker of any size serves meanwhile.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from rmq.broker.arrivals import QueueKey
from rmq.broker.watch.departures import Departures
from rmq.broker.watch.events import Events
from rmq.broker.watch.machine import DeadLetters, Growth, SenderClocks
from rmq.broker.watch.picture import group_facts, take_picture
from rmq.broker.watch.progress import Progress
from rmq.clock import Clock
from rmq.findings import Problem, group_problems, problems
from rmq.protocol.topics import RETRY_PREFIX
from rmq.reasons import BEHIND_MS, NOBODY_MS, GroupFacts
from rmq.words import span

if TYPE_CHECKING:
    from rmq.broker.context import BrokerContext

SAMPLE_S: Final = 10.0
LOOKED_AT_SAMPLE_S: Final = 2.0
LOOKED_AT_MS: Final = 15_000
"""Somebody who looks asks at least so often."""

TURN_S: Final = 0.001
MAX_GROUPS: Final = 300
"""Groups, those that wait longest first, for which a reason is looked for."""

MAX_SINCE: Final = 1_000
FAILING_MS: Final = 120_000


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
        self.failing: dict[str, int] = {}
        """Groups that got messages again, and when."""

        self.problems: list[Problem] = []
        self.by_group: dict[str, Problem] = {}
        """The worst problem of each group that has one."""

        self.sampled_ms = 0
        """When the last sample was complete; 0: never."""

        self.connection_count: Callable[[], int] = lambda: 0
        self._broker: BrokerContext | None = None
        self._touched: dict[QueueKey, int] = {}
        self._since: dict[tuple[str, str], int] = {}
        self._set_by: dict[str, str] = {}
        self._looked_ms = -LOOKED_AT_MS
        self._wanted = trio.Event()
        self._is_uncertain = False

    def attach(self, broker: "BrokerContext") -> None:
        """Watch this broker."""
        self._broker = broker
        broker.consumers.on_leave.append(self.departures.add)
        broker.consumers.on_leave.append(lambda *_: self.look())
        broker.offsets.on_reset.append(self.progress.suspect)
        self.events.attach(broker)

    def on_arrivals(self, arrived: Mapping[QueueKey, int]) -> None:
        """Note the queues with new messages: a listener of arrivals."""
        self._touched.update(arrived)

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
            is_soon = self.is_looked_at or self._is_uncertain
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

    def group(self, name: str) -> GroupFacts:
        """Return the facts about a group."""
        assert self._broker is not None, "attach it first"
        return group_facts(self._broker, self, name)

    def _sample(self) -> Iterator[None]:
        broker = self._broker
        assert broker is not None, "attach it first"
        now_ms = self._clock.now_ms()
        touched, self._touched = self._touched, {}
        self.growth.sample(broker, now_ms)
        self.clocks.sample(broker, touched)
        yield
        self.dead.sample(touched, now_ms)
        topics = {topic for topic, _ in touched}
        yield
        self._note_failing(topics, now_ms)
        self.progress.touch(topics)
        yield from self.progress.sample(broker)
        names: list[str] = []
        yield from self._choose(names, now_ms)
        of_groups: list[Problem] = []
        for name in names:
            of_groups += group_problems(group_facts(broker, self, name))
            yield
        self._keep(problems(take_picture(broker, self), of_groups), now_ms)

    def _note_failing(self, topics: set[str], now_ms: int) -> None:
        for topic in topics:
            if topic.startswith(RETRY_PREFIX) and len(self.failing) < MAX_GROUPS:
                self.failing[topic.removeprefix(RETRY_PREFIX)] = now_ms
        for group in [g for g, at in self.failing.items() if now_ms - at > FAILING_MS]:
            del self.failing[group]

    def _choose(self, names: list[str], now_ms: int) -> Iterator[None]:
        """Add the groups that need a reason to `names`, the longest wait first."""
        assert self._broker is not None, "attach it first"
        consumers = self._broker.consumers
        self._is_uncertain = False
        waits = dict.fromkeys(consumers.mismatches.differing(), BEHIND_MS)
        waits |= dict.fromkeys(self.failing, BEHIND_MS)
        for name, topics in list(self.progress.groups.items()):
            queues = [queue for each in topics.values() for queue in each.values()]
            waited = max((queue.waits_ms(now_ms) for queue in queues), default=0)
            waits[name] = max(waited, waits.get(name, 0))
            if any(queue.lag for queue in queues) and waited < NOBODY_MS:
                self._is_uncertain |= not consumers.client_ids(name)
            yield
        names += heapq.nlargest(MAX_GROUPS, waits, key=waits.__getitem__)

    def _keep(self, found: list[Problem], now_ms: int) -> None:
        """Replace the list; each problem keeps the time when it was first seen."""
        keys = [(each.place, each.kind) for each in found[:MAX_SINCE]]
        for each, key in zip(found, keys, strict=False):
            if key not in self._since:
                self.events.problem(each)
        self._since = {key: self._since.get(key, now_ms) for key in keys}
        self.problems = [
            msgspec.structs.replace(each, since_ms=self._since[each.place, each.kind])
            for each in found[:MAX_SINCE]
        ]
        self.by_group = {p.group: p for p in reversed(self.problems) if p.group}
        kinds = {each.kind for each in found}
        if "paused" not in kinds:
            self._set_by.clear()
        self.sampled_ms = now_ms

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
        if len(self._set_by) < MAX_GROUPS:
            self._set_by[subject] = text
        return text
