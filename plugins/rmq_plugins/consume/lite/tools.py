"""Requests 200074 to 200079: queries of tools about lite topics.

Known in Java as `LiteManagerProcessor`.
"""

import heapq
from typing import Final

from rmq.plugin import BrokerContext, Connection, QueueOffset, RequestRejected
from rmq.protocol.bodies.groups import OffsetWrapper, SubscriptionGroupConfig
from rmq.protocol.bodies.lite import (
    ClientGroup,
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfoResponseBody,
    LiteLagInfo,
)
from rmq.protocol.bodies.topics import TopicOffset
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.lite import (
    GetLiteClientInfoRequestHeader,
    GetLiteGroupInfoRequestHeader,
    GetLiteTopicInfoRequestHeader,
    GetParentTopicInfoRequestHeader,
    TriggerLiteDispatchRequestHeader,
)
from rmq.protocol.topics import lite_queue, split_lite_queue
from rmq_plugins.consume.answers import UNSET
from rmq_plugins.consume.lite.dispatch import LiteDispatch
from rmq_plugins.consume.lite.rules import bound_topic, expiration_minutes, is_lite
from rmq_plugins.consume.lite.sharding import Sharding
from rmq_plugins.consume.lite.tables import LiteTables

MAX_NAMES: Final = 10_000
"""Maximum number of lite topics in an answer, as in Java."""

STORE_TYPE: Final = "default"
TURN_SIZE: Final = 200
"""Number of lite topics that one query looks at before other tasks run."""


