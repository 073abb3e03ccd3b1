"""Requests 324 and 325: push a reply (326) to the client that waits for it.

REPLY_TO_CLIENT names the client, which the broker knows from its heartbeat as a
producer. The answer is the result of the push. With `storeReplyMessageEnable` the
broker also stores the reply in its topic, even if the push fails. Without this key the
answer has id 0 and offset 0.
"""

from typing import Final

from rmq.plugin import (
    BrokerContext,
    Connection,
    InvokeTimeout,
    PeerClosed,
    PutStatus,
    RequestRejected,
)
from rmq.protocol import properties as names
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import BORN_HOST_V6, CLIENT_FLAGS
from rmq.protocol.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    decode_send_header,
)
from rmq.protocol.hosts import host_text
from rmq.protocol.message import Message
from rmq.protocol.properties import decode_properties, encode_properties
from rmq.protocol.records import offset_message_id
from rmq.protocol.topics import is_sendable, validate_topic

PUSH_TIMEOUT_MS: Final = 3_000

_IPV6_HOST_SIZE: Final = 20


class ReplyHandler:
    """Known in Java as `ReplyMessageProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        config = broker.config
        self._put = broker.put.put
        self._arrivals = broker.arrivals
        self._topics = broker.topics
        self._producers = broker.producers
        self._clock = broker.clock
        self._host = broker.store_host
        self._name = config.broker_ip1 or broker.address
        self._accept_from_ms = config.start_accept_send_request_time_stamp
        self._config = config
        self._facts = {
            names.MSG_REGION: config.region_id,
            names.TRACE_ON: "true" if config.trace_on else "false",
        }

    async def handle_reply(self, request: Command, connection: Connection) -> Command:
        """Push the reply, and store it if that is enabled."""
        header = decode_send_header(request.code, request.ext_fields)
        try:
            message = self._build_message(request, header, connection)
        except RequestRejected as refusal:
            return request.reply(refusal.code, refusal.remark, ext_fields=self._facts)
        problem = await self._push_reply(message, header)
        place = {"msgId": "0", "queueId": "0", "queueOffset": "0"}
        if self._config.store_reply_message_enable:
            stored = self._store_reply(message)
            if stored is None:
                problem = problem or "the reply was not stored"
            else:
                place = stored
        if problem is not None:
            return request.reply(
                ResponseCode.SYSTEM_ERROR, problem, ext_fields={**place, **self._facts}
            )
        return request.reply(ext_fields={**place, **self._facts})

    def _build_message(
        self,
        request: Command,
        header: SendMessageRequestHeader,
        connection: Connection,
    ) -> Message:
        """Check the request like a send, and build the message."""
        if self._accept_from_ms and self._clock.now_ms() < self._accept_from_ms:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {self._accept_from_ms}",
            )
        config = self._ensure_topic(header, connection)
        if header.queue_id >= max(config.write_queue_nums, config.read_queue_nums):
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{header.queue_id}] is illegal, {config.topic_name} "
                f"has {config.write_queue_nums} queues",
            )
        sys_flag = header.sys_flag & CLIENT_FLAGS
        if len(connection.remote_host) == _IPV6_HOST_SIZE:
            sys_flag |= BORN_HOST_V6
        return Message(
            header.topic,
            max(header.queue_id, 0),
            request.body,
            header.flag,
            sys_flag,
            header.born_timestamp,
            connection.remote_host,
            header.reconsume_times or 0,
            0,
            {**decode_properties(header.properties or ""), **self._facts},
        )

    def _ensure_topic(
        self, header: SendMessageRequestHeader, connection: Connection
    ) -> TopicConfig:
        if not is_sendable(header.topic):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{header.topic}] is forbidden.",
            )
        config = self._topics.get(header.topic)
        if config is None:
            validate_topic(header.topic)
            config = self._topics.create_for_send(
                header.topic,
                header.default_topic,
                header.default_topic_queue_nums,
                connection.remote_address,
            )
        if config is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please!",
            )
        return config

    async def _push_reply(
        self, message: Message, header: SendMessageRequestHeader
    ) -> str | None:
        """Send the reply to its client; return the problem, if any."""
        client = message.properties.get(names.REPLY_TO_CLIENT)
        if client is None:
            return "reply message properties[REPLY_TO_CLIENT] is null"
        connection = self._producers.connection(client)
        if connection is None or not connection.is_open:
            return f"push reply message fail, channel of {client} not found."
        now_ms = self._clock.now_ms()
        properties = {**message.properties, names.PUSH_REPLY_TIME: str(now_ms)}
        push = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=message.queue_id,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=encode_properties(properties),
            reconsume_times=message.reconsume_times,
            unit_mode=bool(header.unit_mode),
            born_host=host_text(message.born_host),
            store_host=host_text(self._host),
            store_timestamp=now_ms,
        )
        command = Command.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push, message.body
        )
        failure = f"push reply message to {client}fail."
        try:
            answer = await connection.invoke(command, PUSH_TIMEOUT_MS)
        except (InvokeTimeout, PeerClosed):
            return failure
        return None if answer.code == ResponseCode.SUCCESS else failure

    def _store_reply(self, message: Message) -> dict[str, str] | None:
        """Store the reply; return the fields with its id and offsets."""
        queue_id = message.queue_id
        result = self._put(message, without=names.TRAN_MSG)
        if result.status is not PutStatus.PUT_OK:
            return None
        self._arrivals.flush()
        return {
            "msgId": offset_message_id(self._host, result.physical_offset),
            "queueId": str(queue_id),
            "queueOffset": str(result.queue_offset),
        }
