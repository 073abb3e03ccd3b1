"""Sender: sends a message or batch, and tries other brokers after a failure.

Known in Java as `DefaultMQProducerImpl.sendDefaultImpl`. As there, one time limit
covers all attempts. The next attempt avoids the broker of the last one. A message for a
given queue has one attempt. A keyed message is sent again only if the broker has
refused it: after a lost answer a repetition could arrive after a later message.
"""

import random
from typing import NamedTuple

import anyio

from rmq._fastpath.client.codec import SendTemplate
from rmq._fastpath.client.messages import SendResult
from rmq._fastpath.client.packing import PackedMessage
from rmq._fastpath.client.sending import DirectSends, RoundRobin
from rmq.client.client import Client
from rmq.client.core.queue_selector import index_of_key
from rmq.client.core.retries import ANOTHER_BROKER, back_off_ms
from rmq.client.core.routes import MAX_QUEUES, MessageQueue, Route
from rmq.client.errors import NoRoute, SendFailed, SendRefused, SendTimeout
from rmq.client.namespaces import wrap
from rmq.core.errors import ConnectFailed, InvokeTimeout, PeerError
from rmq.outgoing.connection import SendAnswer, steady_ms
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command


class Target(NamedTuple):
    """A queue, its broker's address, and the templates of sends to it."""

    queue: MessageQueue
    address: str
    single: SendTemplate
    batch: SendTemplate


class PublishInfo:
    """The targets of a topic and its route; Java's `TopicPublishInfo`."""

    def __init__(self, route: Route, group: str, namespace: str, first: int) -> None:
        self.route = route
        self.choice = RoundRobin(route.writable, first)
        topic = wrap(namespace, route.topic)
        self.targets = []
        for queue in route.writable:
            address = route.master_of(queue.broker)
            assert address is not None, "a writable queue has a master"
            number = queue.queue_id
            self.targets.append(
                Target(
                    queue,
                    address,
                    SendTemplate(group, topic, number, queue),
                    SendTemplate(group, topic, number, queue, is_batch=True),
                )
            )

    def target_of(self, queue: MessageQueue) -> Target | None:
        """Return the target of a queue; None if it is not writable."""
        for target in self.targets:
            if target.queue == queue:
                return target
        return None

    def queue_of_key(self, key: str) -> MessageQueue:
        """Return the queue of all messages with this key."""
        return self.targets[index_of_key(key, len(self.targets))].queue


class Attempts:
    """The attempts to send one message so far."""

    __slots__ = (
        "count", "deadline_ms", "failure", "is_keyed", "is_over", "last",
        "may_be_stored", "packed", "queue",
    )  # fmt: skip

    def __init__(
        self,
        packed: PackedMessage,
        deadline_ms: int,
        queue: MessageQueue | None,
        is_keyed: bool,
    ) -> None:
        self.packed = packed
        self.deadline_ms = deadline_ms
        self.queue = queue
        self.is_keyed = is_keyed
        self.count = 0
        self.last: Target | None = None
        self.failure: PeerError | Command | None = None
        self.may_be_stored = False
        self.is_over = False

    def record_failure(self, target: Target, error: PeerError) -> None:
        """Record an attempt without an answer."""
        self.count += 1
        self.last, self.failure = target, error
        if not isinstance(error, ConnectFailed):
            self.may_be_stored = True
            self.is_over = self.is_keyed

    def record_refusal(self, target: Target, refusal: Command) -> None:
        """Record an attempt that the broker has refused."""
        self.count += 1
        self.last, self.failure = target, refusal
        self.is_over = refusal.code not in ANOTHER_BROKER


