"""RemoteEscape: an acting master sends messages to other broker groups.

A slave cannot store messages. With `enableRemoteEscape` an acting master sends due
messages and open half messages to another group. It finds the group in the route of the
topic. These messages change their group and queue, so they lose their order. The other
group stores a message before it answers; an attempt without an answer is repeated, and
may store the message twice.
"""

import itertools
import logging
from typing import Final, NamedTuple

from rmq.cluster.directory import MASTER, Directory
from rmq.cluster.group_role import GroupRole
from rmq.core.errors import PeerError, RequestRejected
from rmq.core.logs import Foreign
from rmq.protocol import properties as names
from rmq.protocol.bodies.route import TopicRouteData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import CLIENT_FLAGS, TRANSACTION_PREPARED, is_writable
from rmq.protocol.headers.send import SendMessageRequestHeaderV2
from rmq.protocol.message import Message

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000
ROUTE_KNOWN_S: Final = 10.0
"""Time for which a route is cached; other groups may start and stop."""

_LEFT_OUT: Final = (
    names.DELAY,
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
    names.TIMER_DELIVER_MS,
    names.TRAN_MSG,
)
"""Properties for which the other broker would hold the message back again."""


class Target(NamedTuple):
    """A queue of another group."""

    address: str
    broker: str
    queue_id: int


class RemoteEscape:
    """Known in Java as `EscapeBridge`."""

    def __init__(self, role: GroupRole, directory: Directory, broker_name: str) -> None:
        self._role = role
        self._directory = directory
        self._broker_name = broker_name
        self._turns = itertools.count()

    @property
    def term(self) -> int:
        """The number of the term in which this broker acts as the master; else 0."""
        return self._role.acting_terms if self._role.is_acting else 0

    async def send(self, message: Message) -> bool:
        """Store a message in its topic at another group; False if this failed."""
        targets = await self._find_targets(message.topic)
        if not targets:
            return False
        target = targets[next(self._turns) % len(targets)]
        request = self._request_of(message, target)
        try:
            answer = await self._directory.send_request(
                target.address, request, TIMEOUT_MS
            )
        except (PeerError, RequestRejected) as error:
            reason = str(error)
        else:
            if answer.code == ResponseCode.SUCCESS:
                return True
            reason = f"{answer.code}: {answer.remark}"
        logger.warning(
            "broker %s does not store a message of topic %s for this acting master: %s",
            target.broker,
            Foreign(message.topic),
            Foreign(reason),
        )
        self._directory.recent_routes.forget_route(message.topic)
        return False

    async def _find_targets(self, topic: str) -> list[Target]:
        route = await self._directory.recent_routes.get(topic, ROUTE_KNOWN_S)
        targets = [] if route is None else _targets_of(route, self._broker_name)
        if not targets:
            self._directory.recent_routes.forget_route(topic)
        return targets

    def _request_of(self, message: Message, target: Target) -> Command:
        if not message.is_half:
            for name in _LEFT_OUT:
                message.remove_property(name)
        message.set_property(names.WAIT, "false")
        header = SendMessageRequestHeaderV2(
            producer_group=message.properties.get(
                names.PRODUCER_GROUP,
                f"InnerProducerGroup_{self._broker_name}_{self._role.broker_id}",
            ),
            topic=message.topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=target.queue_id,
            sys_flag=message.sys_flag
            & (CLIENT_FLAGS | TRANSACTION_PREPARED * message.is_half),
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=message.stored_properties(),
            reconsume_times=message.reconsume_times,
            unit_mode=False,
            batch=False,
            broker_name=target.broker,
        )
        code = RequestCode.SEND_MESSAGE_V2
        return Command.request(code, header, body=message.body)


def _targets_of(route: TopicRouteData, own_name: str) -> list[Target]:
    """Return the writable queues of the other groups that have a master."""
    masters = {
        each.broker_name: each.broker_addrs[MASTER]
        for each in route.broker_datas
        if MASTER in each.broker_addrs
    }
    return [
        Target(masters[each.broker_name], each.broker_name, queue_id)
        for each in route.queue_datas
        if each.broker_name is not None
        and each.broker_name in masters
        and each.broker_name != own_name
        and is_writable(each.perm)
        for queue_id in range(each.write_queue_nums)
    ]
