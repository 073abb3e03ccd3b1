# tidy: long — requests, answers and the buffer of one consumer
"""Puller: fetches the messages of all queues, and buffers them for the program.

Known in Java as `PullMessageService` and `PullAPIWrapper`. Pulls and POPs continue from
answer to answer, without a task for each queue. A queue sends a request only while the
messages that are fetched and not acknowledged leave room. A queue that must not send
now waits in `blocked`, in the heap of delayed queues, or for a connection.
"""

import heapq
import itertools
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import anyio

from rmq._fastpath.client.codec import PullResult
from rmq._fastpath.client.messages import ReceivedMessage, decode_messages
from rmq._fastpath.client.process_queue import FetchBuffer
from rmq.client.assigned_queue import AssignedQueue, QueueContext
from rmq.client.client import Client
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import ClientClosed, SubscriptionRefused, refusal_of
from rmq.client.fetch_queue import FetchQueue
from rmq.client.options import ConsumerGroup, FetchLimits
from rmq.client.redelivery import Redelivery
from rmq.client.subscription import Subscription
from rmq.core.errors import PeerError, RmqError
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import steady_ms
from rmq.outgoing.wire import Waiter
from rmq.protocol.codes import ResponseCode
from rmq.protocol.compression import open_body
from rmq.protocol.topics import is_retry_topic

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

BUSY_MS: Final = 200
EMPTY_MS: Final = 100
ERROR_MS: Final = 3_000
"""Java's `pullTimeDelayMillsWhenException`."""

RECONNECT_MS: Final = 100
SLOW_ANSWER_MS: Final = 100


class FetchListener(Protocol):
    """Is notified of trouble with brokers; the `Consumer` implements it."""

    def on_refused(self, error: RmqError) -> None:
        """Handle a refusal that lasts, such as a missing right."""

    def on_unreachable(self, error: BaseException) -> None:
        """Handle the loss of the connection to a queue."""

    def on_reachable(self) -> None:
        """Handle the moment when all queues can be reached again."""


