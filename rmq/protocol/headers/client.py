"""Headers between the broker and one client."""

import msgspec

from rmq.protocol.headers import I32, RpcHeader, TopicHeader


class UnregisterClientRequestHeader(RpcHeader, kw_only=True):
    """Request 35 UNREGISTER_CLIENT; its client id has a capital D on the wire."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class NotifyConsumerIdsChangedRequestHeader(RpcHeader, kw_only=True):
    """Request 40 NOTIFY_CONSUMER_IDS_CHANGED."""

    consumer_group: str


class GetConsumerRunningInfoRequestHeader(RpcHeader, kw_only=True):
    """Request 307 GET_CONSUMER_RUNNING_INFO."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(TopicHeader, kw_only=True):
    """Request 309 CONSUME_MESSAGE_DIRECTLY."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None


class GetConsumerStatusRequestHeader(TopicHeader, kw_only=True):
    """Request 221 GET_CONSUMER_STATUS_FROM_CLIENT, to a client, and of 223
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS, to the broker.
    """

    topic: str
    group: str
    client_addr: str | None = None
