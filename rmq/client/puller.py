"""Puller: asks for messages of the held queues, and keeps them until they are wanted.

Pulls and POPs go on from answer to answer, without a task for each queue. One is sent
only if what is fetched and not acknowledged leaves room; a queue that may not be asked
now waits in `blocked`, in the heap of those that rest, or for a connection.
"""

import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

import anyio

from rmq._fastpath.client.codec import Pulled
from rmq._fastpath.client.messages import ReceivedMessage, decode_messages
from rmq._fastpath.client.process_queue import Fetched
from rmq.client.assigned_queue import HeldQueue
from rmq.client.client import Client
from rmq.client.compression import inflate
from rmq.client.errors import ClientClosed, SubscriptionRefused
from rmq.client.fetch_queue import AskedQueue
from rmq.core.errors import ConnectFailed, PeerError, RmqError
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import steady_ms
from rmq.outgoing.refused import AnswerRefused
from rmq.outgoing.wire import Waiter
from rmq.protocol.codes import ResponseCode
from rmq.protocol.topics import is_retry_topic

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

BUSY_MS: Final = 200
EMPTY_MS: Final = 100
ERROR_MS: Final = 3_000
"""Java's `pullTimeDelayMillsWhenException`."""

RECONNECT_MS: Final = 100
SLOW_ANSWER_MS: Final = 100


class GiveBack(Protocol):
    """What a consumer does with a message that could not be consumed."""

    def __call__(
        self,
        held: HeldQueue,
        message: ReceivedMessage,
        delay_s: float | None,
        *,
        dead_letter: bool,
    ) -> Coroutine[Any, Any, None]:
        """Have it delivered again."""


class Limits:
    """How much may be fetched and not yet acknowledged, in all queues together."""

    def __init__(self, fetch: int, messages: int, size: int) -> None:
        self.fetch = fetch
        self.messages = messages
        self.bytes = size


