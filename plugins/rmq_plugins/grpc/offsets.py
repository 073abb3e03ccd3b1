"""PullMessage, GetOffset, UpdateOffset and QueryOffset: requests 11, 14, 15, 29 to 31.

An answer of PullMessage has a status, the messages, and the next offset. A pull waits
for messages as a receive does.
"""

from collections.abc import Iterable
from typing import Any, Final

from rmq.plugin import GrpcCall
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq.protocol.headers import Header
from rmq.protocol.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq.protocol.headers.pull import PullMessageRequestHeader
from rmq.protocol.records import StoredMessage, decode_stored
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.deliveries import Part
from rmq_plugins.grpc.messages import message_of, ms_of
from rmq_plugins.grpc.requests import FILTER_TYPES, group_of, send_request, topic_of
from rmq_plugins.grpc.sessions import Session
from rmq_plugins.grpc.statuses import Code, Refused, status, status_of
from rmq_plugins.grpc.waits import Waits

MAX_BATCH: Final = 32
MAX_POLL_MS: Final = 20_000

BEGINNING, END, TIMESTAMP = range(3)
"""Policies of QueryOffset."""

_PULL_CODES: Final[dict[int, tuple[Code, str]]] = {
    ResponseCode.SUCCESS: (Code.OK, "OK"),
    ResponseCode.PULL_NOT_FOUND: (Code.MESSAGE_NOT_FOUND, "no new message"),
    ResponseCode.PULL_RETRY_IMMEDIATELY: (Code.MESSAGE_NOT_FOUND, "none matched"),
    ResponseCode.PULL_OFFSET_MOVED: (Code.ILLEGAL_OFFSET, "the offset has no message"),
}


class Offsets:
    """Calls that read a queue by offsets, and calls for the offsets of a group."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    def get_offset(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Answer with the offset that a group has committed."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group_of(request.group),
            topic=topic_of(request.message_queue.topic),
            queue_id=request.message_queue.id,
            set_zero_if_not_found=False,
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        self._answer_offset(call, session, code, header, schema.GetOffsetResponse)

    def update_offset(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Commit an offset of a group."""
        if request.offset < 0:
            raise Refused(Code.ILLEGAL_OFFSET, "an offset must be at least 0")
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group_of(request.group),
            topic=topic_of(request.message_queue.topic),
            queue_id=request.message_queue.id,
            commit_offset=request.offset,
        )

        def on_answer(answer: Command) -> None:
            found = schema.UpdateOffsetResponse(status=status_of(answer))
            call.send_answer(found.SerializeToString())

        code = RequestCode.UPDATE_CONSUMER_OFFSET
        send_request(call, session, code, header, on_answer)

    def query_offset(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Answer with the first offset of a queue, its end, or the offset of a time."""
        queue, policy = request.message_queue, request.query_offset_policy
        topic = topic_of(queue.topic)
        header: Header
        if policy == BEGINNING:
            code = RequestCode.GET_MIN_OFFSET
            header = GetMinOffsetRequestHeader(topic=topic, queue_id=queue.id)
        elif policy == END:
            code = RequestCode.GET_MAX_OFFSET
            header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue.id)
        elif policy == TIMESTAMP:
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            header = SearchOffsetRequestHeader(
                topic=topic, queue_id=queue.id, timestamp=ms_of(request.timestamp)
            )
        else:
            raise Refused(Code.BAD_REQUEST, f"there is no policy {policy}")
        self._answer_offset(call, session, code, header, schema.QueryOffsetResponse)

    def _answer_offset(
        self,
        call: GrpcCall,
        session: Session,
        code: RequestCode,
        header: Header,
        response: Any,
    ) -> None:
        def on_answer(answer: Command) -> None:
            found = response(status=status_of(answer))
            if answer.code == ResponseCode.SUCCESS:
                found.offset = int(answer.ext_fields["offset"])
            call.send_answer(found.SerializeToString())

        send_request(call, session, code, header, on_answer)

    # -- PullMessage

    def pull(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Answer with messages from an offset on, or when the time to wait is over."""
        queue = request.message_queue
        topic, group = topic_of(queue.topic), group_of(request.group)
        if request.offset < 0:
            raise Refused(Code.ILLEGAL_OFFSET, "an offset must be at least 0")
        expression = request.filter_expression
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue.id,
            queue_offset=request.offset,
            max_msg_nums=max(1, min(request.batch_size, MAX_BATCH)),
            sys_flag=PULL_SUSPEND | PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=min(
                ms_of(request.long_polling_timeout), MAX_POLL_MS
            ),
            subscription=expression.expression or "*",
            sub_version=0,
            expression_type=FILTER_TYPES.get(expression.type, "TAG"),
        )
        stopping = status(Code.MESSAGE_NOT_FOUND, "the broker stops")
        self._waits.request_messages(
            call,
            session,
            (RequestCode.PULL_MESSAGE, header),
            lambda answer: _parts_of(session, topic, answer),
            lambda: _build_parts(stopping, request.offset),
        )


def _parts_of(session: Session, topic: str, answer: Command) -> list[Part]:
    """Return the messages of an answer: status, messages, next offset."""
    known = _PULL_CODES.get(answer.code)
    if known is None:
        return _build_parts(status_of(answer), None)
    found: list[StoredMessage] = []
    if answer.code == ResponseCode.SUCCESS:
        found = list(decode_stored(answer.body))
    messages = [message_of(each, topic, session.language) for each in found]
    next_offset = int(answer.ext_fields["nextBeginOffset"])
    return _build_parts(status(*known), next_offset, messages)


def _build_parts(
    found: Any, next_offset: int | None, messages: Iterable[Any] = ()
) -> list[Part]:
    """Return an answer: a status, messages, and the next offset if it is known."""
    response = schema.PullMessageResponse
    parts = [response(status=found), *(response(message=each) for each in messages)]
    if next_offset is not None:
        parts.append(response(next_offset=next_offset))
    return [(part.SerializeToString(), None) for part in parts]