class Puller(FetchBuffer):
    """The pulls of one consumer; `run` runs as long as the consumer.

    `count` and `bytes` cover the messages that are fetched and not acknowledged.
    """

    def __init__(
        self,
        client: Client,
        limits: FetchLimits,
        group: ConsumerGroup,
        redelivery: Redelivery,
        listener: FetchListener,
    ) -> None:
        self.count = self.bytes = self.fetched_count = 0
        self.failure: Exception | None = None
        self.ready = deque()
        self.blocked = set()
        self._queues: dict[tuple[str, str, int], AssignedQueue] = {}
        self._context = QueueContext(self, self, group, self._send_back)
        self._client = client
        self._limits = limits
        self._ordered = group.ordered
        self._redelivery = redelivery
        self._listener = listener
        self._is_stopped = False
        self._is_full = False
        self._unreachable: set[FetchQueue] = set()
        self._ready_queues: deque[AssignedQueue] = deque()
        self._waiting: deque[Waiter] = deque()
        self._offline: dict[str, list[FetchQueue]] = {}
        self._delayed: list[tuple[int, int, FetchQueue]] = []
        self._numbers = itertools.count()
        self._alarm: anyio.Event | None = None
        self._served_topics: set[str] = set()
        self._refused: set[tuple[str, str, str]] = set()
        """Keys of the open troubles (see `troubles`) about refused pulls."""

    # -- assigned queues

    @property
    def queues(self) -> Mapping[tuple[str, str, int], AssignedQueue]:
        """The queues of this consumer, without the queues that it pops."""
        return self._queues

    def assign(
        self, queue: MessageQueue, subscription: Subscription, offset: int
    ) -> AssignedQueue:
        """Add a queue; the caller starts its pulls."""
        added = AssignedQueue(self._context, queue, subscription, offset)
        self._queues[queue] = added
        return added

    def revoke(self, queue: AssignedQueue) -> None:
        """Remove a queue, and drop its fetched messages."""
        queue.revoke()
        self._discard(queue)
        del self._queues[queue.queue]

    def seek(self, queue: AssignedQueue, offset: int) -> None:
        """Drop the fetched messages of a queue, and continue at an offset."""
        self._discard(queue)
        queue.seek(offset)

    def _discard(self, queue: AssignedQueue) -> None:
        """Remove the fetched messages; messages of revoked queues are skipped later."""
        self.count -= queue.state.count
        self.bytes -= queue.state.bytes
        self.blocked.discard(queue)
        self._unreachable.discard(queue)
        self._is_full &= bool(self.blocked)
        if not (self._ordered or queue.is_revoked):
            left = [each for each in self.ready if each.lease is not queue]
            self.ready = deque(left)

    # -- messages

    def next_messages(self, count: int) -> list[ReceivedMessage]:
        """Return the fetched messages; in an ordered group, of one queue only.

        In an ordered group this queue hands out no other messages until `release`.
        """
        if self._ordered:
            return self._next_in_order(count)
        messages: list[ReceivedMessage] = []
        ready = self.ready
        while ready and len(messages) < count:
            message = ready.popleft()
            if not message.lease.is_revoked:
                messages.append(message)
        return messages

    def _next_in_order(self, count: int) -> list[ReceivedMessage]:
        now_ms = steady_ms()
        for _ in range(len(self._ready_queues)):
            queue = self._ready_queues.popleft()
            if not queue.can_hand_out:
                continue
            unavailable_ms = queue.unavailable_ms(now_ms)
            if unavailable_ms is None:
                return queue.hand_out(count)
            self.pull_later(queue, max(unavailable_ms, BUSY_MS))
        return []

    def release(self, queue: AssignedQueue) -> None:
        """Let a queue of an ordered group hand out its next messages."""
        queue.release()
        if queue.can_hand_out:
            self._ready_queues.append(queue)
            self._wake(1)

    def return_messages(self, messages: Sequence[ReceivedMessage]) -> None:
        """Hand messages out again, before all other messages; all are of one queue in
        an ordered group.
        """
        valid = [each for each in messages if not each.lease.is_revoked]
        if not self._ordered:
            self.ready.extendleft(reversed(valid))
            self._wake(len(valid))
        elif valid:
            queue = valid[0].lease
            assert isinstance(queue, AssignedQueue)
            queue.put_first(valid)
            self.release(queue)

    async def _send_back(
        self,
        queue: AssignedQueue,
        message: ReceivedMessage,
        delay_s: float | None,
        *,
        dead_letter: bool,
    ) -> None:
        """Let the group consume a message again, by another consumer or by this one."""
        if queue.is_revoked:
            return
        pause_s = await self._redelivery.send_back(
            queue.subscription.topic,
            queue.queue,
            message,
            delay_s,
            dead_letter=dead_letter,
        )
        if pause_s is None:
            queue.ack(message)
            return
        message.local_attempts += 1
        if self._ordered:
            queue.suspend(pause_s)
            self._retry_here(queue, message)
        else:
            self._client.spawn(self._retry_later, queue, message, pause_s)

    async def _retry_later(
        self, queue: AssignedQueue, message: ReceivedMessage, pause_s: float
    ) -> None:
        await anyio.sleep(pause_s)
        self._retry_here(queue, message)

    def _retry_here(self, queue: AssignedQueue, message: ReceivedMessage) -> None:
        if queue.is_revoked:
            return
        if self._ordered:
            queue.put_first([message])
            self._ready_queues.append(queue)
        else:
            self.ready.append(message)
        self._wake(1)

    async def wait(self) -> None:
        """Wait until there may be a message, or `failure`."""
        waiter = self._client.wires.waiter()
        self._waiting.append(waiter)
        is_cancelled = True
        try:
            await waiter
            is_cancelled = False
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif is_cancelled:  # this task was woken for a message: wake another task
                self._wake(1)

    def _wake(self, count: int) -> None:
        waiting = self._waiting
        while waiting and count > 0:
            waiter = waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def stop(self) -> None:
        """Send no more requests, and wake all tasks that wait for messages."""
        self._is_stopped = True
        self._wake(len(self._waiting))

    def fail(self, error: Exception) -> None:
        """End the iterators with an error."""
        self.failure = error
        self._wake(len(self._waiting))

    def add(self, messages: Sequence[ReceivedMessage]) -> None:
        """Add popped messages for the next task that wants some."""
        self._count(messages, sum(each.size for each in messages))
        self.ready.extend(messages)
        self._wake(len(messages))

    def _count(self, messages: Sequence[ReceivedMessage], size: int) -> None:
        self.count += len(messages)
        self.bytes += size
        self.fetched_count += len(messages)

    def remove(self, queue: FetchQueue, size: int) -> None:
        """Count a popped message of `size` bytes as acknowledged."""
        self.count -= 1
        self.bytes -= size
        self.on_acked(queue)

    def on_acked(self, queue: FetchQueue) -> None:
        """Fetch other messages after one was acknowledged."""
        if self._is_full:
            if self._is_half_empty:
                self._is_full = False
                blocked, self.blocked = self.blocked, set()
                for each in blocked:
                    self.pull(each)
        elif queue in self.blocked:
            self.blocked.discard(queue)
            self.pull(queue)

    # -- requests

    @property
    def _has_room(self) -> bool:
        limits = self._limits
        return self.count < limits.max_count and self.bytes < limits.max_bytes

    @property
    def _is_half_empty(self) -> bool:
        """Whether there is room for all queues that wait for room."""
        limits = self._limits
        return self.count * 2 <= limits.max_count and self.bytes * 2 <= limits.max_bytes

    @property
    def _share(self) -> int:
        """Limit of fetched messages of one queue, so that other queues have room."""
        share = self._limits.max_count // max(len(self._queues), 1)
        return max(share, self._limits.fetch_count)

    def pull(self, queue: FetchQueue) -> None:
        """Request the next messages of a queue, unless it must wait."""
        if self._is_stopped or not queue.may_fetch:
            return
        if not self._has_room or not queue.has_room(self._share):
            self._is_full |= not self._has_room
            self.blocked.add(queue)
            return
        address = self._address_of(queue)
        connection = self._client.connections.get(address or "")
        if address is None:
            self._refresh_route(queue)
            self.pull_later(queue, ERROR_MS)
        elif connection is None or not connection.is_open:
            self._connect(address, queue)
        else:
            if self._unreachable:
                self._set_reachable(queue)
            queue.fetch(connection, self._limits.fetch_count)

    def _address_of(self, queue: FetchQueue) -> str | None:
        """Return the address of the broker that the last answer suggested, or of any
        member of its group.
        """
        route = self._client.routes.get(queue.queue.topic)
        if route is None:
            return None
        broker = queue.queue.broker
        suggested = route.addresses.get(broker, {}).get(queue.broker_id)
        return suggested or route.any_of(broker)

    def _refresh_route(self, queue: FetchQueue) -> None:
        self._client.spawn(self._client.refresh, queue.queue.topic)

    def _connect(self, address: str, queue: FetchQueue) -> None:
        """Open a connection, once for all queues that wait for it."""
        waiting = self._offline.get(address)
        if waiting is not None:
            waiting.append(queue)
            return
        self._offline[address] = [queue]
        self._client.spawn(self._reconnect, address)

    async def _reconnect(self, address: str) -> None:
        failure: Exception | None = None
        try:
            await self._client.connect(address)
        except (PeerError, ClientClosed) as error:
            failure = error
            logger.debug("%s; its queues wait", Foreign(error))
        for queue in self._offline.pop(address, ()):
            if failure is not None:
                self._set_unreachable(queue, failure)
                self._refresh_route(queue)
                self.pull_later(queue, RECONNECT_MS)
            else:
                self.pull(queue)

    def _set_unreachable(self, queue: FetchQueue, error: BaseException) -> None:
        self._unreachable.add(queue)
        self._listener.on_unreachable(error)

    def _set_reachable(self, queue: FetchQueue) -> None:
        self._unreachable.discard(queue)
        if not self._unreachable:
            self._listener.on_reachable()

    def pull_later(self, queue: FetchQueue, pause_ms: int) -> None:
        """Request messages of a queue after a pause."""
        due_ms = steady_ms() + pause_ms
        heapq.heappush(self._delayed, (due_ms, next(self._numbers), queue))
        if self._alarm is not None and self._delayed[0][2] is queue:
            self._alarm.set()

    async def run(self) -> None:
        """Send the requests of delayed queues when they are due."""
        while True:
            self._alarm = anyio.Event()
            now_ms = steady_ms()
            while self._delayed and self._delayed[0][0] <= now_ms:
                queue = heapq.heappop(self._delayed)[2]
                if isinstance(queue, AssignedQueue) and queue.can_hand_out:
                    self._ready_queues.append(queue)
                    self._wake(1)
                self.pull(queue)
            pause_ms = self._delayed[0][0] - now_ms if self._delayed else 60_000
            with anyio.move_on_after(pause_ms / 1_000):
                await self._alarm.wait()

    # -- answers

    def on_answer(self, queue: AssignedQueue, epoch: int, answer: PullResult) -> None:
        """Handle the answer to a pull, and send the next pull."""
        if not queue.end_request(epoch):
            return
        queue.record_answer(answer)
        code = answer.code
        if code == ResponseCode.SUCCESS:
            self.record_service(queue)
            self._add_pulled(queue, answer)
        elif code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY):
            self.record_service(queue)
            has_moved = answer.next_offset > queue.state.next_offset
            if code == ResponseCode.PULL_RETRY_IMMEDIATELY:
                queue.state.add((), answer.next_offset)
            if has_moved:
                self.pull(queue)
            else:
                self.on_empty(queue)
        elif code == ResponseCode.PULL_OFFSET_MOVED:
            logger.log(
                logging.WARNING if queue.state.next_offset else logging.INFO,
                "%s continues at offset %d, not at %d: a tool has moved the group, or "
                "the broker has deleted the messages between them",
                queue.queue,
                answer.next_offset,
                queue.state.next_offset,
            )
            self.seek(queue, answer.next_offset)
            self.pull(queue)
        else:
            self.on_refusal(queue, code, answer.remark or "")

    def on_empty(self, queue: FetchQueue) -> None:
        """Request again; after a pause if the broker did not hold the request."""
        if steady_ms() - queue.last_pull_ms >= SLOW_ANSWER_MS:
            self.pull(queue)
        else:
            self.pull_later(queue, EMPTY_MS)

    def _add_pulled(self, queue: AssignedQueue, answer: PullResult) -> None:
        is_retry = is_retry_topic(queue.queue.topic)
        next_offset = answer.next_offset

        def step_over(reason: str, damaged: int) -> None:
            nonlocal next_offset
            damaged = max(damaged, queue.state.next_offset)
            next_offset = min(damaged + 1, next_offset)
            text = "%s: the message at offset %d is skipped: %s"
            logger.warning(text, queue.queue, damaged, Foreign(reason))

        messages = decode_messages(
            answer.body,
            queue.program_topic(queue.subscription.topic),
            queue.queue,
            queue,
            tags=queue.subscription.tags,
            inflate=open_body,
            origin_of=queue.program_topic if is_retry else None,
            on_damage=step_over,
        )
        before = queue.state.bytes
        queue.state.add(messages, next_offset)
        self._count(messages, queue.state.bytes - before)
        if messages and self._ordered:
            if queue.add_ready(messages):
                self._ready_queues.append(queue)
            self._wake(1)
        elif messages:
            self.ready.extend(messages)
            self._wake(len(messages))
        self.pull(queue)

    def record_service(self, queue: FetchQueue) -> None:
        """Record that a broker serves pulls of a topic."""
        topic = queue.queue.topic
        self._served_topics.add(topic)
        if self._refused:
            key = "pull", queue.queue.broker, topic
            self._refused.discard(key)
            what = f"{queue.queue.broker} serves pulls of {topic}"
            self._client.troubles.end(key, what)

    def on_refusal(self, queue: FetchQueue, code: int, remark: str) -> None:
        """Handle an answer with the code of an error."""
        broker, topic = queue.queue.broker, queue.queue.topic
        address = self._address_of(queue) or broker
        if code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
            expression = queue.subscription.expression
            self.fail(SubscriptionRefused(expression, address, code, remark))
            return
        if code == ResponseCode.SYSTEM_BUSY:
            self.pull_later(queue, BUSY_MS)
            return
        refusal = refusal_of(address, code, remark)
        key = "pull", broker, topic
        self._refused.add(key)
        what = f"{broker} refuses pulls of {topic}"
        self._client.troubles.report(key, what, refusal)
        if code in (
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            ResponseCode.FILTER_DATA_NOT_EXIST,
            ResponseCode.FILTER_DATA_NOT_LATEST,
        ):
            self._client.spawn(self._client.send_heartbeats)
        elif topic not in self._served_topics:
            self._listener.on_refused(refusal)
        if code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION):
            self._refresh_route(queue)
        self.pull_later(queue, ERROR_MS)

    def on_failure(self, queue: FetchQueue, epoch: int, error: BaseException) -> None:
        """Handle a lost connection, or a missing answer."""
        if queue.end_request(epoch) and self._client.is_open:
            logger.debug("a pull of %s failed: %s", queue.queue, Foreign(error))
            self._set_unreachable(queue, error)
            self.pull_later(queue, RECONNECT_MS)
