"""ReceiveMessage: request 200050, and its records as a stream of messages.

The answer has a status first, then the messages one by one, the time of delivery last.
A message that has had all attempts of the group becomes a dead letter.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from rmq.plugin import BrokerContext, GrpcCall
from rmq.plugin.grpc import MessageEncoder, ReceiveCalls, ReceiveView
from rmq.protocol import properties as names
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.frames import decode
from rmq.protocol.handles import PopHandle
from rmq.protocol.headers import Header
from rmq.protocol.headers.lite import PopLiteMessageRequestHeader
from rmq.protocol.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from rmq.protocol.records import StoredMessage, decode_stored, decode_stored_at
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.acks import MAX_INVISIBLE_MS, Acks
from rmq_plugins.grpc.deliveries import Part
from rmq_plugins.grpc.handles import Receipt
from rmq_plugins.grpc.lites import is_lite, popped_lites
from rmq_plugins.grpc.messages import (
    MD5_LANGUAGES,
    PADDED_LANGUAGES,
    RESERVED,
    encode_received,
    ms_of,
    time_of,
)
from rmq_plugins.grpc.renewals import AUTO_RENEW_MS, Owner, Renewals
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

MAX_VIEWS: Final = 64
MAX_NAMES: Final = 255
"""Limits of what compiled code serves: receives of one client, and letters in the names
of one receive.
"""

OWN_TOPIC: Final = "0"
"""The flag of messages that are not in a retry topic."""

Encoded = tuple[bytes, str, str, int]
"""A message of an answer, its handle, its lite topic, and earlier deliveries."""

_UNITS: Final = {"H": 3_600_000, "M": 60_000, "S": 1_000, "m": 1, "u": 1e-3, "n": 1e-6}


class KnownReceive:
    """A client with its receives of a topic, which compiled code serves."""

    __slots__ = ("attempts", "owner", "tags", "view")

    def __init__(self, owner: Owner, tags: str, attempts: int) -> None:
        self.owner = owner
        self.tags = tags
        self.attempts = attempts
        self.view: ReceiveView


class Receives:
    """Calls that wait for messages."""

    def __init__(
        self, broker: BrokerContext, acks: Acks, waits: Waits, renewals: Renewals
    ) -> None:
        self._broker = broker
        self._acks = acks
        self._encoder = MessageEncoder(
            broker.config.broker_name, reserved_names=RESERVED
        )
        self._waits = waits
        self._renewals = renewals
        self.compiled = ReceiveCalls(
            RequestCode.POP_MESSAGE, self._encoder, renewals.table
        )
        self._by_group: dict[str, dict[ReceiveView, Session]] = {}
        """Views of receives that compiled code serves."""

        broker.groups.on_change.append(self._remove_group)

    def receive(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Answer with messages, or when the time to wait is over."""
        queue = request.message_queue
        topic, group = topic_of(queue.topic), group_of(request.group)
        # request 200050 creates a group that does not exist, if that is allowed
        config = self._broker.groups.get(group) or SubscriptionGroupConfig()
        place = topic, group, config.retry_max_times + 1, bool(request.auto_renew)
        code, header = self._header_of(call, session, request, config)
        self._waits.request_messages(
            call,
            session,
            (code, header),
            lambda answer: self._parts_of(call, session, place, answer),
            self._build_parts_at_stop,
            partial(_pop_now, call, session, code, header),
        )
        if code == RequestCode.POP_MESSAGE:
            assert isinstance(header, PopMessageRequestHeader), "as the code requires"
            self._register(call, session, header, config)

    # -- receives that compiled code serves

    def _register(
        self,
        call: GrpcCall,
        session: Session,
        header: PopMessageRequestHeader,
        config: SubscriptionGroupConfig,
    ) -> None:
        """Let compiled code serve receives like this one, if it can."""
        topic, group, tags = header.topic, header.consumer_group, header.exp or "*"
        language = session.language.upper()
        if (
            header.order
            or config.retry_max_times < 0
            or header.exp_type != "TAG"
            or language in MD5_LANGUAGES
            or (group, topic, tags) in session.views
            or len(session.views) >= MAX_VIEWS
            or len(group) + len(topic) + len(tags) > MAX_NAMES
        ):
            return
        attempts = config.retry_max_times + 1
        known = KnownReceive(Owner(session, topic, group), tags, attempts)
        view = ReceiveView(
            call.connection.token,
            session.client_id,
            group,
            topic,
            tags,
            half_ms=_own_timeout_ms(session) // 2,
            is_padded=language in PADDED_LANGUAGES,
            owner=known.owner,
            waiting=session.waiting,
            on_return=partial(self._continue_call, known),
        )
        known.view = view
        if self.compiled.add(view):
            session.views[group, topic, tags] = view
            self._by_group.setdefault(group, {})[view] = session

    def _continue_call(
        self,
        known: KnownReceive,
        call: GrpcCall,
        user: bytes,
        batch: int,
        invisible_ms: int,
        left_ms: int,
        is_renewed: bool,
    ) -> None:
        """Serve a call that waited in compiled code."""
        session, topic, group, _ = known.owner
        place = topic, group, known.attempts, is_renewed
        header = PopMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=ANY_QUEUE,
            max_msg_nums=batch,
            invisible_time=invisible_ms,
            poll_time=left_ms,
            born_time=0,
            init_mode=FROM_NEWEST,
            exp_type="TAG",
            exp=known.tags,
            order=False,
        )
        try:
            self._waits.request_messages(
                call,
                session,
                (RequestCode.POP_MESSAGE, header),
                lambda answer: self._parts_of(call, session, place, answer),
                self._build_parts_at_stop,
                user=user.decode(),
            )
        except Refused as refusal:
            found = status(refusal.code, refusal.text)
            answer = schema.ReceiveMessageResponse(status=found)
            call.send_answer(answer.SerializeToString())

    def stop(self) -> None:
        """Answer the calls that wait in compiled code: the broker stops."""
        parts = [data for data, _ in self._build_parts_at_stop()]
        self.compiled.stop(
            b"".join(b"\0" + len(data).to_bytes(4) + data for data in parts)
        )

    def forget_client(self, session: Session) -> None:
        """Leave the next receives of a client to Python: it ends, or has changed."""
        for (group, _, _), view in session.views.items():
            self._remove_view(group, view)
        session.views.clear()

    def _remove_group(self, group: str) -> None:
        """Leave the next receives of a group to Python: its settings have changed."""
        for view, session in list(self._by_group.get(group, {}).items()):
            self._remove_view(group, view)
            session.views = {
                key: each for key, each in session.views.items() if each is not view
            }

    def _remove_view(self, group: str, view: ReceiveView) -> None:
        """Remove a view, and keep its count; the caller changes `session.views`."""
        self.compiled.remove(view)
        views = self._by_group[group]
        session = views.pop(view)
        session.received += view.received
        if not views:
            del self._by_group[group]

    # -- receives in Python

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
        # a simple consumer asks for the queues in turn, and would wait at empty ones
        has_own_queue = config.consume_message_orderly and request.auto_renew
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
            queue_id=queue.id if has_own_queue else ANY_QUEUE,
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
        lites = is_lite(session)
        encode = self._encode_lites if lites else self._encode_popped
        for data, handle, lite_topic, earlier in encode(session, topic, answer):
            if earlier >= attempts and not lites:
                receipt = Receipt.decode(handle)
                self._acks.store_dead_letter(
                    call, session, topic, group, receipt, lambda _answer: None
                )
                continue
            give_back = partial(
                self._acks.give_back, call, session, topic, group, handle, lite_topic
            )
            messages.append((data, give_back))
            if is_renewed:
                receipt = Receipt.decode(handle, lite_topic)
                self._renewals.add(session, topic, group, receipt)
        if not messages:
            return self._build_parts(status(Code.MESSAGE_NOT_FOUND, "no new message"))
        session.received += len(messages)
        return self._build_parts(status(), messages)

    def _encode_lites(
        self, session: Session, topic: str, answer: Command
    ) -> Iterator[Encoded]:
        """Yield the messages of an answer to 200070."""
        name = self._broker.config.broker_name
        for record, receipt, earlier in popped_lites(answer, name):
            data = encode_received(
                record, topic, session.language, receipt=receipt, earlier=earlier
            )
            yield data, receipt.text, receipt.lite_topic, earlier

    def _encode_popped(
        self, session: Session, topic: str, answer: Command
    ) -> Iterator[Encoded]:
        """Yield the messages of an answer to 200050."""
        popped = Popped(answer, self._broker.config.broker_name)
        language = session.language.upper()
        if popped.counts or language in MD5_LANGUAGES:
            for record in decode_stored(answer.body):
                yield popped.encode(record, topic, language)
            return
        header = popped.header
        for position, data, handle, earlier in self._encoder.encode(
            answer.body,
            topic,
            popped.starts,
            pop_ms=header.pop_time,
            invisible_ms=header.invisible_time,
            revive_queue=header.revive_qid,
            is_padded=language in PADDED_LANGUAGES,
        ):
            if data is None:
                record = decode_stored_at(answer.body, position)
                yield popped.encode(record, topic, language)
            else:
                yield data, handle, "", earlier

    def _build_parts_at_stop(self) -> list[Part]:
        return self._build_parts(status(Code.MESSAGE_NOT_FOUND, "the broker stops"))

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
        self.header = answer.header(PopMessageResponseHeader)
        self._broker_name = broker_name
        self.starts: dict[int, int] = {}
        """The offsets at which the POP began, by queue of the topic itself."""

        for item in _items(self.header.start_offset_info):
            flag, queue_id, start = item.split(" ")
            if flag == OWN_TOPIC:
                self.starts[int(queue_id)] = int(start)
        self.counts = dict(map(_split_info, _items(self.header.order_count_info)))
        """Numbers of earlier deliveries of the messages, in an ordered group."""

    def encode(self, record: StoredMessage, topic: str, language: str) -> Encoded:
        """Return a record as a message of the answer."""
        receipt, earlier = self.receipt_of(record)
        data = encode_received(
            record, topic, language, receipt=receipt, earlier=earlier
        )
        return data, receipt.text, "", earlier

    def receipt_of(self, record: StoredMessage) -> tuple[Receipt, int]:
        """Return the handle of a record, and the number of its earlier deliveries."""
        own = record.properties.get(names.POP_CK, "")
        handle, fields = PopHandle.decode(own), own.split(" ")[6:]
        if (
            handle is not None
            and handle.pop_ms == self.header.pop_time
            and len(fields) == 2
            and all(each.isdecimal() for each in fields)
        ):
            # in records of a retry topic, the broker has added the handle
            queue_id, offset = map(int, fields)
            receipt = Receipt(handle, queue_id, offset, record.physical_offset)
            return receipt, record.reconsume_times
        queue_id, offset = record.queue_id, int(record.queue_offset)
        handle = PopHandle(
            self.starts.get(queue_id, offset),
            self.header.pop_time,
            self.header.invisible_time,
            self.header.revive_qid,
            OWN_TOPIC,
            self._broker_name,
        )
        count = self.counts.get(
            f"0 qo{queue_id}%{offset}",
            self.counts.get(f"0 {queue_id}", record.reconsume_times),
        )
        return Receipt(handle, queue_id, offset, record.physical_offset), count


