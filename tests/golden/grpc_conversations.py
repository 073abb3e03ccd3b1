"""Recorded conversations of gRPC SDKs with rmq, and their replay at a broker.

A replay sends the bytes of the SDK, with its header blocks as they were. Only receipt
handles are replaced by the handles that the broker has given this time.
"""

import base64
import json
import lzma
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from rmq_plugins.grpc import schema
from tests.fastpath.http2 import caller as h2
from tests.model import hpack

ARCHIVE = Path(__file__).parent / "data" / "grpc-sdks.jsonl.xz"
TOPIC, COUNT = "golden-topic", 4
PREFACE_SIZE = len(h2.PREFACE)


def read_rows():
    """The rows that `record_grpc.py` has written."""
    if not ARCHIVE.exists():
        return []
    lines = lzma.decompress(ARCHIVE.read_bytes()).decode().splitlines()
    return [json.loads(line) for line in lines]


def conversations():
    """The rows of each SDK, by its name."""
    found = defaultdict(list)
    for row in read_rows():
        found[row["sdk"]].append(row)
    return dict(found)


class Frames:
    """Splits the bytes of one direction into frames; keeps what streams carry."""

    def __init__(self, *, has_preface):
        self._left = b""
        self._preface = PREFACE_SIZE if has_preface else 0
        self._table = hpack.Table()
        self.headers = defaultdict(dict)
        self.data = defaultdict(bytes)
        self.ended = set()

    def feed(self, chunk):
        """The whole frames in a chunk and what was left: (kind, stream, bytes)."""
        self._left += chunk
        if self._preface:
            if len(self._left) < self._preface:
                return
            start, self._left = self._left[: self._preface], self._left[self._preface :]
            self._preface = 0
            yield None, 0, start
        while len(self._left) >= 9:
            size = 9 + int.from_bytes(self._left[:3])
            if len(self._left) < size:
                return
            frame, self._left = self._left[:size], self._left[size:]
            self._take(frame)
            yield frame[3], int.from_bytes(frame[5:9]), frame

    def _take(self, frame):
        kind, flags, stream = frame[3], frame[4], int.from_bytes(frame[5:9])
        if kind == h2.HEADERS:
            block = frame[9:]
            if flags & 0x20:  # a priority
                block = block[5:]
            self.headers[stream] |= dict(hpack.decode(self._table, block))
        elif kind == h2.DATA:
            self.data[stream] += frame[9:]
        if (
            kind in (h2.HEADERS, h2.DATA) and flags & h2.END_STREAM
        ) or kind == h2.RST_STREAM:
            self.ended.add(stream)

    def method(self, stream):
        """The name of the method of a call."""
        path = self.headers[stream].get(b":path", b"")
        return path.rpartition(b"/")[2].decode()

    def messages(self, stream, kind):
        """The whole messages of a stream."""
        data = self.data[stream]
        while len(data) >= 5 and len(data) >= (end := 5 + int.from_bytes(data[1:5])):
            yield schema.CLASSES[kind].FromString(data[5:end])
            data = data[end:]


def handles_of(asked, answered):
    """{message id: receipt handle} of the receives of a connection."""
    found = {}
    for stream in list(asked.headers):
        if asked.method(stream) == "ReceiveMessage":
            for each in answered.messages(stream, "ReceiveMessageResponse"):
                if each.HasField("message"):
                    system = each.message.system_properties
                    found[system.message_id] = system.receipt_handle
    return found


def codes_of(asked, answered):
    """{stream: (method, codes, gRPC status)} of the calls that were answered."""
    found = {}
    for stream in sorted(asked.headers):
        method = asked.method(stream)
        if stream not in answered.ended or method == "Telemetry":
            continue
        codes = [
            each.status.code
            for each in answered.messages(stream, f"{method}Response")
            if method != "ReceiveMessage" or each.HasField("status")
        ]
        status = answered.headers[stream].get(b"grpc-status")
        found[stream] = method, codes, status
    return found


class Replay:
    """One recorded connection, replayed at a broker."""

    def __init__(self, stream):
        self._stream = stream
        self.asked = Frames(has_preface=True)
        self.recorded = Frames(has_preface=False)
        self.live = Frames(has_preface=False)
        self._changed = trio.Event()

    async def read(self):
        async for chunk in self._stream:
            for _ in self.live.feed(chunk):
                pass
            self._changed.set()
            self._changed = trio.Event()

    async def send(self, chunk):
        """Send bytes of the SDK, with the handles of this run."""
        out = b""
        for kind, stream, frame in self.asked.feed(chunk):
            if kind == h2.DATA and self.asked.method(stream) == "AckMessage":
                frame = self._with_live_handles(frame)
            out += frame
        await self._stream.send_all(out)

    def _with_live_handles(self, frame):
        if len(frame) == 9:
            return frame
        before = handles_of(self.asked, self.recorded)
        now = handles_of(self.asked, self.live)
        request = schema.AckMessageRequest.FromString(frame[14:])
        for entry in request.entries:
            (message_id,) = (
                key for key, handle in before.items() if handle == entry.receipt_handle
            )
            entry.receipt_handle = now[message_id]
        payload = h2.message(request.SerializeToString())
        return h2.frame(frame[3], frame[4], int.from_bytes(frame[5:9]), payload)

    async def expect(self, chunk):
        """Wait until the calls that were answered by now are answered again."""
        for _ in self.recorded.feed(chunk):
            pass
        while not self.recorded.ended <= self.live.ended:
            await self._changed.wait()


async def replay(rows, port):
    """Replay a conversation; the pairs (recorded, live) of its connections' codes."""
    replays = {}
    async with AsyncExitStack() as streams, trio.open_nursery() as nursery:
        for row in rows:
            if row["conn"] not in replays:
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                await streams.enter_async_context(stream)
                made = replays[row["conn"]] = Replay(stream)
                nursery.start_soon(made.read)
            chunk = base64.b64decode(row["raw"])
            act = replays[row["conn"]].send
            if row["dir"] == "s2c":
                act = replays[row["conn"]].expect
            with trio.fail_after(5):
                await act(chunk)
        nursery.cancel_scope.cancel()
    return [
        (codes_of(each.asked, each.recorded), codes_of(each.asked, each.live))
        for each in replays.values()
    ]