class LiteTools:
    """The answers, and the full dispatch that a tool requests."""

    def __init__(
        self,
        broker: BrokerContext,
        tables: LiteTables,
        dispatch: LiteDispatch,
        sharding: Sharding,
    ) -> None:
        self._topics = broker.topics
        self._groups = broker.groups
        self._offsets = broker.offsets
        self._messages = broker.messages
        self._consume_queues = broker.queues
        self._store_config = broker.store_config
        self._next_turn = broker.next_turn
        self._rules, self._queues, self._subscriptions, self._orders = tables
        self._dispatch = dispatch
        self._sharding = sharding

    async def show_broker(self, request: Command, connection: Connection) -> Command:
        """Answer the sizes of the tables, all parent topics, and their lite groups."""
        topics = {
            name: expiration_minutes(topic)
            for name, topic in self._topics.all().items()
            if is_lite(topic)
        }
        await self._next_turn()
        groups: dict[str, list[str]] = {}
        for name, group in self._groups.all().items():
            parent = bound_topic(group)
            if parent is not None:
                groups.setdefault(parent, []).append(name)
        body = GetBrokerLiteInfoResponseBody(
            store_type=STORE_TYPE,
            max_lmq_num=self._store_config.max_lmq_count,
            current_lmq_num=self._consume_queues.lmq_count,
            lite_subscription_count=self._subscriptions.count,
            order_info_count=len(self._orders),
            cq_table_size=len(self._consume_queues.topics()),
            offset_table_size=self._offsets.pair_count,
            event_map_size=len(self._dispatch.events),
            topic_meta=topics,
            group_meta=groups,
        )
        return request.reply(body=body.encode())

    def show_parent(self, request: Command, connection: Connection) -> Command:
        """Answer the groups and the number of lite topics of a parent topic."""
        name = request.header(GetParentTopicInfoRequestHeader).topic
        topic = self._rules.find_parent(name)
        groups = [
            group.group_name or ""
            for group in self._groups.all().values()
            if bound_topic(group) == name
        ]
        body = GetParentTopicInfoResponseBody(
            topic=name,
            ttl=expiration_minutes(topic),
            groups=groups or None,
            lmq_num=self._consume_queues.lmq_count,
            lite_topic_count=self._queues.count(name),
        )
        return request.reply(body=body.encode())

    async def show_topic(self, request: Command, connection: Connection) -> Command:
        """Answer the offsets and subscribers of a lite topic."""
        header = request.header(GetLiteTopicInfoRequestHeader)
        parent, lite = header.parent_topic or "", header.lite_topic or ""
        self._rules.find_parent(parent)
        queue = lite_queue(parent, lite)
        end = self._queues.end(queue)
        body = GetLiteTopicInfoResponseBody(
            parent_topic=parent,
            lite_topic=lite,
            subscriber=self._list_subscribers(queue),
            topic_offset=TopicOffset(
                min_offset=self._messages.min_offset(queue, 0) if end else 0,
                max_offset=end,
                last_update_timestamp=self._stored_ms(queue, end - 1) if end else 0,
            ),
            sharding_to_broker=await self._sharding.is_here(parent, lite),
        )
        return request.reply(body=body.encode())

    def _list_subscribers(self, queue: str) -> list[ClientGroup]:
        found = []
        for group in self._subscriptions.groups_of(queue):
            clients = list(self._subscriptions.clients_of(queue, group))
            if self._rules.is_wildcard(group):
                clients = ["*"]
            found += [ClientGroup(client_id=each, group=group) for each in clients]
        return found

    def show_client(self, request: Command, connection: Connection) -> Command:
        """Answer the lite topics of a client."""
        header = request.header(GetLiteClientInfoRequestHeader)
        parent, group = header.parent_topic or "", header.group or ""
        self._rules.find_parent(parent)
        if bound_topic(self._find_group(group)) != parent:
            raise _invalid(f"Subscription [{group}]-[{parent}] not match.")
        client_id = header.client_id or ""
        subscription = self._subscriptions.get(client_id)
        events = self._dispatch.events.get(client_id)
        limit = max(0, min(header.max_count, MAX_NAMES))
        body = GetLiteClientInfoResponseBody(
            parent_topic=parent,
            group=group,
            client_id=client_id,
            lite_topic_count=-1 if subscription is None else len(subscription.queues),
            lite_topic_set=None
            if subscription is None
            else list(subscription.queues)[:limit],
            last_access_time=-1 if events is None else events.polled_ms,
        )
        return request.reply(body=body.encode())

    async def show_group(self, request: Command, connection: Connection) -> Command:
        """Answer the lag of a group, in one lite topic or in all of them."""
        header = request.header(GetLiteGroupInfoRequestHeader)
        parent = self._find_parent(header.group)
        body = GetLiteGroupInfoResponseBody(
            group=header.group, parent_topic=parent, lite_topic=header.lite_topic
        )
        if header.lite_topic:
            self._show_lag(body, lite_queue(parent, header.lite_topic))
        else:
            await self._show_largest_lags(body, header)
        return request.reply(remark=UNSET, body=body.encode())

    def _show_lag(self, body: GetLiteGroupInfoResponseBody, queue: str) -> None:
        end = self._queues.end(queue)
        committed = self._offsets.query(body.group or "", queue, 0)
        if not end:
            body.total_lag_count = -1
        elif committed >= 0:
            body.total_lag_count = end - committed
            body.earliest_unconsumed_timestamp = self._stored_ms(queue, committed)
            body.lite_topic_offset_wrapper = OffsetWrapper(
                broker_offset=end,
                consumer_offset=committed,
                last_timestamp=self._stored_ms(queue, committed - 1)
                if committed
                else 0,
            )

    async def _show_largest_lags(
        self, body: GetLiteGroupInfoResponseBody, header: GetLiteGroupInfoRequestHeader
    ) -> None:
        """Add the lite topics in which the group has the largest lags."""
        limit = max(0, min(header.top_k, MAX_NAMES))
        lags: list[tuple[int, str, int]] = []
        for number, queue in enumerate(self._offsets.topics_of(header.group), 1):
            committed = self._offsets.query(header.group, queue, 0)
            lag = self._queues.end(queue) - committed
            if split_lite_queue(queue) is not None and committed >= 0 and lag > 0:
                body.total_lag_count += lag
                lags.append((-lag, queue, committed))
            if number % TURN_SIZE == 0:
                await self._next_turn()
        body.lag_count_top_k = [
            LiteLagInfo(
                lite_topic=(split_lite_queue(queue) or ("", ""))[1],
                lag_count=-lag,
                earliest_unconsumed_timestamp=self._stored_ms(queue, committed),
            )
            for lag, queue, committed in heapq.nsmallest(limit, lags)
        ]
        body.lag_timestamp_top_k = []

    async def trigger_dispatch(
        self, request: Command, connection: Connection
    ) -> Command:
        """Look at all lite topics of a client, or of all clients of a group."""
        header = request.header(TriggerLiteDispatchRequestHeader)
        self._find_parent(header.group)
        if header.client_id:
            await self._dispatch.dispatch(header.client_id, header.group)
        else:
            await self._dispatch.dispatch_group(header.group)
        return request.reply(remark=UNSET)

    def _stored_ms(self, queue: str, offset: int) -> int:
        """Return when a message was stored; -1 if the store does not have it."""
        return self._messages.store_time_at(queue, 0, QueueOffset(offset))

    def _find_group(self, name: str) -> SubscriptionGroupConfig:
        group = self._groups.find(name)
        if group is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group [{name}] not exist."
            )
        return group

    def _find_parent(self, name: str) -> str:
        """Return the parent topic of a lite group; refuse another group."""
        parent = bound_topic(self._find_group(name))
        if not parent:
            raise _invalid(f"Group [{name}] is not a LITE group.")
        return parent


def _invalid(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
