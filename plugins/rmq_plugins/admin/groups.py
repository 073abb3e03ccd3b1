"""Requests 200, 201, 207, 225, 352 and 353: tools show and change consumer groups."""

from collections.abc import Mapping
from typing import Final

from rmq.plugin import BrokerContext, Connection, Foreign, Later, RequestRejected
from rmq.protocol.bodies.groups import (
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from rmq.protocol.bodies.statistics import GroupForbidden
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.groups import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from rmq.protocol.topics import retry_topic, validate_group, validate_topic
from rmq_plugins.admin.attributes import change_group_attributes
from rmq_plugins.admin.paging import page

MAX_RETRY_QUEUES: Final = 65_536
MAX_GROUPS_AT_ONCE: Final = 10_000
RETRY_POLICIES: Final = ("CUSTOMIZED", "EXPONENTIAL")


class GroupHandler:
    """The group part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._groups = broker.groups
        self._topics = broker.topics
        self._offsets = broker.offsets
        self._statistics = broker.statistics
        self._next_turn = broker.next_turn

    def update_group(self, request: Command, connection: Connection) -> Later:
        """Create or change a group; without a body change nothing, as in Java."""
        if request.body:
            config = SubscriptionGroupConfig.decode(request.body)
            with self._statistics.group_creations.time_block():
                self._store_configs([config])
        return self._groups.wait_saved(request.reply())

    def update_groups(self, request: Command, connection: Connection) -> Later:
        """Create or change several groups; refuse all if one is invalid."""
        configs = SubscriptionGroupList.decode(request.body).group_config_list
        if len(configs) > MAX_GROUPS_AT_ONCE:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"more than {MAX_GROUPS_AT_ONCE} groups in one request",
            )
        with self._statistics.group_creations.time_block():
            self._store_configs(configs)
        return self._groups.wait_saved(request.reply())

    def _store_configs(self, configs: list[SubscriptionGroupConfig]) -> None:
        for config in configs:
            validate_group(config.group_name)
            _check_retry_queues(config)
            _check_retry_policy(config)
            known = self._groups.get(config.group_name or "")
            current = {} if known is None else known.attributes
            config.attributes = change_group_attributes(current, config.attributes)
        for config in configs:
            self._groups.update(config)
            retries = retry_topic(config.group_name or "")
            self._topics.add_queues(retries, config.retry_queue_nums)

    async def delete_group(self, request: Command, connection: Connection) -> Command:
        """Delete a group, and its offsets if the request demands that."""
        header = request.header(DeleteSubscriptionGroupRequestHeader)
        self._groups.delete(header.group_name)
        if header.clean_offset or header.remove_offset:
            self._offsets.remove_group(header.group_name)
        for _ in self._statistics.remove_group(header.group_name):
            await self._next_turn()
        return await self._groups.wait_saved(request.reply())

    def forbid_topic(self, request: Command, connection: Connection) -> Command:
        """Forbid or allow a topic for a group; answer the current state."""
        header = request.header(UpdateGroupForbiddenRequestHeader)
        group, topic = header.group, header.topic
        if header.readable is not None:
            validate_topic(topic)
            self._groups.set_readable(group, topic, is_readable=header.readable)
        readable = not self._groups.is_forbidden(group, topic)
        body = GroupForbidden(group=group, topic=topic, readable=readable)
        return request.reply(body=body.encode())

    async def list_groups(self, request: Command, connection: Connection) -> Command:
        """Answer the table of groups, or the page of the table that the header
        names.
        """
        groups: Mapping[str, SubscriptionGroupConfig] = self._groups.all()
        if not groups:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "No subscription group in this broker"
            )
        header = request.header(GetAllSubscriptionGroupRequestHeader)
        body = SubscriptionGroupWrapper(
            data_version=self._groups.data_version,
            forbidden_table=self._groups.forbidden_topics,
        )
        if header.group_seq is None:
            text = await self._groups.fill_document(body)
        else:
            body.subscription_group_table = page(
                groups, header.group_seq, header.max_group_num
            )
            text = body.encode()
        return request.reply(
            header=GetAllSubscriptionGroupResponseHeader(total_group_num=len(groups)),
            body=text,
        )

    def get_group(self, request: Command, connection: Connection) -> Command:
        """Answer the configuration of a group; create the group if clients may create
        groups.
        """
        name = request.header(GetSubscriptionGroupConfigRequestHeader).group
        config = self._groups.find(name)
        if config is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                "No group in this broker",
            )
        return request.reply(body=config.encode())


def _check_retry_queues(config: SubscriptionGroupConfig) -> None:
    if not 0 <= config.retry_queue_nums <= MAX_RETRY_QUEUES:
        raise RequestRejected(
            ResponseCode.INVALID_PARAMETER,
            f"group {config.group_name}: retryQueueNums is {config.retry_queue_nums}, "
            f"allowed are 0 to {MAX_RETRY_QUEUES}",
        )


def _check_retry_policy(config: SubscriptionGroupConfig) -> None:
    kind = config.group_retry_policy.type
    if kind not in RETRY_POLICIES:
        raise RequestRejected(
            ResponseCode.INVALID_PARAMETER,
            f"group {config.group_name}: the type of the retry policy is "
            f"{Foreign(kind)}, allowed are {' and '.join(RETRY_POLICIES)}",
        )
