"""A broker behind a reactor that serves calls of gRPC, compiled or in Python."""

from collections import Counter

from rmq.remoting.grpc_server import GrpcServer
from rmq.remoting.inner_caller import InnerCaller
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.service import Service
from tests.fastpath.http2 import caller as h2
from tests.plugins.sides import MAIN, Side


class GrpcSide(Side):
    """It answers calls of one connection; `answers_of` has what came back."""

    def __init__(self, folder, **options):
        super().__init__(folder, **options)
        self.broker.open_caller = lambda connection, on_request: InnerCaller(
            connection, self._serve_call, lambda *_: None, on_request
        )
        self.connection.listener_index, self.connection.listener_name = MAIN, "main"
        self.connection.peer, self.connection.opened_ms = ("127.0.0.1", 40_001), 0
        service = Service(self.broker)
        self.connections = {self.token: self.connection}
        self.sends = service.compiled["SendMessage"]
        self.grpc = GrpcServer(self.reactor, self.connections.get, service, [MAIN])
        self.left = b""
        self.data = {}
        self.endings = Counter()
        self.stream = -1
        self.play([h2.PREFACE + h2.settings((h2.INITIAL_WINDOW, 1 << 30))])
        self.play([h2.window_update(0, 1 << 30)])

    def _serve_call(self, caller, request):
        answer = self.caller.handle(request, caller)
        if answer is not None:
            answer = getattr(answer, "response", answer)
            answer.opaque = request.opaque
            caller.send_nowait(answer)

    def poll(self):
        """Serve what has come."""
        for _ in range(1000):
            is_busy = self.reactor.poll(self.broker.clock.now_ms() - 1_000_000_000)
            self.broker.arrivals.flush()
            self.grpc.after_poll()
            self.take_ends()
            self.broker.arrivals.flush()
            self.reactor.flush()
            if not is_busy:
                return
        raise AssertionError("the reactor does not come to rest")

    def take_ends(self):
        """Take the events of connections that end; here they stay open."""

    def collect(self):
        """Take the frames that came back."""
        while True:
            try:
                chunk = self.peer.recv(1 << 20)
            except BlockingIOError:
                break
            self.left += chunk
        while len(self.left) >= 9 and len(self.left) >= 9 + (
            size := int.from_bytes(self.left[:3])
        ):
            kind, flags, stream = self.left[3], self.left[4], self.left[5:9]
            if kind == h2.DATA:
                number = int.from_bytes(stream)
                payload = self.left[9 : 9 + size]
                self.data[number] = self.data.get(number, b"") + payload
            self.endings[kind, flags] += 1
            self.left = self.left[9 + size :]

    def frames_of(self, method, request, **metadata):
        """The frames of a call, with the next stream."""
        self.stream += 2
        metadata = {"x_mq_client_id": b"me", "x_mq_language": b"PYTHON", **metadata}
        return h2.call(
            self.stream,
            request.SerializeToString(),
            method.encode(),
            **metadata,
        )

    def answer_of(self, stream, kind="SendMessageResponse"):
        """The only message of an answer."""
        data = self.data[stream]
        assert int.from_bytes(data[1:5]) == len(data) - 5
        return schema.CLASSES[kind].FromString(data[5:])

    def answers_of(self, stream, kind):
        """All messages of an answer so far."""
        data, found = self.data.get(stream, b""), []
        while data:
            end = 5 + int.from_bytes(data[1:5])
            found.append(schema.CLASSES[kind].FromString(data[5:end]))
            data = data[end:]
        return found

    def messages(self):
        """The messages that the last call, a receive, has brought."""
        found = self.answers_of(self.stream, "ReceiveMessageResponse")
        return [each.message for each in found if each.HasField("message")]

    def call(self, request, method="SendMessage", **metadata):
        """The answer of one call."""
        self.play([self.frames_of(method, request, **metadata)])
        return self.answer_of(self.stream, f"{method}Response")


def make_pair(folder, **options):
    """Return (Python's side, compiled side)."""
    return [
        GrpcSide(folder / name, compiled=name == "compiled", **options)
        for name in ("python", "compiled")
    ]


def ack_of(*handles, topic="T", group="G"):
    """The ack of several messages."""
    request = schema.AckMessageRequest()
    request.group.name, request.topic.name = group, topic
    for number, handle in enumerate(handles):
        request.entries.add(message_id=f"id{number}", receipt_handle=handle)
    return request


def open_stream(frames):
    """The frames of a call without the end of its request."""
    at = int.from_bytes(frames[:3]) + 9
    assert frames[at + 4] == 1
    return frames[: at + 4] + b"\0" + frames[at + 5 :]
