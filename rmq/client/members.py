"""GroupMember: which queues of its topics a member of a group has.

It asks for the members, computes its own share as every other member does theirs, and
gives up and takes queues: commit and unlock; lock, read the position, pull. Without a
list of members nothing moves. Locks of ordered groups are renewed every 20 s, and
believed for 30 s. A group that pops a topic has no shares of it; one that a broker has
set back to pulls has shares of POP's retries, if there are any, as Java's clients do.

Invariant: nothing is locked after `leave`. A broker keeps a lock that was left behind
for 60 s, and nobody gets the queue in that time.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final, Literal

import anyio

from rmq.client.assigned_queue import HeldQueue
from rmq.client.client import Client
from rmq.client.core.allocate import Allocate, java_order, sorted_queues
from rmq.client.core.routes import MessageQueue, Route
from rmq.client.errors import ClientError, NoRoute, SubscriptionRefused
from rmq.client.namespaces import unwrap, wrap
from rmq.client.offsets import OffsetStore
from rmq.client.popper import Popper
from rmq.client.puller import Puller
from rmq.client.queue_locks import QueueLocks
from rmq.client.subscription import Start, Subscription, subscription
from rmq.core.errors import RmqError
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import steady_ms
from rmq.protocol.bodies.heartbeat import (
    CheckClientRequestBody,
    GetConsumerListByGroupResponseBody,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers import Header
from rmq.protocol.headers.groups import GetConsumerListByGroupRequestHeader
from rmq.protocol.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq.protocol.topics import is_retry_topic, pop_retry_topic

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

QueueCallback = Callable[[Sequence[MessageQueue]], Awaitable[None]]

SHARE_INTERVAL_S: Final = 20.0
AGAIN_S: Final = 1.0
"""Pause before a queue that could not be taken is tried again."""

RETRY_LOOKS: Final = 5
"""How often a retry topic is asked for early: the first heartbeat creates it."""

LOCK_INTERVAL_S: Final = 20.0
LOCK_BELIEVED_MS: Final = 30_000
GIVE_UP_LIMIT_S: Final = 5.0
"""How long brokers may take for commits and unlocks that a cancellation waits for."""

FOREVER_MS: Final = 1 << 50


class OffsetRefused(ClientError):
    """A broker does not say, or does not keep, an offset."""


class GroupMember:
    """See above; `subscriptions` are by the topic that programs know."""

    def __init__(
        self,
        client: Client,
        puller: Puller,
        group: str,
        *,
        allocate: Allocate,
        ordered: bool,
        offsets: OffsetStore | None,
        start: Start,
    ) -> None:
        self.subscriptions: dict[str, Subscription] = {}
        self.group = wrap(client.namespace, group)
        self.popper: Popper | None = None
        """In a group that may pop."""

        self.on_assigned: QueueCallback | None = None
        self.on_revoked: QueueCallback | None = None
        self._client = client
        self._puller = puller
        self._allocate = allocate
        self.needs_locks = ordered and offsets is None
        self._offsets = offsets
        self._kept: dict[MessageQueue, int] = {}
        self._start = start
        self._changed = anyio.Event()
        self._wants_again = False
        self._retry_looks = 0
        self._lock = anyio.Lock()
        self._locks = QueueLocks(client, self.group)
        self._finishing: set[HeldQueue] = set()
        """Given up while a handler works on one of their messages."""

        self._has_left = False

    @property
    def held(self) -> dict[tuple[str, str, int], HeldQueue]:
        """The queues that are ours."""
        return self._puller.held

    async def check_expressions(self) -> None:
        """Ask a broker whether it takes the expressions that are not tags."""
        for topic, each in self.subscriptions.items():
            if each.kind == "TAG":
                continue
            body = CheckClientRequestBody(
                client_id=self._client.client_id,
                group=self.group,
                namespace=self._client.namespace,
                subscription_data=each.data(),
            )
            request = Command.request(
                RequestCode.CHECK_CLIENT_CONFIG, body=body.encode()
            )
            route = self._client.routes.get(topic)
            if route is None or not route.addresses:
                continue
            broker = next(iter(route.addresses))
            answer = await self._client.ask(route.any_of(broker) or "", request)
            if answer.code != ResponseCode.SUCCESS:
                raise SubscriptionRefused(each.expression, answer.remark or "")

    # -- shares

    def changed(self) -> None:
        """Look at the shares soon: members, routes or subscriptions have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Keep the shares right."""
        while True:
            pause_s = AGAIN_S if self._wants_again else SHARE_INTERVAL_S
            with anyio.move_on_after(pause_s):
                await self._changed.wait()
            self._changed = anyio.Event()
            await self.share()

    async def share(self) -> None:
        """Take and give up queues, as the members are now."""
        async with self._lock:
            if self._has_left:
                return
            self._wants_again = False
            lost: list[HeldQueue] = []
            gained: list[MessageQueue] = []
            for topic in list(self.subscriptions):
                mine = await self._share_of(topic)
                if topic not in self.subscriptions:
                    mine = []
                if mine is None:
                    continue
                wanted = set(mine)
                lost += [
                    each
                    for each in self.held.values()
                    if each.queue.topic == topic and each.queue not in wanted
                ]
                gained += [each for each in mine if each not in self.held]
            if lost:
                await self.give_up(lost)
            if gained:
                await self._take(gained)

    async def _share_of(self, topic: str) -> list[MessageQueue] | None:
        """Return our queues of a topic; None if nothing is to move."""
        try:
            route = await self._client.route(topic)
        except NoRoute as error:
            if not is_retry_topic(topic):
                logger.info("%s", Foreign(error))
                self._wants_again = True
            elif self._retry_looks < RETRY_LOOKS:
                self._retry_looks += 1
                self._wants_again = True
            return None
        queues = sorted_queues(route.readable)
        if self._offsets is not None:
            return queues
        if self.popper is not None and not is_retry_topic(topic):
            is_popped = await self.popper.share(route, self.subscriptions[topic])
            self._wants_again |= self.popper.wants_again
            await self._share_pop_retries(topic)
            if is_popped:
                return []
        members = await self._members(route)
        if members is None:
            self._wants_again = True
            return None
        return self._allocate(self._client.client_id, members, queues)

    async def _share_pop_retries(self, topic: str) -> None:
        """Read what failed while the group popped a topic, if it pulls that now."""
        assert self.popper is not None
        wire_topic = pop_retry_topic(self.subscriptions[topic].topic, self.group)
        retries = unwrap(self._client.namespace, wire_topic)
        if topic not in self.popper.pulled:
            self.subscriptions.pop(retries, None)
        elif retries not in self.subscriptions:
            try:
                await self._client.route(retries)
            except NoRoute:
                return
            self.subscriptions[retries] = subscription(wire_topic)
            await self._client.beat()
            self._wants_again = True

    async def _members(self, route: Route) -> list[str] | None:
        """Return the members of the group in Java's order; None if nobody says."""
        header = GetConsumerListByGroupRequestHeader(consumer_group=self.group)
        for broker in route.addresses:
            address = route.any_of(broker)
            if address is None:
                continue
            request = Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            try:
                answer = await self._client.ask(address, request)
                found: list[str] = []
                if answer.code == ResponseCode.SUCCESS:
                    body = GetConsumerListByGroupResponseBody.decode(answer.body)
                    found = body.consumer_id_list
            except RmqError as error:
                logger.info("no members of %s: %s", self.group, Foreign(error))
                continue
            if self._client.client_id in found:
                return sorted(set(found), key=java_order)
            await self._client.beat()
        return None

    async def _take(self, queues: Sequence[MessageQueue]) -> None:
        if self.needs_locks:
            finishing = {each.queue for each in self._finishing}
            locked = await self._locks.take(
                [each for each in queues if each not in finishing]
            )
            self._wants_again |= len(locked) < len(queues)
            queues = [each for each in queues if each in locked]
        taken = []
        for queue in queues:
            try:
                offset = await self.start_of(queue)
            except RmqError as error:
                logger.info("%s is not taken yet: %s", queue, Foreign(error))
                if isinstance(error, OffsetRefused):
                    self._puller.on_refused(error)
                self._wants_again = True
                continue
            taken.append(self.hold(queue, offset))
        if self.on_assigned is not None and taken:
            await self.on_assigned([each.queue for each in taken])
        for each in taken:
            self._puller.pull(each)

    def hold(self, queue: MessageQueue, offset: int) -> HeldQueue:
        """Note a queue as ours; the caller has it pulled."""
        wanted = self.subscriptions[queue.topic]
        held = HeldQueue(self._puller, queue, wanted, self.group, offset)
        believed_ms = LOCK_BELIEVED_MS if self.needs_locks else FOREVER_MS
        held.locked_until_ms = steady_ms() + believed_ms
        self.held[queue] = held
        return held

    async def give_up(self, queues: Sequence[HeldQueue]) -> None:
        """Commit and unlock queues; after this nothing of them is acknowledged."""
        if self.on_revoked is not None:
            await self.on_revoked([each.queue for each in queues])
        for each in queues:
            each.revoke()
            del self.held[each.queue]
        with anyio.move_on_after(GIVE_UP_LIMIT_S, shield=True):
            await self.commit(queues)
            if self.needs_locks:
                await self._locks.give_back(
                    [each.queue for each in queues if not each.is_busy]
                )
        if self.needs_locks:
            for each in queues:
                if each.is_busy:
                    self._finishing.add(each)
                    self._client.spawn(self._unlock_later, each)

    async def _unlock_later(self, held: HeldQueue) -> None:
        """Unlock a queue when its running handler has ended."""
        while held.is_busy:  # noqa: ASYNC110 - seldom, and not for long
            await anyio.sleep(0.05)
        if held in self._finishing:
            await self._locks.give_back([held.queue])
            self._finishing.discard(held)

    async def leave(self) -> None:
        """Give up all queues, and take none from now on; its handlers have ended."""
        async with self._lock:
            self._has_left = True
            self._finishing.clear()
            held = list(self.held.values())
            for each in held:
                each.is_busy = False
            try:
                if held:
                    await self.give_up(held)
            finally:
                await self._locks.give_back(list(self._locks.taken))

    # -- locks

    async def renew_locks(self) -> None:
        """Renew the locks every 20 s; not while queues are given up."""
        while True:
            await anyio.sleep(LOCK_INTERVAL_S)
            async with self._lock:
                queues = [each.queue for each in self.held.values()]
                believed_ms = steady_ms() + LOCK_BELIEVED_MS
                for queue in await self._locks.take(queues):
                    held = self.held.get(queue)
                    if held is not None:
                        held.locked_until_ms = believed_ms
                        self._puller.pull(held)

    # -- offsets

    async def ask(
        self,
        queue: MessageQueue,
        code: int,
        header: Header,
        *,
        any_broker: bool = False,
    ) -> Command:
        """Ask the broker of a queue; NoRoute if it is away."""
        route = await self._client.route(queue.topic)
        address = route.master(queue.broker)
        if address is None and any_broker:
            address = route.any_of(queue.broker)
        if address is None:
            reason = f"the master of {queue.broker} is away"
            raise NoRoute(queue.topic, self._client.name_servers, reason)
        return await self._client.ask(address, Command.request(code, header))

    async def start_of(self, queue: MessageQueue) -> int:
        """Return where to go on in a queue that becomes ours."""
        found = await self.committed(queue)
        if found is not None:
            return found
        if is_retry_topic(queue.topic) or self._start == "first":
            return 0  # a pull moves it; the right to read may be all that we have
        return await self.offset_of(queue, self._start)

    async def committed(
        self, queue: MessageQueue, *, is_exact: bool = False
    ) -> int | None:
        """Return the committed offset of a queue; None for a new group.

        Unless it is to be exact, a broker may say 0 for a new group and a queue that is
        still wholly in its memory: then the group begins there, as by Java's clients.
        """
        if self._offsets is not None:
            return self._kept.get(queue)
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self.group,
            topic=wrap(self._client.namespace, queue.topic),
            queue_id=queue.queue_id,
            set_zero_if_not_found=False if is_exact else None,
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = await self.ask(queue, code, header, any_broker=True)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return _offset(queue, answer)

    async def edge(self, queue: MessageQueue, which: Literal["last", "first"]) -> int:
        """Return the first offset of a queue, or that after the last message."""
        topic = wrap(self._client.namespace, queue.topic)
        if which == "first":
            first = GetMinOffsetRequestHeader(topic=topic, queue_id=queue.queue_id)
            return _offset(
                queue, await self.ask(queue, RequestCode.GET_MIN_OFFSET, first)
            )
        last = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue.queue_id)
        return _offset(queue, await self.ask(queue, RequestCode.GET_MAX_OFFSET, last))

    async def offset_of(
        self, queue: MessageQueue, place: int | datetime | Literal["last", "first"]
    ) -> int:
        """Return the offset of a place in a queue."""
        if isinstance(place, datetime):
            return await self.offset_at(queue, place)
        if isinstance(place, str):
            return await self.edge(queue, place)
        return place

    async def offset_at(self, queue: MessageQueue, when: datetime) -> int:
        """Return the offset of the first message that was stored at a time or later."""
        if when.tzinfo is None:
            raise ValueError(f"{when} has no time zone")
        header = SearchOffsetRequestHeader(
            topic=wrap(self._client.namespace, queue.topic),
            queue_id=queue.queue_id,
            timestamp=int(when.timestamp() * 1_000),
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return _offset(queue, await self.ask(queue, code, header))

    def load(self) -> None:
        """Read the offsets of a broadcast group."""
        if self._offsets is not None:
            self._kept = dict(self._offsets.load())

    async def commit(
        self, queues: Sequence[HeldQueue] | None = None, *, oneway: bool = False
    ) -> None:
        """Commit how far queues are consumed; of some, or of all that are ours."""
        changed = [
            each
            for each in (self.held.values() if queues is None else queues)
            if each.state.committable != each.committed
        ]
        if not changed:
            return
        now_ms = steady_ms()
        for each in changed:
            each.last_consume_ms = now_ms
        if self._offsets is not None:
            self._kept |= {each.queue: each.state.committable for each in changed}
            self._offsets.save(self._kept)
            for each in changed:
                each.committed = each.state.committable
            return
        async with anyio.create_task_group() as tasks:
            for each in changed:
                tasks.start_soon(self._try_to_commit, each, oneway)

    async def _try_to_commit(self, held: HeldQueue, oneway: bool) -> None:
        try:
            await self._commit(held, oneway=oneway)
        except RmqError as error:
            logger.info("no commit of %s: %s", held.queue, Foreign(error))
            if isinstance(error, OffsetRefused):
                self._puller.on_refused(error)

    async def _commit(self, held: HeldQueue, *, oneway: bool) -> None:
        offset = held.state.committable
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self.group,
            topic=held.subscription.topic,
            queue_id=held.queue.queue_id,
            commit_offset=offset,
        )
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        if oneway:
            route = await self._client.route(held.queue.topic)
            address = route.master(held.queue.broker)
            if address is None:
                return
            connection = await self._client.connection(address)
            connection.oneway(Command.request(code, header))
        else:
            answer = await self.ask(held.queue, code, header)
            if answer.code != ResponseCode.SUCCESS:
                raise OffsetRefused(
                    f"{held.queue}: the commit of {offset} is refused: "
                    f"{answer.code}: {answer.remark}"
                )
        held.committed = offset


def _offset(queue: MessageQueue, answer: Command) -> int:
    if answer.code != ResponseCode.SUCCESS:
        raise OffsetRefused(
            f"{queue}: no offset: {answer.code}: {(answer.remark or '').strip()}"
        )
    return int(answer.ext_fields["offset"])


__all__ = ["GroupMember", "OffsetRefused", "QueueCallback"]
