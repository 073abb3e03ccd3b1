"""The permissions that each request needs: actions on resources.

A code is in one table at most. A code in no table, such as a code of your own plugin,
needs Update on the cluster. Java reads the permissions from annotations of its header
classes and requires nothing for requests without an annotation, such as 25
UPDATE_BROKER_CONFIG. A retry topic always needs the right on its group, whatever group
the request names.

`LATER` lists the rights that handlers check themselves when they have found a record.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from rmq.access import resources
from rmq.access.actions import Action
from rmq.access.authorization import RequiredPermission
from rmq.plugin import RequestRejected
from rmq.protocol.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupList
from rmq.protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData
from rmq.protocol.bodies.lite import (
    LiteSubscription,
    LiteSubscriptionCtlRequestBody,
)
from rmq.protocol.bodies.pop import BatchAck, BatchAckRequestBody
from rmq.protocol.bodies.queues import (
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
)
from rmq.protocol.bodies.topics import CreateTopicListRequestBody
from rmq.protocol.codes import OwnRequestCode as OwnCode
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.topics import is_retry_topic

Needs = Iterable[RequiredPermission]

PUB = (Action.PUB,)
SUB = (Action.SUB,)
SUB_OR_GET = (Action.SUB, Action.GET)
SUB_OR_UPDATE = (Action.SUB, Action.UPDATE)
CREATE = (Action.CREATE,)
UPDATE = (Action.UPDATE,)
DELETE = (Action.DELETE,)
GET = (Action.GET,)

CLUSTER_READS: Final = frozenset(
    {
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET,
        Code.GET_ALL_MESSAGE_REQUEST_MODE,
        Code.GET_TIMER_CHECK_POINT,
        Code.GET_TIMER_METRICS,
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_BROKER_HA_STATUS,
        Code.GET_BROKER_EPOCH_CACHE,
        Code.GET_BROKER_CONSUME_STATS,
        Code.GET_BROKER_LITE_INFO,
        Code.GET_ALL_PRODUCER_INFO,
        Code.GET_PRODUCER_CONNECTION_LIST,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.GET_COLD_DATA_FLOW_CTR_INFO,
        Code.VIEW_BROKER_STATS_DATA,
        Code.AUTH_GET_USER,
        Code.AUTH_LIST_USER,
        Code.AUTH_GET_ACL,
        Code.AUTH_LIST_ACL,
        OwnCode.GET_AUDIT_LOG,
        OwnCode.GET_VIEW,
        OwnCode.FOLLOW_LOG,
    }
)
"""Requests that show data without an owner: Get on the cluster."""

CLUSTER_CHANGES: Final = frozenset(
    {
        Code.AUTH_CREATE_ACL,
        Code.AUTH_CREATE_USER,
        Code.AUTH_DELETE_ACL,
        Code.AUTH_DELETE_USER,
        Code.AUTH_UPDATE_ACL,
        Code.AUTH_UPDATE_USER,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.EXCHANGE_BROKER_HA_INFO,
        Code.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        Code.NOTIFY_BROKER_ROLE_CHANGED,
        Code.NOTIFY_MIN_BROKER_ID_CHANGE,
        Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.RESET_MASTER_FLUSH_OFFSET,
        Code.SET_COMMITLOG_READ_MODE,
        Code.SET_MESSAGE_REQUEST_MODE,
        Code.POP_ROLLBACK,
        Code.SWITCH_TIMER_ENGINE,
        Code.TRIGGER_DELETE_FILES,
        Code.UPDATE_AND_CREATE_STATIC_TOPIC,
        Code.UPDATE_BROKER_CONFIG,
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        OwnCode.GET_LOADED_PLUGINS,
        OwnCode.REPORT_EXPORT,
    }
)
"""Requests that change data of all users: Update on the cluster."""

_T, _G = resources.TOPIC, resources.GROUP
FIELDS: Final[Mapping[int, tuple[tuple[Action, ...], tuple[tuple[str, str], ...]]]] = {
    Code.VIEW_MESSAGE_BY_ID: (GET, ((_T, "topic"),)),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: (GET, ((_T, "topic"),)),
    Code.GET_MAX_OFFSET: (GET, ((_T, "topic"),)),
    Code.GET_MIN_OFFSET: (GET, ((_T, "topic"),)),
    Code.GET_EARLIEST_MSG_STORETIME: (GET, ((_T, "topic"),)),
    Code.GET_TOPIC_STATS_INFO: (GET, ((_T, "topic"),)),
    Code.GET_TOPIC_CONFIG: (GET, ((_T, "topic"),)),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: (GET, ((_T, "topic"),)),
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: (GET, ((_T, "topic"),)),
    Code.UPDATE_AND_CREATE_TOPIC: (CREATE, ((_T, "topic"),)),
    Code.DELETE_TOPIC_IN_BROKER: (DELETE, ((_T, "topic"),)),
    Code.RESUME_CHECK_HALF_MESSAGE: (UPDATE, ((_T, "topic"),)),
    Code.RECALL_MESSAGE: (PUB, ((_T, "topic"),)),
    Code.QUERY_MESSAGE: (SUB_OR_GET, ((_T, "topic"),)),
    Code.CONSUMER_SEND_MSG_BACK: (SUB, ((_G, "group"),)),
    Code.GET_CONSUMER_LIST_BY_GROUP: (SUB_OR_GET, ((_G, "consumerGroup"),)),
    Code.GET_CONSUMER_CONNECTION_LIST: (GET, ((_G, "consumerGroup"),)),
    Code.GET_CONSUMER_RUNNING_INFO: (GET, ((_G, "consumerGroup"),)),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: (GET, ((_G, "group"),)),
    Code.QUERY_TOPICS_BY_CONSUMER: (GET, ((_G, "group"),)),
    Code.DELETE_SUBSCRIPTIONGROUP: (DELETE, ((_G, "groupName"),)),
    Code.PULL_MESSAGE: (SUB, ((_T, "topic"), (_G, "consumerGroup"))),
    Code.LITE_PULL_MESSAGE: (SUB, ((_T, "topic"), (_G, "consumerGroup"))),
    Code.QUERY_CONSUMER_OFFSET: (SUB_OR_GET, ((_T, "topic"), (_G, "consumerGroup"))),
    Code.UPDATE_CONSUMER_OFFSET: (
        SUB_OR_UPDATE,
        ((_T, "topic"), (_G, "consumerGroup")),
    ),
    Code.POP_MESSAGE: (SUB, ((_G, "consumerGroup"), (_T, "topic"))),
    Code.POP_LITE_MESSAGE: (SUB, ((_G, "consumerGroup"), (_T, "topic"))),
    Code.GET_PARENT_TOPIC_INFO: (GET, ((_T, "topic"),)),
    Code.GET_LITE_TOPIC_INFO: (GET, ((_T, "parentTopic"),)),
    Code.GET_LITE_CLIENT_INFO: (GET, ((_T, "parentTopic"), (_G, "group"))),
    Code.GET_LITE_GROUP_INFO: (GET, ((_G, "group"),)),
    Code.TRIGGER_LITE_DISPATCH: (UPDATE, ((_G, "group"),)),
    Code.PEEK_MESSAGE: (SUB, ((_T, "topic"), (_G, "consumerGroup"))),
    Code.ACK_MESSAGE: (SUB, ((_G, "consumerGroup"), (_T, "topic"))),
    Code.CHANGE_MESSAGE_INVISIBLETIME: (SUB, ((_G, "consumerGroup"), (_T, "topic"))),
    Code.NOTIFICATION: (SUB, ((_G, "consumerGroup"), (_T, "topic"))),
    Code.POLLING_INFO: (GET, ((_G, "consumerGroup"), (_T, "topic"))),
    Code.CONSUME_MESSAGE_DIRECTLY: (SUB, ((_G, "consumerGroup"), (_T, "topic"))),
    Code.GET_CONSUME_STATS: (
        GET,
        ((_G, "consumerGroup"), (_T, "topic"), (_T, "topicList")),
    ),
    Code.QUERY_CONSUME_QUEUE: (GET, ((_T, "topic"), (_G, "consumerGroup"))),
    Code.QUERY_CONSUME_TIME_SPAN: (GET, ((_T, "topic"), (_G, "group"))),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: (GET, ((_G, "group"), (_T, "topic"))),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (GET, ((_T, "topic"), (_G, "group"))),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (UPDATE, ((_G, "group"), (_T, "topic"))),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: (UPDATE, ((_G, "group"), (_T, "topic"))),
    Code.QUERY_CORRECTION_OFFSET: (
        GET,
        ((_G, "filterGroups"), (_G, "compareGroup"), (_T, "topic")),
    ),
}
"""Requests whose extension fields name their resources."""

_LISTS: Final = {"filterGroups": ",", "topicList": ";"}
_MAX_NEEDS: Final = 10_000
_UNREADABLE: Final = "parse authorization context error."


def needs_of(request: Command, cluster: str) -> list[RequiredPermission]:
    """Return the permissions that a request needs; some requests of producers need no
    permission.
    """
    code = request.code
    special = SPECIAL.get(code)
    if special is not None:
        needs = list(special(request))
    elif code in FIELDS:
        needs = list(_needs_in_fields(request))
        if not needs:
            raise RequestRejected(ResponseCode.NO_PERMISSION, _UNREADABLE)
    else:
        actions = GET if code in CLUSTER_READS else UPDATE
        needs = [RequiredPermission(resources.cluster_resource(cluster), actions)]
    if len(needs) > _MAX_NEEDS:
        raise RequestRejected(ResponseCode.NO_PERMISSION, _UNREADABLE)
    return needs


def resource_fields(code: int) -> tuple[str, ...] | None:
    """Return the extension fields from which the needed rights follow.

    None if the rights follow from another part: the body, a list in a field, the
    message in question, or no part.
    """
    if code in LATER:
        return None
    if code in FIELDS:
        names = tuple(name for _, name in FIELDS[code][1])
        return None if _LISTS.keys() & set(names) else names
    if SPECIAL.get(code) is _needs_of_send:
        return ("topic",)
    return ("b",) if SPECIAL.get(code) is _needs_of_short_send else None


def is_administrative(code: int) -> bool:
    """Return whether the request needs a right on the cluster as a whole."""
    return not (code in FIELDS or code in SPECIAL)


def _needs_in_fields(request: Command) -> Iterator[RequiredPermission]:
    actions, places = FIELDS[request.code]
    for kind, name in places:
        text = request.ext_fields.get(name)
        if text is None:
            continue
        separator = _LISTS.get(name)
        for each in text.split(separator) if separator else (text,):
            yield (_on_topic if kind == _T else _on_group)(each, actions)


def _on_topic(name: str | None, actions: tuple[Action, ...]) -> RequiredPermission:
    return RequiredPermission(resources.topic_resource(name or ""), actions)


def _on_group(name: str | None, actions: tuple[Action, ...]) -> RequiredPermission:
    return RequiredPermission(resources.group_resource(name or ""), actions)


def _needs_of_resend(request: Command) -> Needs:
    """Update on Group `group`."""
    return [_on_group(request.ext_fields.get("group"), UPDATE)]


def _needs_of_send(request: Command) -> Needs:
    """Pub on Topic `topic`; Sub on the group of a retry topic."""
    return _needs_of_topic(request.ext_fields.get("topic", ""))


def _needs_of_short_send(request: Command) -> Needs:
    """Pub on Topic `b`; Sub on the group of a retry topic."""
    return _needs_of_topic(request.ext_fields.get("b", ""))


def _needs_of_topic(topic: str) -> Needs:
    """Pub on a topic; Sub on a retry topic, because its senders consume."""
    yield _on_topic(topic, SUB if is_retry_topic(topic) else PUB)


def _needs_of_end_transaction(request: Command) -> Needs:
    """Pub on Topic `topic`, which older clients leave out."""
    topic = request.ext_fields.get("topic", "")
    if topic.strip():
        yield _on_topic(topic, PUB)


def _needs_of_heartbeat(request: Command) -> Needs:
    """Sub on each consumer group and its topics; nothing for a producer."""
    for consumer in HeartbeatData.decode(request.body).consumer_data_set:
        yield _on_group(consumer.group_name, SUB)
        for subscription in consumer.subscription_data_set:
            yield _on_topic(subscription.topic, SUB)


def _needs_of_unregister(request: Command) -> Needs:
    """Sub on Group `consumerGroup`; nothing for a producer."""
    group = request.ext_fields.get("consumerGroup", "")
    if group.strip():
        yield _on_group(group, SUB)


def _needs_of_check_client(request: Command) -> Needs:
    """Sub on the group and the topic of the body."""
    body = CheckClientRequestBody.decode(request.body)
    yield _on_group(body.group, SUB)
    if body.subscription_data is not None:
        yield _on_topic(body.subscription_data.topic, SUB)


def _needs_of_assignment(request: Command) -> Needs:
    """Sub on the group and the topic of the body."""
    body = QueryAssignmentRequestBody.decode(request.body)
    yield _on_group(body.consumer_group, SUB)
    yield _on_topic(body.topic, SUB)


def _needs_of_lock(request: Command) -> Needs:
    """Sub on the group and each topic of the body."""
    body = LockBatchRequestBody.decode(request.body)
    yield _on_group(body.consumer_group, SUB)
    for queue in body.mq_set:
        yield _on_topic(queue.topic, SUB)


def _needs_of_clone(request: Command) -> Needs:
    """Update on Group `destGroup` and Topic `topic`, Get on Group `srcGroup`."""
    fields = request.ext_fields
    yield _on_group(fields.get("destGroup"), UPDATE)
    yield _on_topic(fields.get("topic"), UPDATE)
    yield _on_group(fields.get("srcGroup"), GET)


def _needs_of_create_topics(request: Command) -> Needs:
    """Create on each topic of the body."""
    body = CreateTopicListRequestBody.decode(request.body)
    for topic in body.topic_config_list:
        yield _on_topic(topic.topic_name, CREATE)


def _needs_of_create_group(request: Command) -> Needs:
    """Create on the group of the body."""
    config = SubscriptionGroupConfig.decode(request.body)
    yield _on_group(config.group_name, CREATE)


def _needs_of_create_groups(request: Command) -> Needs:
    """Create on each group of the body."""
    for config in SubscriptionGroupList.decode(request.body).group_config_list:
        yield _on_group(config.group_name, CREATE)


def _needs_of_batch_ack(request: Command) -> Needs:
    """Sub on group and topic of each ack of the body; without acks no right."""
    for ack in BatchAckRequestBody.decode(request.body).acks or [BatchAck()]:
        yield _on_group(ack.group, SUB)
        yield _on_topic(ack.topic, SUB)


def _needs_of_lite_subscriptions(request: Command) -> Needs:
    """Sub on group and topic of each entry of the body."""
    body = LiteSubscriptionCtlRequestBody.decode(request.body or b"{}")
    for entry in body.subscription_set or [LiteSubscription()]:
        yield _on_group(entry.group, SUB)
        yield _on_topic(entry.topic, SUB)


SPECIAL: Final[Mapping[int, Callable[[Command], Needs]]] = {
    Code.LITE_SUBSCRIPTION_CTL: _needs_of_lite_subscriptions,
    Code.SEND_MESSAGE: _needs_of_send,
    Code.SEND_MESSAGE_V2: _needs_of_short_send,
    Code.SEND_BATCH_MESSAGE: _needs_of_short_send,
    Code.SEND_REPLY_MESSAGE: _needs_of_send,
    Code.SEND_REPLY_MESSAGE_V2: _needs_of_short_send,
    Code.END_TRANSACTION: _needs_of_end_transaction,
    Code.HEART_BEAT: _needs_of_heartbeat,
    Code.UNREGISTER_CLIENT: _needs_of_unregister,
    Code.CHECK_CLIENT_CONFIG: _needs_of_check_client,
    Code.QUERY_ASSIGNMENT: _needs_of_assignment,
    Code.CLONE_GROUP_OFFSET: _needs_of_clone,
    Code.LOCK_BATCH_MQ: _needs_of_lock,
    Code.UNLOCK_BATCH_MQ: _needs_of_lock,
    Code.BATCH_ACK_MESSAGE: _needs_of_batch_ack,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _needs_of_create_topics,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _needs_of_create_group,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _needs_of_create_groups,
    OwnCode.RESEND_DEAD_LETTERS: _needs_of_resend,
}
"""Requests that name their resources in a special form, or in the body."""

LATER: Final[Mapping[int, str]] = {
    Code.VIEW_MESSAGE_BY_ID: "Get on the topic of the message",
    Code.CONSUMER_SEND_MSG_BACK: "Sub on the topic of the message",
    Code.CONSUME_MESSAGE_DIRECTLY: "Sub on the topic of the message",
    Code.END_TRANSACTION: "Pub on the topic of the transaction; "
    "the producer group must belong to the user",
    Code.RESUME_CHECK_HALF_MESSAGE: "Update on the topic of the transaction",
    Code.HEART_BEAT: "a client id and producer groups that belong to the user",
}
"""Rights that handlers check through `BrokerContext.rights`."""
