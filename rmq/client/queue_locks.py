"""QueueLocks: the locks of an ordered group at brokers; in Java in `RebalanceImpl`.

Invariant: `held` has each queue that a broker may have locked for this member, until
the broker has unlocked it. `held` also has queues whose lock request got no answer.
"""

from collections.abc import Sequence
from contextlib import suppress

from rmq.client.client import Client
from rmq.client.core.routes import MessageQueue
from rmq.client.namespaces import queue_of, wire_queue
from rmq.core.errors import RmqError
from rmq.protocol.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command


class QueueLocks:
    """The locks of one consumer; `group` is the name on the wire."""

    def __init__(self, client: Client, group: str) -> None:
        self.held: set[MessageQueue] = set()
        self._client = client
        self._group = group

    async def acquire(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Lock queues; return the queues that are locked for this member now."""
        locked: set[MessageQueue] = set()
        for address, part in self._by_master(queues).items():
            body = self._fill_body(LockBatchRequestBody(), part)
            request = Command.request(RequestCode.LOCK_BATCH_MQ, body=body.encode())
            self.held.update(part)
            with suppress(RmqError):
                answer = await self._client.request(address, request)
                if answer.code == ResponseCode.SUCCESS:
                    names = LockBatchResponseBody.decode(answer.body).locked
                    found = {queue_of(self._client.namespace, each) for each in names}
                    self.held.difference_update(set(part) - found)
                    locked |= found
        return locked

    async def release(self, queues: Sequence[MessageQueue]) -> None:
        """Unlock queues, so that other members get them at once."""
        for address, part in self._by_master(queues).items():
            body = self._fill_body(UnlockBatchRequestBody(), part)
            request = Command.request(RequestCode.UNLOCK_BATCH_MQ, body=body.encode())
            with suppress(RmqError):
                answer = await self._client.request(address, request)
                if answer.code == ResponseCode.SUCCESS:
                    self.held.difference_update(part)

    def _fill_body(
        self, body: LockBatchRequestBody, queues: Sequence[MessageQueue]
    ) -> LockBatchRequestBody:
        body.consumer_group = self._group
        body.client_id = self._client.client_id
        body.mq_set = [wire_queue(self._client.namespace, each) for each in queues]
        return body

    def _by_master(
        self, queues: Sequence[MessageQueue]
    ) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            route = self._client.routes.get(queue.topic)
            address = route.master_of(queue.broker) if route else None
            if address is not None:
                found.setdefault(address, []).append(queue)
        return found
