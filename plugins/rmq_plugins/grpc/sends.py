"""SendMessage: a message becomes request 310, or several one after the other."""

from typing import Any, Final

from rmq.plugin import BrokerContext, GrpcCall
from rmq.plugin.grpc import SendCalls
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.consistent_hash import choose_bucket
from rmq.protocol.headers.send import SendMessageRequestHeaderV2
from rmq.protocol.topics import is_dlq_topic, is_retry_topic
from rmq_plugins.grpc import messages, schema
from rmq_plugins.grpc.requests import largest_body, send_request, topic_of
from rmq_plugins.grpc.sessions import Session
from rmq_plugins.grpc.statuses import Code, Refused, common_status, status, status_of
from rmq_plugins.grpc.transactions import Transactions

MAX_MESSAGES: Final = 1_024
MIXED: Final = "MIXED"
KINDS: Final = {
    "NORMAL": messages.NORMAL,
    "FIFO": messages.FIFO,
    "DELAY": messages.DELAY,
    "TRANSACTION": messages.TRANSACTION,
    "LITE": messages.LITE,
    "PRIORITY": messages.PRIORITY,
}


def kinds_of(attributes: dict[str, str]) -> list[int]:
    """Return the types of messages that a topic with these attributes takes."""
    name = attributes.get("message.type", "NORMAL")
    if name == MIXED:
        return [
            messages.NORMAL,
            messages.FIFO,
            messages.DELAY,
            messages.TRANSACTION,
        ]
    return [KINDS.get(name, messages.NORMAL)]


class _Results:
    """The entries of an answer, which is sent when all entries are there."""

    def __init__(self, call: GrpcCall, count: int) -> None:
        self._call = call
        self._entries: list[Any] = [None] * count
        self._left = count

    def set(self, index: int, entry: Any) -> None:
        self._entries[index] = entry
        self._left -= 1
        if self._left:
            return
        answer = schema.SendMessageResponse(
            status=common_status(self._entries, "the messages have several results"),
            entries=self._entries,
        )
        self._call.send_answer(answer.SerializeToString())


class Sends:
    """Stores messages by the handler of request 310."""

    def __init__(self, broker: BrokerContext, transactions: Transactions) -> None:
        self._broker = broker
        self._transactions = transactions
        self.compiled: Final = SendCalls(
            RequestCode.SEND_MESSAGE_V2,
            now_ms=broker.clock.now_ms,
            largest_body=largest_body(broker),
            reserved_names=messages.RESERVED,
        )
        self._registered: set[str] = set()
        """Topics whose plain messages compiled code serves."""

        broker.topics.on_change.append(self._remove_topic)

    def _remove_topic(self, name: str, _config: TopicConfig | None) -> None:
        self._registered.discard(name)
        self.compiled.unregister(name)

    def _register_topic(self, config: TopicConfig | None) -> None:
        """Let compiled code serve a topic: a message of it was stored."""
        if config is None or config.topic_name in self._registered:
            return
        name = config.topic_name
        assert name is not None, "a topic in the table has a name"
        self._registered.add(name)
        self.compiled.register(
            name, config.write_queue_nums, kinds_of(config.attributes)
        )

    def send(self, call: GrpcCall, session: Session, request: Any) -> None:
        """Store the messages of a call."""
        topics = {each.topic.name for each in request.messages}
        if len(topics) != 1 or len(request.messages) > MAX_MESSAGES:
            raise Refused(
                Code.MESSAGE_CORRUPTED, "all messages of a call must have one topic"
            )
        topic = topic_of(request.messages[0].topic)
        if is_retry_topic(topic) or is_dlq_topic(topic):
            raise Refused(Code.ILLEGAL_TOPIC, f"{topic} belongs to a consumer group")
        results = _Results(call, len(request.messages))
        for index, message in enumerate(request.messages):
            try:
                self._send_one(call, session, topic, message, results, index)
            except Refused as refusal:
                if len(request.messages) == 1:
                    raise
                found = status(refusal.code, refusal.text)
                results.set(index, schema.SendResultEntry(status=found))

    def _send_one(
        self,
        call: GrpcCall,
        session: Session,
        topic: str,
        message: Any,
        results: _Results,
        index: int,
    ) -> None:
        messages.check_message(
            message, self._broker.clock.now_ms(), largest_body(self._broker)
        )
        kind = messages.type_of(message)
        config = self._broker.topics.get(topic)
        if config is not None and kind and kind not in kinds_of(config.attributes):
            raise Refused(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"topic {topic} accepts messages of type "
                f"{config.attributes.get('message.type', 'NORMAL')}: set its attribute "
                "message.type",
            )
        queues = 1 if config is None else max(1, config.write_queue_nums)
        header = SendMessageRequestHeaderV2(
            producer_group=topic,
            topic=topic,
            default_topic="",
            default_topic_queue_nums=0,
            queue_id=self._choose_queue(message, queues),
            sys_flag=messages.flags_of(message, kind),
            born_timestamp=messages.ms_of(message.system_properties.born_timestamp),
            flag=0,
            properties=messages.properties_of(message, kind),
        )
        message_id = message.system_properties.message_id

        def on_answer(answer: Command) -> None:
            if answer.code == ResponseCode.SUCCESS:
                self._register_topic(config)
            results.set(index, self._entry_of(answer, message_id, kind))

        send_request(
            call,
            session,
            RequestCode.SEND_MESSAGE_V2,
            header,
            on_answer,
            body=bytes(message.body),
        )

    def _choose_queue(self, message: Any, queues: int) -> int:
        """Return the queue of the message group, the queue in the request, or the next
        queue.
        """
        group = message.system_properties.message_group
        if group:
            return choose_bucket(group, queues)
        wanted = int(message.system_properties.queue_id)
        return wanted if 0 < wanted < queues else self.compiled.take_turn() % queues

    def _entry_of(self, answer: Command, message_id: str, kind: int) -> Any:
        entry = schema.SendResultEntry(status=status_of(answer), message_id=message_id)
        if answer.code != ResponseCode.SUCCESS:
            return entry
        fields = answer.ext_fields
        entry.offset = int(fields.get("queueOffset", "0"))
        entry.transaction_id = message_id
        if kind == messages.TRANSACTION:
            entry.transaction_id = self._transactions.id_of(fields, message_id)
        entry.recall_handle = fields.get("recallHandle", "")
        return entry
