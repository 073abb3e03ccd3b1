# tidy: long — every way to receive is here, with its options
"""Consumer: receives messages. Known in Java as `DefaultMQPushConsumer`.

With `assign` it does the work of Java's `DefaultLitePullConsumer`.

There are four ways to receive:

* `async for` acknowledges a message when the program asks for the next one, or leaves
  the block without an exception; `batches` does the same with lists.
* `deliveries` does not acknowledge messages.
* `run` calls a function.
* `assign` and `fetch` leave the choice of the queues to the program.

A `silent` consumer only reads its assigned queues. It joins no group, and commits
nothing.

The committed offset of a queue is the offset of its first unacknowledged message.
At its end a consumer commits, gives its queues back and leaves its group, in this
order. RocketMQ delivers at least once: after a crash, or when a queue moves to another
consumer, messages come again.
"""

import logging
from collections.abc import Sequence
from typing import Final, Literal

import anyio

from rmq._fastpath.client.messages import ReceivedMessage
from rmq._fastpath.client.process_queue import MessageIterator
from rmq.client.broker_requests import BrokerRequests
from rmq.client.client import Client
from rmq.client.core.allocate import STRATEGIES, Allocate
from rmq.client.core.routes import MessageQueue, Route
from rmq.client.errors import is_lasting
from rmq.client.group_offsets import GroupOffsets
from rmq.client.handlers import Handler, HandlerPool, assigned_queue_of
from rmq.client.iterators import BatchIterator, DeliveryIterator
from rmq.client.lifecycle import LIFE
from rmq.client.manual_assignment import ManualAssignment
from rmq.client.namespaces import wrap
from rmq.client.offsets import FileOffsets, OffsetStore, default_path
from rmq.client.options import (
    ConsumerGroup,
    FetchLimits,
    check_group,
    check_positive,
    check_start,
    check_text,
    check_word,
)
from rmq.client.popper import Popper
from rmq.client.puller import Puller
from rmq.client.rebalance import QueueCallback, Rebalance
from rmq.client.redelivery import Redelivery
from rmq.client.subscription import Start, Topics, consumer_data, normalize_topics
from rmq.core.errors import ConfigError, RmqError
from rmq.outgoing.connection import Connection
from rmq.protocol.bodies.heartbeat import ConsumerData
from rmq.protocol.command import Command
from rmq.protocol.topics import retry_topic

logger = logging.getLogger(__name__)

CONCURRENT_ATTEMPTS: Final = 16
"""Java's limit of redeliveries; only for concurrent groups."""

MODES: Final = ("auto", "pull", "pop")
CLOSE_STEP_S: Final = 5.0
"""Time limit of the last commits, and of leaving the group, at the end."""


