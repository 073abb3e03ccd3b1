"""Request 400: the queues of a topic that a client of a group consumes.

The broker divides the queues of the topic's route among the members, so that clients
need not do this. A client asks any broker of the topic. All brokers sort the same
members and queues, so the members get shares of one division.
"""

from collections.abc import Callable, Sequence
from typing import Final

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.queues import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import is_readable
from rmq.protocol.topics import is_lmq, is_retry_topic

PULL: Final = "PULL"
POP: Final = "POP"
ANY_QUEUE: Final = -1
AVERAGE: Final = "AVG"
IN_CIRCLE: Final = "AVG_BY_CIRCLE"
BROADCASTING: Final = "BROADCASTING"

MAX_QUEUES: Final = 100_000
"""Limit of the queues of one broker; name servers report any number."""

Queues = Sequence[MessageQueue]


class AssignmentHandler:
    """Known in Java as `QueryAssignmentProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._topics = broker.topics
        self._consumers = broker.consumers
        self._routes = broker.name_servers.directory.recent_routes
        self._broker_name = broker.config.broker_name
        self._config = broker.config
        self._facts = broker.facts

    async def assign_queues(self, request: Command, connection: Connection) -> Command:
        """Answer the client's queues; no list if the topic or the group is unknown."""
        body = QueryAssignmentRequestBody.decode(request.body)
        mode, others = self._choose_mode(body.topic or "", body.consumer_group or "")
        queues = await self._find_queues(body.topic or "")
        share = None
        if queues is not None:
            share = self._choose_queues(body, queues, others if mode == POP else None)
        assignments = None
        if share is not None:
            assignments = [
                MessageQueueAssignment(message_queue=queue, mode=mode)
                for queue in share
            ]
        answer = QueryAssignmentResponseBody(message_queue_assignments=assignments)
        return request.reply(body=answer.encode())

    def _choose_mode(self, topic: str, group: str) -> tuple[str, int]:
        """Return a group's mode, and the number of other members' queues that a member
        pops.
        """
        config = self._config
        if is_retry_topic(topic):
            return PULL, 0
        modes = self._facts("requestModes") or {}
        known = modes.get(topic, {}).get(group)
        if known is not None:
            return known.mode, known.pop_share_queue_num
        mode = POP if config.default_message_request_mode == POP else PULL
        return mode, config.default_pop_share_queue_num

    async def _find_queues(self, topic: str) -> Queues | None:
        """Return the readable queues of a topic, in the order of brokers and numbers.

        Without a route, and for light message queues and static topics, it returns the
        queues of this broker. None if the topic is unknown.
        """
        found: dict[str, int] = {}
        known = self._topics.get(topic)
        if not is_lmq(topic):
            age_s = self._config.route_age_ms / 1_000
            route = await self._routes.get(topic, age_s)
            if route is not None and not route.topic_queue_mapping_by_broker:
                found = {
                    each.broker_name: each.read_queue_nums * is_readable(each.perm)
                    for each in route.queue_datas
                    if each.broker_name is not None
                }
        if known is not None:  # it may not be registered yet
            found.setdefault(self._broker_name, known.read_queue_nums)
        if not found:
            return None
        return [
            MessageQueue(topic=topic, broker_name=name, queue_id=queue_id)
            for name in sorted(found)
            for queue_id in range(min(found[name], MAX_QUEUES))
        ]

    def _choose_queues(
        self, body: QueryAssignmentRequestBody, queues: Queues, others: int | None
    ) -> Queues | None:
        """Return the client's queues; with POP also queues of `others` more members."""
        topic = body.topic or ""
        is_shared = self._config.server_load_balancer_enable
        if body.message_model == BROADCASTING or not is_shared:
            return queues
        client_ids = sorted(self._consumers.client_ids(body.consumer_group or ""))
        if not client_ids:
            return None
        if body.client_id not in client_ids:
            return []
        strategy, count = _find_strategy(body.strategy_name), len(client_ids)
        index = client_ids.index(body.client_id)
        if others is None:
            return strategy(queues, index, count)
        if others <= 0 or others >= count - 1:
            return [
                MessageQueue(topic=topic, broker_name=name, queue_id=ANY_QUEUE)
                for name in dict.fromkeys(each.broker_name for each in queues)
            ]
        if count > len(queues):
            return [queues[index % len(queues)]] if queues else []
        members = ((index + step) % count for step in range(others + 1))
        return [queue for each in members for queue in strategy(queues, each, count)]


def allocate_average(queues: Queues, index: int, members: int) -> Queues:
    """Return adjacent queues; if there is a remainder, the first members get one queue
    more.

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


def _find_strategy(name: str | None) -> Callable[[Queues, int, int], Queues]:
    if name is None or name == AVERAGE:
        return allocate_average
    if name == IN_CIRCLE:
        return allocate_in_circle
    raise RequestRejected(
        ResponseCode.SYSTEM_ERROR, f"unsupported message queue strategy {name}"
    )
