# tidy: long — every way to send is here
"""Producer: sends messages. Known in Java as `DefaultMQProducer`.

`send` returns when the broker has answered, `enqueue` when there is room for the
message. With `linger_ms` both join messages of a topic to batches. A batch leaves when
it is full, or after that time. Messages with a key keep their order: all messages of a
key go to one queue, one request at a time.

After a cancellation a `send` whose frame is written counts as sent. Before that, the
message is not sent.
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
from rmq.client.compression import Compression
from rmq.client.core.batches import MAX_BATCH_BYTES, BatchLimits
from rmq.client.core.routes import MessageQueue, Route
from rmq.client.errors import ClientError, SendFailed, SendManyFailed
from rmq.client.keyed_sender import KeyedSender
from rmq.client.lingering import LingeringBatches
from rmq.client.message import Message
from rmq.client.namespaces import wrap
from rmq.client.options import check_positive, check_text
from rmq.client.packing import MAX_MESSAGE_BYTES, Packer
from rmq.client.request_reply import RequestReply
from rmq.client.route_waiters import RouteWaiters
from rmq.client.sender import Sender
from rmq.client.transaction import Checker, Transaction, Transactions
from rmq.core.errors import PeerError
from rmq.outgoing.connection import Connection, date_ms
from rmq.protocol.bodies.heartbeat import ProducerData
from rmq.protocol.command import Command

MAX_FAILURES: Final = 1_000
"""Most failed deliveries that are remembered until the next `flush`."""

CLOSE_TIMEOUT_S: Final = 10.0
SETTLE_INTERVAL_S: Final = 0.005


class Producer(ClientOwner):
    """See above. `client` is an open `Client`, or what `Client` takes as addresses."""

    def __init__(  # noqa: PLR0913 - options, all but one by name
        self,
        client: Client | str | None = None,
        *,
        group: str = "rmq-python",
        timeout_ms: int = 3_000,
        attempts: int = 3,
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
            attempts=attempts,
            batch_bytes=batch_bytes,
            batch_messages=batch_messages,
            max_pending=max_pending,
            max_pending_bytes=max_pending_bytes,
            max_message_bytes=max_message_bytes,
        )
        check_text("group", group)
        self.group = group
        self.timeout_ms = timeout_ms
        self._limits = BatchLimits(batch_messages, min(batch_bytes, MAX_BATCH_BYTES))
        self._linger_ms = linger_ms
        self._budget = SendBudget(max_pending, max_pending_bytes)
        self._sender = Sender(self.client, group, attempts)
        self._max_message_bytes = max_message_bytes
        self._compress_over = compress_over
        self._compression = compression
        self._packer: Packer
        self._batch_sender: BatchSender
        self._keyed = KeyedSender(self._limits, self._send_keyed_batch, self._spawn)
        self._lingering: LingeringBatches | None = None
        self._route_waiters = RouteWaiters(
            self._deliver, self._deliver_now, self._spawn
        )
        self._deliveries: PendingDeliveries
        self._failures: list[ClientError] = []
        self._idle: anyio.Event
        self.is_ended = False
        self._transactions = Transactions(self.client, group, checker)
        self._requests = RequestReply(self.client)

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

        Messages with one `key` keep their order. Raises SendRefused, SendTimeout or
        another SendFailed, NoRoute, or ValueError for an invalid message.
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
            if queue is None:  # nearly all messages: compiled
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
                return await self._send_keyed(packed, key)
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

        Raises SendManyFailed if some are not sent; it has the results of the others.
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
        self,
        batch: list[PackedMessage],
        queue: MessageQueue | None,
        *,
        is_keyed: bool = False,
    ) -> list[SendResult]:
        packed = batch[0] if len(batch) == 1 else self._packer.join(batch)
        result = await self._sender.send(
            packed, self.timeout_ms, queue=queue, is_keyed=is_keyed
        )
        return result if isinstance(result, list) else [result]

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None
    ) -> None:
        """Send without an answer: the program cannot know whether it is stored."""
        self._check_open()
        with self.client.hooks.watch_send(self.group, [message]) as sending:
            await self._send_unanswered(sending.messages[0], queue)

    async def _send_unanswered(
        self, message: Message, queue: MessageQueue | None
    ) -> None:
        packed = self._packer.pack(message)
        info = await self._sender.find_targets(message.topic)
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

    async def _send_keyed_batch(
        self, batch: list[PackedMessage], queue: MessageQueue
    ) -> list[SendResult]:
        return await self._send_joined(batch, queue, is_keyed=True)

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

    async def _send_keyed(self, packed: PackedMessage, key: str) -> SendResult:
        info = await self._sender.find_targets(packed.topic)
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
        """Accept a message, and wait only for room. Await the delivery, or `flush`."""
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

        Nearly all messages come here, without a coroutine. Only for clients without
        hooks.
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
            info = await self._sender.find_targets(message.topic)
        if not self._budget.try_acquire(packed.size):
            await self._wait_for_room(packed.size)
        if key is None and queue is None:
            return self._begin_delivery(packed, lingering)
        delivery = self._deliveries.begin(packed)
        if info is not None and key is not None:
            self._keyed.add(info.queue_of_key(key), key, (packed, delivery))
        else:
            self._spawn(self._deliver, delivery, queue)
        return delivery

    def _begin_delivery(
        self, packed: PackedMessage, lingering: LingeringBatches | None
    ) -> Delivery:
        """Send a message that holds its room, to any queue."""
        delivery = self._deliveries.begin(packed)
        if lingering is not None and not packed.alone:
            lingering.add(delivery)
        else:
            self._deliver_now(delivery)
        return delivery

    def _deliver_now(self, delivery: Delivery) -> None:
        """Send at once; after a failure a task makes the other attempts."""
        if not self._sender.deliver(delivery, self.retry, self.timeout_ms):
            self._route_waiters.add(delivery)

    def retry(self, delivery: Delivery) -> None:
        """Make the other attempts of an enqueued message in a task."""
        if not self.is_ended:
            self._spawn(self._deliver, delivery, None)
            return
        topic = delivery.packed.topic
        error = SendFailed("the producer was closed", topic, None, 1)
        error.may_be_stored = True
        delivery.set_exception(error)

    async def _deliver(
        self, delivery: Delivery, queue: MessageQueue | None = None
    ) -> None:
        try:
            result = await self._sender.send(
                delivery.packed, self.timeout_ms, queue=queue
            )
        except (ClientError, PeerError) as error:
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
        """Wait for all enqueued messages; SendManyFailed if some have failed."""
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
        """Send a half message: leaving the block commits, an exception rolls back."""
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
        """Send a message; return the reply of its consumer, or raise RequestTimeout."""
        self._check_open()
        extra, number = self._requests.begin(timeout_s)
        with self._requests.wait_for(number, self.client.wires.waiter()) as waiter:
            await self._requests.prepare(message.topic)
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
        """Answer a message that was sent by `request`."""
        self._check_open()
        await self._requests.send_reply(self.group, to, body, properties)

    async def recall(self, topic: str, handle: str) -> str:
        """Withdraw a delayed message; return its id. SendRefused if it is too late."""
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
