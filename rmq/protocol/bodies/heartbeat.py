"""Bodies about clients that are online: heartbeats, connections, members, checks of
subscriptions.
"""

from enum import StrEnum
from typing import Any, Final, Self

from msgspec import field

from rmq.protocol.bodies import Body
from rmq.protocol.headers import I32, I64


class ConsumeType(StrEnum):
    """How a consumer gets its messages; in the order of Java's ordinals."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether each member or the group as a whole gets a message."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"


class ConsumeFromWhere(StrEnum):
    """The position at which a group without committed offsets begins."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body, kw_only=True, gc=False):
    """The subscription of a group to a topic."""

    topic: str | None = None
    sub_string: str | None = None
    tags_set: list[str] = field(default_factory=list)
    code_set: list[I32] = field(default_factory=list)
    sub_version: I64 = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ConsumerData(Body, kw_only=True):
    """One consumer group of a client."""

    group_name: str | None = None
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class ProducerData(Body, kw_only=True):
    """One producer group of a client."""

    group_name: str | None = None


class HeartbeatData(Body, kw_only=True):
    """Request 34: a client and all its groups.

    C++ clients send the enums as Java's ordinals; they are read as names.
    """

    client_id: str | None = field(default=None, name="clientID")
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: I32 = 0
    without_sub: bool = False

    @classmethod
    def _build(cls, value: object) -> Self:
        """Build from a document without nulls; enum ordinals become names."""
        if isinstance(value, dict):
            for consumer in value.get("consumerDataSet") or []:
                if isinstance(consumer, dict):
                    _name_ordinals(consumer)
        return super()._build(value)


_ENUMS: Final[dict[str, list[str]]] = {
    "consumeType": list(ConsumeType),
    "messageModel": list(MessageModel),
    "consumeFromWhere": list(ConsumeFromWhere),
}


def _name_ordinals(consumer: dict[str, Any]) -> None:
    for name, members in _ENUMS.items():
        ordinal = consumer.get(name)
        if isinstance(ordinal, int):
            is_known = 0 <= ordinal < len(members)
            consumer[name] = str(members[ordinal]) if is_known else None


class CheckClientRequestBody(Body, kw_only=True):
    """Request 46: a subscription to be checked before it is used."""

    client_id: str | None = None
    group: str | None = None
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class GetConsumerListByGroupResponseBody(Body, kw_only=True):
    """Answer to 38: the members of a group."""

    consumer_id_list: list[str] = field(default_factory=list)


class Connection(Body, kw_only=True):
    """One client of a group."""

    client_id: str | None = None
    client_addr: str | None = None
    language: str | None = None
    version: I32 = 0


class ConsumerConnection(Body, kw_only=True):
    """Answer to 203: the members of a consumer group and their subscriptions."""

    connection_set: list[Connection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(Body, kw_only=True):
    """Answer to 204: the members of a producer group."""

    connection_set: list[Connection] = field(default_factory=list)


class ProducerInfo(Body, kw_only=True):
    """One client of a producer group, with the time of its last heartbeat."""

    client_id: str | None = None
    remote_ip: str | None = field(default=None, name="remoteIP")
    language: str | None = None
    version: I32 = 0
    last_update_timestamp: I64 = 0


class ProducerTableInfo(Body, kw_only=True):
    """Answer to 328: all producers by group."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)
