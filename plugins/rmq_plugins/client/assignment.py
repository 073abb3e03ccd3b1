"""Request 400: the queues of a topic that a client of a group consumes.

Members ask instead of computing: members and queues are sorted, so that all get shares
of the same division. The queues are those of this broker.
"""

from collections.abc import Callable, Sequence
from typing import Final

from rmq.errors import RequestRejected
from rmq.plugin import BrokerContext, Connection
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.queues import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command

MODE: Final = "PULL"
AVERAGE: Final = "AVG"
IN_CIRCLE: Final = "AVG_BY_CIRCLE"
BROADCASTING: Final = "BROADCASTING"

Queues = Sequence[MessageQueue]


class AssignmentHandler:
    """Known in Java as `QueryAssignmentProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._topics = broker.topics
        self._consumers = broker.consumers
        self._broker_name = broker.config.broker_name

    def assign(self, request: Command, connection: Connection) -> Command:
        """Answer the client's share; no list if the share is unknown."""
        body = QueryAssignmentRequestBody.decode(request.body)
        share = self._share(body)
        assignments = None
        if share is not None:
            assignments = [
                MessageQueueAssignment(message_queue=queue, mode=MODE)
                for queue in share
            ]
        answer = QueryAssignmentResponseBody(message_queue_assignments=assignments)
        return request.reply(body=answer.encode())

    def _share(self, body: QueryAssignmentRequestBody) -> Queues | None:
        topic = body.topic or ""
        config = self._topics.get(topic)
        if config is None:
            return None
        queues = [
            MessageQueue(topic=topic, broker_name=self._broker_name, queue_id=queue_id)
            for queue_id in range(config.read_queue_nums)
        ]
        if body.message_model == BROADCASTING:
            return queues
        client_ids = sorted(self._consumers.client_ids(body.consumer_group or ""))
        if not client_ids:
            return None
        if body.client_id not in client_ids:
            return []
        return _strategy(body.strategy_name)(
            queues, client_ids.index(body.client_id), len(client_ids)
        )


def allocate_average(queues: Queues, index: int, members: int) -> Queues:
    """Return adjacent queues; the first members get one more if there is a remainder.

    >>> allocate_average("abcdefgh", 0, 3)
    'abc'
    >>> allocate_average("abcdefgh", 2, 3)
    'gh'
    """
    assert 0 <= index < members, f"member {index} of {members}"
    size, rest = divmod(len(queues), members)
    start = index * size + min(index, rest)
    return queues[start : start + size + (index < rest)]


def allocate_in_circle(queues: Queues, index: int, members: int) -> Queues:
    """Return every n-th queue, n being the number of members."""
    assert 0 <= index < members, f"member {index} of {members}"
    return queues[index::members]


def _strategy(name: str | None) -> Callable[[Queues, int, int], Queues]:
    if name is None or name == AVERAGE:
        return allocate_average
    if name == IN_CIRCLE:
        return allocate_in_circle
    raise RequestRejected(
        ResponseCode.SYSTEM_ERROR, f"unsupported message queue strategy {name}"
    )
