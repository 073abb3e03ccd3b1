"""RequestReply: messages with a reply, and the recall of delayed messages.

Java's `RequestFutureHolder`. A request is a message with the properties CORRELATION_ID
and REPLY_TO_CLIENT. The broker sends the reply to the requesting client (request 326).
"""

import base64
import binascii
import itertools
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio

from rmq._fastpath.client.messages import ReceivedMessage, decode_messages
from rmq.client.client import Client
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import ClientError, RequestTimeout, SendFailed, SendRefused
from rmq.client.namespaces import unwrap, wrap
from rmq.core.address import Address
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.outgoing.connection import date_ms
from rmq.outgoing.wire import Waiter
from rmq.protocol import flags
from rmq.protocol import properties as names
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.compression import open_body
from rmq.protocol.headers.send import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    ReplyMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rmq.protocol.hosts import host_bytes
from rmq.protocol.properties import decode_properties, encode_properties
from rmq.protocol.records import StoredMessage, encode_stored
from rmq.protocol.topics import DEFAULT_TOPIC, reply_topic

TIMEOUT_MS: Final = 3_000
IPV4_SIZE: Final = 8
MAX_REQUESTS: Final = 10_000


class RequestReply:
    """The open requests of one producer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: dict[str, Waiter] = {}
        self._prepared: set[str] = set()
        self._prefix = uuid.uuid4().hex
        self._numbers = itertools.count()

    def begin(self, timeout_s: float) -> tuple[dict[str, str], str]:
        """Return the properties of a request, and its number."""
        if len(self._waiting) >= MAX_REQUESTS:
            raise ClientError(f"{MAX_REQUESTS} requests wait for replies already")
        number = f"{self._prefix}-{next(self._numbers)}"
        return {
            names.CORRELATION_ID: number,
            names.REPLY_TO_CLIENT: self._client.client_id,
            names.TTL: str(int(timeout_s * 1_000)),
        }, number

    async def prepare(self, topic: str, timeout_ms: int) -> None:
        """Send heartbeats once, so that all brokers of a topic can pass replies to this
        client.
        """
        if topic not in self._prepared:
            await self._client.wait_for_route(topic, timeout_ms)
            await self._client.send_heartbeats()
            self._prepared.add(topic)

    @contextmanager
    def wait_for(self, number: str, waiter: Waiter) -> Iterator[Waiter]:
        """Register the waiter that gets the reply to the request with a number."""
        self._waiting[number] = waiter
        try:
            yield waiter
        finally:
            del self._waiting[number]

    async def reply(
        self, waiter: Waiter, topic: str, timeout_s: float
    ) -> ReceivedMessage:
        """Wait for the reply, and return it."""
        try:
            with anyio.fail_after(timeout_s):
                reply: ReceivedMessage = await waiter
        except TimeoutError as error:
            raise RequestTimeout(
                f"no consumer of topic {topic} replied within {timeout_s:g} s"
            ) from error
        return reply

    def on_request(self, request: Command) -> Command | None:
        """Handle 326, a reply; None for other requests."""
        if request.code != RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return None
        header = request.header(ReplyMessageRequestHeader)
        properties = decode_properties(header.properties or "")
        waiter = self._waiting.get(properties.get(names.CORRELATION_ID, ""))
        if waiter is None:
            return None
        if not waiter.done():
            waiter.set_result(self._decode_reply(header, request.body))
        return request.reply()

    def _decode_reply(
        self, header: ReplyMessageRequestHeader, body: bytes
    ) -> ReceivedMessage:
        record = _record(header, body)
        topic = unwrap(self._client.namespace, header.topic)
        (message,) = decode_messages(record, topic, None, inflate=open_body)
        return message

    async def send_reply(
        self,
        group: str,
        to: ReceivedMessage,
        body: bytes,
        properties: dict[str, str] | None,
    ) -> None:
        """Send a reply to the broker of the request."""
        asked = to.properties
        if names.REPLY_TO_CLIENT not in asked:
            raise ValueError(f"{to.msg_id} is not a request: its sender used send()")
        texts = {
            **(properties or {}),
            names.MSG_TYPE: "reply",
            names.CORRELATION_ID: asked.get(names.CORRELATION_ID, ""),
            names.REPLY_TO_CLIENT: asked[names.REPLY_TO_CLIENT],
            names.TTL: asked.get(names.TTL, str(TIMEOUT_MS)),
        }
        topic = reply_topic(asked.get(names.CLUSTER, "DefaultCluster"))
        header = SendMessageRequestHeaderV2(
            producer_group=wrap(self._client.namespace, group),
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=date_ms(),
            flag=0,
            properties=encode_properties(texts),
            reconsume_times=0,
            batch=False,
        )
        queue = to.queue
        assert isinstance(queue, MessageQueue)
        route = await self._client.route(queue.topic)
        address = route.master_of(queue.broker)
        if address is None:
            raise SendFailed(f"{queue.broker} is offline", topic, None, 1)
        request = Command.request(RequestCode.SEND_REPLY_MESSAGE_V2, header, body)
        answer = await self._client.request(address, request)
        if answer.code != ResponseCode.SUCCESS:
            raise SendRefused(queue, address, 1, answer.code, answer.remark or "")

    async def recall(self, group: str, topic: str, handle: str) -> str:
        """Let the broker of a handle withdraw a message; return its id."""
        header = RecallMessageRequestHeader(
            producer_group=wrap(self._client.namespace, group),
            topic=wrap(self._client.namespace, topic),
            recall_handle=handle,
        )
        request = Command.request(RequestCode.RECALL_MESSAGE, header)
        route = await self._client.wait_for_route(topic, TIMEOUT_MS)
        queue = route.writable[0]
        name = _broker_of(handle)
        address = route.master_of(name) if name else None
        if address is None:
            raise SendFailed(
                f"the handle names no broker of topic {topic}", topic, None, 0
            )
        answer = await self._client.request(address, request)
        if answer.code != ResponseCode.SUCCESS:
            raise SendRefused(queue, address, 1, answer.code, answer.remark or "")
        return answer.header(RecallMessageResponseHeader).msg_id


def _broker_of(handle: str) -> str | None:
    """Return the broker in a handle: URL-safe Base64 of `v1 topic broker time id`."""
    try:
        parts = base64.urlsafe_b64decode(handle + "=" * (-len(handle) % 4)).split(b" ")
        return parts[2].decode()
    except (binascii.Error, ValueError, IndexError):
        return None


def _record(header: ReplyMessageRequestHeader, body: bytes) -> bytes:
    """Return the reply as a record of a log."""
    born, stored = (_host(text) for text in (header.born_host, header.store_host))
    v6 = (flags.BORN_HOST_V6, flags.STORE_HOST_V6)
    sys_flag = header.sys_flag & ~(v6[0] | v6[1])
    for host, flag in zip((born, stored), v6, strict=True):
        sys_flag |= flag if len(host) > IPV4_SIZE else 0
    record = StoredMessage(
        size=0,
        magic=0,
        body_crc=0,
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=QueueOffset(0),
        physical_offset=PhysicalOffset(0),
        sys_flag=sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=born,
        store_timestamp=header.store_timestamp,
        store_host=stored,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        topic=header.topic,
        properties_text=header.properties or "",
    )
    return encode_stored(record)


def _host(text: str) -> bytes:
    return host_bytes(*Address.parse(text.lstrip("/")))