class Puller(Fetched):
    """See above; `run` runs as long as the consumer."""

    def __init__(
        self, client: Client, limits: Limits, give_back: GiveBack, *, ordered: bool
    ) -> None:
        self.held: dict[tuple[str, str, int], HeldQueue] = {}
        self.count = self.bytes = self.fetched = 0
        self.give_back = give_back
        self.is_stopped = False
        self._is_full = False
        self.failure: Exception | None = None
        self.on_refused: Callable[[RmqError], None] = lambda _: None
        """Learns what brokers refuse, not only for a moment; `fail` is one."""

        self.on_away: Callable[[BaseException], None] = lambda _: None
        self.on_back: Callable[[], None] = lambda: None
        """Learn that a queue cannot be asked, and that all can be again."""

        self._away: set[AskedQueue] = set()
        self.client = client
        self.limits = limits
        self.ordered = ordered
        self.ready = deque()
        self._ready_queues: deque[AskedQueue] = deque()
        self._waiting: deque[Waiter] = deque()
        self.blocked = set()
        self._offline: dict[str, list[AskedQueue]] = {}
        self._resting: list[tuple[int, int, AskedQueue]] = []
        self._numbers = itertools.count()
        self._alarm: anyio.Event | None = None

    # -- messages

    def take(self) -> ReceivedMessage | None:
        """Return the next message; None if there is none now.

        In an ordered group its queue gives no other one until `done`.
        """
        if not self.ordered:
            ready = self.ready
            while ready:
                message = ready.popleft()
                if not message.lease.is_revoked:
                    return message
            return None
        now_ms = steady_ms()
        for _ in range(len(self._ready_queues)):
            held = self._ready_queues.popleft()
            if held.is_revoked or held.is_busy or not held.buffer:
                continue
            assert isinstance(held, HeldQueue)
            if now_ms < held.rests_until_ms or now_ms > held.locked_until_ms:
                self.rest(held, max(held.rests_until_ms - now_ms, BUSY_MS))
                continue
            held.is_busy = True
            return held.buffer.popleft()
        return None

    def take_many(self, count: int) -> list[ReceivedMessage]:
        """Return messages that are here; of one queue in an ordered group."""
        first = self.take()
        if first is None:
            return []
        messages = [first]
        if self.ordered:
            lease = first.lease
            assert isinstance(lease, HeldQueue)
            while lease.buffer and len(messages) < count:
                messages.append(lease.buffer.popleft())
        else:
            while len(messages) < count and (message := self.take()) is not None:
                messages.append(message)
        return messages

    def done(self, held: HeldQueue) -> None:
        """Let a queue of an ordered group give its next message."""
        held.is_busy = False
        if held.buffer and not held.is_revoked:
            self._ready_queues.append(held)
            self._wake(1)

    def put_back(self, held: HeldQueue, message: ReceivedMessage) -> None:
        """Have a message consumed here again."""
        if held.is_revoked:
            return
        if self.ordered:
            held.buffer.appendleft(message)
            self._ready_queues.append(held)
        else:
            self.ready.append(message)
        self._wake(1)

    def take_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Hand messages out again, before all others; of one queue if ordered."""
        kept = [each for each in reversed(messages) if not each.lease.is_revoked]
        if not self.ordered:
            self.ready.extendleft(kept)
            self._wake(len(kept))
        elif kept:
            lease = kept[0].lease
            assert isinstance(lease, HeldQueue)
            lease.buffer.extendleft(kept)
            self.done(lease)

    async def wait(self) -> None:
        """Wait until there may be a message, or `failure`."""
        waiter = self.client.wires.waiter()
        self._waiting.append(waiter)
        is_cancelled = True
        try:
            await waiter
            is_cancelled = False
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif is_cancelled:  # it was to look: another one looks instead
                self._wake(1)

    def _wake(self, count: int) -> None:
        waiting = self._waiting
        while waiting and count > 0:
            waiter = waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def wake_all(self) -> None:
        """Let all look again, as after a stop or a failure."""
        self._wake(len(self._waiting))

    def fail(self, error: Exception) -> None:
        """End the iterators with an error."""
        self.failure = error
        self.wake_all()

    def add(self, messages: Sequence[ReceivedMessage]) -> None:
        """Take popped messages, for whoever wants some."""
        self.count += len(messages)
        self.bytes += sum(each.size for each in messages)
        self.fetched += len(messages)
        self.ready.extend(messages)
        self._wake(len(messages))

    def freed(self, held: AskedQueue) -> None:
        """Fetch others in place of a message that was acknowledged."""
        if self._is_full:
            if self._is_half_empty:
                self._is_full = False
                blocked, self.blocked = self.blocked, set()
                for each in blocked:
                    self.pull(each)
        elif held in self.blocked:
            self.blocked.discard(held)
            self.pull(held)

    def forget(self, held: HeldQueue) -> None:
        """Give up what is fetched of a queue; `take` skips it if that is revoked."""
        self.count -= held.state.count
        self.bytes -= held.state.bytes
        self.blocked.discard(held)
        self._away.discard(held)
        self._is_full &= bool(self.blocked)
        if not (self.ordered or held.is_revoked):
            kept = [each for each in self.ready if each.lease is not held]
            self.ready = deque(kept)

    # -- pulls

    @property
    def _has_room(self) -> bool:
        return self.count < self.limits.messages and self.bytes < self.limits.bytes

    @property
    def _is_half_empty(self) -> bool:
        """Whether there is room for all queues that wait for some."""
        limits = self.limits
        return self.count * 2 <= limits.messages and self.bytes * 2 <= limits.bytes

    @property
    def _share(self) -> int:
        """How many messages of one queue may be here, so that others have room."""
        share = self.limits.messages // max(len(self.held), 1)
        return max(share, self.limits.fetch)

    def pull(self, held: AskedQueue) -> None:
        """Ask for the next messages of a queue, unless it must wait."""
        if held.is_pulling or held.is_revoked or held.is_paused or self.is_stopped:
            return
        if not self._has_room or not held.has_room(self._share):
            self._is_full |= not self._has_room
            self.blocked.add(held)
            return
        address = self._address(held)
        connection = self.client.connections.get(address or "")
        if address is None:
            self._want_route(held)
            self.rest(held, ERROR_MS)
        elif connection is None or not connection.is_open:
            self._connect(address, held)
        else:
            if self._away:
                self._is_back(held)
            held.is_pulling = True
            held.last_pull_ms = steady_ms()
            held.ask(connection)

    def _address(self, held: AskedQueue) -> str | None:
        route = self.client.routes.get(held.queue.topic)
        if route is None:
            return None
        broker = held.queue.broker
        suggested = route.addresses.get(broker, {}).get(held.broker_id)
        return suggested or route.any_of(broker)

    def _want_route(self, held: AskedQueue) -> None:
        self.client.spawn(self.client.refresh, held.queue.topic)

    def _connect(self, address: str, held: AskedQueue) -> None:
        """Open a connection, once for all queues that wait for it."""
        waiting = self._offline.get(address)
        if waiting is not None:
            waiting.append(held)
            return
        self._offline[address] = [held]
        self.client.spawn(self._reconnect, address)

    async def _reconnect(self, address: str) -> None:
        failure: Exception | None = None
        try:
            await self.client.connection(address)
        except (PeerError, ClientClosed) as error:
            failure = error
            if isinstance(error, ConnectFailed):
                logger.info("%s; its queues wait", Foreign(error))
        for held in self._offline.pop(address, ()):
            if failure is not None:
                self._is_away(held, failure)
                self._want_route(held)
                self.rest(held, RECONNECT_MS)
            else:
                self.pull(held)

    def _is_away(self, held: AskedQueue, error: BaseException) -> None:
        self._away.add(held)
        self.on_away(error)

    def _is_back(self, held: AskedQueue) -> None:
        self._away.discard(held)
        if not self._away:
            self.on_back()

    def rest(self, held: AskedQueue, pause_ms: int) -> None:
        """Ask again after a pause."""
        due_ms = steady_ms() + pause_ms
        heapq.heappush(self._resting, (due_ms, next(self._numbers), held))
        if self._alarm is not None and self._resting[0][2] is held:
            self._alarm.set()

    async def run(self) -> None:
        """Ask again for queues that have rested."""
        while True:
            self._alarm = anyio.Event()
            now_ms = steady_ms()
            while self._resting and self._resting[0][0] <= now_ms:
                held = heapq.heappop(self._resting)[2]
                if held.buffer and not held.is_busy and not held.is_revoked:
                    self._ready_queues.append(held)
                    self._wake(1)
                self.pull(held)
            pause_ms = self._resting[0][0] - now_ms if self._resting else 60_000
            with anyio.move_on_after(pause_ms / 1_000):
                await self._alarm.wait()

    # -- answers

    def answered(self, held: HeldQueue, epoch: int, answer: Pulled) -> None:
        """Take the answer to a pull, and ask for more."""
        if held.is_revoked or epoch != held.epoch:
            return
        held.is_pulling = False
        held.broker_id = answer.suggested_broker_id
        held.max_offset = max(held.max_offset, answer.max_offset)
        code = answer.code
        if code == ResponseCode.SUCCESS:
            self._found(held, answer)
        elif code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
            has_moved = answer.next_offset > held.state.next_offset
            if code == ResponseCode.PULL_RETRY_IMMEDIATELY:
                held.state.add((), answer.next_offset)
            if has_moved:
                self.pull(held)
            else:
                self.found_nothing(held)
        elif code == ResponseCode.PULL_OFFSET_MOVED:
            logger.log(
                logging.WARNING if held.state.next_offset else logging.INFO,
                "%s has no offset %d: going on at %d",
                held.queue,
                held.state.next_offset,
                answer.next_offset,
            )
            held.reset(answer.next_offset)
            self.pull(held)
        else:
            self.refused(held, code, answer.remark or "")

    def found_nothing(self, held: AskedQueue) -> None:
        """Ask again; after a pause if the broker did not hold the request."""
        if steady_ms() - held.last_pull_ms >= SLOW_ANSWER_MS:
            self.pull(held)
        else:
            self.rest(held, EMPTY_MS)

    def _found(self, held: HeldQueue, answer: Pulled) -> None:
        is_retry = is_retry_topic(held.queue.topic)
        try:
            messages = decode_messages(
                answer.body,
                held.origin_of(held.subscription.topic),
                held.queue,
                held,
                tags=held.subscription.tags,
                inflate=inflate,
                origin_of=held.origin_of if is_retry else None,
            )
        except ValueError as error:
            logger.warning("%s: %s", held.queue, Foreign(error))
            self.rest(held, ERROR_MS)
            return
        before = held.state.bytes
        held.state.add(messages, answer.next_offset)
        self.count += len(messages)
        self.bytes += held.state.bytes - before
        self.fetched += len(messages)
        if messages:
            if self.ordered:
                was_empty = not held.buffer
                held.buffer.extend(messages)
                if was_empty and not held.is_busy:
                    self._ready_queues.append(held)
                self._wake(1)
            else:
                self.ready.extend(messages)
                self._wake(len(messages))
        self.pull(held)

    def refused(self, held: AskedQueue, code: int, remark: str) -> None:
        """Go on after an answer that is an error."""
        if code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            self.fail(SubscriptionRefused(held.subscription.expression, remark))
            return
        if code == ResponseCode.SYSTEM_BUSY:
            self.rest(held, BUSY_MS)
            return
        logger.warning(
            "%s refuses a pull of %s: %d: %s",
            held.queue.broker,
            held.queue.topic,
            code,
            Foreign(remark),
        )
        if code in (
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            ResponseCode.FILTER_DATA_NOT_EXIST,
            ResponseCode.FILTER_DATA_NOT_LATEST,
        ):
            self.client.spawn(self.client.beat)
        else:
            address = self._address(held) or held.queue.broker
            self.on_refused(AnswerRefused(address, code, remark))
        if code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION):
            self._want_route(held)
        self.rest(held, ERROR_MS)

    def failed(self, held: AskedQueue, epoch: int, error: BaseException) -> None:
        """Go on after a lost connection, or an answer that did not come."""
        if held.is_revoked or epoch != held.epoch:
            return
        held.is_pulling = False
        if self.client.is_open:
            logger.debug("a pull of %s failed: %s", held.queue, Foreign(error))
            self._is_away(held, error)
            self.rest(held, RECONNECT_MS)
