"""GroupOffsets: the committed offsets of a group, and the offsets that queues have.

Known in Java as `RemoteBrokerOffsetStore`; in a broadcast group an `OffsetStore` of the
client has the offsets, Java's `LocalFileOffsetStore`.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Literal

import anyio

from rmq.client.assigned_queue import AssignedQueue
from rmq.client.client import Client
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import OffsetRefused
from rmq.client.namespaces import wrap
from rmq.client.offsets import OffsetStore
from rmq.client.options import ConsumerGroup
from rmq.client.subscription import Start
from rmq.core.errors import RmqError
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import steady_ms
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers import Header
from rmq.protocol.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq.protocol.topics import is_retry_topic

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

Position = int | datetime | Literal["last", "first"]


class GroupOffsets:
    """The offsets of one group.

    `on_refused` is called with each lasting refusal of a broker.
    """

    def __init__(
        self,
        client: Client,
        group: ConsumerGroup,
        store: OffsetStore | None,
        start: Start,
        on_refused: Callable[[RmqError], None],
    ) -> None:
        self._client = client
        self._group = group
        self._store = store
        self._stored = dict(store.load()) if store is not None else {}
        self._saved = frozenset(self._stored)
        self._start = start
        self._first_queues: dict[str, Collection[MessageQueue]] = {}
        self._on_refused = on_refused

    @property
    def is_local(self) -> bool:
        """Whether the client stores the offsets, not the brokers."""
        return self._store is not None

    # -- reads

    async def try_find_start(self, queue: MessageQueue) -> int | None:
        """Return the offset at which a queue starts; None if a broker cannot answer
        now.
        """
        try:
            found = await self.find_start(queue)
        except RmqError as error:
            self._report("start", queue, error)
            return None
        self._report_end("start", queue)
        return found

    def _report(self, action: str, queue: MessageQueue, error: RmqError) -> None:
        """Report a failure that a later attempt may repair."""
        if not isinstance(error, OffsetRefused):
            logger.debug("%s: %s: %s", queue, action, Foreign(error))
            return
        key = action, self._group.name, queue.broker, queue.topic
        what = f"broker {queue.broker} refuses offsets of {queue.topic}"
        self._client.troubles.report(key, what, error)
        self._on_refused(error)

    def _report_end(self, action: str, queue: MessageQueue) -> None:
        key = action, self._group.name, queue.broker, queue.topic
        what = f"broker {queue.broker} accepts offsets of {queue.topic}"
        self._client.troubles.end(key, what)

    async def find_start(self, queue: MessageQueue) -> int:
        """Return the committed offset of a queue, or the offset for `start`."""
        committed = await self.fetch_committed(queue)
        if committed is not None:
            return committed
        if is_retry_topic(queue.topic) or self._start == "first" or self._is_new(queue):
            return 0  # the first pull corrects the offset, and needs no further rights
        return await self.resolve_position(queue, self._start)

    def record_route(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Record the queues of the first route of a topic; queues that appear later are
        new.
        """
        self._first_queues.setdefault(topic, queues)

    def _is_new(self, queue: MessageQueue) -> bool:
        """Whether the queue appeared after the start of its broadcast group."""
        if self._start != "last" or queue.topic not in self._first_queues:
            return False
        if any(each.topic == queue.topic for each in self._saved):
            return True
        return queue not in self._first_queues[queue.topic]

    async def fetch_committed(
        self, queue: MessageQueue, *, is_exact: bool = False
    ) -> int | None:
        """Return the committed offset of a queue; None for a new group.

        Unless `is_exact`, a broker may return 0 for a new group and a queue that is
        still entirely in its memory. The group then starts at offset 0, as in Java.
        """
        if self._store is not None:
            return self._stored.get(queue)
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group.name,
            topic=self._wire_topic(queue),
            queue_id=queue.queue_id,
            set_zero_if_not_found=False if is_exact else None,
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        request = Command.request(code, header)
        answer = await self._client.request_broker(queue, request, any_replica=True)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return _parse_offset(queue, answer)

    async def resolve_position(self, queue: MessageQueue, position: Position) -> int:
        """Return the offset of a position in a queue."""
        if isinstance(position, datetime):
            return await self.search_offset(queue, position)
        if isinstance(position, str):
            return await self.fetch_bound(queue, position)
        return position

    async def fetch_bound(
        self, queue: MessageQueue, which: Literal["last", "first"]
    ) -> int:
        """Return the first offset of a queue, or the offset after its last message."""
        topic, queue_id = self._wire_topic(queue), queue.queue_id
        if which == "first":
            first = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
            return await self._fetch_offset(queue, RequestCode.GET_MIN_OFFSET, first)
        last = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        return await self._fetch_offset(queue, RequestCode.GET_MAX_OFFSET, last)

    async def search_offset(self, queue: MessageQueue, when: datetime) -> int:
        """Return the offset of the first message that was stored at `when` or later."""
        if when.tzinfo is None:
            raise ValueError(f"{when} has no time zone")
        header = SearchOffsetRequestHeader(
            topic=self._wire_topic(queue),
            queue_id=queue.queue_id,
            timestamp=int(when.timestamp() * 1_000),
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return await self._fetch_offset(queue, code, header)

    def _wire_topic(self, queue: MessageQueue) -> str:
        return wrap(self._client.namespace, queue.topic)

    async def _fetch_offset(
        self, queue: MessageQueue, code: int, header: Header
    ) -> int:
        request = Command.request(code, header)
        return _parse_offset(queue, await self._client.request_broker(queue, request))

    # -- commits

    async def commit(
        self, queues: Iterable[AssignedQueue], *, oneway: bool = False
    ) -> None:
        """Commit the offsets of the queues that have changed."""
        changed = [each for each in queues if each.has_progress]
        if not changed:
            return
        now_ms = steady_ms()
        for each in changed:
            each.record_consumption(now_ms)
        if self._store is not None:
            self._stored |= {each.queue: each.state.commit_offset for each in changed}
            try:
                self._store.save(self._stored)
            except OSError as error:
                logger.warning(
                    "the offsets of group %s are not saved: %s; a new start gets the "
                    "messages since the last save again",
                    self._group.name, error,
                )  # fmt: skip
                return
            for each in changed:
                each.record_commit(each.state.commit_offset)
            return
        async with anyio.create_task_group() as tasks:
            for each in changed:
                tasks.start_soon(self._try_to_commit, each, oneway)

    async def _try_to_commit(self, queue: AssignedQueue, oneway: bool) -> None:
        try:
            await self._commit_queue(queue, oneway=oneway)
        except RmqError as error:
            self._report("commit", queue.queue, error)
        else:
            self._report_end("commit", queue.queue)

    async def _commit_queue(self, queue: AssignedQueue, *, oneway: bool) -> None:
        offset = queue.state.commit_offset
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group.name,
            topic=queue.subscription.topic,
            queue_id=queue.queue.queue_id,
            commit_offset=offset,
        )
        request = Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        if oneway:
            route = await self._client.route(queue.queue.topic)
            address = route.master_of(queue.queue.broker)
            if address is None:
                return
            connection = await self._client.connect(address)
            connection.oneway(request)
        else:
            answer = await self._client.request_broker(queue.queue, request)
            if answer.code != ResponseCode.SUCCESS:
                raise OffsetRefused(
                    f"{queue.queue}: the commit of offset {offset}",
                    queue.queue.broker,
                    answer.code,
                    answer.remark or "",
                )
        queue.record_commit(offset)


def _parse_offset(queue: MessageQueue, answer: Command) -> int:
    if answer.code != ResponseCode.SUCCESS:
        action, remark = f"{queue}: a read of an offset", answer.remark or ""
        raise OffsetRefused(action, queue.broker, answer.code, remark)
    return int(answer.ext_fields["offset"])
