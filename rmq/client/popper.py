"""Popper: consumes the queues that the broker assigns to a consumer for POP.

Known in Java as `ConsumeMessagePopConcurrentlyService`, and its POPs as
`DefaultMQPushConsumerImpl.popMessage`. A popped message is invisible to its group for a
time. The popper extends that time for messages that wait here, or that a handler works
on for long. The broker delivers a failed message again after a delay; after
`max_attempts` a copy goes to the dead-letter queue. At the end the popper makes the
fetched messages visible again, also the messages of a POP whose answer comes later.

Invariant: each lease is in `_open` until it ends or expires.
"""

import logging
from collections.abc import Iterable
from typing import Final

import anyio

from rmq._fastpath.client.messages import ReceivedMessage, decode_messages
from rmq.client.client import Client
from rmq.client.core.pop import PopResult, change_request
from rmq.client.core.routes import MessageQueue, Route
from rmq.client.options import ConsumerGroup
from rmq.client.pop_acks import JOIN_S, PopAcks
from rmq.client.popped_queue import ANY_QUEUE, PopLease, PoppedQueue, PopSettings
from rmq.client.puller import ERROR_MS, Puller
from rmq.client.redelivery import Redelivery
from rmq.client.subscription import Subscription
from rmq.core.errors import RmqError
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import steady_ms
from rmq.protocol.bodies.queues import (
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.compression import open_body
from rmq.protocol.headers.pop import (
    ChangeInvisibleTimeResponseHeader,
    PopMessageResponseHeader,
)
from rmq.protocol.properties import POP_CK

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

POP: Final = "POP"
DELAYS_S: Final = (
    10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
"""Delays of a message after its first failure, its second …; Java's `popDelayLevel`."""

_SERVED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.POLLING_TIMEOUT,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.POLLING_FULL,
    }
)
CLOSE_STEP_S: Final = 5.0
RETURN_MS: Final = 1_000
"""Delay until the messages that this consumer returns at its end are visible.

The broker still holds a POP of this consumer. This POP must not find a message before
the connection is closed.
"""


