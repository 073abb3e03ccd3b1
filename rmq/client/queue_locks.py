"""QueueLocks: the locks of an ordered member at the brokers of its queues.

Invariant: a queue that a broker may have locked for this member is in `taken` until the
broker has unlocked it, also if the answer to its lock was lost.
"""

from collections.abc import Sequence
from contextlib import suppress

from rmq.client.client import Client
from rmq.client.core.routes import MessageQueue
from rmq.client.namespaces import named, queue_of
from rmq.core.errors import RmqError
from rmq.protocol.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command


class QueueLocks:
    """See above; known in Java as part of `RebalanceImpl`."""

    def __init__(self, client: Client, group: str) -> None:
        self.taken: set[MessageQueue] = set()
        self._client = client
        self._group = group

    async def take(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Return those that are locked for us now."""
        locked: set[MessageQueue] = set()
        for address, part in self._by_master(queues).items():
            body = self._fill(LockBatchRequestBody(), part)
            request = Command.request(RequestCode.LOCK_BATCH_MQ, body=body.encode())
            self.taken.update(part)
            with suppress(RmqError):
                answer = await self._client.ask(address, request)
                if answer.code == ResponseCode.SUCCESS:
                    names = LockBatchResponseBody.decode(answer.body).locked
                    found = {queue_of(self._client.namespace, each) for each in names}
                    self.taken.difference_update(set(part) - found)
                    locked |= found
        return locked

    async def give_back(self, queues: Sequence[MessageQueue]) -> None:
        """Let others have queues at once."""
        for address, part in self._by_master(queues).items():
            body = self._fill(UnlockBatchRequestBody(), part)
            request = Command.request(RequestCode.UNLOCK_BATCH_MQ, body=body.encode())
            with suppress(RmqError):
                answer = await self._client.ask(address, request)
                if answer.code == ResponseCode.SUCCESS:
                    self.taken.difference_update(part)

    def _fill(
        self, body: LockBatchRequestBody, queues: Sequence[MessageQueue]
    ) -> LockBatchRequestBody:
        body.consumer_group = self._group
        body.client_id = self._client.client_id
        body.mq_set = [named(self._client.namespace, each) for each in queues]
        return body

    def _by_master(
        self, queues: Sequence[MessageQueue]
    ) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            route = self._client.routes.get(queue.topic)
            address = route.master(queue.broker) if route else None
            if address is not None:
                found.setdefault(address, []).append(queue)
        return found
