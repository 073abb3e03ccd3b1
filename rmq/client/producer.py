# tidy: long — every way to send is here
"""Producer: sends messages. Known in Java as `DefaultMQProducer`.

`send` returns when the broker has answered, `enqueue` when there is room for the
message. With `linger_ms` both join messages of a topic to batches. The producer sends a
batch when it is full, or after `linger_ms`. Messages with a key keep their order: all
messages of a key go to one queue, one request at a time.

After a cancellation a `send` whose frame is written counts as sent. A `send` that is
cancelled earlier sends no message.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final, cast

import anyio

from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.client.messages import Delivery, ReceivedMessage, SendResult, end_all
from rmq._fastpath.client.packing import PackedMessage
from rmq._fastpath.client.sending import PendingDeliveries, SendBudget, send_packed
from rmq.client.batch_sender import BatchSender, all_sent
from rmq.client.client import Client
from rmq.client.client_owner import ClientOwner
from rmq.client.compression import FLAGS, Compression
from rmq.client.core.batches import MAX_BATCH_BYTES, BatchLimits
from rmq.client.core.routes import MessageQueue, Route
from rmq.client.errors import ClientError, SendFailed, SendManyFailed
from rmq.client.keyed_sender import KeyedSender
from rmq.client.lifecycle import LIFE
from rmq.client.lingering import LingeringBatches
from rmq.client.message import Message
from rmq.client.namespaces import wrap
from rmq.client.options import check_group, check_positive, check_text, check_word
from rmq.client.packing import MAX_MESSAGE_BYTES, Packer
from rmq.client.request_reply import RequestReply
from rmq.client.route_waiters import RouteWaiters, Waiting
from rmq.client.sender import Sender, Target
from rmq.client.transaction import Checker, Transaction, Transactions
from rmq.core.errors import PeerClosed, PeerError, RmqError
from rmq.outgoing.connection import Connection, date_ms, steady_ms
from rmq.protocol.bodies.heartbeat import ProducerData
from rmq.protocol.command import Command

MAX_FAILURES: Final = 1_000
"""Maximum number of failed deliveries that a producer remembers until `flush`."""

CLOSE_TIMEOUT_S: Final = 10.0
SETTLE_INTERVAL_S: Final = 0.005


class Producer(ClientOwner):
    """Sends messages.

    A send is tried again until its time-out, while a broker restarts, while another
    broker becomes the master, and while no name server answers. A repetition has the
    same `msg_id`. After a lost answer a broker may have stored a message twice.

    Args:
        client (Client | str | None, default None): an open `Client`, or the addresses
            of name servers for a client of its own; without it the client reads
            NAMESRV_ADDR.
        group (str, default 'rmq-python'): the producer group. Brokers send checks of
            transactions to the producers of the group.
        timeout_ms (int, milliseconds, default 30000): time limit of all attempts of one
            send together, including the look-up of the route.
        attempt_timeout_ms (int, milliseconds, default 10000): time limit of the answer
            to one attempt. After it the producer tries another broker.
        attempts (int | None, default None): maximum number of attempts of one send.
            Without it only `timeout_ms` is a limit.
        sticky (bool, default False): whether a message whose answer is lost is sent
            again only to the same broker, or its new master. Then a topic with
            `rmq.once.window.ms` stores it once. By default the producer prefers another
            broker.
        linger_ms (float | None, milliseconds, default None): time that messages of a
            topic are collected for a batch. Without it each message is sent at once.
        batch_bytes (int, bytes, default 1048576): maximum size of a batch; at most 4
            MiB.
        batch_messages (int, messages, default 1000): maximum number of messages of a
            batch.
        max_pending (int, messages, default 10000): maximum number of messages that are
            sent and not answered. At this limit `send` and `enqueue` wait for room.
        max_pending_bytes (int, bytes, default 67108864): maximum bytes of the messages
            that are sent and not answered.
        max_message_bytes (int, bytes, default 4194304): maximum size of a body. A
            larger body raises ValueError. Brokers have the limit `maxMessageSize`.
        compress_over (int | None, bytes, default 4096): the producer compresses bodies
            that are larger. Without it no body is compressed.
        compression ('zlib' | 'lz4' | 'zstd', default 'zlib'): type of compression.
            Every consumer must be able to read it.
        checker (Checker | None, default None): a function that gets a half message and
            returns whether to commit it: True, False, or None for "not known yet".
            Brokers ask for this decision when the end of a transaction is lost.
    """

    public_names = LIFE | {
        "client", "enqueue", "flush", "group", "recall", "reply", "request", "send",
        "send_many", "send_oneway", "timeout_ms", "transaction",
    }  # fmt: skip

    def __init__(  # noqa: PLR0913  # tidy: long — one line for each option
        self,
        client: Client | str | None = None,
        *,
        group: str = "rmq-python",
        timeout_ms: int = 30_000,
        attempt_timeout_ms: int = 10_000,
        attempts: int | None = None,
        sticky: bool = False,
        linger_ms: float | None = None,
        batch_bytes: int = 1 << 20,
        batch_messages: int = 1_000,
        max_pending: int = 10_000,
        max_pending_bytes: int = 64 << 20,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        compress_over: int | None = 4_096,
        compression: Compression = "zlib",
        checker: Checker | None = None,
    ) -> None:
        super().__init__(client)
        check_positive(
            timeout_ms=timeout_ms,
            attempt_timeout_ms=attempt_timeout_ms,
            attempts=1 if attempts is None else attempts,
            batch_bytes=batch_bytes,
            batch_messages=batch_messages,
            max_pending=max_pending,
            max_pending_bytes=max_pending_bytes,
            max_message_bytes=max_message_bytes,
        )
        check_text("group", group)
        check_group(group)
        check_word("compression", compression, tuple(FLAGS))
        self.group = group
        self.timeout_ms = timeout_ms
        self._attempts = attempts
        self._limits = BatchLimits(batch_messages, min(batch_bytes, MAX_BATCH_BYTES))
        self._linger_ms = linger_ms
        self._budget = SendBudget(max_pending, max_pending_bytes)
        self._sender = Sender(
            self.client,
            group,
            attempts=attempts,
            attempt_timeout_ms=attempt_timeout_ms,
            is_sticky=sticky,
        )
        self._max_message_bytes = max_message_bytes
        self._compress_over = compress_over
        self._compression = compression
        self._packer: Packer
        self._batch_sender: BatchSender
        self._keyed = KeyedSender(self._limits, self._send_joined, self._spawn)
        self._lingering: LingeringBatches | None = None
        self._route_waiters = RouteWaiters(
            self._deliver_waiting, self._send_waiting, self._spawn
        )
        self._deliveries: PendingDeliveries
        self._failures: list[ClientError] = []
        self._idle: anyio.Event
        self.is_ended = False
        self._transactions = Transactions(self.client, group, checker, timeout_ms)
        self._requests = RequestReply(self.client)

    def __repr__(self) -> str:
        names = ";".join(self.client.name_servers)
        return f"<Producer of group {self.group!r} at {names}, {self._state}>"

    # -- life

    async def _open(self) -> None:
        self.client.check_open()
        self._packer = Packer(
            UniqueKeys(await self.client.own_host(), date_ms),
            date_ms,
            self._compress_over,
            self._compression,
            self._max_message_bytes,
        )
        self._batch_sender = BatchSender(
            self._packer,
            self._limits,
            self._budget,
            self._wait_for_room,
            self._send_joined,
        )
        self._idle = anyio.Event()
        self._deliveries = PendingDeliveries(
            self._budget, self.client.wires.waiter, self._has_failed, self._is_idle
        )
        self._add_to_client()
        self._is_open = True
        if self._linger_ms is not None:
            self._lingering = LingeringBatches(
                self._limits,
                self._linger_ms,
                lambda batch: self._spawn(self._deliver_batch, batch),
            )
            self._spawn(self._lingering.run)

    async def _close(self, error: BaseException | None, *, is_cancelled: bool) -> None:
        self._is_open = False
        try:
            if not is_cancelled and self.client.is_open:
                with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
                    if self._lingering is not None:
                        self._lingering.leave_all()
                    while self._budget.count:  # noqa: ASYNC110 - once, at the end
                        await anyio.sleep(SETTLE_INTERVAL_S)
                    await self._unregister(
                        producer_group=wrap(self.client.namespace, self.group)
                    )
        finally:
            self.is_ended = True
            self._remove_from_client()

    # -- sending

    async def send(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
        delay_level: int | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message; return its offset and ids when the broker has answered.

        Raises SendRefused, SendTimeout or another SendFailed; NoRoute,
        NameServerUnreachable, TlsFailed or NotAuthorized; ValueError for an invalid
        message. Give at most one of `delay`, `deliver_at` and `delay_level`.

        Args:
            message (Message): the message.
            key (str | None, default None): messages with one key go to one queue, and
                keep their order.
            queue (MessageQueue | None, default None): the queue; by default each send
                takes the next queue.
            delay (timedelta | None, default None): time after which the message is
                delivered.
            deliver_at (datetime | None, default None): time when the message is
                delivered; with a time zone.
            delay_level (int | None, default None): a level of the broker, 1 to 18, by
                default 1 s to 2 h.
            timeout_ms (int | None, milliseconds, default None): time limit of all
                attempts together; the default is the producer's `timeout_ms`.
        """
        if not (self._is_open and self.client.is_open):
            self._check_open()
        later = None
        if delay is not None or deliver_at is not None or delay_level is not None:
            later = self._packer.delay_properties(delay, deliver_at, delay_level)
        timeout_ms = timeout_ms or self.timeout_ms
        if not self.client.is_watched:
            if key is not None or later is not None or self._lingering is not None:
                return await self._send_one(message, later, key, queue, timeout_ms)
            if queue is None:  # compiled code for nearly all messages
                packed = self._packer.pack(message)
                return await send_packed(
                    self._sender, self._budget, packed, self._wait_for_room, timeout_ms
                )
            return await self._send_one(message, None, None, queue, timeout_ms)
        with self.client.hooks.watch_send(self.group, [message]) as sending:
            (message,) = sending.messages
            result = await self._send_one(message, later, key, queue, timeout_ms)
            sending.outcome = [result]
        return result

    async def _send_one(
        self,
        message: Message,
        later: dict[str, str] | None,
        key: str | None,
        queue: MessageQueue | None,
        timeout_ms: int,
    ) -> SendResult:
        lingering = self._lingering
        if key is not None or queue is not None or later is not None:
            lingering = None
        packed = self._packer.pack(message, later, joins=lingering is not None)
        if lingering is not None and not packed.alone:
            return await self._send_lingering(lingering, packed)
        size = packed.size
        if not self._budget.try_acquire(size):
            await self._wait_for_room(size)
        try:
            if key is not None:
                return await self._send_keyed(packed, key, timeout_ms)
            result = await self._sender.send(packed, timeout_ms, queue=queue)
            return cast("SendResult", result)
        finally:
            self._budget.release(size)

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> list[SendResult]:
        """Send messages in batches; return their results in the same order.

        Raises SendManyFailed if some are not sent; it has the results of the other
        messages.

        Args:
            messages (Iterable[Message]): the messages, of any topics.
            key (str | None, default None): messages with one key go to one queue, and
                keep their order.
            queue (MessageQueue | None, default None): the queue; by default each send
                takes the next queue.
        """
        self._check_open()
        if key is not None:
            return await self._send_many_keyed(messages, key)
        if not self.client.is_watched:
            return await self._batch_sender.send(messages, queue)
        with self.client.hooks.watch_send(self.group, list(messages)) as sending:
            sending.outcome = found = await self._batch_sender.send(
                sending.messages, queue
            )
        return found

    async def _send_many_keyed(
        self, messages: Iterable[Message], key: str
    ) -> list[SendResult]:
        deliveries = [await self.enqueue(each, key=key) for each in messages]
        results: list[SendResult | ClientError] = []
        for each in deliveries:
            try:
                results.append(await each)
            except ClientError as error:
                results.append(error)
        self._failures = [each for each in self._failures if each not in results]
        return all_sent(results)

    async def _send_joined(
        self, batch: list[PackedMessage], queue: MessageQueue | None
    ) -> list[SendResult]:
        packed = batch[0] if len(batch) == 1 else self._packer.join(batch)
        result = await self._sender.send(packed, self.timeout_ms, queue=queue)
        return result if isinstance(result, list) else [result]

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None
    ) -> None:
        """Send without an answer: the program cannot know whether a broker stored the
        message.

        Args:
            message (Message): the message.
            queue (MessageQueue | None, default None): the queue; by default each send
                takes the next queue.
        """
        self._check_open()
        with self.client.hooks.watch_send(self.group, [message]) as sending:
            await self._send_unanswered(sending.messages[0], queue)

    async def _send_unanswered(
        self, message: Message, queue: MessageQueue | None
    ) -> None:
        packed = self._packer.pack(message)
        info = await self._sender.find_targets(message.topic, self.timeout_ms)
        target = info.targets[info.choice.next()]
        if queue is not None:
            target = info.target_of(queue) or target
        connection = await self.client.connect(target.address)
        await connection.wire.wait_drained()
        connection.send(
            target.single,
            packed.properties,
            packed.body,
            None,
            0,
            packed.msg_ids,
            packed.sys_flag,
        )

    async def _wait_for_room(self, size: int, count: int = 1) -> None:
        waiter = self.client.wires.waiter()
        self._budget.wait(waiter, size, count)
        is_mine = False
        try:
            await waiter
            is_mine = True
        finally:
            if not is_mine:
                self._budget.serve()

    # -- keys

    async def _send_keyed(
        self, packed: PackedMessage, key: str, timeout_ms: int
    ) -> SendResult:
        info = await self._sender.find_targets(packed.topic, timeout_ms)
        waiter = self.client.wires.waiter()
        item = packed, waiter
        sends = self._keyed.add(info.queue_of_key(key), key, item)
        try:
            result: SendResult = await waiter
        finally:
            sends.withdraw(item)
        return result

    # -- enqueue

    async def enqueue(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> Delivery:
        """Accept a message, and wait only for room. Await the delivery, or `flush`.

        Args:
            message (Message): the message.
            key (str | None, default None): messages with one key go to one queue, and
                keep their order.
            queue (MessageQueue | None, default None): the queue; by default each send
                takes the next queue.
        """
        if not self.client.is_watched:
            delivery = None
            if key is None and queue is None:
                delivery = self.enqueue_now(message)
            return delivery or await self._enqueue_one(message, key, queue)
        self._check_open()
        with self.client.hooks.watch_send(self.group, [message]) as sending:
            delivery = await self._enqueue_one(sending.messages[0], key, queue)
            sending.follow(delivery)
        return delivery

    def enqueue_now(self, message: Message) -> Delivery | None:
        """Accept a message for any queue; None if there is no room now.

        This function sends nearly all messages, without a coroutine. It is only for
        clients without hooks.
        """
        if not (self._is_open and self.client.is_open):
            self._check_open()
        lingering = self._lingering
        packed = self._packer.pack(message, joins=lingering is not None)
        if not self._budget.try_acquire(packed.size):
            return None
        return self._begin_delivery(packed, lingering)

    async def _enqueue_one(
        self, message: Message, key: str | None, queue: MessageQueue | None
    ) -> Delivery:
        self._check_open()
        lingering = self._lingering
        if key is not None or queue is not None:
            lingering = None
        packed = self._packer.pack(message, joins=lingering is not None)
        info = None
        if key is not None:
            info = await self._sender.find_targets(message.topic, self.timeout_ms)
        if not self._budget.try_acquire(packed.size):
            await self._wait_for_room(packed.size)
        if key is None and queue is None:
            return self._begin_delivery(packed, lingering)
        delivery = self._deliveries.begin(packed)
        if info is not None and key is not None:
            self._keyed.add(info.queue_of_key(key), key, (packed, delivery))
        else:
            deadline_ms = steady_ms() + self.timeout_ms
            self._spawn(self._deliver, Waiting(delivery, deadline_ms), queue)
        return delivery

    def _begin_delivery(
        self, packed: PackedMessage, lingering: LingeringBatches | None
    ) -> Delivery:
        """Send a message that has its room in the budget, to any queue."""
        delivery = self._deliveries.begin(packed)
        if lingering is not None and not packed.alone:
            lingering.add(delivery)
        else:
            self._deliver_now(delivery)
        return delivery

    def _deliver_now(self, delivery: Delivery) -> None:
        """Send at once; after a failure a task makes the other attempts."""
        if not self._sender.deliver(delivery, self._retry, self.timeout_ms):
            deadline_ms = steady_ms() + self.timeout_ms
            self._route_waiters.add(Waiting(delivery, deadline_ms))

    def _send_waiting(self, waiting: Waiting) -> None:
        """Send a message that has waited for a route or a connection."""
        timeout_ms = max(waiting.deadline_ms - steady_ms(), 1)
        if not self._sender.deliver(waiting.delivery, self._retry, timeout_ms):
            self._route_waiters.add(waiting)

    def _retry(
        self,
        delivery: Delivery,
        answer: Command | Exception,
        deadline_ms: int,
        target: Target,
    ) -> None:
        """Make the other attempts of an enqueued message in a task.

        The messages of a lost connection share one task: they may be thousands. With a
        sticky sender each message has a task of its own, for the broker of the message.
        """
        may_be_stored = not isinstance(answer, Command)
        is_sticky = self._sender.is_sticky and may_be_stored
        broker = target.queue.broker if is_sticky else None
        is_lost = isinstance(answer, PeerClosed) and broker is None
        waiting = Waiting(delivery, deadline_ms, may_be_stored, broker)
        if self.is_ended:
            topic = delivery.packed.topic
            error = SendFailed("the producer was closed", topic, None, 1)
            error.may_be_stored = True
            delivery.set_exception(error)
        elif is_lost and self._attempts is None:
            self._route_waiters.add(waiting)
        else:
            self._spawn(self._deliver, waiting, None)

    async def _deliver_waiting(self, waiting: Waiting) -> None:
        await self._deliver(waiting, None)

    async def _deliver(self, waiting: Waiting, queue: MessageQueue | None) -> None:
        delivery = waiting.delivery
        try:
            result = await self._sender.send(
                delivery.packed,
                waiting.deadline_ms - steady_ms(),
                queue=queue,
                may_be_stored=waiting.may_be_stored,
                broker=waiting.broker,
            )
        except (RmqError, ValueError) as error:
            delivery.set_exception(error)
        else:
            delivery.set_result(cast("SendResult", result))

    def _has_failed(self, error: BaseException) -> None:
        if isinstance(error, ClientError) and len(self._failures) < MAX_FAILURES:
            self._failures.append(error)

    def _is_idle(self) -> None:
        self._idle.set()
        self._idle = anyio.Event()

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait for all enqueued messages; SendManyFailed if some have failed.

        Args:
            timeout_s (float | None, seconds, default None): TimeoutError after this
                time; the messages are still sent. Without it the call waits for the end
                of each message.
        """
        if self._lingering is not None:
            self._lingering.leave_all()
        with anyio.fail_after(timeout_s):
            while self._deliveries.count:
                await self._idle.wait()
        failures, self._failures = self._failures, []
        if failures:
            raise SendManyFailed(failures, failures)

    # -- linger

    async def _send_lingering(
        self, lingering: LingeringBatches, packed: PackedMessage
    ) -> SendResult:
        size = packed.size
        if not self._budget.try_acquire(size):
            await self._wait_for_room(size)
        delivery = Delivery(packed, None, self.client.wires.waiter)
        try:
            lingering.add(delivery)
            return await delivery
        finally:
            if not delivery.done():
                lingering.withdraw(delivery)
            self._budget.release(size)

    async def _deliver_batch(self, batch: list[Delivery]) -> None:
        try:
            results = await self._send_joined([each.packed for each in batch], None)
        except (ClientError, PeerError) as error:
            for delivery in batch:
                delivery.set_exception(error)
            return
        count, size = end_all(batch, results)
        self._deliveries.end_many(count, size)

    # -- transactions, requests, recall

    @asynccontextmanager
    async def transaction(self, message: Message) -> AsyncIterator[Transaction]:
        """Send a half message. The end of the block commits it, an exception rolls it
        back.

        Args:
            message (Message): the message. Consumers see it after the commit.
        """
        self._check_open()
        with self.client.hooks.watch_send(self.group, [message]) as sending:
            packed = self._transactions.pack(self._packer, sending.messages[0])
            result = await self._sender.send(packed, self.timeout_ms)
            sending.outcome = [half := cast("SendResult", result)]
        async with self._transactions.open_transaction(half) as transaction:
            yield transaction

    async def request(
        self, message: Message, *, timeout_s: float = 3.0
    ) -> ReceivedMessage:
        """Send a message; return the reply of its consumer, or raise RequestTimeout.

        Args:
            message (Message): the question.
            timeout_s (float, seconds, default 3.0): time limit of the send, and then of
                the reply.
        """
        self._check_open()
        extra, number = self._requests.begin(timeout_s)
        with self._requests.wait_for(number, self.client.wires.waiter()) as waiter:
            await self._requests.prepare(message.topic, int(timeout_s * 1_000))
            with self.client.hooks.watch_send(self.group, [message]) as sending:
                packed = self._packer.pack(sending.messages[0], extra)
                result = await self._sender.send(packed, int(timeout_s * 1_000))
                sending.outcome = [cast("SendResult", result)]
            return await self._requests.reply(waiter, message.topic, timeout_s)

    async def reply(
        self,
        to: ReceivedMessage,
        body: bytes,
        *,
        properties: dict[str, str] | None = None,
    ) -> None:
        """Answer a message that was sent by `request`.

        Args:
            to (ReceivedMessage): the question.
            body (bytes): the body of the reply.
            properties (dict[str, str] | None, default None): properties of the reply.
        """
        self._check_open()
        await self._requests.send_reply(self.group, to, body, properties)

    async def recall(self, topic: str, handle: str) -> str:
        """Withdraw a delayed message; return its id. SendRefused if it is too late.

        Args:
            topic (str): the topic of the message.
            handle (str): `recall_handle` of the result of its send.
        """
        self._check_open()
        return await self._requests.recall(self.group, topic, handle)

    # -- called by the client

    def producer_data(self) -> ProducerData | None:
        """Return the entry of this producer in heartbeats."""
        return ProducerData(group_name=wrap(self.client.namespace, self.group))

    def on_route(self, route: Route) -> None:
        """Use the queues of a changed route."""
        self._sender.on_route(route)

    async def on_request(
        self, connection: Connection, request: Command
    ) -> Command | None:
        """Answer 39, a check of a transaction, and 326, a reply."""
        answer = await self._transactions.on_request(connection, request)
        return answer or self._requests.on_request(request)
