"""Consumer: receives messages. Known in Java as `DefaultMQPushConsumer`.

Four ways: `async for` acknowledges a message when the next one is asked for, or when
the block is left without an exception; `batches` likewise; `deliveries` acknowledges
nothing by itself; `run` calls a function. With `assign` it has given queues, without a
group's shares: `DefaultLitePullConsumer`. A `silent` one only looks at queues that it
is given: no broker and no other consumer learns of it, and nothing is committed.

The committed offset of a queue is that of its first message that is not acknowledged. A
consumer that ends commits, gives its queues back and leaves its group, in this order.
RocketMQ delivers at least once: after a crash, or when queues change hands, messages
come again.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import anyio

from rmq._fastpath.client.messages import ReceivedMessage
from rmq._fastpath.client.process_queue import Handout
from rmq.client.assigned_queue import HeldQueue
from rmq.client.broker_requests import answer
from rmq.client.client import Client
from rmq.client.core.allocate import STRATEGIES, Allocate
from rmq.client.core.routes import MessageQueue, Route
from rmq.client.errors import NoRoute
from rmq.client.handlers import Handler, Handlers, lease_of
from rmq.client.iterators import Batches, Deliveries
from rmq.client.manual_assignment import GivenQueues
from rmq.client.members import GroupMember, QueueCallback
from rmq.client.offsets import FileOffsets, OffsetStore, java_path
from rmq.client.options import check_positive
from rmq.client.popper import Popper
from rmq.client.puller import Limits, Puller
from rmq.client.redelivery import GivingBack
from rmq.client.subscription import Sql, Start, consumer_data, expressions, subscription
from rmq.core.errors import ConfigError, PeerError
from rmq.outgoing.connection import Connection
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.bodies.heartbeat import ConsumerData
from rmq.protocol.command import Command
from rmq.protocol.topics import retry_topic

logger = logging.getLogger(__name__)

CONCURRENT_ATTEMPTS: Final = 16
"""How often a message comes again before it is dead, as of Java; in an ordered group
without limit."""

CLOSE_STEP_S: Final = 5.0
"""How long brokers may take for the commits, and for the goodbye, of one that ends."""


class Consumer(GivenQueues):
    """See above. `client` is an open `Client`, or what `Client` takes as addresses."""

    def __init__(  # noqa: PLR0913  # tidy: long — options, all but three by name
        self,
        client: Client | str | None,
        group: str,
        topics: str | Mapping[str, str | Sql] | None = None,
        *,
        ordered: bool = False,
        broadcast: bool = False,
        silent: bool = False,
        start: Start = "last",
        strategy: Literal["average", "circle"] | Allocate = "average",
        mode: Literal["auto", "pull", "pop"] = "auto",
        invisible_s: float = 60,
        fetch_messages: int = 256,
        buffer_messages: int = 10_000,
        buffer_bytes: int = 64 << 20,
        max_attempts: int | None = None,
        consume_timeout_s: float = 900,
        commit_interval_s: float = 5,
        shutdown_timeout_s: float = 10,
        offsets: OffsetStore | None = None,
        on_assigned: QueueCallback | None = None,
        on_revoked: QueueCallback | None = None,
    ) -> None:
        super().__init__(client)
        check_positive(
            invisible_s=invisible_s,
            fetch_messages=fetch_messages,
            buffer_messages=buffer_messages,
            buffer_bytes=buffer_bytes,
            consume_timeout_s=consume_timeout_s,
            commit_interval_s=commit_interval_s,
        )
        self.group = group
        self.ordered = ordered
        self.concurrency, self.batch = 0, 1
        self.started_s = time.time()
        self.handler: Handler | None = None
        self.handlers: Handlers | None = None
        self._expressions = expressions(topics)
        for topic, expression in self._expressions.items():
            subscription(topic, expression)  # a wrong one is to fail here
        if silent and self._expressions:
            raise ConfigError("silent: a group learns of a consumer that has topics")
        self._mode = _mode_of(mode, is_shared=not (ordered or broadcast))
        self._invisible_s = invisible_s
        self._broadcast, self._silent = broadcast, silent
        self._offsets = offsets
        self._consume_timeout_s = consume_timeout_s
        self._commit_interval_s = commit_interval_s
        self._shutdown_timeout_s = shutdown_timeout_s
        self._is_assigned = self._is_stopped = False
        self._unplaced: Sequence[MessageQueue] = ()
        self._stopped: anyio.Event
        self._has_ended: anyio.Event
        self._start = start
        self._strategy = STRATEGIES[strategy] if isinstance(strategy, str) else strategy
        limits = Limits(fetch_messages, buffer_messages, buffer_bytes)
        if max_attempts is None and not ordered:
            max_attempts = CONCURRENT_ATTEMPTS
        self._max_attempts = max_attempts
        self.puller = Puller(self.client, limits, self._give_back, ordered=ordered)
        self._handout = Handout(self, self.puller)
        self.member: GroupMember
        self._callbacks = on_assigned, on_revoked

    # -- life

    async def _open(self) -> None:
        self.client.check()
        if self._broadcast and self._offsets is None:
            path = java_path(self.client.client_id, self.group)
            self._offsets = FileOffsets(path)
        self.member = GroupMember(
            self.client,
            self.puller,
            self.group,
            allocate=self._strategy,
            ordered=self.ordered,
            offsets=self._offsets,
            start=self._start,
        )
        self.member.on_assigned, self.member.on_revoked = self._callbacks
        self.member.load()
        self._giving_back = GivingBack(
            self.member,
            self.puller,
            self._max_attempts,
            namespace=self.client.namespace,
            ordered=self.ordered,
            broadcast=self._broadcast,
        )
        if self._expressions and self._mode != "pull":
            self.member.popper = self._make_popper()
        for topic, expression in self._expressions.items():
            self._subscribe(topic, expression)
        self._join()
        self._stopped = anyio.Event()
        self._is_open = True
        self._handout.is_plain = not (self.ordered or self.client.is_watched)
        self._spawn(self.puller.run)
        if self._expressions:
            await self._join_group()

    def _make_popper(self) -> Popper:
        popper = Popper(
            self.client,
            self.puller,
            self.member.group,
            self._giving_back.buried,
            invisible_s=self._invisible_s,
            is_from_first=self._start == "first",
            asks=self._mode == "auto",
            max_attempts=self._max_attempts,
        )
        self._spawn(popper.run)
        return popper

    async def _join_group(self) -> None:
        """Become a member of the group, and get our share of the queues."""
        for topic in self._expressions:
            try:
                await self.client.route_to_send(topic)
            except NoRoute as error:
                if isinstance(error.__cause__, PeerError):
                    raise
                logger.warning("%s; this consumer waits for it", error)
        await self.client.beat()
        await self.member.check_expressions()
        if not self._broadcast:
            topic = retry_topic(self.group)
            wire_topic = retry_topic(self.member.group)
            self.member.subscriptions[topic] = subscription(wire_topic)
            await self.client.beat()
        await self.member.share()
        self._spawn(self.member.run)
        self._spawn(self._commit_periodically)
        if self.member.needs_locks:
            self._spawn(self.member.renew_locks)

    async def _commit_periodically(self) -> None:
        while True:
            await anyio.sleep(self._commit_interval_s)
            await self.member.commit(oneway=True)

    async def _close(self, error: BaseException | None, *, is_cancelled: bool) -> None:
        try:
            if self._is_open and self.client.is_open:
                self.stop()
                with anyio.CancelScope(shield=True):
                    await self._end(error, is_cancelled=is_cancelled)
        finally:
            self._is_open = False
            self._leave()

    async def _end(self, error: BaseException | None, *, is_cancelled: bool) -> None:
        """Settle what was handed out, commit, give the queues back, leave the group."""
        if self.handlers is not None:
            with anyio.move_on_after(self._shutdown_timeout_s):
                await self._has_ended.wait()
        with anyio.move_on_after(CLOSE_STEP_S):
            for message in self._take_last():
                if error is None:
                    message.ack()
                elif not is_cancelled and not self.ordered:
                    await message.nack()
        with anyio.move_on_after(CLOSE_STEP_S):
            if self._is_assigned:
                for each in self.member.held.values():
                    each.revoke()
            else:
                await self.member.leave()
                if self.member.popper is not None:
                    await self.member.popper.close()
        if not self._silent:
            with anyio.move_on_after(CLOSE_STEP_S):
                await self._unregister(consumer_group=self.member.group)

    def stop(self) -> None:
        """End `run` and the iterators after what they work on."""
        self._is_stopped = True
        self._handout.is_plain = False
        self._stopped.set()
        self.puller.is_stopped = True
        self.puller.wake_all()

    # -- messages

    async def next_batch(self, count: int) -> list[ReceivedMessage]:
        """Return messages as soon as there are some; none after `stop` or a failure."""
        while not self._is_stopped and self.puller.failure is None:
            if messages := self.puller.take_many(count):
                return messages
            await self.puller.wait()
        return []

    async def next_handed_out(self, count: int) -> list[ReceivedMessage]:
        """Return what `next_batch` does, for a program that has no handler."""
        messages = await self.next_batch(count)
        if messages and self.client.is_watched:
            self.client.hooks.received(self.group, messages)
        return messages

    def released(self, message: ReceivedMessage) -> None:
        """Let the queue of a message of an ordered group go on."""
        if self.ordered:
            self.puller.done(lease_of(message))

    def take_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Hand messages out again that nobody has consumed."""
        self.puller.take_back(messages)

    def _take_last(self) -> list[ReceivedMessage]:
        """Return what an iterator has handed out; it has no more of it."""
        last, self._handout.last = self._handout.last, None
        if last is None:
            return []
        return last if isinstance(last, list) else [last]

    def settle(self) -> None:
        """Acknowledge what an iterator has handed out."""
        last = self._take_last()
        for message in last:
            message.ack()
        if self.ordered and last:
            self.puller.done(lease_of(last[0]))

    def __aiter__(self) -> Handout:
        return self._handout

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message; the one before counts as consumed."""
        return await anext(self._handout)

    async def find_next(self) -> ReceivedMessage | None:
        """Return the next message as soon as there is one; None at the end."""
        if not self._is_open:
            self._check()
        found = await self.next_handed_out(1)
        if not found:
            self._raise_failure()
        return found[0] if found else None

    def batches(self, max_messages: int = 32, max_wait_ms: int = 0) -> "Batches":
        """Yield lists of messages; a list counts as consumed when the next is wanted.

        Waits up to `max_wait_ms` for a list to fill after its first message.
        """
        self._check()
        return Batches(self, max_messages, max_wait_ms)

    async def next_list(self, count: int, wait_ms: int) -> list[ReceivedMessage]:
        """Return the next list, none at the end; the one before counts as consumed."""
        self.settle()
        messages = await self.next_handed_out(count)
        if wait_ms and messages and not self.ordered:
            messages = await self._filled(messages, count, wait_ms)
        if not messages:
            self._raise_failure()
        self._handout.last = messages
        return messages

    async def _filled(
        self, messages: list[ReceivedMessage], count: int, wait_ms: int
    ) -> list[ReceivedMessage]:
        """Return a list to which more messages may have come."""
        is_cancelled = True
        try:
            with anyio.move_on_after(wait_ms / 1_000):
                while len(messages) < count and not self._is_stopped:
                    messages += await self.next_handed_out(count - len(messages))
            is_cancelled = False
        finally:
            if is_cancelled:
                self.take_back(messages)
        return messages

    def deliveries(self) -> "Deliveries":
        """Yield messages that only `ack()` and `nack()` settle, in any order and task.

        In an ordered group a queue goes on at once: keep the order yourself.
        """
        self._check()
        return Deliveries(self)

    async def next_delivery(self) -> ReceivedMessage | None:
        """Return the next message, None at the end; nothing counts as consumed."""
        messages = await self.next_handed_out(1)
        if not messages:
            self._raise_failure()
            return None
        self.released(messages[0])
        return messages[0]

    async def run(
        self, handler: Handler, *, concurrency: int = 20, batch: int = 1
    ) -> None:
        """Call a function for each message, or list of up to `batch`, until `stop`.

        Returning acknowledges; an exception means again later. After `stop` handlers
        may finish within `shutdown_timeout_s`; a cancellation reaches them at once, and
        what they worked on is handed out again by the next `run` or iterator.
        """
        self._check()
        if self.client.is_watched:
            handler = self.client.hooks.around(self.group, handler)
        self.handler, self.batch, self.concurrency = handler, batch, concurrency
        self.handlers = Handlers(self, handler, batch, self._consume_timeout_s)
        self._has_ended = anyio.Event()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._limit_stop, self.handlers)
                await self.handlers.run(concurrency)
                tasks.cancel_scope.cancel()
        finally:
            self.handler = self.handlers = None
            self._has_ended.set()
        self._raise_failure()

    async def _limit_stop(self, handlers: Handlers) -> None:
        """Cancel handlers that go on for too long after `stop`."""
        await self._stopped.wait()
        await anyio.sleep(self._shutdown_timeout_s)
        handlers.cancel()

    async def _give_back(
        self,
        held: HeldQueue,
        message: ReceivedMessage,
        delay_s: float | None,
        *,
        dead_letter: bool,
    ) -> None:
        await self._giving_back.give_back(
            held, message, delay_s, dead_letter=dead_letter
        )

    # -- what the client asks

    def consumer_data(self) -> ConsumerData | None:
        """What heartbeats say of it."""
        if self._silent:
            return None
        return consumer_data(
            self.member.group,
            [each.data() for each in self.member.subscriptions.values()],
            broadcast=self._broadcast,
            is_assigned=self._is_assigned,
            start=self._start,
        )

    def on_route(self, route: Route) -> None:
        """Have the shares computed again."""
        if route.topic in self.member.subscriptions:
            self.member.changed()

    def on_refused(self, error: AnswerRefused) -> None:
        """Tell whoever does not want to wait for a right."""
        self.puller.on_refused(error)

    async def on_request(
        self, connection: Connection, request: Command
    ) -> Command | None:
        """Answer what brokers and tools ask."""
        return await answer(self, request)


def _mode_of(mode: str, *, is_shared: bool) -> str:
    """Return how a group consumes; only one that shares messages unordered may pop."""
    if mode == "pop" and not is_shared:
        raise ConfigError("mode: groups that are ordered or broadcast pull")
    return mode if is_shared else "pull"
