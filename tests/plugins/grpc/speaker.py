"""A client of gRPC that blocks: one connection, for laboratories and crash tests."""

import itertools
import socket

from rmq_plugins.grpc import schema
from tests.fastpath.http2 import caller as h2

WINDOW = 1 << 30


class Speaker:
    """One connection of a client, with the bytes of its answers."""

    _ids = itertools.count()

    def __init__(self, port, source="127.0.0.1", timeout_s=30):
        address = ("127.0.0.1", port)
        self.socket = socket.create_connection(address, timeout_s, (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id = b"client@%d" % next(self._ids)
        self._left = b""
        self._next = 1
        self.answers = {}
        self.ended = set()
        self.socket.sendall(
            h2.PREFACE
            + h2.settings((h2.INITIAL_WINDOW, WINDOW))
            + h2.window_update(0, WINDOW)
        )

    def frames(self, method, request, **metadata):
        """The number of a new stream, and the frames of its call."""
        number, self._next = self._next, self._next + 2
        values = {
            "x_mq_client_id": self.client_id,
            "x_mq_language": b"PYTHON",
            **metadata,
        }
        text = request.SerializeToString()
        return number, h2.call(number, text, method.encode(), **values)

    def begin(self, *calls):
        """Send calls together."""
        made = [self.frames(*call) for call in calls]
        self.socket.sendall(b"".join(data for _, data in made))
        return [number for number, _ in made]

    def finish(self, numbers):
        """Wait for the answers to calls: the messages of each."""
        wanted = set(numbers)
        while not wanted <= self.ended:
            self.read()
        self.ended -= wanted
        return [split(self.answers.pop(number, b"")) for number in numbers]

    def ask(self, *calls):
        """Send calls together, and wait for their answers."""
        return self.finish(self.begin(*calls))

    def read(self):
        """Take the frames that have come."""
        chunk = self.socket.recv(1 << 20)
        if not chunk:
            raise ConnectionError("the broker ended the connection")
        data, at = self._left + chunk, 0
        while len(data) - at >= 9:
            size = int.from_bytes(data[at : at + 3])
            if len(data) - at < 9 + size:
                break
            kind, flags = data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5 : at + 9])
            if kind == h2.DATA:
                payload = data[at + 9 : at + 9 + size]
                self.answers[stream] = self.answers.get(stream, b"") + payload
            elif kind == h2.PING and not flags & h2.ACK:
                payload = data[at + 9 : at + 17]
                self.socket.sendall(h2.frame(h2.PING, h2.ACK, 0, payload))
            if kind in (h2.DATA, h2.HEADERS) and flags & h2.END_STREAM:
                self.ended.add(stream)
            at += 9 + size
        self._left = data[at:]


def split(data):
    """The messages of an answer."""
    found = []
    while data:
        end = 5 + int.from_bytes(data[1:5])
        found.append(data[5:end])
        data = data[end:]
    return found


def receive_call(topic, group, *, batch=32, poll_s=20, invisible_s=60, **fields):
    """A receive, as `Speaker.ask` takes it."""
    request = schema.ReceiveMessageRequest(batch_size=batch, **fields)
    request.group.name, request.message_queue.topic.name = group, topic
    if not request.auto_renew:
        request.invisible_duration.seconds = invisible_s
    request.long_polling_timeout.seconds = poll_s
    return "ReceiveMessage", request


def messages_of(answer):
    """The messages in the answer to a receive."""
    parts = map(schema.ReceiveMessageResponse.FromString, answer)
    return [part.message for part in parts if part.HasField("message")]


def register(speaker, group):
    """Become a known consumer, as SDKs do first."""
    beat = schema.HeartbeatRequest(client_type=3)
    beat.group.name = group
    speaker.ask(("Heartbeat", beat))
