"""ReceiveMessage: request 200050, and its records as a stream of messages.

The answer has a status first, then the messages one by one, the time of delivery last.
Messages over the attempts of the group become dead letters.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from rmq.plugin import BrokerContext, GrpcCall
from rmq.protocol import properties as names
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.handles import PopHandle
from rmq.protocol.headers import Header
from rmq.protocol.headers.lite import PopLiteMessageRequestHeader
from rmq.protocol.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from rmq.protocol.records import StoredMessage, decode_stored
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.acks import MAX_INVISIBLE_MS, Acks
from rmq_plugins.grpc.deliveries import Part
from rmq_plugins.grpc.handles import Receipt
from rmq_plugins.grpc.lites import is_lite, popped_lites
from rmq_plugins.grpc.messages import message_of, ms_of, time_of
from rmq_plugins.grpc.renewals import AUTO_RENEW_MS, Renewals
from rmq_plugins.grpc.requests import FILTER_TYPES, group_of, topic_of
from rmq_plugins.grpc.sessions import Session
from rmq_plugins.grpc.statuses import Code, Refused, status, status_of
from rmq_plugins.grpc.waits import Waits

MAX_BATCH: Final = 32
FROM_NEWEST: Final = 1
ANY_QUEUE: Final = -1
MIN_INVISIBLE_MS: Final = 10_000
MIN_POLL_MS, MAX_POLL_MS = 5_000, 20_000
WAY_BACK_MS: Final = 100

_UNITS: Final = {"H": 3_600_000, "M": 60_000, "S": 1_000, "m": 1, "u": 1e-3, "n": 1e-6}


class Receives:
    """Calls that wait for messages."""

    def __init__(
        self, broker: BrokerContext, acks: Acks, waits: Waits, renewals: Renewals
    ) -> None:
        self._broker = broker
        self._acks = acks
        self._waits = waits
        self._renewals = renewals

    def receive(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Answer with messages, or when the time to wait is over."""
        queue = request.message_queue
        topic, group = topic_of(queue.topic), group_of(request.group)
        # request 200050 creates a group that does not exist, if that is allowed
        config = self._broker.groups.get(group) or SubscriptionGroupConfig()
        place = topic, group, config.retry_max_times + 1, bool(request.auto_renew)
        stopping = status(Code.MESSAGE_NOT_FOUND, "the broker stops")
        self._waits.request_messages(
            call,
            session,
            self._header_of(call, session, request, config),
            lambda answer: self._parts_of(call, session, place, answer),
            lambda: self._build_parts(stopping),
        )

    def _header_of(
        self,
        call: GrpcCall,
        session: Session,
        request: Any,
        config: SubscriptionGroupConfig,
    ) -> tuple[RequestCode, Header]:
        """Return code and header of the request for messages."""
        queue, expression = request.message_queue, request.filter_expression
        batch = max(1, min(request.batch_size, MAX_BATCH))
        invisible_ms = _invisible_ms(request)
        poll_ms = _poll_ms(call, session, request)
        if is_lite(session):
            return RequestCode.POP_LITE_MESSAGE, PopLiteMessageRequestHeader(
                client_id=session.client_id,
                consumer_group=request.group.name,
                topic=queue.topic.name,
                max_msg_num=batch,
                invisible_time=invisible_ms,
                poll_time=poll_ms,
                born_time=0,
                attempt_id=request.attempt_id or None,
            )
        return RequestCode.POP_MESSAGE, PopMessageRequestHeader(
            consumer_group=request.group.name,
            topic=queue.topic.name,
            queue_id=queue.id if config.consume_message_orderly else ANY_QUEUE,
            max_msg_nums=batch,
            invisible_time=invisible_ms,
            poll_time=poll_ms,
            born_time=0,
            init_mode=FROM_NEWEST,
            exp_type=FILTER_TYPES.get(expression.type, "TAG"),
            exp=expression.expression or "*",
            order=config.consume_message_orderly,
            attempt_id=request.attempt_id or None,
        )

    def _parts_of(
        self,
        call: GrpcCall,
        session: Session,
        place: tuple[str, str, int, bool],
        answer: Command,
    ) -> list[Part]:
        """Return the messages of an answer: status, messages, time of delivery."""
        topic, group, attempts, is_renewed = place
        if answer.code == ResponseCode.POLLING_FULL:
            return self._build_parts(
                status(Code.TOO_MANY_REQUESTS, "too many calls wait")
            )
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            return self._build_parts(status(Code.MESSAGE_NOT_FOUND, "no new message"))
        if answer.code != ResponseCode.SUCCESS:
            return self._build_parts(status_of(answer))
        messages: list[Part] = []
        name = self._broker.config.broker_name
        lites = is_lite(session)
        popped = popped_lites(answer, name) if lites else Popped(answer, name).all()
        for record, receipt, count in popped:
            if count >= attempts and not lites:
                self._acks.store_dead_letter(
                    call, session, topic, group, receipt, lambda _answer: None
                )
                continue
            message = message_of(record, topic, session.language, attempt=count + 1)
            message.system_properties.receipt_handle = receipt.text
            message.system_properties.invisible_duration.CopyFrom(
                time_of(receipt.handle.invisible_ms)
            )
            give_back = partial(
                self._acks.give_back, call, session, topic, group, receipt
            )
            data = schema.ReceiveMessageResponse(message=message).SerializeToString()
            messages.append((data, give_back))
            if is_renewed:
                self._renewals.add(session, topic, group, receipt)
        if not messages:
            return self._build_parts(status(Code.MESSAGE_NOT_FOUND, "no new message"))
        return self._build_parts(status(), messages)

    def _build_parts(self, found: Any, messages: Iterable[Part] = ()) -> list[Part]:
        """Return an answer with its first and its last message."""
        answer = schema.ReceiveMessageResponse
        now = time_of(self._broker.clock.now_ms())
        return [
            (answer(status=found).SerializeToString(), None),
            *messages,
            (answer(delivery_timestamp=now).SerializeToString(), None),
        ]


