"""Sender: sends a message or batch, and tries other brokers after a failure.

Known in Java as `DefaultMQProducerImpl.sendDefaultImpl`. As in Java, one time limit
covers all attempts. Unlike in Java, only this limit ends them, unless an option limits
their number. The next attempt avoids the broker of the last one; after a lost answer a
sticky sender tries the same broker again. While no broker of the topic can be reached,
sends wait together (`SharedRetries`).

After a lost answer a message may be stored twice, unless the same broker gets it again
and the topic stores each key once. Keyed messages keep their order: the next message of
a queue is sent after the answer, and a repetition goes to the same queue.
"""

import random
from functools import partial
from typing import Final, NamedTuple

import anyio

from rmq._fastpath.client.codec import SendTemplate
from rmq._fastpath.client.messages import SendResult
from rmq._fastpath.client.packing import PackedMessage
from rmq._fastpath.client.sending import DirectSends, RoundRobin
from rmq.client.client import Client
from rmq.client.core.queue_selector import index_of_key
from rmq.client.core.retries import (
    ANOTHER_BROKER,
    PATIENCE_MS,
    UNTIL_THE_END,
    back_off_ms,
)
from rmq.client.core.routes import MAX_QUEUES, MessageQueue, Route
from rmq.client.errors import (
    ClientError,
    NoBroker,
    SendFailed,
    SendNotAuthorized,
    SendRefused,
    SendTimeout,
    TlsFailed,
    client_error_of,
    is_about_user,
    is_lasting,
)
from rmq.client.namespaces import wrap
from rmq.client.options import check_text
from rmq.core.errors import (
    ConnectFailed,
    InvokeTimeout,
    PeerError,
    RequestRejected,
    RmqError,
)
from rmq.outgoing.connection import SendAnswer, steady_ms
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.topics import validate_topic

REPORTED_ATTEMPT: Final = 3
"""Number of refusals of one message after which the log gets a line."""


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
        "begun_ms", "broker", "count", "deadline_ms", "failure", "is_over", "last",
        "may_be_stored", "packed", "queue",
    )  # fmt: skip

    def __init__(
        self,
        packed: PackedMessage,
        deadline_ms: int,
        queue: MessageQueue | None,
    ) -> None:
        self.packed = packed
        self.begun_ms = steady_ms()
        self.deadline_ms = deadline_ms
        self.queue = queue
        self.broker = None if queue is None else queue.broker
        self.count = 0
        self.last: Target | None = None
        self.failure: PeerError | Command | None = None
        self.may_be_stored = False
        self.is_over = False

    def record_failure(self, target: Target, error: PeerError) -> None:
        """Record an attempt without an answer."""
        self.count += 1
        self.last, self.failure = target, error
        if is_lasting(error):
            self.is_over = True
        elif not isinstance(error, ConnectFailed):
            self.may_be_stored = True

    def record_refusal(self, target: Target, refusal: Command) -> None:
        """Record an attempt that the broker has refused."""
        self.count += 1
        self.last, self.failure = target, refusal
        code = refusal.code
        is_patient = steady_ms() - self.begun_ms < PATIENCE_MS
        self.is_over = is_about_user(code, refusal.remark) or not (
            code in UNTIL_THE_END or (code in ANOTHER_BROKER and is_patient)
        )


