"""Popper: what a consumer does with the queues that it pops.

A popped message is invisible for its group for a time. Messages that wait here, or that
handlers work on for long, get more time before that is over. Acknowledgements gather
for 5 ms and share a request. The broker delivers a message that failed again after a
delay; after `max_attempts` a copy goes to the dead-letter queue. What is here at the
end is given back, and what a POP finds after it.

Invariant: each lease is in `_open` until it is settled or its time is over.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import anyio

from rmq._fastpath.client.messages import ReceivedMessage, decode_messages
from rmq.client.client import Client
from rmq.client.compression import inflate
from rmq.client.core.pop import Popped, acks_of
from rmq.client.core.routes import MessageQueue, Route
from rmq.client.errors import ClientClosed, NoRoute
from rmq.client.popped_queue import ANY_QUEUE, PopLease, PoppedQueue
from rmq.client.puller import ERROR_MS, Puller
from rmq.client.subscription import Subscription
from rmq.core.errors import PeerError, RmqError
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import steady_ms
from rmq.protocol.bodies.pop import BatchAckRequestBody
from rmq.protocol.bodies.queues import (
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageResponseHeader,
)
from rmq.protocol.properties import POP_CK

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

POP: Final = "POP"
JOIN_S: Final = 0.005
AGAIN_S: Final = 1.0
"""Pause after acknowledgements that did not arrive."""

DELAYS_S: Final = (
    10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
"""Until a failed message is visible again, after the first failure, the second …;
Java's `popDelayLevel`."""

CLOSE_STEP_S: Final = 5.0
RETURN_MS: Final = 1_000
"""Until others see what is given back at the end: our own POP, which the broker still
holds, is to find nothing before the connection is closed."""

Bury = Callable[[PoppedQueue, ReceivedMessage], Awaitable[bool]]
"""Puts a copy into the dead-letter queue; False if that failed."""


