"""Requests 200, 201 and 352: consumer groups as tools see and change them."""

from collections.abc import Mapping
from typing import Final

from rmq.broker.context import BrokerContext, Connection
from rmq.errors import RequestRejected
from rmq.protocol.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.groups import (
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from rmq.protocol.topics import validate_group
from rmq_plugins.admin.paging import page

MAX_RETRY_QUEUES: Final = 65_536


class GroupHandler:
    """The group part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._groups = broker.groups

    def update(self, request: Command, connection: Connection) -> Command:
        """Create a group or change it; no body changes nothing, as in Java."""
        if request.body:
            config = SubscriptionGroupConfig.decode(request.body)
            validate_group(config.group_name)
            _check(config)
            self._groups.update(config)
        return request.reply()

    def all(self, request: Command, connection: Connection) -> Command:
        """Answer the table of groups, or the page of it that the header asks for."""
        groups: Mapping[str, SubscriptionGroupConfig] = self._groups.all()
        if not groups:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "No subscription group in this broker"
            )
        header = request.header(GetAllSubscriptionGroupRequestHeader)
        shown = page(groups, header.group_seq, header.max_group_num)
        body = SubscriptionGroupWrapper(
            data_version=self._groups.data_version,
            subscription_group_table=shown,
            forbidden_table=self._groups.forbidden,
        )
        return request.reply(
            header=GetAllSubscriptionGroupResponseHeader(total_group_num=len(groups)),
            body=body.encode(),
        )

    def one(self, request: Command, connection: Connection) -> Command:
        """Answer one group; like a consumer's, the question may create it."""
        name = request.header(GetSubscriptionGroupConfigRequestHeader).group
        config = self._groups.find(name)
        if config is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"No group in this broker. group: {name}",
            )
        return request.reply(body=config.encode())


def _check(config: SubscriptionGroupConfig) -> None:
    if not 0 <= config.retry_queue_nums <= MAX_RETRY_QUEUES:
        raise RequestRejected(
            ResponseCode.INVALID_PARAMETER,
            f"group {config.group_name}: retryQueueNums is {config.retry_queue_nums}, "
            f"allowed are 0 to {MAX_RETRY_QUEUES}",
        )
