"""Rebalance: divides the queues of the subscribed topics among the members of a group.

Known in Java as `RebalanceImpl`. Each member asks a broker for the list of members, and
computes its own share, as all others do. Without a list a member changes nothing. It
releases a queue by a commit and an unlock, and acquires a queue by a lock, a read of
the offset and a pull. It renews the locks of ordered groups every 20 s.

A member of a group that pops a topic has no share of the topic. If a broker changes the
group back to pulls, the members also share POP's retry topic, if there is one. Java's
clients do the same.

Invariant: no queue is locked after `leave_group`. A broker keeps a lock for 60 s, and
gives the queue to no other member in that time.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from rmq.client.assigned_queue import AssignedQueue
from rmq.client.client import Client
from rmq.client.core.allocate import Allocate, java_order, sorted_queues
from rmq.client.core.routes import MessageQueue, Route
from rmq.client.errors import ClientError, SubscriptionRefused
from rmq.client.group_offsets import GroupOffsets
from rmq.client.namespaces import unwrap, wrap
from rmq.client.options import ConsumerGroup
from rmq.client.popper import Popper
from rmq.client.puller import Puller
from rmq.client.queue_locks import QueueLocks
from rmq.client.subscription import Sql, Subscription, parse_subscription
from rmq.core.errors import PeerError, RmqError
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import steady_ms
from rmq.protocol.bodies.heartbeat import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.groups import GetConsumerListByGroupRequestHeader
from rmq.protocol.topics import is_retry_topic, pop_retry_topic

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

QueueCallback = Callable[[Sequence[MessageQueue]], Awaitable[None]]

INTERVAL_S: Final = 20.0
RETRY_S: Final = 1.0
"""Pause before the next attempt to acquire a queue."""

RETRY_TOPIC_ATTEMPTS: Final = 5
"""Number of early attempts to get the route of a retry topic, which a heartbeat
creates.
"""

LOCK_INTERVAL_S: Final = 20.0
GIVE_UP_LIMIT_S: Final = 5.0
"""Time that a cancellation waits for commits and unlocks."""


class Rebalance:
    """The queues of one member; the keys of `subscriptions` are topics as programs name
    them.
    """

    def __init__(
        self,
        client: Client,
        group: ConsumerGroup,
        puller: Puller,
        offsets: GroupOffsets,
        popper: Popper | None,
        *,
        allocate: Allocate,
        on_assigned: QueueCallback | None,
        on_revoked: QueueCallback | None,
    ) -> None:
        self.group = group.name
        self.subscriptions: dict[str, Subscription] = {}
        self.popper = popper
        self._client = client
        self._puller = puller
        self._offsets = offsets
        self._allocate = allocate
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._is_manual = False
        self._is_ordered = group.ordered and not offsets.is_local
        self._changed = anyio.Event()
        self._must_retry = False
        self._retry_topic_attempts = 0
        self._lock = anyio.Lock()
        self._locks = QueueLocks(client, self.group)
        self._finishing: set[AssignedQueue] = set()
        """Queues that were given up while a handler works on one of their messages."""

        self._has_left = False

    @property
    def is_manual(self) -> bool:
        """Whether the program assigns the queues; then no queue is locked."""
        return self._is_manual

    def assign_manually(self) -> None:
        """Leave the choice of the queues to the program from now on."""
        self._is_manual = True

    @property
    def needs_locks(self) -> bool:
        """Whether brokers must lock the queues for this member."""
        return self._is_ordered and not self._is_manual

    # -- subscriptions

    def subscribe(self, topic: str, expression: str | Sql = "*") -> None:
        """Add or replace the subscription to a topic."""
        wire_topic = wrap(self._client.namespace, topic)
        self.subscriptions[topic] = parse_subscription(wire_topic, expression)

    async def check_expressions(self) -> None:
        """Let a broker check the expressions that are not tags."""
        for topic, each in self.subscriptions.items():
            if each.kind == "TAG":
                continue
            body = CheckClientRequestBody(
                client_id=self._client.client_id,
                group=self.group,
                namespace=self._client.namespace,
                subscription_data=each.to_wire(),
            )
            request = Command.request(
                RequestCode.CHECK_CLIENT_CONFIG, body=body.encode()
            )
            route = self._client.routes.get(topic)
            if route is None or not route.addresses:
                continue
            broker = next(iter(route.addresses))
            answer = await self._client.request(route.any_of(broker) or "", request)
            if answer.code != ResponseCode.SUCCESS:
                address = route.any_of(broker) or broker
                raise SubscriptionRefused(
                    each.expression, address, answer.code, answer.remark or ""
                )

    # -- shares

    def trigger(self) -> None:
        """Rebalance soon: members, routes or subscriptions have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Rebalance after each change, and every 20 s."""
        while True:
            pause_s = RETRY_S if self._must_retry else INTERVAL_S
            with anyio.move_on_after(pause_s):
                await self._changed.wait()
            self._changed = anyio.Event()
            await self.run_once()

    async def run_once(self) -> None:
        """Give up and acquire queues until this member has exactly its share."""
        async with self._lock:
            if self._has_left:
                return
            self._must_retry = False
            assigned = self._puller.queues
            lost: list[AssignedQueue] = []
            gained: list[MessageQueue] = []
            for topic in list(self.subscriptions):
                share = await self._share_of(topic)
                if topic not in self.subscriptions:
                    share = []
                if share is None:
                    continue
                wanted = set(share)
                lost += [
                    each
                    for each in assigned.values()
                    if each.queue.topic == topic and each.queue not in wanted
                ]
                gained += [each for each in share if each not in assigned]
            if lost:
                await self._give_up(lost)
            if gained:
                await self._take_queues(gained)

    async def _share_of(self, topic: str) -> list[MessageQueue] | None:
        """Return the queues of this member in a topic; None if nothing may change."""
        try:
            route = await self._client.route(topic)
        except ClientError as error:
            if not is_retry_topic(topic):
                logger.debug("%s", Foreign(error))
                self._must_retry = True
                if not isinstance(error.__cause__, PeerError):
                    self._offsets.record_route(topic, ())
            elif self._retry_topic_attempts < RETRY_TOPIC_ATTEMPTS:
                self._retry_topic_attempts += 1
                self._must_retry = True
            return None
        queues = sorted_queues(route.readable)
        if self._offsets.is_local:
            self._offsets.record_route(topic, queues)
            return queues
        if self.popper is not None and not is_retry_topic(topic):
            is_popped = await self.popper.update_assignment(
                route, self.subscriptions[topic]
            )
            self._must_retry |= self.popper.must_retry
            await self._subscribe_pop_retries(self.popper, topic)
            if is_popped:
                return []
        members = await self._fetch_members(route)
        if members is None:
            self._must_retry = True
            return None
        return self._allocate(self._client.client_id, members, queues)

    async def _subscribe_pop_retries(self, popper: Popper, topic: str) -> None:
        """Pull the retry topic of POP only while the group pulls the topic."""
        wire_topic = pop_retry_topic(self.subscriptions[topic].topic, self.group)
        retries = unwrap(self._client.namespace, wire_topic)
        if topic not in popper.pulled_topics:
            self.subscriptions.pop(retries, None)
        elif retries not in self.subscriptions:
            try:
                await self._client.route(retries)
            except ClientError:
                return
            self.subscriptions[retries] = parse_subscription(wire_topic)
            await self._client.send_heartbeats()
            self._must_retry = True

    async def _fetch_members(self, route: Route) -> list[str] | None:
        """Return the members of the group in Java's order; None if no broker knows."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=self.group)
        for broker in route.addresses:
            address = route.any_of(broker)
            if address is None:
                continue
            request = Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            try:
                answer = await self._client.request(address, request)
                found: list[str] = []
                if answer.code == ResponseCode.SUCCESS:
                    body = GetConsumerListByGroupResponseBody.decode(answer.body)
                    found = body.consumer_id_list
            except RmqError as error:
                logger.debug(
                    "cannot fetch the members of group %s: %s",
                    self.group,
                    Foreign(error),
                )
                continue
            if self._client.client_id in found:
                return sorted(set(found), key=java_order)
            await self._client.send_heartbeats()
        return None

    async def _take_queues(self, queues: Sequence[MessageQueue]) -> None:
        """Lock queues, find their offsets, and start their pulls."""
        if self.needs_locks:
            finishing = {each.queue for each in self._finishing}
            locked = await self._locks.acquire(
                [each for each in queues if each not in finishing]
            )
            self._must_retry |= len(locked) < len(queues)
            queues = [each for each in queues if each in locked]
        added = []
        for queue in queues:
            offset = await self._offsets.try_find_start(queue)
            if offset is None:
                self._must_retry = True
            else:
                added.append(self.assign(queue, offset))
        if self._on_assigned is not None and added:
            await self._on_assigned([each.queue for each in added])
        for each in added:
            self._puller.pull(each)

    def assign(self, queue: MessageQueue, offset: int) -> AssignedQueue:
        """Add a queue; the caller starts its pulls."""
        added = self._puller.assign(queue, self.subscriptions[queue.topic], offset)
        if self.needs_locks:
            added.renew_lock(steady_ms())
        return added

    async def _give_up(self, queues: Sequence[AssignedQueue]) -> None:
        """Commit and unlock queues; later acknowledgements do not count."""
        if self._on_revoked is not None:
            await self._on_revoked([each.queue for each in queues])
        for each in queues:
            self._puller.revoke(each)
        with anyio.move_on_after(GIVE_UP_LIMIT_S, shield=True):
            await self._offsets.commit(queues)
            if self.needs_locks:
                await self._locks.release(
                    [each.queue for each in queues if not each.is_busy]
                )
        if self.needs_locks:
            for each in queues:
                if each.is_busy:
                    self._finishing.add(each)
                    self._client.spawn(self._unlock_later, each)

    async def _unlock_later(self, queue: AssignedQueue) -> None:
        """Unlock a queue when its running handler has ended."""
        while queue.is_busy:  # noqa: ASYNC110 - seldom, and not for long
            await anyio.sleep(0.05)
        if queue in self._finishing:
            await self._locks.release([queue.queue])
            self._finishing.discard(queue)

    async def leave_group(self) -> None:
        """Give up all queues, and acquire no other queues; the handlers of these queues
        have ended.
        """
        async with self._lock:
            self._has_left = True
            self._finishing.clear()
            queues = list(self._puller.queues.values())
            for each in queues:
                each.release()
            try:
                if queues:
                    await self._give_up(queues)
            finally:
                await self._locks.release(list(self._locks.held))

    # -- locks and commits

    async def renew_locks(self) -> None:
        """Renew the locks every 20 s; not while queues are released."""
        while True:
            await anyio.sleep(LOCK_INTERVAL_S)
            async with self._lock:
                queues = [each.queue for each in self._puller.queues.values()]
                now_ms = steady_ms()
                for queue in await self._locks.acquire(queues):
                    assigned = self._puller.queues.get(queue)
                    if assigned is not None:
                        assigned.renew_lock(now_ms)
                        self._puller.pull(assigned)

    async def commit(self, *, oneway: bool = False) -> None:
        """Commit the offsets of all queues."""
        await self._offsets.commit(list(self._puller.queues.values()), oneway=oneway)