class Popper:
    """See above; `run` runs as long as the consumer."""

    def __init__(
        self,
        client: Client,
        puller: Puller,
        group: str,
        bury: Bury,
        *,
        invisible_s: float,
        is_from_first: bool,
        asks: bool,
        max_attempts: int | None,
    ) -> None:
        self.puller = puller
        self.group = group
        self.invisible_ms = int(invisible_s * 1_000)
        self.init_mode = 0 if is_from_first else 1
        self.queues: dict[MessageQueue, PoppedQueue] = {}
        self.wants_again = False
        """Whether a broker did not say what it assigns."""

        self.pulled: set[str] = set()
        """Topics that the group pulls, as brokers say."""

        self._client = client
        self._asks = asks
        self._bury = bury
        self._max_attempts = max_attempts
        self._open: set[PopLease] = set()
        self._acks: dict[str, list[PopLease]] = {}
        self._has_ended = False

    def _assign(
        self, topic: str, queues: Iterable[MessageQueue], subscription: Subscription
    ) -> None:
        """Pop these queues of a topic from now on, and no others of it."""
        wanted = set(queues)
        for queue, popped in list(self.queues.items()):
            if queue.topic == topic and queue not in wanted:
                popped.is_revoked = True
                self.puller.blocked.discard(popped)
                del self.queues[queue]
        for queue in wanted - self.queues.keys():
            popped = self.queues[queue] = PoppedQueue(self, queue, subscription)
            self.puller.pull(popped)

    async def share(self, route: Route, subscription: Subscription) -> bool:
        """Pop our queues of a topic; False if the group pulls it."""
        self.wants_again = False
        self.pulled.discard(route.topic)
        found = await self._assigned(route, subscription)
        self._assign(route.topic, found or (), subscription)
        return found is not None

    async def _assigned(
        self, route: Route, subscription: Subscription
    ) -> list[MessageQueue] | None:
        """Return what brokers let us pop (request 400); None if the group pulls."""
        if not self._asks:
            return [
                MessageQueue(route.topic, each, ANY_QUEUE) for each in route.addresses
            ]
        body = QueryAssignmentRequestBody(
            topic=subscription.topic,
            consumer_group=self.group,
            client_id=self._client.client_id,
            strategy_name="AVG",
            message_model="CLUSTERING",
        )
        found: list[MessageQueue] = []
        for broker in route.addresses:
            request = Command.request(RequestCode.QUERY_ASSIGNMENT, body=body.encode())
            try:
                answer = await self._client.ask(route.any_of(broker) or "", request)
                if answer.code != ResponseCode.SUCCESS:
                    return None
                shares = QueryAssignmentResponseBody.decode(answer.body)
            except RmqError as error:
                logger.info("no assignment of %s: %s", self.group, Foreign(error))
                self.wants_again = True
                continue
            assigned = shares.message_queue_assignments or []
            if any(each.mode != POP for each in assigned):
                self.pulled.add(route.topic)
                return None
            queues = [each.message_queue for each in assigned]
            found += [
                MessageQueue(route.topic, broker, each.queue_id)
                for each in queues
                if each.broker_name == broker
            ]
        return found or None

    # -- messages

    def answered(self, popped: PoppedQueue, answer: Command) -> None:
        """Take the answer to a POP, and ask for more."""
        popped.is_pulling = False
        if answer.code == ResponseCode.SUCCESS:
            try:
                self._found(popped, answer)
            except (ValueError, RmqError) as error:
                logger.warning("a POP of %s: %s", popped.queue, Foreign(error))
                self.puller.rest(popped, ERROR_MS)
            else:
                self.puller.pull(popped)
        elif answer.code in (
            ResponseCode.POLLING_TIMEOUT,
            ResponseCode.PULL_NOT_FOUND,
        ):
            self.puller.found_nothing(popped)
        elif answer.code == ResponseCode.POLLING_FULL:
            self.puller.rest(popped, ERROR_MS)
        else:
            self.puller.refused(popped, answer.code, answer.remark or "")

    def _found(self, popped: PoppedQueue, answer: Command) -> None:
        topic, broker, _ = popped.queue
        known = Popped(answer.header(PopMessageResponseHeader), broker)
        messages = decode_messages(
            answer.body,
            topic,
            None,
            inflate=inflate,
            queue_of=lambda number: MessageQueue(topic, broker, number),
        )
        expires_ms = steady_ms() + self.invisible_ms
        tags, wanted = popped.subscription.tags, []
        for message in messages:
            is_retry = message.reconsume_times > 0
            place = known.place(
                message.queue.queue_id,
                message.queue_offset,
                is_retry=is_retry,
                known=message.properties.get(POP_CK) if is_retry else None,
            )
            lease = PopLease(popped, place, message.size, expires_ms)
            message.lease = lease
            if tags is None or message.tags in tags:
                self._open.add(lease)
                popped.open_count += 1
                wanted.append(message)
            else:
                self.acknowledge(lease)
        self.puller.add(wanted)
        if self._has_ended:
            self._client.spawn(self._return_all)

    def settle(self, lease: PopLease) -> None:
        """Forget a message: it is acknowledged, given back, or no longer ours."""
        lease.is_settled = True
        if lease in self._open:
            self._open.discard(lease)
            lease.popped.open_count -= 1
            self.puller.count -= 1
            self.puller.bytes -= lease.size
            self.puller.freed(lease.popped)

    # -- acknowledgements

    def acknowledge(self, lease: PopLease) -> None:
        """Tell the broker soon, together with others."""
        if lease.is_changing:  # its handle is about to become worthless
            return
        broker = lease.popped.queue.broker
        waiting = self._acks.get(broker)
        if waiting is not None:
            waiting.append(lease)
            return
        self._acks[broker] = [lease]
        self._client.spawn(self._send_acks, broker)

    async def _send_acks(self, broker: str) -> None:
        pause_s = JOIN_S
        while self._acks[broker]:
            await anyio.sleep(pause_s)
            failed = await self._flush(broker)
            self._acks[broker] += failed
            pause_s = AGAIN_S if failed else JOIN_S
        del self._acks[broker]

    async def _flush(self, broker: str) -> list[PopLease]:
        """Send what waits for a broker; return those that are to be sent again."""
        leases, self._acks[broker] = self._acks[broker], []
        by_topic: dict[tuple[str, str], list[PopLease]] = {}
        for lease in leases:
            popped = lease.popped
            key = popped.subscription.topic, popped.queue.topic
            by_topic.setdefault(key, []).append(lease)
        failed: list[PopLease] = []
        for (wire_topic, topic), part in by_topic.items():
            try:
                await self._ack(broker, wire_topic, topic, part)
            except (PeerError, NoRoute, ClientClosed) as error:
                logger.info("no acks to %s: %s", broker, Foreign(error))
                now_ms = steady_ms()
                failed += [each for each in part if each.expires_ms > now_ms]
        return failed

    async def _ack(
        self, broker: str, wire_topic: str, topic: str, leases: list[PopLease]
    ) -> None:
        together = [each.place for each in leases if each.place.can_join]
        requests = []
        if len(together) > 1:
            body = BatchAckRequestBody(
                broker_name=broker, acks=acks_of(together, wire_topic, self.group)
            )
            requests.append(
                Command.request(RequestCode.BATCH_ACK_MESSAGE, body=body.encode())
            )
            together = []
        alone = [each.place for each in leases if not each.place.can_join]
        for place in together + alone:
            header = AckMessageRequestHeader(
                consumer_group=self.group,
                topic=place.topic(wire_topic, self.group),
                queue_id=place.queue_id,
                extra_info=place.text,
                offset=place.offset,
            )
            requests.append(Command.request(RequestCode.ACK_MESSAGE, header))
        for request in requests:
            answer = await self._ask(broker, topic, request)
            if answer.code != ResponseCode.SUCCESS:
                logger.warning(
                    "%s refuses acks of %s: %d: %s",
                    broker, topic, answer.code, Foreign(answer.remark),
                )  # fmt: skip

    async def _ask(self, broker: str, topic: str, request: Command) -> Command:
        route = await self._client.route(topic)
        address = route.master(broker)
        if address is None:
            reason = f"the master of {broker} is away"
            raise NoRoute(topic, self._client.name_servers, reason)
        return await self._client.ask(address, request)

    # -- invisible times

    async def run(self) -> None:
        """Give messages more time, those that need it."""
        while True:
            await anyio.sleep(self.invisible_ms / 6_000)
            now_ms = steady_ms()
            late = [each for each in self._open if each.expires_ms <= now_ms]
            for lease in late:
                self.settle(lease)
            soon_ms = now_ms + self.invisible_ms // 3
            async with anyio.create_task_group() as tasks:
                for lease in self._open:
                    if lease.expires_ms <= soon_ms:
                        tasks.start_soon(self._renew, lease)

    async def _renew(self, lease: PopLease) -> None:
        if not lease.is_settled:
            await self._change(lease, self.invisible_ms)

    async def _change(self, lease: PopLease, invisible_ms: int) -> None:
        """Have a message become visible at another time."""
        while lease.is_changing:  # noqa: ASYNC110 - seldom, and not for long
            await anyio.sleep(JOIN_S)
        topic, broker, _ = lease.popped.queue
        place, wire_topic = lease.place, lease.popped.subscription.topic
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self.group,
            topic=place.topic(wire_topic, self.group),
            queue_id=place.queue_id,
            extra_info=place.text,
            offset=place.offset,
            invisible_time=invisible_ms,
        )
        request = Command.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        lease.is_changing = True
        try:
            answer = await self._ask(broker, topic, request)
            if answer.code != ResponseCode.SUCCESS:
                logger.info(
                    "%s gives no other time: %d: %s",
                    broker, answer.code, Foreign(answer.remark),
                )  # fmt: skip
                return
            new = answer.header(ChangeInvisibleTimeResponseHeader)
            handle = place.handle._replace(
                start=place.offset,
                pop_ms=new.pop_time,
                invisible_ms=new.invisible_time,
                revive_queue=new.revive_qid,
            )
            lease.place = place._replace(handle=handle)
            lease.expires_ms = steady_ms() + invisible_ms
        except RmqError as error:
            logger.info("no other time for %s: %s", place.text, Foreign(error))
        finally:
            lease.is_changing = False
            if lease.is_consumed:
                self.acknowledge(lease)

    async def give_back(
        self,
        lease: PopLease,
        message: ReceivedMessage,
        delay_s: float | None,
        *,
        dead_letter: bool,
    ) -> None:
        """Have a message delivered again, or put into the dead-letter queue."""
        if lease.is_revoked:
            return
        limit = self._max_attempts
        is_last = limit is not None and message.attempt > limit
        if (dead_letter or is_last) and await self._bury(lease.popped, message):
            lease.ack(message)
            return
        if delay_s is None:
            delay_s = DELAYS_S[min(message.reconsume_times, len(DELAYS_S) - 1)]
        self.settle(lease)
        await self._change(lease, int(delay_s * 1_000))

    # -- the end

    async def close(self) -> None:
        """Pop no more; acknowledge and give back what is here."""
        self._has_ended = True
        for popped in self.queues.values():
            popped.is_revoked = True
        with anyio.move_on_after(CLOSE_STEP_S):
            await self._return_all()
            for broker in list(self._acks):
                await self._flush(broker)

    async def _return_all(self) -> None:
        """Make what is not settled visible for others."""
        async with anyio.create_task_group() as tasks:
            for lease in list(self._open):
                self.settle(lease)
                tasks.start_soon(self._change, lease, RETURN_MS)