class Sender(DirectSends):
    """Sends packed messages of one producer group."""

    def __init__(self, client: Client, group: str, attempts: int) -> None:
        self._client = client
        self._group = wrap(client.namespace, group)
        self._attempts = attempts
        self.targets_by_topic: dict[str, PublishInfo] = {}
        self.connections = client.connections

    async def find_targets(self, topic: str) -> PublishInfo:
        """Return the targets of a topic; NoRoute without one."""
        found = self.targets_by_topic.get(topic)
        if found is not None:
            return found
        route = await self._client.route_to_send(topic)
        # another send may have stored it meanwhile
        return self.targets_by_topic.get(topic) or self._publish(route)

    def _publish(self, route: Route) -> PublishInfo:
        """Store the targets of a route; the choice of queues continues."""
        before = self.targets_by_topic.get(route.topic)
        first = before.choice.next_index if before else random.randrange(MAX_QUEUES)
        info = PublishInfo(route, self._group, self._client.namespace, first)
        self.targets_by_topic[route.topic] = info
        return info

    def on_route(self, route: Route) -> None:
        """Replace the targets after a change of a route."""
        if route.topic in self.targets_by_topic:
            if route.writable:
                self._publish(route)
            else:
                del self.targets_by_topic[route.topic]

    async def send(
        self,
        packed: PackedMessage,
        timeout_ms: int,
        *,
        queue: MessageQueue | None = None,
        is_keyed: bool = False,
    ) -> SendResult | list[SendResult]:
        """Return the result; raises SendFailed, or NoRoute before the first attempt."""
        deadline_ms = steady_ms() + timeout_ms
        return await self._try_again(Attempts(packed, deadline_ms, queue, is_keyed))

    async def retry(
        self,
        packed: PackedMessage,
        deadline_ms: int,
        target: Target,
        answer: PeerError | Command,
    ) -> SendResult | list[SendResult]:
        """Make the other attempts after the first one has failed."""
        attempts = Attempts(packed, deadline_ms, None, is_keyed=False)
        if isinstance(answer, Command):
            self._handle_refusal(attempts, target, answer)
        else:
            attempts.record_failure(target, answer)
        return await self._try_again(attempts)

    async def _try_again(self, attempts: "Attempts") -> SendResult | list[SendResult]:
        """Make the attempts that are left."""
        limit = self._attempts
        if attempts.queue is not None and not attempts.is_keyed:
            limit = 1
        while attempts.count < limit and not attempts.is_over:
            if attempts.count:
                await self._pause(
                    attempts.count, attempts.packed.topic, attempts.failure
                )
            left_ms = attempts.deadline_ms - steady_ms()
            if left_ms <= 0:
                break
            target = await self._choose(
                attempts.packed.topic, attempts.queue, attempts.last
            )
            try:
                answer = await self._try(target, attempts.packed, attempts.deadline_ms)
            except PeerError as error:
                attempts.record_failure(target, error)
                continue
            if not isinstance(answer, Command):
                return answer
            self._handle_refusal(attempts, target, answer)
        raise _error_of(attempts)

    def _handle_refusal(
        self, attempts: "Attempts", target: Target, refusal: Command
    ) -> None:
        attempts.record_refusal(target, refusal)
        if refusal.code == ResponseCode.GO_AWAY:
            self.connections.pop(target.address, None)

    async def _choose(
        self, topic: str, queue: MessageQueue | None, last: Target | None
    ) -> Target:
        info = await self.find_targets(topic)
        if queue is None:
            avoid = last.queue.broker if last else None
            return info.targets[info.choice.next(avoid)]
        target = info.target_of(queue)
        if target is None:
            raise NoRoute(topic, self._client.name_servers, f"{queue} is not writable")
        return target

    async def _try(
        self, target: Target, packed: PackedMessage, deadline_ms: int
    ) -> SendAnswer:
        connection = self.connections.get(target.address)
        if connection is None or not connection.is_open:
            try:
                with anyio.fail_after((deadline_ms - steady_ms()) / 1_000):
                    connection = await self._client.connect(target.address)
            except TimeoutError as error:
                raise ConnectFailed(f"cannot connect to {target.address}") from error
        waiter = connection.new_waiter()
        number = connection.send(
            target.batch if packed.is_batch else target.single,
            packed.properties,
            packed.body,
            waiter,
            deadline_ms,
            packed.msg_ids,
            packed.sys_flag,
        )
        try:
            answer: SendAnswer = await waiter
        finally:
            connection.codec.cancel(number)
        return answer

    async def _pause(
        self, attempt: int, topic: str, failure: PeerError | Command | None
    ) -> None:
        """Wait, and refresh the route, before the next attempt."""
        code = failure.code if isinstance(failure, Command) else None
        if code is None or code in (
            ResponseCode.TOPIC_NOT_EXIST,
            ResponseCode.NO_PERMISSION,
        ):
            await self._client.refresh(topic)
        if pause_ms := back_off_ms(attempt, code):
            await anyio.sleep(pause_ms / 1_000)


def _error_of(attempts: Attempts) -> SendFailed:
    error: SendFailed
    failure, topic, target = attempts.failure, attempts.packed.topic, attempts.last
    if isinstance(failure, Command):
        assert target is not None
        error = SendRefused(
            target.queue,
            target.address,
            attempts.count,
            failure.code,
            failure.remark or "",
        )
    else:
        kind: type[SendFailed] = SendTimeout
        if failure is not None and not isinstance(failure, InvokeTimeout):
            kind = SendFailed
        tail = "; it may be stored" if attempts.may_be_stored else ""
        error = kind(
            f"no send to topic {topic} succeeded in {attempts.count} attempts: "
            f"{failure or 'the timeout is over'}{tail}",
            topic,
            target.queue if target else None,
            attempts.count,
        )
        error.__cause__ = failure
    error.may_be_stored = attempts.may_be_stored
    return error