def _pop_now(
    call: GrpcCall, session: Session, code: RequestCode, header: Header
) -> Command | None:
    """Return the answer of the compiled POP; None if it declines."""
    assert session.caller is not None, "a session has a caller"
    if code != RequestCode.POP_MESSAGE:
        return None
    fields = header.encode() | {"pollTime": "0"}
    reply = call.ask_handler(session.caller.user, code, fields)
    return None if reply is None else decode(reply)


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
        own = _own_timeout_ms(session)
        wanted_ms = left_ms - own // 2 if left_ms else MAX_POLL_MS
    wanted_ms = max(MIN_POLL_MS, min(wanted_ms, MAX_POLL_MS))
    if left_ms and wanted_ms > left_ms - WAY_BACK_MS:
        if left_ms - WAY_BACK_MS < MIN_POLL_MS:
            raise Refused(Code.ILLEGAL_POLLING_TIME, "the deadline is too early")
        wanted_ms = left_ms - WAY_BACK_MS
    return wanted_ms


def _own_timeout_ms(session: Session) -> int:
    """Return the time limit of requests that a client has set, 0 without one."""
    settings = session.settings
    return 0 if settings is None else ms_of(settings.request_timeout)


def timeout_ms(text: str) -> int:
    """Return the milliseconds of a grpc-timeout; 0 without one."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal() or len(number) > 8:
        return 0
    return int(int(number) * _UNITS[unit])