class Popped:
    """The records of an answer to 200050, with their handles."""

    def __init__(self, answer: Command, broker_name: str) -> None:
        header = answer.header(PopMessageResponseHeader)
        self._header = header
        self._broker_name = broker_name
        self._records = decode_stored(answer.body)
        self._starts = dict(
            _split_info(each) for each in _items(header.start_offset_info)
        )
        self._counts = dict(
            _split_info(each) for each in _items(header.order_count_info)
        )

    def all(self) -> Iterator[tuple[StoredMessage, Receipt, int]]:
        """Yield each record, its handle, and how often it was delivered before."""
        for record in self._records:
            own = record.properties.get(names.POP_CK)
            if own is not None:
                # of a retry topic: the broker has added the handle
                handle = PopHandle.decode(own)
                assert handle is not None, own
                queue_id, offset = map(int, own.split(" ")[6:8])
                receipt = Receipt(handle, queue_id, offset, record.physical_offset)
                yield record, receipt, record.reconsume_times
                continue
            queue_id, offset = record.queue_id, int(record.queue_offset)
            handle = PopHandle(
                self._starts.get(f"0 {queue_id}", offset),
                self._header.pop_time,
                self._header.invisible_time,
                self._header.revive_qid,
                "0",
                self._broker_name,
            )
            count = self._counts.get(
                f"0 qo{queue_id}%{offset}",
                self._counts.get(f"0 {queue_id}", record.reconsume_times),
            )
            receipt = Receipt(handle, queue_id, offset, record.physical_offset)
            yield record, receipt, count


def _items(text: str | None) -> list[str]:
    return text.split(";") if text else []


def _split_info(item: str) -> tuple[str, int]:
    """Split `flag queue number` before the number."""
    key, _, number = item.rpartition(" ")
    return key, int(number)


def _invisible_ms(request: Any) -> int:
    """Return how long the messages stay invisible."""
    if request.auto_renew:
        return AUTO_RENEW_MS
    invisible_ms = ms_of(request.invisible_duration)
    if not MIN_INVISIBLE_MS <= invisible_ms <= MAX_INVISIBLE_MS:
        raise Refused(
            Code.ILLEGAL_INVISIBLE_TIME, "an invisible duration is 10 s to 12 hours"
        )
    return invisible_ms


def _poll_ms(call: GrpcCall, session: Session, request: Any) -> int:
    """Return how long a call may wait for messages."""
    left_ms = timeout_ms(call.metadata.get("grpc-timeout", ""))
    wanted_ms = ms_of(request.long_polling_timeout)
    if not wanted_ms:
        own = 0
        if session.settings is not None:
            own = ms_of(session.settings.request_timeout)
        wanted_ms = left_ms - own // 2 if left_ms else MAX_POLL_MS
    wanted_ms = max(MIN_POLL_MS, min(wanted_ms, MAX_POLL_MS))
    if left_ms and wanted_ms > left_ms - WAY_BACK_MS:
        if left_ms - WAY_BACK_MS < MIN_POLL_MS:
            raise Refused(Code.ILLEGAL_POLLING_TIME, "the deadline is too early")
        wanted_ms = left_ms - WAY_BACK_MS
    return wanted_ms


def timeout_ms(text: str) -> int:
    """Return the milliseconds of a grpc-timeout; 0 without one."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal() or len(number) > 8:
        return 0
    return int(int(number) * _UNITS[unit])
