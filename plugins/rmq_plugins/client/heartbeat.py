"""Requests 34, 35, 38 and 46: heartbeats, clients that leave, members, selectors.

Version 2 of the heartbeat has a fingerprint. The client omits subscriptions that have
not changed; IS_SUB_CHANGE in the answer requests these subscriptions again.
"""

from typing import Final

from rmq.plugin import (
    BrokerContext,
    Connection,
    RequestRejected,
    compile_selector,
    is_tag_type,
)
from rmq.plugin.native import HeartbeatPath, LookupPath
from rmq.protocol.bodies.heartbeat import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    SubscriptionData,
)
from rmq.protocol.codes import WIRE_VERSION, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PERM_READ_WRITE, TOPIC_UNIT_SUB
from rmq.protocol.headers.client import UnregisterClientRequestHeader
from rmq.protocol.headers.groups import GetConsumerListByGroupRequestHeader
from rmq.protocol.topics import retry_topic, validate_groups, validate_topic
from rmq_plugins.client.native import KnownHeartbeat, NativeHeartbeats

MAX_GROUPS: Final = 4_096
"""Maximum number of groups of one client: each costs a table entry and perhaps a topic.
"""

MAX_SUBSCRIPTIONS: Final = 4_096
"""Maximum number of topics of one group."""

MAX_SUBSCRIPTIONS_IN_ALL: Final = 16_384
"""Maximum number of topics of all groups of one client."""

MAX_CLIENT_ID_LENGTH: Final = 1_024


ANSWER: Final = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
"""Ext fields of the answer to version 1 of the heartbeat."""


