"""Load at an ordinary rate: a sender with a clock, groups that follow, quiet consumers.

lab/ordinary.py starts a process for each part, which prints one line of JSON. The
first eight bytes of a body are the sender's monotonic clock in nanoseconds; all
processes of a machine share it, so a follower computes how long a message took. Of a
timed message they are the end of the second in which it is due.

    python bench/load/paced.py send PORT --rate 1000 --seconds 5 --queues 4
    python bench/load/paced.py follow PORT --groups 2 --seconds 5 --queues 4
    python bench/load/paced.py wait PORT --connections 500 --seconds 10
"""

import argparse
import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Iterator

BODY_SIZE = 128
BODY_AT = 88
"""Place of the body in a stored record with IPv4 hosts."""

HOLD_MS = 20_000
SEND, PULL, CREATE_TOPIC, MAX_OFFSET, HEARTBEAT = 310, 11, 17, 30, 34
OK = b'"code":0'
NOTICE = b'"flag":2'
NEXT = b'"nextBeginOffset":"'
OPAQUE = b'"opaque":'
HEARTBEAT_S = 30
OPAQUE_START = 1_000_000_000
"""The echo wants opaques of ten digits."""


def frame(code: int, fields: dict[str, str], body: bytes = b"", number: int = 0):
    """Return a request with a JSON header, as Java's client writes it."""
    header = json.dumps(
        {
            "code": code, "extFields": fields, "flag": 0, "language": "JAVA",
            "opaque": OPAQUE_START + number, "version": 479,
            "serializeTypeCurrentRPC": "JSON",
        },
        separators=(",", ":"),
    ).encode()  # fmt: skip
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def create_topic(port: int, queues: int) -> None:
    """Make the topic of loads with so many queues."""
    fields = {
        "topic": topic_of(queues), "defaultTopic": "TBW102", "perm": "6",
        "readQueueNums": str(queues), "writeQueueNums": str(queues), "order": "false",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
    }  # fmt: skip
    with connect(port) as peer:
        header, _ = call(peer, frame(CREATE_TOPIC, fields))
    assert OK in header, header


def topic_of(queues: int) -> str:
    """Return the topic with so many queues."""
    return f"Ordinary{queues}"


def send_frame(topic: str, queue: int, body: bytes, properties: str = "") -> bytes:
    """Return a send, a plain one without other properties."""
    key = os.urandom(16).hex().upper()
    return frame(
        SEND,
        {
            "a": "OrdinaryProducer", "b": topic, "c": "TBW102", "d": "4",
            "e": str(queue), "f": "0", "g": str(int(time.time() * 1000)), "h": "0",
            "i": properties or f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02",
            "j": "0", "k": "false", "m": "false",
        },
        body,
    )  # fmt: skip


def pull_frame(
    topic: str, group: str, queue: int, offset: int, hold_ms: int = HOLD_MS
) -> bytes:
    """Return a pull that waits up to `hold_ms`; the opaque tells the queue."""
    return frame(
        PULL,
        {
            "consumerGroup": group, "topic": topic, "queueId": str(queue),
            "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "6",
            "commitOffset": "0", "suspendTimeoutMillis": str(hold_ms),
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        },
        number=queue,
    )  # fmt: skip


def connect(port: int) -> socket.socket:
    """Return a connection that does not collect small writes."""
    peer = socket.create_connection(("127.0.0.1", port))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def call(peer: socket.socket, request: bytes) -> tuple[bytes, bytes]:
    """Ask and wait; header and body of the answer. Skips notices of the broker."""
    peer.sendall(request)
    data = b""
    while True:
        while len(data) < 8 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            piece = peer.recv(1 << 16)
            assert piece, "the server closed the connection"
            data += piece
        end = 4 + int.from_bytes(data[:4], "big")
        split = 8 + int.from_bytes(data[5:8], "big")
        if NOTICE not in data[8:split]:
            return data[8:split], data[split:end]
        data = data[end:]


def receive_answers(peer: socket.socket, count: int) -> None:
    """Receive until so many answers have come, whatever they are."""
    data = b""
    while data.count(OPAQUE) < count:
        piece = peer.recv(1 << 20)
        assert piece, "the server closed the connection"
        data += piece


def end_offsets(port: int, queues: int, topic: str = "") -> list[int]:
    """Return where each queue of the topic ends."""
    offsets = []
    with connect(port) as peer:
        for queue in range(queues):
            fields = {"topic": topic or topic_of(queues), "queueId": str(queue)}
            header, _ = call(peer, frame(MAX_OFFSET, fields))
            offsets.append(int(header.partition(b'"offset":"')[2].split(b'"', 1)[0]))
    return offsets


