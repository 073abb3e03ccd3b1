"""A client of gRPC for tests: it knows the messages, and nothing of an SDK."""

import itertools
import struct
import time
from contextlib import asynccontextmanager

import trio

from rmq_plugins.grpc import schema
from tests.fastpath.http2 import caller as h2
from tests.model import hpack

_ids = itertools.count()


class Answer:
    """The messages and the status of a call."""

    def __init__(self, kind, messages, headers):
        self.messages = [schema.CLASSES[kind].FromString(each) for each in messages]
        self.headers = headers
        self.grpc_status = int(headers.get(b"grpc-status", b"-1"))

    @property
    def only(self):
        (message,) = self.messages
        return message

    @property
    def code(self):
        return self.only.status.code


class Stream:
    """An open call."""

    def __init__(self, client, number, kind):
        self._client, self.number, self._kind = client, number, kind
        self.data = b""
        self.headers = {}
        self.changed = trio.Event()
        self.is_over = False
        self.error = None

    def take(self):
        """The whole messages so far."""
        found = []
        while len(self.data) >= 5:
            size = struct.unpack(">I", self.data[1:5])[0]
            if len(self.data) < 5 + size:
                break
            found.append(self.data[5 : 5 + size])
            self.data = self.data[5 + size :]
        return found

    async def next(self):
        """The next message of a stream."""
        while True:
            messages = self.take()
            if messages:
                self.data = b"".join(map(h2.message, messages[1:])) + self.data
                return schema.CLASSES[self._kind].FromString(messages[0])
            assert not self.is_over, f"the stream has ended: {self.headers}"
            await self.changed.wait()

    async def answer(self):
        while not self.is_over:
            await self.changed.wait()
        assert self.error is None, f"reset with {self.error}"
        return Answer(self._kind, self.take(), self.headers)

    async def send(self, message):
        payload = h2.message(message.SerializeToString())
        await self._client.write(h2.data(self.number, payload))

    async def reset(self):
        await self._client.write(h2.reset(self.number))


class GrpcClient:
    """One connection, with a client id."""

    def __init__(self, stream, client_id, language):
        self._socket = stream
        self._lock = trio.Lock()
        self._table = hpack.Table()
        self._streams = {}
        self._next = 1
        self.client_id = client_id
        self.language = language
        self.goaway = None

    @classmethod
    @asynccontextmanager
    async def open(cls, port, *, client_id=None, language=b"PYTHON", window=1 << 30):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        client_id = client_id or b"client@%d" % next(_ids)
        client = cls(stream, client_id, language)
        async with stream, trio.open_nursery() as nursery:
            nursery.start_soon(client._read)
            await client.write(
                h2.PREFACE
                + h2.settings((h2.INITIAL_WINDOW, window))
                + h2.window_update(0, 1 << 30)
            )
            yield client
            nursery.cancel_scope.cancel()

    async def write(self, data):
        async with self._lock:
            await self._socket.send_all(data)

    async def _read(self):
        left = b""
        while True:
            chunk = await self._socket.receive_some(1 << 20)
            left += chunk
            while len(left) >= 9 and len(left) >= 9 + (
                size := int.from_bytes(left[:3])
            ):
                kind, flags = left[3:5]
                stream = int.from_bytes(left[5:9])
                self._take_frame(kind, flags, stream, left[9 : 9 + size])
                left = left[9 + size :]
            if not chunk:
                for each in self._streams.values():
                    each.is_over, each.error = True, "closed"
                    each.changed.set()
                return

    def _take_frame(self, kind, flags, number, payload):
        if kind == h2.GOAWAY:
            self.goaway = payload[8:].decode()
        stream = self._streams.get(number)
        if stream is None:
            return
        if kind == h2.HEADERS:
            stream.headers |= dict(hpack.decode(self._table, payload))
        elif kind == h2.DATA:
            stream.data += payload
        elif kind == h2.RST_STREAM and not stream.is_over:
            stream.is_over, stream.error = True, int.from_bytes(payload)
        if kind in (h2.HEADERS, h2.DATA) and flags & h2.END_STREAM:
            stream.is_over = True
        stream.changed.set()
        stream.changed = trio.Event()

    async def start(self, method, request, *, is_over=True, **metadata):
        """Begin a call; `is_over` ends the request."""
        number, self._next = self._next, self._next + 2
        kind = "TelemetryCommand" if method == "Telemetry" else f"{method}Response"
        stream = self._streams[number] = Stream(self, number, kind)
        values = {
            "x_mq_client_id": self.client_id,
            "x_mq_language": self.language,
            **metadata,
        }
        path = h2.SERVICE + method.encode()
        payload = h2.message(request.SerializeToString())
        parts = [payload[i : i + 16_384] for i in range(0, len(payload), 16_384)]
        frames = [h2.data(number, part) for part in parts[:-1]]
        frames.append(h2.data(number, parts[-1], ends=is_over))
        await self.write(
            h2.headers(number, ends=False, path=path, **values) + b"".join(frames)
        )
        return stream

    async def call(self, method, request, **metadata):
        """The answer of a call."""
        stream = await self.start(method, request, **metadata)
        with trio.fail_after(10):
            return await stream.answer()

    # -- calls by their contents

    async def route(self, topic):
        request = schema.QueryRouteRequest()
        request.topic.name = topic
        return (await self.call("QueryRoute", request)).only

    async def send(self, topic, body=b"body", kind=1, **system):
        answer = await self.call("SendMessage", sent(topic, body, kind, **system))
        return answer.only

    async def receive(self, topic, group, **options):
        stream = await self.start_receive(topic, group, **options)
        with trio.fail_after(25):
            return await stream.answer()

    async def start_receive(
        self,
        topic,
        group,
        *,
        batch=32,
        invisible_s=30,
        poll_s=5,
        filters=None,
        queue_id=-1,
        **fields,
    ):
        request = schema.ReceiveMessageRequest(batch_size=batch, **fields)
        request.group.name = group
        request.message_queue.topic.name = topic
        request.message_queue.id = queue_id
        request.invisible_duration.seconds = invisible_s
        request.long_polling_timeout.seconds = poll_s
        if filters:
            request.filter_expression.type = filters[0]
            request.filter_expression.expression = filters[1]
        return await self.start("ReceiveMessage", request)

    async def messages(self, topic, group, **options):
        """The messages of a receive."""
        answer = await self.receive(topic, group, **options)
        return [each.message for each in answer.messages if each.HasField("message")]

    async def ack(self, topic, group, *handles):
        request = schema.AckMessageRequest()
        request.group.name, request.topic.name = group, topic
        for number, handle in enumerate(handles):
            request.entries.add(message_id=str(number), receipt_handle=handle)
        return (await self.call("AckMessage", request)).only


def sent(topic, body=b"body", kind=1, message_id=None, properties=None, **system):
    """A request with one message."""
    request = schema.SendMessageRequest()
    message = request.messages.add(body=body)
    message.topic.name = topic
    for key, value in (properties or {}).items():
        message.user_properties.add(key=key, value=value)
    own = message.system_properties
    own.message_id = message_id or f"01{next(_ids):032X}"
    own.message_type = kind
    own.body_encoding = 1
    own.born_timestamp.seconds = int(time.time())
    own.born_host = "tester"
    for name, value in system.items():
        if name == "keys":
            own.keys.extend(value)
        elif name == "delivery_ms":
            own.delivery_timestamp.seconds = value // 1000
            own.delivery_timestamp.nanos = value % 1000 * 1_000_000
        else:
            setattr(own, name, value)
    return request