class Popper:
    """The POPs of one consumer; `run` runs as long as the consumer."""

    def __init__(
        self,
        client: Client,
        puller: Puller,
        group: ConsumerGroup,
        redelivery: Redelivery,
        *,
        invisible_s: float,
        is_from_first: bool,
        asks_brokers: bool,
    ) -> None:
        self.queues: dict[MessageQueue, PoppedQueue] = {}
        self.must_retry = False
        """Whether a broker did not answer a request for the assigned queues."""

        self.pulled_topics: set[str] = set()
        """Topics that brokers have changed back to pulls for this group."""

        self._client = client
        self._puller = puller
        self._group = group
        self._redelivery = redelivery
        self._asks_brokers = asks_brokers
        invisible_ms = int(invisible_s * 1_000)
        self._settings = PopSettings(group.name, invisible_ms, int(not is_from_first))
        self._acks = PopAcks(client, group.name)
        self._open: set[PopLease] = set()
        self._has_ended = False

    # -- assignment

    async def update_assignment(self, route: Route, subscription: Subscription) -> bool:
        """Pop the assigned queues of a topic; False if the group pulls it."""
        self.must_retry = False
        self.pulled_topics.discard(route.topic)
        found = await self._query_assignment(route, subscription)
        self._assign(route.topic, found or (), subscription)
        return found is not None

    def _assign(
        self, topic: str, queues: Iterable[MessageQueue], subscription: Subscription
    ) -> None:
        """Pop these queues of a topic, and no other queues of the topic."""
        wanted = set(queues)
        for queue, popped in list(self.queues.items()):
            if queue.topic == topic and queue not in wanted:
                popped.is_revoked = True
                self._puller.blocked.discard(popped)
                del self.queues[queue]
        for queue in wanted - self.queues.keys():
            popped = PoppedQueue(self, self._settings, queue, subscription)
            self.queues[queue] = popped
            self._puller.pull(popped)

    async def _query_assignment(
        self, route: Route, subscription: Subscription
    ) -> list[MessageQueue] | None:
        """Return the queues that brokers assign, by request 400; None if the group
        pulls.
        """
        if not self._asks_brokers:
            return [
                MessageQueue(route.topic, each, ANY_QUEUE) for each in route.addresses
            ]
        body = QueryAssignmentRequestBody(
            topic=subscription.topic,
            consumer_group=self._group.name,
            client_id=self._client.client_id,
            strategy_name="AVG",
            message_model="CLUSTERING",
        )
        found: list[MessageQueue] = []
        for broker in route.addresses:
            request = Command.request(RequestCode.QUERY_ASSIGNMENT, body=body.encode())
            try:
                answer = await self._client.request(route.any_of(broker) or "", request)
                if answer.code != ResponseCode.SUCCESS:
                    return None
                shares = QueryAssignmentResponseBody.decode(answer.body)
            except RmqError as error:
                logger.debug(
                    "cannot query the assignment of group %s: %s",
                    self._group.name,
                    Foreign(error),
                )
                self.must_retry = True
                continue
            assigned = shares.message_queue_assignments or []
            if any(each.mode != POP for each in assigned):
                self.pulled_topics.add(route.topic)
                return None
            queues = [each.message_queue for each in assigned]
            found += [
                MessageQueue(route.topic, broker, each.queue_id)
                for each in queues
                if each.broker_name == broker
            ]
        return found or None

    # -- messages

    def on_answer(self, popped: PoppedQueue, _epoch: int, answer: Command) -> None:
        """Handle the answer to a POP, and send the next POP.

        The messages of a revoked queue are consumed, too.
        """
        popped.is_pulling = False
        if answer.code in _SERVED:
            self._puller.record_service(popped)
        if answer.code == ResponseCode.SUCCESS:
            try:
                self._add_popped(popped, answer)
            except (ValueError, RmqError) as error:
                logger.warning(
                    "cannot decode a POP of %s: %s", popped.queue, Foreign(error)
                )
                self._puller.pull_later(popped, ERROR_MS)
            else:
                self._puller.pull(popped)
        elif answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):
            self._puller.on_empty(popped)
        elif answer.code == ResponseCode.POLLING_FULL:
            self._puller.pull_later(popped, ERROR_MS)
        else:
            self._puller.on_refusal(popped, answer.code, answer.remark or "")

    def on_failure(self, popped: PoppedQueue, epoch: int, error: BaseException) -> None:
        """Handle a lost connection, or a missing answer."""
        self._puller.on_failure(popped, epoch, error)

    def _add_popped(self, popped: PoppedQueue, answer: Command) -> None:
        topic, broker, _ = popped.queue
        result = PopResult(answer.header(PopMessageResponseHeader), broker)
        messages = decode_messages(
            answer.body,
            topic,
            None,
            inflate=open_body,
            queue_of=lambda number: MessageQueue(topic, broker, number),
            on_damage=lambda reason, _: logger.warning(
                "%s: a message is skipped: %s", popped.queue, Foreign(reason)
            ),
        )
        expires_ms = steady_ms() + self._settings.invisible_ms
        tags, wanted = popped.subscription.tags, []
        for message in messages:
            is_retry = message.reconsume_times > 0
            try:
                handle = result.handle_of(
                    message.queue.queue_id,
                    message.queue_offset,
                    is_retry=is_retry,
                    checkpoint=message.properties.get(POP_CK) if is_retry else None,
                )
            except ValueError as error:
                logger.warning(
                    "%s: the message at offset %d is skipped: %s",
                    message.queue, message.queue_offset, Foreign(error),
                )  # fmt: skip
                continue
            lease = PopLease(self, popped, handle, message.size, expires_ms)
            message.lease = lease
            if tags is None or message.tags in tags:
                self._open.add(lease)
                popped.open_count += 1
                wanted.append(message)
            else:
                self._acks.add(lease)
        self._puller.add(wanted)
        if self._has_ended:
            self._client.spawn(self._return_all)

    def _end_lease(self, lease: PopLease) -> None:
        """Drop a message that is acknowledged, given back or expired."""
        lease.is_ended = True
        if lease in self._open:
            self._open.discard(lease)
            lease.queue.open_count -= 1
            self._puller.remove(lease.queue, lease.size)

    def ack(self, lease: PopLease) -> None:
        """Acknowledge a consumed message at its broker, soon."""
        self._end_lease(lease)
        self._acks.add(lease)

    # -- invisible times

    async def run(self) -> None:
        """Extend the leases that expire soon."""
        invisible_ms = self._settings.invisible_ms
        while True:
            await anyio.sleep(invisible_ms / 6_000)
            now_ms = steady_ms()
            expired = [each for each in self._open if each.expires_ms <= now_ms]
            for lease in expired:
                self._end_lease(lease)
            soon_ms = now_ms + invisible_ms // 3
            async with anyio.create_task_group() as tasks:
                for lease in self._open:
                    if lease.expires_ms <= soon_ms:
                        tasks.start_soon(self._renew, lease)

    async def _renew(self, lease: PopLease) -> None:
        if not lease.is_ended:
            await self._change_invisible_time(lease, self._settings.invisible_ms)

    async def _change_invisible_time(self, lease: PopLease, invisible_ms: int) -> None:
        """Change when a message becomes visible again."""
        while lease.is_changing:  # noqa: ASYNC110 - seldom, and not for long
            await anyio.sleep(JOIN_S)
        handle, queue = lease.handle, lease.queue
        request = change_request(
            handle, queue.subscription.topic, self._group.name, invisible_ms
        )
        lease.is_changing = True
        try:
            answer = await self._client.request_broker(queue.queue, request)
            if answer.code != ResponseCode.SUCCESS:
                logger.info(
                    "%s refuses to change the invisible time: %d: %s",
                    queue.queue.broker, answer.code, Foreign(answer.remark),
                )  # fmt: skip
                return
            new = answer.header(ChangeInvisibleTimeResponseHeader)
            lease.handle = handle.apply_change(new)
            lease.expires_ms = steady_ms() + invisible_ms
        except RmqError as error:
            logger.info(
                "cannot change the invisible time of %s: %s",
                handle.text,
                Foreign(error),
            )
        finally:
            lease.is_changing = False
            if lease.is_consumed:
                self._acks.add(lease)

    async def send_back(
        self,
        lease: PopLease,
        message: ReceivedMessage,
        delay_s: float | None,
        *,
        dead_letter: bool,
    ) -> None:
        """Send a message back for redelivery, or move it to the dead-letter queue."""
        if lease.is_revoked:
            return
        is_dead = dead_letter or self._group.is_last_attempt(message.attempt)
        queue = lease.queue.queue
        if is_dead and await self._redelivery.send_to_dlq(queue, message):
            lease.ack(message)
            return
        if delay_s is None:
            delay_s = DELAYS_S[min(message.reconsume_times, len(DELAYS_S) - 1)]
        self._end_lease(lease)
        await self._change_invisible_time(lease, int(delay_s * 1_000))

    # -- the end

    async def close(self) -> None:
        """Pop no more; acknowledge or give back the fetched messages."""
        self._has_ended = True
        for popped in self.queues.values():
            popped.is_revoked = True
        with anyio.move_on_after(CLOSE_STEP_S):
            await self._return_all()
            await self._acks.flush()

    async def _return_all(self) -> None:
        """Make the messages visible that are neither acknowledged nor given back."""
        async with anyio.create_task_group() as tasks:
            for lease in list(self._open):
                self._end_lease(lease)
                tasks.start_soon(self._change_invisible_time, lease, RETURN_MS)