class HeartbeatHandler:
    """Known in Java as `ClientManageProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._clock = broker.clock
        self._topics = broker.topics
        self._groups = broker.groups
        self._consumers = broker.consumers
        self._producers = broker.producers
        self._filters = broker.filters
        self._config = broker.config
        self._broker = broker
        self._native: NativeHeartbeats | None = None

    def enable_compiled(self) -> HeartbeatPath:
        """Return the compiled handler; from now on, it gets heartbeats that repeat."""
        if self._native is None:
            self._native = NativeHeartbeats(self._broker, ANSWER)
        return self._native.path

    def forget_connection(self, connection: Connection) -> None:
        """Leave the next heartbeat of a connection to Python."""
        if self._native is not None:
            self._native.forget_token(connection.token)

    def handle_heartbeat(self, request: Command, connection: Connection) -> Command:
        """Register a client with all its groups."""
        self.forget_connection(connection)
        data = HeartbeatData.decode(request.body)
        client_id = _check_heartbeat(data)
        user = self._broker.rights.user_of(request)
        groups = [each.group_name or "" for each in data.producer_data_set]
        self._producers.check_user(user, client_id, groups)
        wants_subscriptions = False
        is_registered = True
        for consumer in data.consumer_data_set:
            if self._is_rejected(consumer):
                is_registered = False
            elif data.without_sub and data.heartbeat_fingerprint:
                is_known = self._consumers.refresh(
                    consumer.group_name or "",
                    client_id,
                    connection,
                    self._clock.now_ms(),
                )
                wants_subscriptions = wants_subscriptions or not is_known
            elif not self._register_consumer(consumer, client_id, request, connection):
                is_registered = False
        if self._config.enable_register_producer:
            self._register_producers(data, client_id, request, connection)
        if data.heartbeat_fingerprint and not wants_subscriptions:
            return request.reply(ext_fields={**ANSWER, "IS_SUB_CHANGE": "false"})
        if self._native is not None and is_registered and self._is_repeatable(data):
            consumers = [each.group_name or "" for each in data.consumer_data_set]
            beat = KnownHeartbeat(
                client_id,
                connection,
                request.language,
                request.version,
                consumers,
                groups,
            )
            self._native.register_heartbeat(request, beat)
        return request.reply(ext_fields=ANSWER)

    def _is_repeatable(self, data: HeartbeatData) -> bool:
        """Whether compiled code may answer the same heartbeat.

        The table must have the selectors of the heartbeat: the next heartbeat may add a
        missing selector.
        """
        return not data.heartbeat_fingerprint and all(
            is_tag_type(subscription.expression_type)
            or self._has_selector(consumer.group_name or "", subscription)
            for consumer in data.consumer_data_set
            for subscription in consumer.subscription_data_set
        )

    def _has_selector(self, group: str, wanted: SubscriptionData) -> bool:
        """Whether the selector of a subscription, or a newer selector, is in use."""
        known = self._filters.get(wanted.topic or "", group)
        return (
            known is not None
            and not known.is_dead
            and known.client_version >= wanted.sub_version
        )

    def _is_rejected(self, consumer: ConsumerData) -> bool:
        """Whether the broker must refuse a consumer because it is a pull consumer."""
        return (
            self._config.reject_pull_consumer_enable
            and consumer.consume_type == ConsumeType.CONSUME_ACTIVELY
        )

    def unregister_client(self, request: Command, connection: Connection) -> Command:
        """Remove a client from the groups in the request."""
        header = request.header(UnregisterClientRequestHeader)
        self.forget_connection(connection)
        if header.producer_group:
            self._producers.unregister(
                header.producer_group, header.client_id, connection
            )
        if header.consumer_group:
            self._consumers.unregister(
                header.consumer_group, header.client_id, connection
            )
        return request.reply()

    def list_members(self, request: Command, connection: Connection) -> Command:
        """List the clients of a consumer group; no client is an error, as in Java."""
        header = request.header(GetConsumerListByGroupRequestHeader)
        body = self.find_members(header.consumer_group)
        if body is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"no consumer for this group, {header.consumer_group}",
            )
        return request.reply(body=body)

    def members_path(self) -> LookupPath:
        """Return the compiled handler of `list_members`."""
        return LookupPath(
            self.find_members,
            texts=("consumerGroup",),
            has_offset=False,
            version=WIRE_VERSION,
        )

    def find_members(self, group: str) -> bytes | None:
        """Return the encoded clients of a group; None if it has no client."""
        client_ids = self._consumers.client_ids(group)
        if not client_ids:
            return None
        return GetConsumerListByGroupResponseBody(
            consumer_id_list=list(client_ids)
        ).encode()

    def check_config(self, request: Command, connection: Connection) -> Command:
        """Answer whether this broker understands the client's expression."""
        subscription = CheckClientRequestBody.decode(request.body).subscription_data
        if subscription is None or is_tag_type(subscription.expression_type):
            return request.reply()
        if (
            not self._config.enable_property_filter
            or subscription.expression_type != "SQL92"
        ):
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                f"{subscription.expression_type}",
            )
        compile_selector(subscription.sub_string or "")
        return request.reply()

    def _register_consumer(
        self,
        consumer: ConsumerData,
        client_id: str,
        request: Command,
        connection: Connection,
    ) -> bool:
        """Register a consumer; create its group and the group's retry topic.

        False if there is no such group, and clients may not create it.
        """
        group = consumer.group_name or ""
        client = connection.remote_address
        settings = self._groups.find(group, client)
        if settings is None:
            return False
        if settings.retry_queue_nums > 0:
            self._topics.ensure(
                retry_topic(group),
                queues=settings.retry_queue_nums,
                perm=PERM_READ_WRITE,
                sys_flag=TOPIC_UNIT_SUB if consumer.unit_mode else 0,
                client=client,
            )
        self._filters.register(group, consumer.subscription_data_set, client)
        self._consumers.register(
            consumer,
            client_id,
            connection,
            request.language,
            request.version,
            self._clock.now_ms(),
        )
        return True

    def _register_producers(
        self,
        data: HeartbeatData,
        client_id: str,
        request: Command,
        connection: Connection,
    ) -> None:
        for producer in data.producer_data_set:
            self._producers.register(
                producer.group_name or "",
                client_id,
                connection,
                request.language,
                request.version,
                self._clock.now_ms(),
                self._broker.rights.user_of(request),
            )


def _check_heartbeat(data: HeartbeatData) -> str:
    """Refuse a heartbeat with bad names or too many entries; return the client's id."""
    if not data.client_id or len(data.client_id) > MAX_CLIENT_ID_LENGTH:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            "HeartbeatData: clientID is missing or longer than "
            f"{MAX_CLIENT_ID_LENGTH} characters",
        )
    if len(data.consumer_data_set) + len(data.producer_data_set) > MAX_GROUPS:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            f"HeartbeatData: more than {MAX_GROUPS} groups of one client",
        )
    count = sum(len(each.subscription_data_set) for each in data.consumer_data_set)
    if count > MAX_SUBSCRIPTIONS_IN_ALL:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            f"HeartbeatData: {count} subscriptions of one client, at most "
            f"{MAX_SUBSCRIPTIONS_IN_ALL}",
        )
    validate_groups([each.group_name or "" for each in data.producer_data_set])
    validate_groups([each.group_name or "" for each in data.consumer_data_set])
    for consumer in data.consumer_data_set:
        _check_consumer(consumer)
    return data.client_id


def _check_consumer(consumer: ConsumerData) -> None:
    if len(consumer.subscription_data_set) > MAX_SUBSCRIPTIONS:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            f"group {consumer.group_name} subscribes to more than "
            f"{MAX_SUBSCRIPTIONS} topics",
        )
    for subscription in consumer.subscription_data_set:
        validate_topic(subscription.topic)
