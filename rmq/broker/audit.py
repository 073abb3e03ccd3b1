"""Audit: finds the changes of an administrative request, and reports them.

The changes go to the log and to the `AuditTable`.  Passwords are in neither.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from rmq.broker.context import BrokerContext
from rmq.config.option import describe
from rmq.protocol.bodies import Body
from rmq.protocol.bodies.auth import AclInfo, UserInfo
from rmq.protocol.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupList
from rmq.protocol.codes import OwnRequestCode as OwnCode
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.command import Command
from rmq.protocol.topics import retry_topic
from rmq.remoting.changes import NOT_SHOWN, State, report_changes
from rmq.remoting.dispatch import Handler

StateReader = Callable[[BrokerContext, Command], State]
CREATED: Final = "created"
DETAILED_TOPICS: Final = 64
"""Maximum number of topics of a request whose states are compared. For a larger request
the audit has only the names.
"""


def add_audit(context: BrokerContext, code: int, handler: Handler) -> Handler:
    """Return the handler, wrapped with an audit if its requests change something."""
    state_of = _STATES.get(code)
    if state_of is None:
        return handler
    return report_changes(
        handler,
        (Code if code in Code.__members__.values() else OwnCode)(code).name,
        lambda request: state_of(context, request),
        context.audit.add,
        context.clock.now_ms,
    )


def _topics(context: BrokerContext, names: list[str | None]) -> State:
    return {
        f"topic {name}": _content_of(context.topics.get(name)) for name in names if name
    }


class _NamedTopic(Body, kw_only=True, gc=False):
    topic_name: str | None = None


class _NamedTopics(Body, kw_only=True):
    """The names of a `CreateTopicListRequestBody`."""

    topic_config_list: list[_NamedTopic] = msgspec.field(default_factory=list)


def _topic_list(context: BrokerContext, request: Command) -> State:
    """Return the topics of a list; of a long list only the names."""
    topics = _NamedTopics.decode(request.body).topic_config_list
    names = [topic.topic_name for topic in topics]
    if len(names) <= DETAILED_TOPICS:
        return _topics(context, names)
    shown = ", ".join(name or "" for name in names[:DETAILED_TOPICS])
    return {f"{len(names)} topics: {shown}, …": "created or changed"}


def _group_states(context: BrokerContext, names: list[str | None]) -> State:
    """Return the states of groups, and of the retry topics that follow them."""
    states: dict[str, Mapping[str, object] | None] = {}
    for name in filter(None, names):
        states[f"group {name}"] = _content_of(context.groups.get(name))
        topic = context.topics.get(retry_topic(name))
        if topic is not None:
            states[f"topic {topic.topic_name}"] = _content_of(topic)
    return states


def _content_of(body: Body | None) -> dict[str, object] | None:
    return None if body is None else msgspec.to_builtins(body)


def _offset_state(context: BrokerContext, group: str, topic: str) -> State:
    queues = context.offsets.queues(group, topic)
    content = {f"queue {queue}": offset for queue, offset in sorted(queues.items())}
    return {f"offsets of {group} in {topic}": content}


def _key_values(context: BrokerContext, request: Command) -> State:
    """Return the values of the keys that request 25 names."""
    lines = request.body.decode("utf-8", "replace").splitlines()
    wanted = {line.partition("=")[0].strip() for line in lines}
    content = {
        key: value
        for config in context.configs()
        for key, value, _ in describe(config)
        if key in wanted
    }
    return {"configuration": content}


def _request_fields(_: BrokerContext, request: Command) -> State:
    """Return the fields of a request as its change; there is no state to compare."""
    shown = [
        f"{name}={value}"
        for name, value in request.ext_fields.items()
        if name not in NOT_SHOWN
    ]
    return {" ".join(shown): "requested"}


def _user_fields(verb: str) -> StateReader:
    """Return a reader of the user of a request; `verb` names the change."""

    def read_user(_: BrokerContext, request: Command) -> State:
        user = UserInfo.decode(request.body) if request.body else UserInfo()
        name = request.ext_fields.get("username") or user.username
        parts = [
            f"{what} {value}"
            for what, value in (("type", user.user_type), ("status", user.user_status))
            if value
        ]
        parts += ["password"] * bool(user.password and verb != CREATED)
        return {f"user {name}": f"{verb}: {', '.join(parts)}" if parts else verb}

    return read_user


def _policy_fields(verb: str) -> StateReader:
    """Return a reader of the access rules of a request."""

    def read_rules(_: BrokerContext, request: Command) -> State:
        fields = request.ext_fields
        acl = AclInfo.decode(request.body) if request.body else AclInfo()
        rules = [
            f"{entry.decision} {','.join(entry.actions or ())} on {entry.resource}"
            + (f" from {','.join(entry.source_ips)}" if entry.source_ips else "")
            for policy in acl.policies or ()
            for entry in policy.entries or ()
        ] or [fields.get("resource") or "all resources"]
        subject = acl.subject or fields.get("subject")
        return {f"rules of {subject}": f"{verb}: {'; '.join(rules)}"}

    return read_rules


_STATES: Final[dict[int, StateReader]] = {
    Code.UPDATE_AND_CREATE_TOPIC: lambda c, r: _topics(c, [r.ext_fields.get("topic")]),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _topic_list,
    Code.DELETE_TOPIC_IN_BROKER: lambda c, r: _topics(c, [r.ext_fields.get("topic")]),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda c, r: _group_states(
        c, [SubscriptionGroupConfig.decode(r.body).group_name]
    ),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: lambda c, r: _group_states(
        c,
        [
            each.group_name
            for each in SubscriptionGroupList.decode(r.body).group_config_list
        ],
    ),
    Code.DELETE_SUBSCRIPTIONGROUP: lambda c, r: _group_states(
        c, [r.ext_fields.get("groupName")]
    ),
    Code.UPDATE_BROKER_CONFIG: _key_values,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: lambda c, r: _offset_state(
        c, r.ext_fields.get("group", ""), r.ext_fields.get("topic", "")
    ),
    Code.CLONE_GROUP_OFFSET: lambda c, r: _offset_state(
        c, r.ext_fields.get("destGroup", ""), r.ext_fields.get("topic", "")
    ),
    OwnCode.RESEND_DEAD_LETTERS: _request_fields,
    Code.SET_MESSAGE_REQUEST_MODE: _request_fields,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _request_fields,
    Code.CLEAN_UNUSED_TOPIC: _request_fields,
    Code.DELETE_EXPIRED_COMMITLOG: _request_fields,
    Code.AUTH_CREATE_USER: _user_fields(CREATED),
    Code.AUTH_UPDATE_USER: _user_fields("changed"),
    Code.AUTH_DELETE_USER: _user_fields("deleted"),
    Code.AUTH_CREATE_ACL: _policy_fields("set"),
    Code.AUTH_UPDATE_ACL: _policy_fields("set"),
    Code.AUTH_DELETE_ACL: _policy_fields("deleted"),
}
"""Functions that return the state that a request may change, by request code."""
