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
from rmq_plugins.client.native_locks import MAX_KEPT_SIZE

MAX_QUEUES: Final = 16_384
"""Maximum number of queues of one request."""

MAX_NAME_LENGTH: Final = 1_024
"""Maximum characters of a client's id or a broker's name."""

MAX_KEPT: Final = 256
"""Maximum number of request bodies whose content is kept: an orderly consumer sends the
same body every 20 s.
"""


class WantedLocks(NamedTuple):
    """The content of a request, and the answer's body if it concerns all queues."""

    group: str
    client_id: str
    queues: list[MessageQueue]
    full_answer: bytes


class LockHandler:
    """Known in Java as the lock requests of `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._locks = broker.queue_locks
        self._connection_of = broker.connection_of

    def lock_queues(self, request: Command, connection: Connection) -> Command:
        """Lock queues; answer the requested queues that the client holds now."""
        is_short = len(request.body) <= MAX_KEPT_SIZE
        wanted = (_parse_kept if is_short else _parse)(request.body)
        return request.reply(body=self._lock(wanted, connection))

    def unlock_queues(self, request: Command, connection: Connection) -> Command:
        """Unlock queues; answer success even if the client held no lock."""
        is_short = len(request.body) <= MAX_KEPT_SIZE
        wanted = (_parse_kept_unlock if is_short else _parse_unlock)(request.body)
        return request.reply(body=self._unlock(wanted))

    # -- for compiled code, which serves bodies up to MAX_KEPT_SIZE

    def find_locked(self, body: bytes, token: int) -> bytes | None:
        """Lock queues and return the answer's body; None if Python has to answer."""
        connection = self._connection_of(token)
        return None if connection is None else self._lock(_parse_kept(body), connection)

    def find_unlocked(self, body: bytes, _token: int) -> bytes:
        """Unlock queues and return the answer's body."""
        return self._unlock(_parse_kept_unlock(body))

    # -- the locks

    def _lock(self, wanted: WantedLocks, connection: Connection) -> bytes:
        """Lock queues; return the answer's body."""
        client = connection.remote_address
        locked = self._locks.lock(wanted.group, wanted.client_id, wanted.queues, client)
        if len(locked) == len(wanted.queues):
            return wanted.full_answer
        return LockBatchResponseBody(locked=locked).encode()

    def _unlock(self, wanted: WantedLocks) -> bytes:
        self._locks.unlock(wanted.group, wanted.client_id, wanted.queues)
        return wanted.full_answer


def _parse(text: bytes) -> WantedLocks:
    """Read and check the body of a request for locks."""
    body = LockBatchRequestBody.decode(text)
    group, client_id = _check_body(body)
    answer = LockBatchResponseBody(locked=body.mq_set).encode()
    return WantedLocks(group, client_id, body.mq_set, answer)


def _parse_unlock(text: bytes) -> WantedLocks:
    """Read and check the body of a request that ends locks."""
    body = UnlockBatchRequestBody.decode(text)
    group, client_id = _check_body(body)
    return WantedLocks(group, client_id, body.mq_set, b"")


_parse_kept = lru_cache(MAX_KEPT)(_parse)
_parse_kept_unlock = lru_cache(MAX_KEPT)(_parse_unlock)


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