def percentile_us(times_ns: list[int], percent: int) -> float:
    """Return a percentile in microseconds; 0 if there is nothing."""
    if not times_ns:
        return 0.0
    return (
        sorted(times_ns)[min(len(times_ns) - 1, len(times_ns) * percent // 100)] / 1e3
    )


def send(options: argparse.Namespace) -> dict:
    """One connection, one request in flight, `rate` a second."""
    peer, topic = connect(options.port), topic_of(options.queues)
    filler = b"x" * (BODY_SIZE - 8)
    count, times = int(options.rate * options.seconds), []
    began = time.monotonic()
    for number in range(count):
        late = began + number / options.rate - time.monotonic()
        if late > 0:
            time.sleep(late)
        at = begins = time.monotonic_ns()
        properties = ""
        if options.after_ms:
            due_ms = time.time_ns() // 1_000_000 + options.after_ms
            properties = f"TIMER_DELIVER_MS\x01{due_ms}\x02"
            begins += -(-due_ms // 1_000) * 1_000_000_000 - time.time_ns()
        body = begins.to_bytes(8, "big") + filler
        request = send_frame(topic, number % options.queues, body, properties)
        header, _ = call(peer, request)
        times.append(time.monotonic_ns() - at)
        assert OK in header, header
    return {
        "messages": count,
        "seconds": time.monotonic() - began,
        "p50_us": percentile_us(times, 50),
        "p99_us": percentile_us(times, 99),
    }


class Follower:
    """A group on a connection of its own that keeps a pull waiting at each queue."""

    def __init__(
        self, port: int, group: str, offsets: list[int], topic: str = ""
    ) -> None:
        self.peer = connect(port)
        self._topic = topic or topic_of(len(offsets))
        self._group = group
        self._next = offsets
        self._data = b""
        self.messages = self.pulls = 0
        self.times: list[int] = []
        requests = (self._pull(q, offset) for q, offset in enumerate(offsets))
        self.peer.sendall(b"".join(requests))

    def _pull(self, queue: int, offset: int) -> bytes:
        return pull_frame(self._topic, self._group, queue, offset)

    def receive(self) -> None:
        """Take what came, and pull again where an answer came."""
        now_ns = time.monotonic_ns()
        self._data += self.peer.recv(1 << 20)
        requests = []
        for header, body in self._frames():
            opaque = header.partition(OPAQUE)[2].split(b",", 1)[0].rstrip(b"}")
            queue = int(opaque) - OPAQUE_START
            offset = int(header.partition(NEXT)[2].split(b'"', 1)[0])
            assert offset >= self._next[queue], (header, self._next[queue])
            self._next[queue] = offset
            requests.append(self._pull(queue, offset))
            self.pulls += bool(body)
            self._take(body, now_ns)
        if requests:
            self.peer.sendall(b"".join(requests))

    def _frames(self) -> Iterator[tuple[bytes, bytes]]:
        data, at = self._data, 0
        while len(data) - at >= 8:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            split = at + 8 + int.from_bytes(data[at + 5 : at + 8], "big")
            yield data[at + 8 : split], data[split:end]
            at = end
        self._data = data[at:]

    def _take(self, body: bytes, now_ns: int) -> None:
        at = 0
        while at < len(body):
            start = at + BODY_AT
            self.times.append(now_ns - int.from_bytes(body[start : start + 8], "big"))
            self.messages += 1
            at += int.from_bytes(body[at : at + 4], "big")


def follow(options: argparse.Namespace) -> dict:
    """Groups at the end of every queue, until nothing has come for half a second."""
    offsets = end_offsets(options.port, options.queues)
    followers = [
        Follower(options.port, f"Ordinary{number}", list(offsets))
        for number in range(options.groups)
    ]
    print("ready", flush=True)
    selector = selectors.DefaultSelector()
    for follower in followers:
        selector.register(follower.peer, selectors.EVENT_READ, follower)
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        for key, _ in selector.select(0.1):
            key.data.receive()
    times = [each for follower in followers for each in follower.times]
    return {
        "messages": sum(follower.messages for follower in followers),
        "pulls": sum(follower.pulls for follower in followers),
        "least_us": percentile_us(times, 0),
        "p50_us": percentile_us(times, 50),
        "p99_us": percentile_us(times, 99),
    }


def wait(options: argparse.Namespace) -> dict:
    """Consumers without messages: a pull waits at each queue, heartbeats are sent."""
    peers, offsets = [], end_offsets(options.port, 4)
    for number in range(options.connections):
        group = f"Quiet{number % 10}"
        body = json.dumps(
            {
                "clientID": f"quiet@{number}", "producerDataSet": [],
                "consumerDataSet": [
                    {
                        "groupName": group, "consumeType": "CONSUME_PASSIVELY",
                        "messageModel": "CLUSTERING", "unitMode": False,
                        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                        "subscriptionDataSet": [
                            {"topic": topic_of(4), "subString": "*", "subVersion": 1}
                        ],
                    }
                ],
            }
        ).encode()  # fmt: skip
        peer = connect(options.port)
        header, _ = call(peer, frame(HEARTBEAT, {}, body))
        assert OK in header, header
        peer.sendall(
            b"".join(
                pull_frame(topic_of(4), group, q, end) for q, end in enumerate(offsets)
            )
        )
        peers.append((peer, frame(HEARTBEAT, {}, body, number=1 << 20)))
    print("ready", flush=True)
    began, beats = time.monotonic(), 0
    while (passed := time.monotonic() - began) < options.seconds:
        due = int(passed / HEARTBEAT_S * len(peers))
        for peer, heartbeat in peers[beats:due]:
            peer.sendall(heartbeat)
        beats = max(beats, due)
        time.sleep(0.05)
    return {"connections": len(peers), "heartbeats": beats}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("send", "follow", "wait"))
    parser.add_argument("port", type=int)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--after-ms", type=int, default=0, help="timed messages")
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--connections", type=int, default=500)
    options = parser.parse_args()
    part = {"send": send, "follow": follow, "wait": wait}[options.part]
    print(json.dumps(part(options)), flush=True)


if __name__ == "__main__":
    main()
