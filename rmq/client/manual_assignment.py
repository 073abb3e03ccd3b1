"""ManualAssignment: the methods of `Consumer` that name queues: assign, seek, commit.

Known in Java as `DefaultLitePullConsumer`. `assign` and `fetch` are for a consumer
without topics. The other methods also work for queues that a group assigns.
"""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import anyio

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.client.assigned_queue import AssignedQueue
from rmq.client.client_owner import ClientOwner
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import ClientClosed, NotAssigned
from rmq.client.group_offsets import GroupOffsets, Position
from rmq.client.options import check_position
from rmq.client.puller import Puller
from rmq.client.rebalance import Rebalance
from rmq.client.subscription import Sql
from rmq.outgoing.connection import steady_ms

T = TypeVar("T")


class ManualAssignment(ClientOwner):
    """The methods of a consumer that name queues."""

    rebalance: Rebalance
    puller: Puller
    _offsets: GroupOffsets
    _expressions: dict[str, str | Sql]
    _silent: bool
    _start_timeout_ms: int
    _unplaced: Sequence[MessageQueue]

    @abstractmethod
    async def receive(self, count: int) -> list[ReceivedMessage]:
        """Wait for messages and return at most `count` messages; an empty list at the
        end.
        """

    @abstractmethod
    def release(self, message: ReceivedMessage) -> None:
        """Let the queue of a message hand out the next message; for ordered groups."""

    def _raise_failure(self) -> None:
        if self.puller.failure is not None:
            raise self.puller.failure

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be read.

        Args:
            topic (str): the topic.
        """
        self._check_open()
        timeout_ms = self._start_timeout_ms
        look_up = self.client.route_to_read
        route = await self.client.wait_for_route(topic, timeout_ms, look_up)
        return list(route.readable)

    async def _retry(self, key: object, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a call; try it again while its broker is away."""
        deadline_ms = steady_ms() + self._start_timeout_ms
        return await self.client.retries.call((id(self), key), call, deadline_ms)

    def assign(
        self, queues: Sequence[MessageQueue], expression: str | Sql = "*"
    ) -> None:
        """Consume only these queues. A consumer with `topics` raises an error.

        They start at the committed offset of the group, or at `start`; see `seek`.

        Args:
            queues (Sequence[MessageQueue]): the queues, which `queues` returns.
            expression (str | Sql, default '*'): tags or `Sql`, for topics that are new
                here.
        """
        self._check_open()
        if self._expressions:
            raise ClientClosed(
                "this consumer has topics, so its group assigns the queues"
            )
        self.rebalance.assign_manually()
        assigned, wanted = self.puller.queues, set(queues)
        for each in list(assigned.values()):
            if each.queue not in wanted:
                self.puller.revoke(each)
        for queue in queues:
            if queue.topic not in self.rebalance.subscriptions:
                self.rebalance.subscribe(queue.topic, expression)
        self._unplaced = [each for each in queues if each not in assigned]

    async def _start_assigned(self) -> None:
        """Find the offsets of assigned queues, and start their pulls."""
        unknown, self._unplaced = self._unplaced, []
        if unknown:
            await self.client.send_heartbeats()
        for queue in unknown:
            if queue not in self.puller.queues:
                find = partial(self._offsets.find_start, queue)
                offset = await self._retry(("start", queue), find)
                self.puller.pull(self.rebalance.assign(queue, offset))

    async def fetch(
        self, max_messages: int = 256, timeout_s: float = 5.0
    ) -> list[ReceivedMessage]:
        """Wait for messages and return them; return an empty list after the timeout.

        The returned messages count as consumed: after `commit` the group continues
        after them.

        Args:
            max_messages (int, messages, default 256): maximum number of messages of the
                list.
            timeout_s (float, seconds, default 5.0): time that the call waits for the
                first message.
        """
        self._check_open()
        await self._start_assigned()
        messages: list[ReceivedMessage] = []
        with anyio.move_on_after(timeout_s):
            messages = await self.receive(max_messages)
        self._raise_failure()
        for message in messages:
            message.ack()
        if messages:
            self.release(messages[0])
        return messages

    async def _find_assigned(self, queue: MessageQueue) -> AssignedQueue:
        self._check_open()
        await self._start_assigned()
        found = self.puller.queues.get(queue)
        if found is None:
            raise NotAssigned(queue)
        return found

    async def seek(self, queue: MessageQueue, to: Position) -> None:
        """Continue at an offset, at a time, at the first message or after the last.

        Args:
            queue (MessageQueue): an assigned queue.
            to (int | datetime | 'last' | 'first'): an offset, a time with its time
                zone, or an end of the queue.
        """
        if queue in self._unplaced and queue not in self.puller.queues:
            self._unplaced = [each for each in self._unplaced if each != queue]
            await self.client.send_heartbeats()
            found = self.rebalance.assign(queue, 0)
        else:
            found = await self._find_assigned(queue)
        check_position(to)
        resolve = partial(self._offsets.resolve_position, queue, to)
        self.puller.seek(found, await self._retry(("seek", queue, to), resolve))
        self.puller.pull(found)

    async def pause(self, queues: Sequence[MessageQueue]) -> None:
        """Fetch no more messages of some queues; the program still gets fetched
        messages.

        Args:
            queues (Sequence[MessageQueue]): assigned queues.
        """
        for queue in queues:
            (await self._find_assigned(queue)).pause()

    async def resume(self, queues: Sequence[MessageQueue]) -> None:
        """Fetch messages of some queues again.

        Args:
            queues (Sequence[MessageQueue]): queues that are paused.
        """
        for queue in queues:
            found = await self._find_assigned(queue)
            found.resume()
            self.puller.pull(found)

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset that `commit` would commit.

        Args:
            queue (MessageQueue): an assigned queue.
        """
        return (await self._find_assigned(queue)).state.commit_offset

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of the group; None for a new group.

        Args:
            queue (MessageQueue): any queue.
        """
        self._check_open()
        fetch = partial(self._offsets.fetch_committed, queue, is_exact=True)
        return await self._retry(("committed", queue), fetch)

    async def commit(self) -> None:
        """Commit the offset of the first unacknowledged message of each queue."""
        self._check_open()
        if not self._silent:
            await self.rebalance.commit()

    def lag(self) -> dict[MessageQueue, int]:
        """Return the number of unconsumed messages for each assigned queue."""
        return {each.queue: each.lag for each in self.puller.queues.values()}

    def assignment(self) -> list[MessageQueue]:
        """Return the queues of this consumer; id -1 means all queues of a broker, for
        POP.
        """
        queues = [each.queue for each in self.puller.queues.values()]
        popper = self.rebalance.popper
        return queues if popper is None else [*queues, *popper.queues]
