"""Transactions: half messages, their ends, and checks by the broker.

Known in Java as `TransactionMQProducer`. The broker stores a half message, but no
consumer sees it before the producer ends it with a commit (request 37). If the end is
lost, the broker asks a producer of the group (request 39), and its checker decides.
"""

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from rmq._fastpath.client.messages import ReceivedMessage, SendResult, decode_messages
from rmq._fastpath.client.packing import PackedMessage
from rmq.client.client import Client
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import ClientError, TransactionFailed
from rmq.client.message import Message
from rmq.client.namespaces import unwrap, wrap
from rmq.client.packing import Packer
from rmq.core.errors import PeerError
from rmq.core.logs import Foreign
from rmq.outgoing.connection import Connection, steady_ms
from rmq.protocol import flags
from rmq.protocol import properties as names
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.compression import open_body
from rmq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)

logger = logging.getLogger(__name__)

Checker = Callable[[ReceivedMessage], Awaitable[bool | None] | bool | None]
"""Returns whether a half message is committed; None if it is not known yet."""

END_TIMEOUT_MS: Final = 3_000
ENDS: Final = {
    True: flags.TRANSACTION_COMMIT,
    False: flags.TRANSACTION_ROLLBACK,
    None: flags.TRANSACTION_NONE,
}


class Transaction:
    """An open transaction; after `rollback` the end of the block rolls back."""

    def __init__(self, result: SendResult) -> None:
        self.result = result
        self.is_committed: bool | None = True

    @property
    def msg_id(self) -> str:
        """The id of the message, by which the checker identifies it."""
        return self.result.msg_id

    def leave_open(self) -> None:
        """Leave the transaction open after the block: the checker decides later."""
        self.is_committed = None

    def rollback(self) -> None:
        """Drop the message at the end of the block."""
        self.is_committed = False


class Transactions:
    """The transactions of one producer group."""

    def __init__(
        self, client: Client, group: str, checker: Checker | None, timeout_ms: int
    ) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._group = group
        self._checker = checker

    def pack(self, packer: Packer, message: Message) -> PackedMessage:
        """Pack a half message."""
        group = wrap(self._client.namespace, self._group)
        extra = {names.TRAN_MSG: "true", names.PRODUCER_GROUP: group}
        return packer.pack(message, extra, sys_flag=flags.TRANSACTION_PREPARED)

    @asynccontextmanager
    async def open_transaction(self, result: SendResult) -> AsyncIterator[Transaction]:
        """Commit at the end of the block; roll back after an exception."""
        transaction = Transaction(result)
        is_left = False
        try:
            yield transaction
            is_left = True
        finally:
            if not is_left:
                transaction.rollback()
                await self._roll_back(result)
        if transaction.is_committed is not None:
            await self._send_end(result, is_committed=transaction.is_committed)

    async def _roll_back(self, result: SendResult) -> None:
        """Roll back after an exception; an error here is only logged."""
        try:
            await self._send_end(result, is_committed=False)
        except TransactionFailed as error:
            logger.warning("%s", error)

    async def _send_end(self, result: SendResult, *, is_committed: bool) -> None:
        queue = result.queue
        assert isinstance(queue, MessageQueue)
        header = EndTransactionRequestHeader(
            topic=wrap(self._client.namespace, queue.topic),
            producer_group=wrap(self._client.namespace, self._group),
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=int(result.offset_msg_id[-16:], 16),
            commit_or_rollback=ENDS[is_committed],
            msg_id=result.msg_id,
            transaction_id=result.transaction_id,
        )
        request = Command.request(RequestCode.END_TRANSACTION, header)
        text = f"cannot end transaction {result.msg_id} at broker {queue.broker}"
        try:
            connection = await self._connect(queue)
            answer = await connection.request(request, END_TIMEOUT_MS)
        except (PeerError, ClientError, TimeoutError) as error:
            raise TransactionFailed(
                f"{text}: {error}; the broker will check the transaction later"
            ) from error
        if answer.code != ResponseCode.SUCCESS:
            raise TransactionFailed(f"{text}: {answer.code}: {answer.remark}")

    async def _connect(self, queue: MessageQueue) -> Connection:
        """Return a connection to the master of a queue; wait while the master is
        away.
        """

        async def connect() -> Connection:
            await self._client.refresh(queue.topic)
            route = await self._client.route_to_send(queue.topic)
            return await self._client.connect(route.master_of(queue.broker) or "")

        route = self._client.routes.get(queue.topic)
        address = route.master_of(queue.broker) if route is not None else None
        found = self._client.connections.get(address or "")
        if found is not None and found.is_open:
            return found
        deadline_ms = steady_ms() + self._timeout_ms
        key = "transaction", queue.topic, queue.broker
        return await self._client.retries.call(key, connect, deadline_ms)

    async def on_request(
        self, connection: Connection, request: Command
    ) -> Command | None:
        """Answer 39: end the transaction by the decision of the checker."""
        if request.code != RequestCode.CHECK_TRANSACTION_STATE:
            return None
        if self._checker is None:
            return None
        asked = request.header(CheckTransactionStateRequestHeader)
        (half,) = decode_messages(request.body, "", None, inflate=open_body)
        if half.properties.get(names.PRODUCER_GROUP) != wrap(
            self._client.namespace, self._group
        ):
            return None
        topic = half.properties.get(names.REAL_TOPIC, asked.topic or "")
        (half,) = decode_messages(
            request.body, unwrap(self._client.namespace, topic), None, inflate=open_body
        )
        found = self._checker(half)
        is_committed = await found if inspect.isawaitable(found) else found
        header = EndTransactionRequestHeader(
            topic=topic,
            producer_group=wrap(self._client.namespace, self._group),
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=ENDS[is_committed],
            from_transaction_check=True,
            msg_id=asked.msg_id or half.msg_id,
            transaction_id=asked.transaction_id,
        )
        if connection.is_open:
            connection.oneway(Command.request(RequestCode.END_TRANSACTION, header))
        else:
            logger.warning(
                "cannot end transaction %s: the connection to %s is closed",
                half.msg_id,
                Foreign(connection),
            )
        return request.reply()
