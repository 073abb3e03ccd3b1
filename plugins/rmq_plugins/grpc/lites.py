"""Lite topics: SyncLiteSubscription is request 200071; receives are request 200070.

A consumer of a lite kind sends the names of its lite topics, and repeats this call. The
group's attribute `lite.sub.client.quota` limits the number for one client.
"""

from collections.abc import Iterator
from typing import Any, Final

from rmq.plugin import BrokerContext, GrpcCall
from rmq.protocol import properties as names
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.lite import (
    LiteSubscription,
    LiteSubscriptionCtlRequestBody,
    OffsetOption,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.handles import PopHandle
from rmq.protocol.headers.lite import PopLiteMessageResponseHeader
from rmq.protocol.records import StoredMessage, decode_stored
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.handles import Receipt
from rmq_plugins.grpc.requests import group_of, send_request, topic_of
from rmq_plugins.grpc.sessions import Session
from rmq_plugins.grpc.statuses import Code, Refused, status_of

LITE_CONSUMERS: Final = (5, 6)
"""Client types: lite push and lite simple consumer."""

ACTIONS: Final = ("PARTIAL_ADD", "PARTIAL_REMOVE", "COMPLETE_ADD", "COMPLETE_REMOVE")
DEFAULT_QUOTA: Final = 2_000
MAX_NAME: Final = 64
"""Maximum number of letters in the name of a lite topic."""


def quota_of(group: SubscriptionGroupConfig) -> int:
    """Return the maximum number of lite topics of a client of a group."""
    text = group.attributes.get("lite.sub.client.quota", "")
    return int(text) if text.isdecimal() else DEFAULT_QUOTA


def is_lite(session: Session) -> bool:
    """Return whether a client consumes lite topics, by its settings."""
    settings = session.settings
    return settings is not None and settings.client_type in LITE_CONSUMERS


class Lites:
    """Subscriptions to lite topics."""

    def __init__(self, broker: BrokerContext) -> None:
        self._groups = broker.groups

    def sync(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Change the lite topics of a client."""
        topic, group = topic_of(request.topic), group_of(request.group)
        if not 0 <= request.action < len(ACTIONS):
            raise Refused(Code.BAD_REQUEST, f"there is no action {request.action}")
        action, found = ACTIONS[request.action], frozenset(request.lite_topic_set)
        quota = quota_of(self._groups.get(group) or SubscriptionGroupConfig())
        subscribed = change_topics(session.lite_topics, action, found)
        if len(subscribed) > max(quota, len(session.lite_topics)):
            raise Refused(
                Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
                f"a client of {group} has at most {quota} lite topics",
            )
        entry = LiteSubscription(
            action=action,
            client_id=session.client_id,
            group=group,
            topic=topic,
            lite_topic_set=sorted(found),
            offset_option=_option_of(request.offset_option),
            version=request.version,
        )

        def on_answer(answer: Command) -> None:
            if answer.code == ResponseCode.SUCCESS:
                # another call may have removed lite topics in the meantime
                session.lite_topics = change_topics(session.lite_topics, action, found)
            response = schema.SyncLiteSubscriptionResponse(status=status_of(answer))
            call.send_answer(response.SerializeToString())

        body = LiteSubscriptionCtlRequestBody(subscription_set=[entry]).encode()
        code = RequestCode.LITE_SUBSCRIPTION_CTL
        send_request(call, session, code, None, on_answer, body=body)


def change_topics(
    known: frozenset[str], action: str, named: frozenset[str]
) -> frozenset[str]:
    """Return the lite topics of a client after an action."""
    if action == "PARTIAL_ADD":
        return known | named
    if action == "PARTIAL_REMOVE":
        return known - named
    return named if action == "COMPLETE_ADD" else frozenset()


def _option_of(option: Any) -> OffsetOption | None:
    """Return the offset at which a group begins a new lite topic; None without an
    option.
    """
    kind = option.WhichOneof("offset_type")
    if kind is None:
        return None
    return OffsetOption(type=kind.upper(), value=getattr(option, kind))


def popped_lites(
    answer: Command, broker_name: str
) -> Iterator[tuple[StoredMessage, Receipt, int]]:
    """Yield the records of an answer to 200070, their handles, earlier deliveries."""
    header = answer.header(PopLiteMessageResponseHeader)
    counts = (header.order_count_info or "").split(";")
    handle = PopHandle(
        0, header.pop_time, header.invisible_time, header.revive_qid, "0", broker_name
    )
    for record, count in zip(decode_stored(answer.body), counts, strict=True):
        lite_topic = record.properties[names.LITE_TOPIC]
        offset = int(record.properties[names.INNER_MULTI_QUEUE_OFFSET].split(",")[0])
        receipt = Receipt(handle, 0, offset, record.physical_offset, lite_topic)
        yield record, receipt, int(count or 0)
