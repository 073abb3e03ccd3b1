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
from rmq.outgoing.connection import Sent, steady_ms
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command


class Target(NamedTuple):
    """A queue, its broker's address, and the templates of sends to it."""

    queue: MessageQueue
    address: str
    single: SendTemplate
    batch: SendTemplate


class PublishInfo:
    """The targets of a topic, as long as its route stays the same."""

    def __init__(self, route: Route, group: str, namespace: str, first: int) -> None:
        self.route = route
        self.choice = RoundRobin(route.writable, first)
        topic = wrap(namespace, route.topic)
        self.targets = []
        for queue in route.writable:
            address = route.master(queue.broker)
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

    def target(self, queue: MessageQueue) -> Target | None:
        """Return the target of a queue; None if it takes no messages."""
        for target in self.targets:
            if target.queue == queue:
                return target
        return None

    def queue_of_key(self, key: str) -> MessageQueue:
        """Return the queue where messages with this key go."""
        return self.targets[index_of_key(key, len(self.targets))].queue


class Attempts:
    """What has been tried for a message."""

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

    def failed(self, target: Target, error: PeerError) -> None:
        """Note an attempt without an answer."""
        self.count += 1
        self.last, self.failure = target, error
        if not isinstance(error, ConnectFailed):
            self.may_be_stored = True
            self.is_over = self.is_keyed

    def refused(self, target: Target, refusal: Command) -> None:
        """Note an attempt that the broker has refused."""
        self.count += 1
        self.last, self.failure = target, refusal
        self.is_over = refusal.code not in ANOTHER_BROKER


class Sender(DirectSends):
    """Sends packed messages of one producer group."""

    def __init__(self, client: Client, group: str, attempts: int) -> None:
        self._client = client
        self._group = wrap(client.namespace, group)
        self._attempts = attempts
        self.publishings: dict[str, PublishInfo] = {}
        self.connections = client.connections

    async def publishing(self, topic: str) -> PublishInfo:
        """Return the targets of a topic; NoRoute if there are none."""
        found = self.publishings.get(topic)
        if found is not None:
            return found
        route = await self._client.route_to_send(topic)
        # another send may have been faster
        return self.publishings.get(topic) or self._publish(route)

    def _publish(self, route: Route) -> PublishInfo:
        """Make the targets of a route; what was sent before keeps its turn."""
        before = self.publishings.get(route.topic)
        first = before.choice.following if before else random.randrange(MAX_QUEUES)
        made = PublishInfo(route, self._group, self._client.namespace, first)
        self.publishings[route.topic] = made
        return made

    def on_route(self, route: Route) -> None:
        """Take the targets of a route that has changed."""
        if route.topic in self.publishings:
            if route.writable:
                self._publish(route)
            else:
                del self.publishings[route.topic]

    async def send(
        self,
        packed: PackedMessage,
        timeout_ms: int,
        *,
        queue: MessageQueue | None = None,
        is_keyed: bool = False,
    ) -> SendResult | list[SendResult]:
        """Return the result; SendFailed, or NoRoute before the first attempt."""
        deadline_ms = steady_ms() + timeout_ms
        return await self._go_on(Attempts(packed, deadline_ms, queue, is_keyed))

    async def go_on(
        self,
        packed: PackedMessage,
        deadline_ms: int,
        target: Target,
        answer: PeerError | Command,
    ) -> SendResult | list[SendResult]:
        """Make the other attempts after a first one to any queue that has failed."""
        state = Attempts(packed, deadline_ms, None, is_keyed=False)
        if isinstance(answer, Command):
            self._refused(state, target, answer)
        else:
            state.failed(target, answer)
        return await self._go_on(state)

    async def _go_on(self, state: "Attempts") -> SendResult | list[SendResult]:
        """Make the attempts that are left."""
        limit = self._attempts
        if state.queue is not None and not state.is_keyed:
            limit = 1
        while state.count < limit and not state.is_over:
            if state.count:
                await self._pause(state.count, state.packed.topic, state.failure)
            left_ms = state.deadline_ms - steady_ms()
            if left_ms <= 0:
                break
            target = await self._choose(state.packed.topic, state.queue, state.last)
            try:
                answer = await self._try(target, state.packed, state.deadline_ms)
            except PeerError as error:
                state.failed(target, error)
                continue
            if not isinstance(answer, Command):
                return answer
            self._refused(state, target, answer)
        raise _failed(state)

    def _refused(self, state: "Attempts", target: Target, refusal: Command) -> None:
        state.refused(target, refusal)
        if refusal.code == ResponseCode.GO_AWAY:
            self.connections.pop(target.address, None)

    async def _choose(
        self, topic: str, queue: MessageQueue | None, last: Target | None
    ) -> Target:
        publishing = await self.publishing(topic)
        if queue is None:
            avoid = last.queue.broker if last else None
            return publishing.targets[publishing.choice.next(avoid)]
        target = publishing.target(queue)
        if target is None:
            raise NoRoute(
                topic, self._client.name_servers, f"{queue} takes no messages"
            )
        return target

    async def _try(
        self, target: Target, packed: PackedMessage, deadline_ms: int
    ) -> Sent:
        connection = self.connections.get(target.address)
        if connection is None or not connection.is_open:
            try:
                with anyio.fail_after((deadline_ms - steady_ms()) / 1_000):
                    connection = await self._client.connection(target.address)
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
            answer: Sent = await waiter
        finally:
            connection.codec.cancel(number)
        return answer

    async def _pause(
        self, attempt: int, topic: str, failure: PeerError | Command | None
    ) -> None:
        """Wait, and ask for the route again, before the next attempt."""
        code = failure.code if isinstance(failure, Command) else None
        if code is None or code in (
            ResponseCode.TOPIC_NOT_EXIST,
            ResponseCode.NO_PERMISSION,
        ):
            await self._client.refresh(topic)
        if pause_ms := back_off_ms(attempt, code):
            await anyio.sleep(pause_ms / 1_000)


def _failed(state: Attempts) -> SendFailed:
    error: SendFailed
    failure, topic, target = state.failure, state.packed.topic, state.last
    if isinstance(failure, Command):
        assert target is not None
        error = SendRefused(
            target.queue,
            target.address,
            state.count,
            failure.code,
            failure.remark or "",
        )
    else:
        kind: type[SendFailed] = SendTimeout
        if failure is not None and not isinstance(failure, InvokeTimeout):
            kind = SendFailed
        tail = "; it may be stored" if state.may_be_stored else ""
        error = kind(
            f"no send to topic {topic} succeeded in {state.count} attempts: "
            f"{failure or 'the time was over'}{tail}",
            topic,
            target.queue if target else None,
            state.count,
        )
        error.__cause__ = failure
    error.may_be_stored = state.may_be_stored
    return error
