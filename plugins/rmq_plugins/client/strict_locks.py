"""Locks with `lockInStrictMode`: more than half of the group's brokers lock a queue.

The broker locks the queues itself, then asks the other brokers of its group. So a queue
has one owner, too, while clients use both the master and a slave that acts for it.
"""

from collections import Counter

from msgspec.structs import replace

from rmq.plugin import BrokerContext, Connection
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.queues import LockBatchRequestBody, LockBatchResponseBody
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq_plugins.client.locks import LockHandler


class StrictLockHandler:
    """Requests 41 and 42, for a group that agrees on locks."""

    def __init__(self, broker: BrokerContext) -> None:
        self._own = LockHandler(broker)
        self._replicas = broker.replicas

    async def lock_queues(self, request: Command, connection: Connection) -> Command:
        """Lock queues; answer the queues that enough brokers have locked."""
        own = self._own.lock_queues(request, connection)
        wanted = LockBatchRequestBody.decode(request.body)
        if wanted.only_this_broker:
            return own
        locked = LockBatchResponseBody.decode(own.body).locked
        votes = Counter(set(locked))
        for answer in await self._ask_others(request, wanted, locked):
            if answer.code == ResponseCode.SUCCESS:
                theirs = LockBatchResponseBody.decode(answer.body).locked
                votes.update(set(theirs))
        quorum = self._replicas.lock_quorum
        agreed = [queue for queue in locked if votes[queue] >= quorum]
        return request.reply(body=LockBatchResponseBody(locked=agreed).encode())

    async def unlock_queues(self, request: Command, connection: Connection) -> Command:
        """Unlock queues at all brokers of the group."""
        own = self._own.unlock_queues(request, connection)
        wanted = LockBatchRequestBody.decode(request.body)
        if not wanted.only_this_broker:
            await self._ask_others(request, wanted, wanted.mq_set)
        return own

    async def _ask_others(
        self,
        request: Command,
        wanted: LockBatchRequestBody,
        queues: list[MessageQueue],
    ) -> list[Command]:
        """Send the request to the other brokers, for some queues."""
        if not queues:
            return []
        body = replace(wanted, only_this_broker=True, mq_set=queues).encode()
        code = RequestCode(request.code)
        return await self._replicas.ask_members(Command.request(code, body=body))
