"""Needs: which resources a request touches, and what it wants to do with them.

Java reads this off annotations of its header classes and asks nothing for requests
without one, such as 25 UPDATE_BROKER_CONFIG. Here such a request needs a right on the
cluster unless it stands in `OPEN`, and so does every code of a plugin of your own. A
retry topic always needs the right on its group, whatever group the request names.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from rmq.access import resources
from rmq.access.policies import Action
from rmq.access.resources import Resource
from rmq.access.rights import Need
from rmq.errors import RequestRejected
from rmq.protocol.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupList
from rmq.protocol.bodies.heartbeat import HeartbeatData
from rmq.protocol.bodies.queues import LockBatchRequestBody
from rmq.protocol.bodies.topics import CreateTopicListRequestBody
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.topics import is_retry_topic

Needs = Iterable[Need]

PUB = (Action.PUB,)
SUB = (Action.SUB,)
SUB_OR_GET = (Action.SUB, Action.GET)
SUB_OR_UPDATE = (Action.SUB, Action.UPDATE)
CREATE = (Action.CREATE,)
UPDATE = (Action.UPDATE,)
DELETE = (Action.DELETE,)
GET = (Action.GET,)

OPEN: Final = frozenset(
    {
        Code.CHECK_CLIENT_CONFIG,
        Code.QUERY_ASSIGNMENT,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
    }
)
"""What every client does: every user may, as in Java."""

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
        Code.GET_ALL_PRODUCER_INFO,
        Code.GET_PRODUCER_CONNECTION_LIST,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.VIEW_BROKER_STATS_DATA,
        Code.AUTH_GET_USER,
        Code.AUTH_LIST_USER,
        Code.AUTH_GET_ACL,
        Code.AUTH_LIST_ACL,
    }
)
"""Requests that show what belongs to nobody in particular: Get on the cluster."""

_T, _G = resources.TOPIC, resources.GROUP
_FIELDS: Final[Mapping[int, tuple[tuple[Action, ...], tuple[tuple[str, str], ...]]]] = {
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
    Code.CLONE_GROUP_OFFSET: (UPDATE, ((_G, "destGroup"), (_T, "topic"))),
    Code.QUERY_CORRECTION_OFFSET: (
        GET,
        ((_G, "filterGroups"), (_G, "compareGroup"), (_T, "topic")),
    ),
}
"""Requests whose extension fields name what they touch."""

_LISTS: Final = {"filterGroups": ",", "topicList": ";"}
_MOST_NEEDS: Final = 10_000
_UNREADABLE: Final = "parse authorization context error."


def needs_of(request: Command, cluster: str) -> list[Need]:
    """Return every right that the request needs; an empty list for an open one."""
    code = request.code
    if code in OPEN:
        return []
    special = _SPECIAL.get(code)
    if special is not None:
        needs = list(special(request))
    elif code in _FIELDS:
        needs = list(_from_fields(request))
        if not needs:
            raise RequestRejected(ResponseCode.NO_PERMISSION, _UNREADABLE)
    else:
        actions = GET if code in CLUSTER_READS else UPDATE
        needs = [Need(resources.cluster(cluster), actions)]
    if len(needs) > _MOST_NEEDS:
        raise RequestRejected(ResponseCode.NO_PERMISSION, _UNREADABLE)
    return needs


def is_administrative(code: int) -> bool:
    """Whether the request needs a right on the cluster as a whole."""
    return not (code in OPEN or code in _FIELDS or code in _SPECIAL)


def _from_fields(request: Command) -> Iterator[Need]:
    actions, places = _FIELDS[request.code]
    for kind, name in places:
        text = request.ext_fields.get(name)
        if text is None:
            continue
        separator = _LISTS.get(name)
        for each in text.split(separator) if separator else (text,):
            yield Need(_resource(kind, each), actions)


def _resource(kind: str, name: str) -> Resource:
    return resources.topic(name) if kind == _T else resources.group(name)


def _send(request: Command) -> Needs:
    return _publish(request.ext_fields.get("topic", ""))


def _send_short(request: Command) -> Needs:
    return _publish(request.ext_fields.get("b", ""))


def _publish(topic: str) -> Needs:
    """To give a message back to one's group is part of consuming."""
    yield Need(resources.topic(topic), SUB if is_retry_topic(topic) else PUB)


def _end_transaction(request: Command) -> Needs:
    """Older clients do not say which topic it is."""
    topic = request.ext_fields.get("topic", "")
    if topic.strip():
        yield Need(resources.topic(topic), PUB)


def _heartbeat(request: Command) -> Needs:
    for consumer in HeartbeatData.decode(request.body).consumer_data_set:
        yield Need(resources.group(consumer.group_name or ""), SUB)
        for subscription in consumer.subscription_data_set:
            yield Need(resources.topic(subscription.topic or ""), SUB)


def _unregister(request: Command) -> Needs:
    group = request.ext_fields.get("consumerGroup", "")
    if group.strip():
        yield Need(resources.group(group), SUB)


def _lock(request: Command) -> Needs:
    body = LockBatchRequestBody.decode(request.body)
    yield Need(resources.group(body.consumer_group or ""), SUB)
    for queue in body.mq_set:
        yield Need(resources.topic(queue.topic or ""), SUB)


def _create_topics(request: Command) -> Needs:
    body = CreateTopicListRequestBody.decode(request.body)
    for topic in body.topic_config_list:
        yield Need(resources.topic(topic.topic_name or ""), CREATE)


def _create_group(request: Command) -> Needs:
    config = SubscriptionGroupConfig.decode(request.body)
    yield Need(resources.group(config.group_name or ""), CREATE)


def _create_groups(request: Command) -> Needs:
    for config in SubscriptionGroupList.decode(request.body).group_config_list:
        yield Need(resources.group(config.group_name or ""), CREATE)


_SPECIAL: Final[Mapping[int, Callable[[Command], Needs]]] = {
    Code.SEND_MESSAGE: _send,
    Code.SEND_MESSAGE_V2: _send_short,
    Code.SEND_BATCH_MESSAGE: _send_short,
    Code.END_TRANSACTION: _end_transaction,
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _unregister,
    Code.LOCK_BATCH_MQ: _lock,
    Code.UNLOCK_BATCH_MQ: _lock,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _create_topics,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _create_group,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _create_groups,
}
"""Requests that say what they touch in their own way, or in the body."""
