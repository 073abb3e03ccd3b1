"""HeldPops: POPs and notifications that wait for messages in Python.

Compiled code holds most POPs. Here are POPs that it cannot serve, such as POPs in order
and by SQL92, and POPs that it has returned.
The key of a POP is its topic, group and queue (-1: any). The key of a POP of lite
topics is its client, group and -1. Each arrival wakes one request of a key, which runs
again from the start. While requests wait for a topic, compiled sends to the topic
report their messages at once (`TopicWatch`). One task sleeps until the first deadline,
which is in a heap. Limits: `popPollingSize` requests of a key and `maxPopPollingSize`
in all, with the POPs in compiled code; MAX_SIZE bytes. Known in Java as
`PopLongPollingService` and `PopLiteLongPollingService`.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from rmq.plugin import Alarm, BrokerContext, Connection
from rmq.plugin.native import TopicWatch
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command

MAX_SIZE: Final = 256 << 20
REQUEST_SIZE: Final = 2_048
"""Rough size of a waiting request in memory."""

EARLIER_MS: Final = 50
"""Time before the client's timeout at which the broker answers."""

MAX_POLL_MS: Final = 600_000
SLACK: Final = 1_000
"""Maximum number of answered requests in the heap of deadlines."""

ANY_QUEUE: Final = -1

Key = tuple[str, str, int]
"""Topic, group, queue."""

EmptyAnswer = Callable[[ResponseCode], Command]
"""Returns the answer without messages, with POLLING_TIMEOUT or POLLING_FULL."""


class HeldPop(msgspec.Struct, eq=False):
    """A request that may wait."""

    connection: Connection
    key: Key
    run: Callable[[bool], Command | EmptyAnswer]
    """Return the answer; an empty answer if the request may wait.

    The argument is true after a wait: the rights are then checked again.
    """

    retry_topics: Iterable[str] = ()
    """Further topics whose messages wake the request."""

    serve: Callable[[], bool] | None = None
    """Lets compiled code reply if it can; False: call `run`."""

    deadline_ms: int = 0
    is_done: bool = False


class CompiledPops(Protocol):
    """The POPs that wait in compiled code."""

    def count_pops(self, key: Key) -> int:
        """Return the number of POPs of a key."""

    def count_all(self) -> int:
        """Return the number of all POPs."""

    def set_others(self, count: int) -> None:
        """Set the number of requests in Python; the limit counts them, too."""