class Consumer(ManualAssignment):
    """Receives messages, as a member of a group or from given queues.

    `start` and `async with` wait for a name server and a route while a server is away.
    They raise only errors that waiting does not remove: NotAuthorized, TlsFailed,
    SubscriptionRefused, and NoRoute for a topic that does not exist and that no send
    creates. A failure that a broker reports later ends the iterators. While a broker is
    away, the consumer waits.

    Args:
        client (Client | str | None): an open `Client`, or the addresses of name servers
            for a client of its own; without it the client reads NAMESRV_ADDR.
        group (str): the consumer group. Its members divide the messages.
        topics (str | Iterable[str] | Mapping[str, str | Sql] | None, default None): a
            topic, a list of topics, or topics with an expression each: tags such as
            "a || b", or `Sql`. A consumer that calls `assign` has no topics.
        ordered (bool, default False): handle the messages of each queue one after
            another. The broker locks the queues of the member.
        broadcast (bool, default False): each member gets all messages. Each member
            stores its offsets itself.
        silent (bool, default False): only read the queues of `assign`: join no group,
            and commit nothing.
        start ('last' | 'first' | datetime, default 'last'): where a group without
            committed offsets begins: after the last message, at the first message, or
            at a time with its time zone.
        strategy ('average' | 'circle' | Allocate, default 'average'): how members
            divide the queues. All members of a group need the same strategy.
        mode ('auto' | 'pull' | 'pop', default 'auto'): whether the group pulls its
            queues or pops messages; with "auto" the broker decides.
        invisible_s (float, seconds, default 60): time that a popped message is hidden
            from other members; for a longer handler the consumer asks for more time.
        fetch_messages (int, messages, default 256): maximum number of messages of one
            pull.
        buffer_messages (int, messages, default 10000): maximum number of messages that
            are fetched and not acknowledged. At this limit the consumer pulls no more.
        buffer_bytes (int, bytes, default 67108864): maximum bytes of the messages that
            are fetched and not acknowledged.
        max_attempts (int | None, default None): number of redeliveries before a message
            goes to the dead-letter queue. The default is 16; in ordered groups there is
            no limit.
        consume_timeout_s (float, seconds, default 900): time limit of a handler of
            `run`. After it the consumer cancels the handler, and the message comes
            again.
        commit_interval_s (float, seconds, default 5): pause between two commits of
            offsets.
        start_timeout_s (float, seconds, default 30): time that the start, and the
            methods with queues, wait for a server that is away.
        shutdown_timeout_s (float, seconds, default 10): time limit of handlers after
            `stop` and at the end of the block.
        offsets (OffsetStore | None, default None): where a broadcast group stores its
            offsets. The default is a file below `~/.rocketmq_offsets`, as in Java.
        on_assigned (QueueCallback | None, default None): an async function that gets
            the list of queues that this member has got.
        on_revoked (QueueCallback | None, default None): an async function that gets
            the list of queues that this member loses, before their last commit.
    """

    public_names = LIFE | {
        "assign", "assignment", "batches", "client", "commit", "committed",
        "deliveries", "fetch", "group", "lag", "ordered", "pause", "position", "queues",
        "resume", "run", "seek", "stop",
    }  # fmt: skip

    _stopped: anyio.Event
    _has_ended: anyio.Event

    def __init__(  # noqa: PLR0913  # tidy: long — one line for each option
        self,
        client: Client | str | None,
        group: str,
        topics: Topics = None,
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
        start_timeout_s: float = 30,
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
            start_timeout_s=start_timeout_s,
        )
        check_text("group", group)
        check_group(group)
        check_start(start)
        check_word("mode", mode, MODES)
        if isinstance(strategy, str):
            check_word("strategy", strategy, tuple(STRATEGIES))
        self.group, self.ordered = group, ordered
        self._expressions = normalize_topics(topics)
        if silent and self._expressions:
            raise ConfigError("silent: a consumer with topics joins their group")
        if max_attempts is None and not ordered:
            max_attempts = CONCURRENT_ATTEMPTS
        namespace = self.client.namespace
        self._group = ConsumerGroup(
            wrap(namespace, group), namespace, ordered, broadcast, max_attempts
        )
        self._mode = _mode_of(mode, is_shared=not (ordered or broadcast))
        self._invisible_s = invisible_s
        self._silent, self._start, self._store = silent, start, offsets
        self._own_file: FileOffsets | None = None
        self._callbacks = on_assigned, on_revoked
        self._strategy = STRATEGIES[strategy] if isinstance(strategy, str) else strategy
        self._consume_timeout_s = consume_timeout_s
        self._commit_interval_s = commit_interval_s
        self._shutdown_timeout_s = shutdown_timeout_s
        self._start_timeout_ms = int(start_timeout_s * 1_000)
        self._redelivery = Redelivery(self.client, self._group)
        limits = FetchLimits(fetch_messages, buffer_messages, buffer_bytes)
        self.puller = Puller(self.client, limits, self._group, self._redelivery, self)
        self._iterator = MessageIterator(self, self.puller)
        self._unplaced: Sequence[MessageQueue] = ()
        self._handlers: HandlerPool | None = None
        self._is_stopped = False

    def __repr__(self) -> str:
        names = ";".join(self.client.name_servers)
        topics = ", ".join(map(repr, self._expressions)) or "given queues"
        return f"<Consumer of group {self.group!r}, {topics} at {names}, {self._state}>"

    # -- life

    async def _open(self) -> None:
        self.client.check_open()
        if self._group.broadcast and self._store is None:
            self._own_file = FileOffsets(default_path(self.client.given_id, self.group))
            self._own_file.lock()
            self._store = self._own_file
        self._offsets = GroupOffsets(
            self.client, self._group, self._store, self._start, self.on_refused
        )
        on_assigned, on_revoked = self._callbacks
        self.rebalance = Rebalance(
            self.client,
            self._group,
            self.puller,
            self._offsets,
            self._make_popper(),
            allocate=self._strategy,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )
        self._requests = BrokerRequests(
            self.client, self._group, self.puller, self._offsets, self.rebalance
        )
        for topic, expression in self._expressions.items():
            self.rebalance.subscribe(topic, expression)
        if self._expressions and not self._group.broadcast:
            # members of a group must have equal subscriptions in their heartbeats
            self.rebalance.subscribe(retry_topic(self.group))
        self._add_to_client()
        self._stopped = anyio.Event()
        self._is_open = True
        self._iterator.is_plain = not (self.ordered or self.client.is_watched)
        self._spawn(self.puller.run)
        if self._expressions:
            await self._join_group()

    def _make_popper(self) -> Popper | None:
        """Return the popper of a group that may pop."""
        if not self._expressions or self._mode == "pull":
            return None
        popper = Popper(
            self.client,
            self.puller,
            self._group,
            self._redelivery,
            invisible_s=self._invisible_s,
            is_from_first=self._start == "first",
            asks_brokers=self._mode == "auto",
        )
        self._spawn(popper.run)
        return popper

    async def _join_group(self) -> None:
        """Become a member of the group, and get this member's share of the queues."""
        look_up = self.client.route_to_join
        for topic in self._expressions:
            await self.client.wait_for_route(topic, self._start_timeout_ms, look_up)
        await self.client.send_heartbeats()
        self._raise_failure()
        await self.rebalance.check_expressions()
        await self.rebalance.run_once()
        self._raise_failure()
        self._spawn(self.rebalance.run)
        self._spawn(self._commit_periodically)
        if self.rebalance.needs_locks:
            self._spawn(self.rebalance.renew_locks)

    async def _commit_periodically(self) -> None:
        while True:
            await anyio.sleep(self._commit_interval_s)
            await self.rebalance.commit(oneway=True)

    async def _close(self, error: BaseException | None, *, is_cancelled: bool) -> None:
        try:
            if self._is_open and self.client.is_open:
                self.stop()
                with anyio.CancelScope(shield=True):
                    await self._end(error, is_cancelled=is_cancelled)
        finally:
            self._is_open = False
            self._remove_from_client()
            if self._own_file is not None:
                self._own_file.unlock()

    async def _end(self, error: BaseException | None, *, is_cancelled: bool) -> None:
        """Acknowledge the last messages, commit, give queues back, leave the group."""
        if self._handlers is not None:
            with anyio.move_on_after(self._shutdown_timeout_s):
                await self._has_ended.wait()
        with anyio.move_on_after(CLOSE_STEP_S):
            for message in self._take_last():
                if error is None:
                    message.ack()
                elif not is_cancelled and not self.ordered:
                    await message.nack()
        with anyio.move_on_after(CLOSE_STEP_S):
            if self.rebalance.is_manual:
                for queue in list(self.puller.queues.values()):
                    self.puller.revoke(queue)
            else:
                await self.rebalance.leave_group()
                if self.rebalance.popper is not None:
                    await self.rebalance.popper.close()
        if not self._silent:
            with anyio.move_on_after(CLOSE_STEP_S):
                await self._unregister(consumer_group=self._group.name)

    def stop(self) -> None:
        """End `run` and the iterators after the messages that they are processing."""
        self._is_stopped = True
        self._iterator.is_plain = False
        self._stopped.set()
        self.puller.stop()

    # -- messages

    async def next_messages(self, count: int) -> list[ReceivedMessage]:
        """Wait for messages and return them; return an empty list after `stop` or a
        failure.
        """
        while not self._is_stopped and self.puller.failure is None:
            if messages := self.puller.next_messages(count):
                return messages
            await self.puller.wait()
        return []

    async def receive(self, count: int) -> list[ReceivedMessage]:
        """Return the result of `next_messages` after the hooks have seen it."""
        messages = await self.next_messages(count)
        if messages and self.client.is_watched:
            self.client.hooks.after_receive(self.group, messages)
        return messages

    def release(self, message: ReceivedMessage) -> None:
        """Let the queue of a message hand out the next message; for ordered groups."""
        if self.ordered:
            self.puller.release(assigned_queue_of(message))

    def return_messages(self, messages: Sequence[ReceivedMessage]) -> None:
        """Hand out unconsumed messages again."""
        self.puller.return_messages(messages)

    def _take_last(self) -> list[ReceivedMessage]:
        """Remove and return the messages that an iterator has handed out last."""
        last, self._iterator.last = self._iterator.last, None
        if last is None:
            return []
        return last if isinstance(last, list) else [last]

    def ack_last(self) -> None:
        """Acknowledge the messages that an iterator has handed out last."""
        last = self._take_last()
        for message in last:
            message.ack()
        if last:
            self.release(last[0])

    def __aiter__(self) -> MessageIterator:
        return self._iterator

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message; this acknowledges the previous message."""
        return await anext(self._iterator)

    async def next_message(self) -> ReceivedMessage | None:
        """Return the next message as soon as there is one; None at the end."""
        if not self._is_open:
            self._check_open()
        found = await self.receive(1)
        if not found:
            self._raise_failure()
        return found[0] if found else None

    def batches(self, max_messages: int = 32, max_wait_ms: int = 0) -> BatchIterator:
        """Yield lists; a list counts as consumed when the program asks for the next.

        Args:
            max_messages (int, messages, default 32): maximum number of messages of a
                list.
            max_wait_ms (int, milliseconds, default 0): maximum time that a list waits
                for further messages after its first.
        """
        self._check_open()
        return BatchIterator(self, max_messages, max_wait_ms)

    async def next_list(self, count: int, wait_ms: int) -> list[ReceivedMessage]:
        """Return the next list, an empty list at the end; acknowledge the previous
        list.
        """
        self.ack_last()
        messages = await self.receive_list(count, wait_ms)
        self._iterator.last = messages
        return messages

    async def receive_list(self, count: int, wait_ms: int) -> list[ReceivedMessage]:
        """Return the next list, an empty list at the end; acknowledge no message."""
        messages = await self.receive(count)
        if wait_ms and messages and not self.ordered:
            messages = await self._fill_list(messages, count, wait_ms)
        if not messages:
            self._raise_failure()
        return messages

    async def _fill_list(
        self, messages: list[ReceivedMessage], count: int, wait_ms: int
    ) -> list[ReceivedMessage]:
        """Return a list with the messages that arrive in time."""
        is_cancelled = True
        try:
            with anyio.move_on_after(wait_ms / 1_000):
                while len(messages) < count and not self._is_stopped:
                    messages += await self.receive(count - len(messages))
            is_cancelled = False
        finally:
            if is_cancelled:
                self.return_messages(messages)
        return messages

    def deliveries(self) -> DeliveryIterator:
        """Yield messages; the program ends each by `ack()` or `nack()`, in any order
        and task.

        In an ordered group a queue hands out its next message at once. The program must
        keep the order itself.
        """
        self._check_open()
        return DeliveryIterator(self)

    async def next_delivery(self) -> ReceivedMessage | None:
        """Return the next message, None at the end; acknowledge no message."""
        messages = await self.receive(1)
        if not messages:
            self._raise_failure()
            return None
        self.release(messages[0])
        return messages[0]

    async def run(
        self, handler: Handler, *, concurrency: int = 20, batch: int = 1
    ) -> None:
        """Call a function for each message, or list of up to `batch`, until `stop`.

        When the function returns, the message is acknowledged. When it raises an
        exception, the message comes again later. After `stop` handlers have
        `shutdown_timeout_s` to finish. A cancellation reaches handlers at once; the
        next `run` or iterator gets their messages again.

        Args:
            handler (Handler): the function, async or plain.
            concurrency (int, default 20): maximum number of calls at one time.
            batch (int, messages, default 1): if it is above 1, the function gets lists
                of at most `batch` messages.
        """
        self._check_open()
        if self.client.is_watched:
            handler = self.client.hooks.wrap_handler(self.group, handler)
        self._handlers = handlers = HandlerPool(
            self,
            handler,
            concurrency=concurrency,
            batch=batch,
            timeout_s=self._consume_timeout_s,
        )
        self._has_ended = anyio.Event()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._limit_stop, handlers)
                await handlers.run()
                tasks.cancel_scope.cancel()
        finally:
            self._handlers = None
            self._has_ended.set()
        self._raise_failure()

    async def _limit_stop(self, handlers: HandlerPool) -> None:
        """Cancel handlers that run for too long after `stop`."""
        await self._stopped.wait()
        await anyio.sleep(self._shutdown_timeout_s)
        handlers.cancel()

    # -- called by the client and the puller

    def consumer_data(self) -> ConsumerData | None:
        """Return the entry of this consumer in heartbeats; None if it is silent."""
        if self._silent:
            return None
        return consumer_data(
            self._group.name,
            [each.to_wire() for each in self.rebalance.subscriptions.values()],
            broadcast=self._group.broadcast,
            is_assigned=self.rebalance.is_manual,
            start=self._start,
        )

    def on_route(self, route: Route) -> None:
        """Rebalance after a change of a route."""
        if route.topic in self.rebalance.subscriptions:
            self.rebalance.trigger()

    def on_refused(self, error: RmqError) -> None:
        """End the consumer if waiting does not remove the error; in other cases wait
        until the broker accepts.
        """
        if is_lasting(error):
            self.puller.fail(error)

    def on_unreachable(self, error: BaseException) -> None:
        """Do nothing: the puller connects again."""

    def on_reachable(self) -> None:
        """Do nothing: the puller continues."""

    async def on_request(
        self, connection: Connection, request: Command
    ) -> Command | None:
        """Answer a request of a broker or a tool; None if it is not for this group."""
        return await self._requests.respond(request, self._handlers)


def _mode_of(mode: str, *, is_shared: bool) -> str:
    """Return the mode of a group; only a group that shares messages without order may
    pop.
    """
    if mode == "pop" and not is_shared:
        raise ConfigError("mode: ordered and broadcast groups cannot pop")
    return mode if is_shared else "pull"
