"""Requests 41 and 42: an orderly consumer locks queues, or unlocks them.

A queue that another client holds is missing in the answer; the consumer waits and asks
again.
"""

from typing import Final

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.topics import validate_group, validate_topic

MAX_QUEUES: Final = 16_384
"""Maximum number of queues of one request."""

MAX_NAME_LENGTH: Final = 1_024
"""Maximum characters of a client's id or a broker's name."""


class LockHandler:
    """Known in Java as the lock requests of `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._locks = broker.queue_locks

    def lock_queues(self, request: Command, connection: Connection) -> Command:
        """Lock queues; answer the requested ones that the client holds now."""
        body = LockBatchRequestBody.decode(request.body)
        group, client_id = _check_body(body)
        client = connection.remote_address
        locked = self._locks.lock(group, client_id, body.mq_set, client)
        return request.reply(body=LockBatchResponseBody(locked=locked).encode())

    def unlock_queues(self, request: Command, connection: Connection) -> Command:
        """Unlock queues; success even if the client held none of them."""
        body = UnlockBatchRequestBody.decode(request.body)
        group, client_id = _check_body(body)
        self._locks.unlock(group, client_id, body.mq_set)
        return request.reply()


def _check_body(body: LockBatchRequestBody) -> tuple[str, str]:
    """Return group and client id; refuse names and sizes that are not valid."""
    validate_group(body.consumer_group)
    if not body.client_id or len(body.client_id) > MAX_NAME_LENGTH:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            "LockBatchRequestBody: clientId is missing or longer than "
            f"{MAX_NAME_LENGTH} characters",
        )
    if len(body.mq_set) > MAX_QUEUES:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            f"LockBatchRequestBody: more than {MAX_QUEUES} queues; lock them in "
            "several requests",
        )
    for queue in body.mq_set:
        validate_topic(queue.topic)
        if len(queue.broker_name or "") > MAX_NAME_LENGTH:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                "LockBatchRequestBody: brokerName is longer than "
                f"{MAX_NAME_LENGTH} characters",
            )
    return body.consumer_group or "", body.client_id
