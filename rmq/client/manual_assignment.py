"""GivenQueues: what a consumer does with queues by name: places, pauses, commits.

The base of `Consumer`. `assign` and `fetch` are for one without topics; the others work
for the queues of a group's member as well.
"""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import anyio

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.client.assigned_queue import HeldQueue
from rmq.client.client_owner import Sharer
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import ClientClosed, NotAssigned
from rmq.client.members import GroupMember
from rmq.client.namespaces import wrap
from rmq.client.puller import Puller
from rmq.client.subscription import Sql, subscription


class GivenQueues(Sharer):
    """See above."""

    member: GroupMember
    puller: Puller
    _expressions: dict[str, str | Sql]
    _is_assigned: bool
    _silent: bool
    _unplaced: Sequence[MessageQueue]

    @abstractmethod
    async def next_handed_out(self, count: int) -> list[ReceivedMessage]:
        """Return messages as soon as there are some; none at the end."""

    @abstractmethod
    def released(self, message: ReceivedMessage) -> None:
        """Let the queue of a message of an ordered group go on."""

    def _raise_failure(self) -> None:
        if self.puller.failure is not None:
            raise self.puller.failure

    def _subscribe(self, topic: str, expression: str | Sql = "*") -> None:
        wire_topic = wrap(self.client.namespace, topic)
        self.member.subscriptions[topic] = subscription(wire_topic, expression)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that can be read."""
        self._check()
        return list((await self.client.route(topic)).readable)

    def assign(
        self, queues: Sequence[MessageQueue], expression: str | Sql = "*"
    ) -> None:
        """Have these queues from now on, and no others; only without `topics`.

        They begin where the group has committed, or at `start`; see `seek`. The
        expression counts for topics that are new here.
        """
        self._check()
        if self._expressions:
            raise ClientClosed("this consumer has topics: its queues are its share")
        self._is_assigned, self.member.needs_locks = True, False
        wanted = set(queues)
        for held in list(self.member.held.values()):
            if held.queue not in wanted:
                held.revoke()
                del self.member.held[held.queue]
        for queue in queues:
            if queue.topic not in self.member.subscriptions:
                self._subscribe(queue.topic, expression)
        self._unplaced = [each for each in queues if each not in self.member.held]

    async def _position(self) -> None:
        """Find where assigned queues begin."""
        unknown, self._unplaced = self._unplaced, []
        if unknown:
            await self.client.beat()
        for queue in unknown:
            if queue not in self.member.held:
                offset = await self.member.start_of(queue)
                self.puller.pull(self.member.hold(queue, offset))

    async def fetch(
        self, max_messages: int = 256, timeout_s: float = 5.0
    ) -> list[ReceivedMessage]:
        """Return messages, some as soon as there are any; none after the time-out.

        They count as consumed; `commit` has the group continue after them.
        """
        self._check()
        await self._position()
        messages: list[ReceivedMessage] = []
        with anyio.move_on_after(timeout_s):
            messages = await self.next_handed_out(max_messages)
        self._raise_failure()
        for message in messages:
            message.ack()
        if messages:
            self.released(messages[0])
        return messages

    async def _held(self, queue: MessageQueue) -> HeldQueue:
        self._check()
        await self._position()
        held = self.member.held.get(queue)
        if held is None:
            raise NotAssigned(queue)
        return held

    async def seek(
        self, queue: MessageQueue, to: int | datetime | Literal["first", "last"]
    ) -> None:
        """Go on at an offset, at a time, at the first message or after the last."""
        if queue in self._unplaced and queue not in self.member.held:
            self._unplaced = [each for each in self._unplaced if each != queue]
            await self.client.beat()
            held = self.member.hold(queue, 0)
        else:
            held = await self._held(queue)
        held.reset(await self.member.offset_of(queue, to))
        self.puller.pull(held)

    async def pause(self, queues: Sequence[MessageQueue]) -> None:
        """Fetch no more of some queues; what is here still comes."""
        for queue in queues:
            (await self._held(queue)).is_paused = True

    async def resume(self, queues: Sequence[MessageQueue]) -> None:
        """Fetch of them again."""
        for queue in queues:
            held = await self._held(queue)
            held.is_paused = False
            self.puller.pull(held)

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset that `commit` would commit."""
        return (await self._held(queue)).state.committable

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group has committed; None for a new group."""
        self._check()
        return await self.member.committed(queue, is_exact=True)

    async def commit(self) -> None:
        """Have the group continue after all that is acknowledged."""
        self._check()
        if not self._silent:
            await self.member.commit()

    def lag(self) -> dict[MessageQueue, int]:
        """Return, for each of our queues, how many messages are not yet consumed."""
        return {
            each.queue: max(each.max_offset - each.state.committable, 0)
            for each in self.member.held.values()
        }

    def assignment(self) -> list[MessageQueue]:
        """Return our queues; number -1 is all queues of a broker that we pop."""
        held = [each.queue for each in self.member.held.values()]
        popper = self.member.popper
        return held if popper is None else [*held, *popper.queues]