class Sender(DirectSends):
    """Sends packed messages of one producer group."""

    def __init__(
        self,
        client: Client,
        group: str,
        *,
        attempts: int | None,
        attempt_timeout_ms: int,
        is_sticky: bool,
    ) -> None:
        self._client = client
        self._group = wrap(client.namespace, group)
        self._attempts = attempts
        self.is_sticky = is_sticky
        self.attempt_timeout_ms = attempt_timeout_ms
        self.targets_by_topic: dict[str, PublishInfo] = {}
        self.connections = client.connections

    async def find_targets(self, topic: str, timeout_ms: int) -> PublishInfo:
        """Return the targets of a topic; raises as `Client.wait_for_route` does."""
        found = self.targets_by_topic.get(topic)
        if found is not None:
            return found
        check_topic(topic)
        route = await self._client.wait_for_route(topic, timeout_ms)
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
        may_be_stored: bool = False,
        broker: str | None = None,
    ) -> SendResult | list[SendResult]:
        """Return the result; raise SendFailed, or the error of the route.

        Without `queue`, a `broker` gets the message in any of its queues, and no other
        broker gets it. ValueError if `queue` is not a MessageQueue.
        """
        if queue is not None and not isinstance(queue, MessageQueue):
            raise ValueError(f"queue {queue!r} is not a MessageQueue")
        attempts = Attempts(packed, steady_ms() + timeout_ms, queue)
        attempts.may_be_stored = may_be_stored
        attempts.broker = broker or attempts.broker
        return await self._try_again(attempts)

    async def retry(
        self,
        packed: PackedMessage,
        deadline_ms: int,
        target: Target,
        answer: PeerError | Command,
    ) -> SendResult | list[SendResult]:
        """Make the other attempts after the first one has failed."""
        attempts = Attempts(packed, deadline_ms, None)
        if isinstance(answer, Command):
            self._handle_refusal(attempts, target, answer)
        else:
            self._handle_failure(attempts, target, answer)
        return await self._try_again(attempts)

    async def _try_again(self, attempts: "Attempts") -> SendResult | list[SendResult]:
        """Make the attempts that are left."""
        limit = self._attempts
        while not attempts.is_over and (limit is None or attempts.count < limit):
            if attempts.count and not await self._pause(attempts):
                break
            left_ms = attempts.deadline_ms - steady_ms()
            if left_ms <= 0:
                break
            try:
                target = await self._choose(attempts, left_ms)
            except ClientError as error:
                if attempts.failure is not None:
                    break
                if attempts.may_be_stored:
                    raise _error_without_target(attempts, error) from error
                raise
            try:
                answer = await self._try(target, attempts)
            except PeerError as error:
                self._handle_failure(attempts, target, error)
                continue
            if not isinstance(answer, Command):
                if attempts.count >= REPORTED_ATTEMPT:
                    self._report_end(attempts)
                return answer
            self._handle_refusal(attempts, target, answer)
        raise _error_of(attempts)

    def _handle_failure(
        self, attempts: "Attempts", target: Target, error: PeerError
    ) -> None:
        attempts.record_failure(target, error)
        if self.is_sticky and attempts.may_be_stored and attempts.broker is None:
            attempts.broker = target.queue.broker

    def _handle_refusal(
        self, attempts: "Attempts", target: Target, refusal: Command
    ) -> None:
        attempts.record_refusal(target, refusal)
        if refusal.code == ResponseCode.GO_AWAY:
            self.connections.pop(target.address, None)
        if attempts.count >= REPORTED_ATTEMPT and not attempts.is_over:
            topic = attempts.packed.topic
            what = f"brokers refuse messages for topic {topic}, which are sent again"
            reason = f"{refusal.code}: {(refusal.remark or '').strip()}"
            self._client.troubles.report(("send", topic), what, reason)

    def _report_end(self, attempts: "Attempts") -> None:
        topic = attempts.packed.topic
        what = f"brokers accept messages for topic {topic}"
        self._client.troubles.end(("send", topic), what)

    async def _choose(self, attempts: "Attempts", left_ms: int) -> Target:
        packed, queue, last = attempts.packed, attempts.queue, attempts.last
        if queue is None and attempts.broker is not None:
            return await self._choose_at(attempts.broker, attempts)
        info = await self.find_targets(packed.topic, left_ms)
        if queue is None:
            avoid = last.queue.broker if last else None
            return info.targets[info.choice.next(avoid)]
        target = info.target_of(queue)
        if target is not None:
            return target
        if any(each.queue.broker == queue.broker for each in info.targets):
            raise _no_queue(self._client, queue)
        find = partial(self._find_target, queue)
        try:
            return await self._client.retries.call(
                ("queue", queue), find, attempts.deadline_ms
            )
        except TimeoutError as error:
            raise _no_queue(self._client, queue) from error

    async def _choose_at(self, broker: str, attempts: "Attempts") -> Target:
        """Return the next target of one broker; wait while the broker is away."""
        topic = attempts.packed.topic
        while True:
            info = await self.find_targets(topic, attempts.deadline_ms - steady_ms())
            for _ in info.targets:
                target: Target = info.targets[info.choice.next()]
                if target.queue.broker == broker:
                    return target
            try:
                await self._await_broker(topic, broker, attempts.deadline_ms)
            except (PeerError, TimeoutError) as error:
                raise NoBroker(
                    topic, self._client.name_servers, f"broker {broker} is offline"
                ) from error

    async def _await_broker(
        self, topic: str, broker: str | None, deadline_ms: int
    ) -> None:
        """Wait until a broker of a topic can be reached, together with other sends."""
        reach = partial(self._reach_broker, topic, broker)
        await self._client.retries.call(("broker", topic, broker), reach, deadline_ms)

    async def _find_target(self, queue: MessageQueue) -> Target:
        """Return the target of a queue whose broker may be away; NoBroker if there is
        none.
        """
        await self._client.refresh(queue.topic)
        info = self.targets_by_topic.get(queue.topic)
        target = info.target_of(queue) if info is not None else None
        if target is None:
            raise _no_queue(self._client, queue)
        return target

    async def _try(self, target: Target, attempts: "Attempts") -> SendAnswer:
        packed = attempts.packed
        now_ms = steady_ms()
        deadline_ms = min(attempts.deadline_ms, now_ms + self.attempt_timeout_ms)
        connection = self.connections.get(target.address)
        if connection is None or not connection.is_open:
            try:
                with anyio.fail_after((deadline_ms - now_ms) / 1_000):
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

    async def _pause(self, attempts: "Attempts") -> bool:
        """Wait before the next attempt; False at the deadline."""
        failure, topic = attempts.failure, attempts.packed.topic
        code = failure.code if isinstance(failure, Command) else None
        if code is not None:
            if code != ResponseCode.SYSTEM_BUSY:
                await self._client.refresh(topic)
            pause_ms = back_off_ms(attempts.count, code)
        else:
            try:
                await self._await_broker(topic, attempts.broker, attempts.deadline_ms)
            except PeerError as error:
                attempts.failure = error
                return False
            except (ClientError, TimeoutError):
                return False
            is_first = attempts.count == 1
            pause_ms = 0 if is_first else back_off_ms(attempts.count - 1, None)
        if pause_ms:
            left_ms = attempts.deadline_ms - steady_ms()
            await anyio.sleep(max(min(pause_ms, left_ms), 0) / 1_000)
        return True

    async def _reach_broker(self, topic: str, broker: str | None) -> None:
        """Connect to a broker of a topic; raise if none can be reached."""
        await self._client.refresh(topic)
        info = self.targets_by_topic.get(topic)
        if info is None:
            info = self._publish(await self._client.route_to_send(topic))
        addresses = {
            each.address
            for each in info.targets
            if broker is None or each.queue.broker == broker
        }
        if not addresses:
            reason = f"broker {broker} is offline"
            raise NoBroker(topic, self._client.name_servers, reason)
        if any(self._is_connected(each) for each in addresses):
            return
        failure: PeerError | None = None
        for address in addresses:
            try:
                await self._client.connect(address)
            except PeerError as error:
                failure = error
            else:
                return
        assert failure is not None
        raise failure

    def _is_connected(self, address: str) -> bool:
        connection = self.connections.get(address)
        return connection is not None and connection.is_open


