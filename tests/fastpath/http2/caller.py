"""A client of HTTP/2 that sends any bytes, over a reactor that a test polls by hand."""

import struct
from typing import NamedTuple

from rmq._fastpath.http2.grpc_wire import GrpcWire
from tests.fastpath.wire import Wire
from tests.model import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)
END_STREAM = ACK = 1
END_HEADERS, PADDED, HAS_PRIORITY = 4, 8, 32

NO_ERROR, PROTOCOL, INTERNAL, FLOW_CONTROL = range(4)
CLOSED, FRAME_SIZE, REFUSED = 5, 6, 7
COMPRESSION, CALM = 9, 11

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW = 1, 2, 3, 4
MAX_FRAME_SIZE = 5

SERVICE = b"/apache.rocketmq.v2.MessagingService/"


class Frame(NamedTuple):
    kind: int
    flags: int
    id: int
    payload: bytes


def frame(kind, flags=0, stream=0, payload=b"", size=None):
    size = len(payload) if size is None else size
    return struct.pack(">IBI", size << 8 | kind, flags, stream) + payload


def settings(*pairs, flags=0):
    payload = b"".join(struct.pack(">HI", key, value) for key, value in pairs)
    return frame(SETTINGS, flags, 0, payload)


def window_update(stream, size):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))


def reset(stream, error=8):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", error))


def block(headers):
    """A header block of literals without entries."""
    return b"".join(
        b"\0" + hpack.encode_text(name) + hpack.encode_text(value)
        for name, value in headers
    )


def request_headers(path=SERVICE + b"QueryRoute", **changes):
    headers = {
        ":method": b"POST",
        ":scheme": b"http",
        ":path": path,
        ":authority": b"localhost",
        "content-type": b"application/grpc",
        "te": b"trailers",
    }
    headers |= {key.replace("_", "-"): value for key, value in changes.items()}
    return [
        (key.encode(), value) for key, value in headers.items() if value is not None
    ]


def headers(stream, *, ends=True, pairs=None, flags=0, **changes):
    pairs = request_headers(**changes) if pairs is None else pairs
    flags |= END_HEADERS | (END_STREAM if ends else 0)
    return frame(HEADERS, flags, stream, block(pairs))


def data(stream, payload=b"", *, ends=False, flags=0):
    return frame(DATA, flags | (END_STREAM if ends else 0), stream, payload)


def message(payload=b""):
    return b"\0" + struct.pack(">I", len(payload)) + payload


def call(stream, payload=b"", method=b"QueryRoute", **changes):
    changes.setdefault("path", SERVICE + method)
    return headers(stream, ends=False, **changes) + data(
        stream, message(payload), ends=True
    )


NO_SETTINGS = settings()


class Caller:
    """One connection, and the answers that came on it."""

    def __init__(self, wire, server, *, first=NO_SETTINGS):
        self.wire, self.server = wire, server
        self.token, self.peer = wire.connect()
        self.peer.setblocking(False)
        self.left = b""
        self.table = hpack.Table()
        self.is_closed = False
        self.events = []
        if first is not None:
            self.greeting = self.send(PREFACE + first)

    def send(self, *parts, now_ms=0):
        """Send bytes; the frames that come back when the reactor rests."""
        self.peer.setblocking(True)
        for part in parts:
            while part:
                self.peer.sendall(part[:65536])
                part = part[65536:]
                self.poll(now_ms)
        self.peer.setblocking(False)
        return self.receive(now_ms)

    def poll(self, now_ms=0):
        for kind, token, _ in self.wire.take(now_ms):
            self.events.append(kind)
            self.wire.reactor.connections.close(token)

    def receive(self, now_ms=0):
        self.poll(now_ms)
        while not self.is_closed:
            try:
                chunk = self.peer.recv(1 << 20)
            except BlockingIOError:
                break
            except ConnectionResetError:
                chunk = b""
            self.is_closed = not chunk
            self.left += chunk
            self.poll(now_ms)
        frames = []
        while len(self.left) >= 9:
            size = int.from_bytes(self.left[:3])
            if len(self.left) < 9 + size:
                break
            kind, flags = self.left[3:5]
            stream = int.from_bytes(self.left[5:9])
            frames.append(Frame(kind, flags, stream, self.left[9 : 9 + size]))
            self.left = self.left[9 + size :]
        return frames

    def headers_of(self, each):
        """The headers of a HEADERS frame, in the order of their arrival."""
        return hpack.decode(self.table, each.payload)


def new_server(**options):
    """(wire, server): a reactor that serves HTTP/2."""
    wire = Wire(**options)
    server = GrpcWire(wire.reactor.connections)
    wire.reactor.serve_http2(server, range(2))
    return wire, server


def goaway_of(frames):
    """(error, text) of the GOAWAY among the frames, or None."""
    for each in frames:
        if each.kind == GOAWAY:
            return int.from_bytes(each.payload[4:8]), each.payload[8:].decode()
    return None


def resets_of(frames):
    """{stream: error} of the RST_STREAM frames."""
    return {
        each.id: int.from_bytes(each.payload)
        for each in frames
        if each.kind == RST_STREAM
    }