class HeldPops:
    """All requests that wait in Python."""

    def __init__(
        self, broker: BrokerContext, compiled: CompiledPops | None = None
    ) -> None:
        """The limits count the POPs in compiled code, too; None: there are none."""
        self._compiled = compiled
        self._config = broker.config
        self._now_ms = broker.clock.steady_ms
        self._wall_ms = broker.clock.now_ms
        self._tails = broker.queues.tails
        self._watches: dict[str, TopicWatch] = {}
        """Watches of the topics in `_groups`."""

        self._next_turn = broker.next_turn
        self._poll_soon = broker.poll_soon
        self._held: dict[Key, deque[HeldPop]] = {}
        self._groups: dict[str, dict[str, dict[int, None]]] = {}
        """Queues of waiting requests, by topic and group."""

        self._retries: dict[str, tuple[str, str]] = {}
        """Topic and group of each retry topic whose messages wake a request."""

        self._deadlines: list[tuple[int, int, HeldPop]] = []
        self._serial = 0
        self._ready: deque[HeldPop] = deque()
        self._unblock_times: list[tuple[int, Key]] = []
        """Times at which ordered queues are not blocked any more."""

        self._by_connection: dict[Connection, dict[HeldPop, None]] = {}
        self.alarm = Alarm(self._now_ms)
        self.waiting = 0
        self.is_stopping = False

    def run_or_hold(self, pop: HeldPop, poll_ms: int, born_ms: int) -> Command | None:
        """Run a new request; hold it if it finds no message and may wait."""
        outcome = pop.run(False)
        if isinstance(outcome, Command):
            return outcome
        if poll_ms <= 0:
            return outcome(ResponseCode.POLLING_TIMEOUT)
        if self.hold_new(pop, poll_ms, born_ms):
            return None
        return outcome(ResponseCode.POLLING_FULL)

    def hold_new(self, pop: HeldPop, poll_ms: int, born_ms: int) -> bool:
        """Hold a request that has found no message; False if too many wait."""
        pop.deadline_ms = self._find_deadline(poll_ms, born_ms)
        return self._hold_pop(pop)

    def hold_again(self, pop: HeldPop, left_ms: int) -> bool:
        """Hold a request that compiled code has returned; False if too many wait."""
        pop.deadline_ms = self._now_ms() + left_ms
        return self._hold_pop(pop)

    def _hold_pop(self, held: HeldPop) -> bool:
        """Hold a request; False if too many wait."""
        config, compiled = self._config, self._compiled
        others = 0 if compiled is None else compiled.count_all()
        if (
            self.is_stopping
            or self.waiting + others >= config.max_pop_polling_size
            or self.count(held.key) > config.pop_polling_size
            or (self.waiting + 1) * REQUEST_SIZE > MAX_SIZE
        ):
            return False
        self._enqueue(held)
        self._by_connection.setdefault(held.connection, {})[held] = None
        self._serial += 1
        heapq.heappush(self._deadlines, (held.deadline_ms, self._serial, held))
        if len(self._deadlines) > 2 * self.waiting + SLACK:
            self._deadlines = [each for each in self._deadlines if not each[2].is_done]
            heapq.heapify(self._deadlines)
        self.alarm.wake_at(held.deadline_ms)
        return True

    def _enqueue(self, held: HeldPop, *, first: bool = False) -> None:
        """Add a request to the queue of its key."""
        key = held.key
        queue = self._held.get(key)
        if queue is None:
            queue = self._held[key] = deque()
            topic, group, queue_id = key
            if topic not in self._groups:
                self._groups[topic] = {}
                self._watches[topic] = self._tails.watch(topic)
                self._watches[topic].count += 1
            self._groups[topic].setdefault(group, {})[queue_id] = None
            for name in held.retry_topics:
                self._retries[name] = topic, group
        if first:
            queue.appendleft(held)
        else:
            queue.append(held)
        self._set_waiting(self.waiting + 1)

    def _set_waiting(self, count: int) -> None:
        self.waiting = count
        if self._compiled is not None:
            self._compiled.set_others(count)

    def _find_deadline(self, poll_ms: int, born_ms: int) -> int:
        """Return the deadline of a request on the steady clock.

        The client's clock is used only if it differs by less than `poll_ms` from the
        broker's clock.
        """
        poll_ms = min(poll_ms, MAX_POLL_MS)
        passed_ms = self._wall_ms() - born_ms if born_ms else 0
        if not 0 <= passed_ms <= poll_ms:
            passed_ms = 0
        return self._now_ms() + max(0, poll_ms - passed_ms - EARLIER_MS)

    def count(self, key: Key) -> int:
        """Return the number of requests of a key that wait, with compiled POPs."""
        others = 0 if self._compiled is None else self._compiled.count_pops(key)
        return len(self._held.get(key, ())) + others

    def _take_oldest(self, key: Key) -> HeldPop | None:
        """Remove and return the oldest request of a key."""
        queue = self._held.get(key)
        while queue:
            held = queue.popleft()
            if not held.is_done:
                self._finish_removal(key, queue)
                return held
        return None

    def _finish_removal(self, key: Key, queue: deque[HeldPop]) -> None:
        self._set_waiting(self.waiting - 1)
        if queue:
            return
        del self._held[key]
        topic, group, queue_id = key
        queues = self._groups[topic][group]
        del queues[queue_id]
        if not queues:
            del self._groups[topic][group]
            self._retries = {
                name: where
                for name, where in self._retries.items()
                if where != (topic, group)
            }
        if not self._groups[topic]:
            del self._groups[topic]
            self._watches.pop(topic).count -= 1

    # -- waking

    def on_arrivals(self, touched: Mapping[tuple[str, int], int]) -> None:
        """Wake one request of each key with new messages."""
        if not self._held:
            return
        for topic in dict.fromkeys(topic for topic, _ in touched):
            for group in list(self._groups.get(topic, ())):
                self._serve_one((topic, group, ANY_QUEUE))
        for topic, queue_id in touched:
            for group in list(self._groups.get(topic, ())):
                self._serve_one((topic, group, queue_id))
            where = self._retries.get(topic)
            if where is not None:
                for each in list(self._groups.get(where[0], {}).get(where[1], ())):
                    self.wake_one((*where, each))

    def wake(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one request for any queue, and one for this queue."""
        self.wake_one((topic, group, ANY_QUEUE))
        if queue_id != ANY_QUEUE:
            self.wake_one((topic, group, queue_id))

    def wake_later(self, delay_ms: int, topic: str, group: str, queue_id: int) -> None:
        """Wake waiting POPs of a queue after some time."""
        if len(self._unblock_times) < self._config.max_pop_polling_size:
            at_ms = self._now_ms() + max(0, delay_ms)
            heapq.heappush(self._unblock_times, (at_ms, (topic, group, queue_id)))
            self.alarm.wake_at(at_ms)

    def wake_one(self, key: Key) -> None:
        """Wake the oldest request of a key."""
        held = self._take_oldest(key)
        if held is not None:
            self._ready.append(held)
            self.alarm.wake_at(0)

    def _serve_one(self, key: Key) -> None:
        """Let compiled code serve the oldest request of a key, or wake it."""
        held = self._take_oldest(key)
        if held is not None and not self._is_served(held):
            self._ready.append(held)
            self.alarm.wake_at(0)

    def _is_served(self, held: HeldPop) -> bool:
        """Whether compiled code has replied to a request that was woken."""
        if held.serve is None or not held.connection.is_open or not held.serve():
            return False
        self._mark_done(held)
        self._poll_soon()
        return True

    async def run(self) -> None:
        """Run the woken requests, and answer requests whose deadline has passed."""
        while True:
            await self.alarm.wait()
            while self._unblock_times and self._unblock_times[0][0] <= self._now_ms():
                self.wake(*heapq.heappop(self._unblock_times)[1])
            while self.has_ready:
                self.resume_next()
                await self._next_turn()
            self.expire()
            for times in self._deadlines, self._unblock_times:
                if times:
                    self.alarm.wake_at(times[0][0])

    @property
    def has_ready(self) -> bool:
        """Whether woken requests wait for `resume_next`."""
        return bool(self._ready)

    def resume_next(self) -> None:
        """Run again the request that was woken first."""
        held = self._ready.popleft()
        if held.is_done or not held.connection.is_open or self._is_served(held):
            return
        outcome = held.run(True)
        if not isinstance(outcome, Command):
            if held.deadline_ms > self._now_ms():
                self._enqueue(held, first=True)
                return
            outcome = outcome(ResponseCode.POLLING_TIMEOUT)
        self._mark_done(held)
        held.connection.send_nowait(outcome)

    def _mark_done(self, held: HeldPop) -> None:
        held.is_done = True
        others = self._by_connection.get(held.connection, {})
        others.pop(held, None)
        if not others:
            self._by_connection.pop(held.connection, None)

    def expire(self) -> None:
        """Answer the requests after their deadlines."""
        now_ms = self._now_ms()
        while self._deadlines:
            deadline_ms, _, held = self._deadlines[0]
            if not held.is_done and deadline_ms > now_ms:
                return
            heapq.heappop(self._deadlines)
            if not held.is_done:
                self._end(held)

    def _end(self, held: HeldPop) -> None:
        """Remove a request after its deadline, and answer it."""
        self._mark_done(held)
        self._remove_waiting(held)
        if held.connection.is_open:
            outcome = held.run(True)
            if not isinstance(outcome, Command):
                outcome = outcome(ResponseCode.POLLING_TIMEOUT)
            held.connection.send_nowait(outcome)

    def _remove_waiting(self, held: HeldPop) -> None:
        queue = self._held.get(held.key)
        if queue is not None and held in queue:
            queue.remove(held)
            self._finish_removal(held.key, queue)

    def drop(self, connection: Connection) -> None:
        """Remove the requests of a closed connection."""
        for held in self._by_connection.pop(connection, {}):
            held.is_done = True
            self._remove_waiting(held)

    def end_all(self) -> None:
        """Answer every request, because the broker stops."""
        self.is_stopping = True
        for _, _, held in self._deadlines:
            if not held.is_done:
                self._end(held)
        self._deadlines.clear()
