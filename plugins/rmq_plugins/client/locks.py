"""Requests 41 and 42: an orderly consumer locks queues, or unlocks them.

A queue that another client holds is missing in the answer; the consumer waits and asks
again.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.bodies.common import MessageQueue
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

MAX_KEPT: Final = 256
MAX_KEPT_SIZE: Final = 4_096
"""Number and size of request bodies whose content is kept: an orderly consumer sends
the same one every 20 s.
"""


class WantedLocks(NamedTuple):
    """The content of a request, and the answer if the client gets all queues."""

    group: str
    client_id: str
    queues: list[MessageQueue]
    full_answer: bytes


class LockHandler:
    """Known in Java as the lock requests of `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._locks = broker.queue_locks

    def lock_queues(self, request: Command, connection: Connection) -> Command:
        """Lock queues; answer the requested ones that the client holds now."""
        is_short = len(request.body) <= MAX_KEPT_SIZE
        wanted = (_parse_kept if is_short else _parse)(request.body)
        client = connection.remote_address
        locked = self._locks.lock(wanted.group, wanted.client_id, wanted.queues, client)
        if len(locked) == len(wanted.queues):
            return request.reply(body=wanted.full_answer)
        return request.reply(body=LockBatchResponseBody(locked=locked).encode())

    def unlock_queues(self, request: Command, connection: Connection) -> Command:
        """Unlock queues; success even if the client held none of them."""
        body = UnlockBatchRequestBody.decode(request.body)
        group, client_id = _check_body(body)
        self._locks.unlock(group, client_id, body.mq_set)
        return request.reply()


def _parse(text: bytes) -> WantedLocks:
    """Read and check the body of a request for locks."""
    body = LockBatchRequestBody.decode(text)
    group, client_id = _check_body(body)
    answer = LockBatchResponseBody(locked=body.mq_set).encode()
    return WantedLocks(group, client_id, body.mq_set, answer)


_parse_kept = lru_cache(MAX_KEPT)(_parse)


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