def check_topic(name: str) -> None:
    """Raise an error unless a name can be the name of a topic."""
    check_text("topic", name)
    try:
        validate_topic(name)
    except RequestRejected as error:
        raise ValueError(f"topic {name!r}: {error.remark}") from error


def _no_queue(client: Client, queue: MessageQueue) -> NoBroker:
    return NoBroker(queue.topic, client.name_servers, f"{queue} is not writable")


def _error_without_target(attempts: Attempts, error: ClientError) -> SendFailed:
    """Return the error of an enqueued message that was sent once and has no target."""
    topic = attempts.packed.topic
    failed = SendFailed(
        f"no further attempt to send to topic {topic} was made: {error}; "
        "it may be stored",
        topic,
        attempts.queue,
        attempts.count,
    )
    failed.may_be_stored = True
    return failed


def _error_of(attempts: Attempts) -> RmqError:
    error: SendFailed
    failure, topic, target = attempts.failure, attempts.packed.topic, attempts.last
    if isinstance(failure, Command):
        assert target is not None
        kind = SendRefused
        if is_about_user(failure.code, failure.remark):
            kind = SendNotAuthorized
        error = kind(
            target.queue,
            target.address,
            attempts.count,
            failure.code,
            failure.remark or "",
        )
    else:
        if failure is not None:
            about_tls = client_error_of(failure)
            if isinstance(about_tls, TlsFailed):
                return about_tls
        failed: type[SendFailed] = SendTimeout
        if failure is not None and not isinstance(failure, InvokeTimeout):
            failed = SendFailed
        tail = "; it may be stored" if attempts.may_be_stored else ""
        error = failed(
            f"no send to topic {topic} succeeded in {attempts.count} attempts: "
            f"{failure or 'the timeout is over'}{tail}",
            topic,
            target.queue if target else None,
            attempts.count,
        )
        error.__cause__ = failure
    error.may_be_stored = attempts.may_be_stored
    return error
