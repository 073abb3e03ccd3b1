"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue.

A receipt handle names the message; its flag shows whether the message is in a retry
topic.
"""

from functools import partial
from typing import Any, Final

from rmq.plugin import GrpcCall
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import AckMessageRequestHeader
from rmq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.handles import Receipt, build_renewed, change_header
from rmq_plugins.grpc.messages import ms_of
from rmq_plugins.grpc.renewals import Renewals
from rmq_plugins.grpc.requests import group_of, send_request, topic_of
from rmq_plugins.grpc.sessions import Session
from rmq_plugins.grpc.statuses import Code, Refused, common_status, status, status_of

MAX_ENTRIES: Final = 1_024
MAX_INVISIBLE_MS: Final = 12 * 3_600_000
DEAD: Final = -1
"""The delay level with which 36 moves a message to the dead letters."""


class Acks:
    """Calls with a receipt handle; each call ends the renewals of the message."""

    def __init__(self, renewals: Renewals) -> None:
        self._renewals = renewals

    def ack(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Ack messages; the answer has a result for each message."""
        topic, group = topic_of(request.topic), group_of(request.group)
        count = len(request.entries)
        if not 0 < count <= MAX_ENTRIES:
            raise Refused(Code.BAD_REQUEST, f"a call acks 1 to {MAX_ENTRIES} messages")
        results: list[Any] = []

        def add_result(entry: Any, found: Any) -> None:
            results.append(
                schema.AckMessageResultEntry(
                    message_id=entry.message_id,
                    receipt_handle=entry.receipt_handle,
                    status=found,
                )
            )
            if len(results) == count:
                answer = schema.AckMessageResponse(
                    status=common_status(results, "there are several results"),
                    entries=results,
                )
                call.send_answer(answer.SerializeToString())

        def ack_entry(entry: Any, receipt: Receipt) -> None:
            self.ack_one(
                call,
                session,
                topic,
                group,
                receipt,
                lambda answer: add_result(entry, status_of(answer)),
            )

        for entry in request.entries:
            try:
                receipt = Receipt.decode(entry.receipt_handle, entry.lite_topic)
            except Refused as refusal:
                add_result(entry, status(refusal.code, refusal.text))
                continue
            self._renewals.end_renewal(
                entry.receipt_handle, receipt, partial(ack_entry, entry)
            )

    def ack_one(
        self,
        call: GrpcCall,
        session: Session,
        topic: str,
        group: str,
        receipt: Receipt,
        on_answer: Any,
    ) -> None:
        """Ack one message."""
        header = AckMessageRequestHeader(
            consumer_group=group,
            topic=receipt.topic(topic, group),
            queue_id=receipt.queue_id,
            extra_info=receipt.text,
            offset=receipt.offset,
            lite_topic=receipt.lite_topic or None,
        )
        send_request(call, session, RequestCode.ACK_MESSAGE, header, on_answer)

    def change_invisible_duration(
        self, call: GrpcCall, session: Session, request: Any
    ) -> None:
        """Set a new time at which a message becomes visible again."""
        topic, group = topic_of(request.topic), group_of(request.group)
        invisible_ms = ms_of(request.invisible_duration)
        if not 0 <= invisible_ms <= MAX_INVISIBLE_MS:
            raise Refused(
                Code.ILLEGAL_INVISIBLE_TIME, "an invisible duration is 0 to 12 hours"
            )
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME

        def change_time(receipt: Receipt) -> None:
            header = change_header(topic, group, receipt, invisible_ms)
            header.suspend = bool(request.suspend)

            def on_answer(answer: Command) -> None:
                found = schema.ChangeInvisibleDurationResponse(status=status_of(answer))
                if answer.code == ResponseCode.SUCCESS:
                    renewed = build_renewed(receipt, answer.ext_fields)
                    found.receipt_handle = renewed.text
                call.send_answer(found.SerializeToString())

            send_request(call, session, code, header, on_answer)

        receipt = Receipt.decode(request.receipt_handle, request.lite_topic)
        self._renewals.end_renewal(request.receipt_handle, receipt, change_time)

    def give_back(
        self,
        call: GrpcCall,
        session: Session,
        topic: str,
        group: str,
        handle: str,
        lite_topic: str,
    ) -> None:
        """Make a message visible again that its client did not get."""
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME

        def change_time(receipt: Receipt) -> None:
            header = change_header(topic, group, receipt, 0)
            send_request(call, session, code, header, lambda _answer: None)

        receipt = Receipt.decode(handle, lite_topic)
        self._renewals.end_renewal(handle, receipt, change_time)

    def forward_to_dead_letters(
        self, call: GrpcCall, session: Session, request: Any
    ) -> None:
        """Move a message to the dead letters of its group, and ack it."""
        topic, group = topic_of(request.topic), group_of(request.group)
        receipt = Receipt.decode(request.receipt_handle)

        def on_done(answer: Command) -> None:
            found = schema.ForwardMessageToDeadLetterQueueResponse(
                status=status_of(answer)
            )
            call.send_answer(found.SerializeToString())

        self._renewals.end_renewal(
            request.receipt_handle,
            receipt,
            lambda receipt: self.store_dead_letter(
                call, session, topic, group, receipt, on_done
            ),
        )

    def store_dead_letter(
        self,
        call: GrpcCall,
        session: Session,
        topic: str,
        group: str,
        receipt: Receipt,
        on_done: Any,
    ) -> None:
        """Store a message as a dead letter, and then ack it."""
        header = ConsumerSendMsgBackRequestHeader(
            offset=receipt.physical_offset,
            group=group,
            delay_level=DEAD,
            origin_topic=receipt.topic(topic, group),
            max_reconsume_times=0,
        )

        def on_stored(answer: Command) -> None:
            if answer.code == ResponseCode.SUCCESS:
                self.ack_one(call, session, topic, group, receipt, on_done)
            else:
                on_done(answer)

        send_request(
            call, session, RequestCode.CONSUMER_SEND_MSG_BACK, header, on_stored
        )
