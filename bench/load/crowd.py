"""Crowds: many topics, members, pulls; and pings that notice who makes others wait.

lab/growth.py starts a process for each part, which prints one line of JSON.

    python bench/load/crowd.py topics PORT --count 10000
    python bench/load/crowd.py ping PORT            # until its input ends
"""

import argparse
import json
import os
import selectors
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.load import paced

PING_S = 0.001
PRIORITY = 10
"""Priority of a process that pings: without it waits for a core would count, too."""

IN_FLIGHT = 32
"""Creations that wait for their answers together."""

CREATE, CREATE_MANY, DELETE = 17, 18, 215
ALL_TOPICS, ALL_OFFSETS, COMMIT = 21, 43, 15
GROUP = "Crowd"
HELD_QUEUES = 100
HOLD_MS = 4_000

NAME_PARTS = {
    "request 21": 2,
    "request 43": 2,
    "commit": 6,
    "create": 2,
    "create, 32 in flight": 2,
    "create 5,000 at once": 0,
    "delete": 2,
}
"""Requests while there are many names, and for how many seconds they are sent."""


def topic_fields(topic: str, queues: int) -> dict[str, str]:
    """Return the header of request 17."""
    return {
        "topic": topic, "defaultTopic": "TBW102", "perm": "6",
        "readQueueNums": str(queues), "writeQueueNums": str(queues), "order": "false",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
    }  # fmt: skip


class Asker:
    """Requests over one connection, some of them in flight."""

    def __init__(self, port: int) -> None:
        self._peer = paced.connect(port)
        self._data = b""
        self.answers = 0

    def send(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        """Send one request."""
        self._peer.sendall(paced.frame(code, fields, body))

    def receive(self) -> None:
        """Wait for one answer, which must be good."""
        while True:
            while len(self._data) < 8 or len(self._data) < self._size():
                piece = self._peer.recv(1 << 20)
                assert piece, "the server closed the connection"
                self._data += piece
            end, split = self._size(), 8 + int.from_bytes(self._data[5:8], "big")
            header, self._data = self._data[8:split], self._data[end:]
            if paced.NOTICE not in header:
                assert paced.OK in header, header
                self.answers += 1
                return

    def _size(self) -> int:
        return 4 + int.from_bytes(self._data[:4], "big")


def ping(options: argparse.Namespace) -> dict:
    """Ask each millisecond until the input ends; how long the answers took.

    With its priority this process does not wait for a core after an answer.
    """
    with suppress(PermissionError):
        os.nice(-PRIORITY)
    peer = paced.connect(options.port)
    request = paced.frame(paced.MAX_OFFSET, {"topic": "TBW102", "queueId": "0"})
    paced.call(peer, request)
    print("ready", flush=True)
    watch = selectors.DefaultSelector()
    watch.register(sys.stdin, selectors.EVENT_READ)
    times = []
    busy_ns, ran_ns = 0, serving_ns(options.pid)
    while not watch.select(PING_S):
        at, began_ns = time.monotonic_ns(), ran_ns
        paced.call(peer, request)
        times.append(time.monotonic_ns() - at)
        ran_ns = serving_ns(options.pid)
        busy_ns = max(busy_ns, min(ran_ns - began_ns, times[-1]))
    return {
        "answers": len(times),
        "worst_ms": max(times, default=0) / 1e6,
        "busy_ms": busy_ns / 1e6,
        "p99_ms": paced.percentile_us(times, 99) / 1e3,
    }


def serving_ns(pid: int) -> int:
    """Return how long the first thread of a process, which serves, has run."""
    if not pid:
        return 0
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])


def topics(options: argparse.Namespace) -> dict:
    """Create topics, All0 and so on."""
    asker, began = Asker(options.port), time.monotonic()
    for number in range(options.count):
        asker.send(CREATE, topic_fields(f"All{number}", options.queues))
        if number >= IN_FLIGHT:
            asker.receive()
    while asker.answers < options.count:
        asker.receive()
    return rate_of(asker, began)


def rate_of(asker: Asker, began: float) -> dict:
    """Return how many answers came, and how many a second."""
    return {
        "answers": asker.answers,
        "rate": asker.answers / (time.monotonic() - began),
    }


def commits(options: argparse.Namespace) -> dict:
    """Commit an offset of one group in a queue of each topic."""
    with paced.connect(options.port) as peer:
        paced.call(peer, heartbeat(GROUP, "committer"))  # makes the group
    asker, began = Asker(options.port), time.monotonic()
    for number in range(options.count):
        asker.send(COMMIT, commit_fields(number))
        asker.receive()
    return rate_of(asker, began)


def commit_fields(number: int) -> dict[str, str]:
    """Return the header of request 15."""
    return {
        "consumerGroup": GROUP, "topic": f"All{number}", "queueId": "0",
        "commitOffset": "0",
    }  # fmt: skip


def repeated(options: argparse.Namespace) -> dict:
    """Send one request of NAME_PARTS again and again."""
    asker, began, number = Asker(options.port), time.monotonic(), 0
    part = options.part
    if part == "create 5,000 at once":
        configs = [
            {
                "topicName": f"Many{each}", "readQueueNums": 4, "writeQueueNums": 4,
                "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
                "order": False, "attributes": {},
            }
            for each in range(5_000)
        ]  # fmt: skip
        body = json.dumps({"topicConfigList": configs}).encode()
        asker.send(CREATE_MANY, {}, body)
        asker.receive()
        return rate_of(asker, began)
    in_flight = IN_FLIGHT if part == "create, 32 in flight" else 1
    while time.monotonic() - began < options.seconds:
        if part == "request 21":
            asker.send(ALL_TOPICS, {})
        elif part == "request 43":
            asker.send(ALL_OFFSETS, {})
        elif part == "commit":
            asker.send(COMMIT, commit_fields(number % options.count))
            time.sleep(0.01)
        elif part == "delete":
            asker.send(DELETE, {"topic": f"All{number}"})
        else:
            asker.send(CREATE, topic_fields(f"{in_flight}More{number}", 4))
        number += 1
        if number - asker.answers >= in_flight:
            asker.receive()
    while asker.answers < number:
        asker.receive()
    return rate_of(asker, began)


def heartbeat(group: str, client: str) -> bytes:
    """Return a heartbeat of one consumer."""
    body = json.dumps(
        {
            "clientID": client, "producerDataSet": [],
            "consumerDataSet": [
                {
                    "groupName": group, "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING", "unitMode": False,
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [
                        {"topic": "TBW102", "subString": "*", "subVersion": 1}
                    ],
                }
            ],
        }
    ).encode()  # fmt: skip
    return paced.frame(paced.HEARTBEAT, {}, body)


def members(options: argparse.Namespace) -> dict:
    """Let members join one group, one after the other, and leave together."""
    peers, began = [], time.monotonic()
    for number in range(options.count):
        peer = paced.connect(options.port)
        paced.call(peer, heartbeat(GROUP, f"member@{number}"))
        peers.append(peer)
    join_s = time.monotonic() - began
    time.sleep(1.5)  # the notices of the last second
    notices = sum(count_notices(peer) for peer in peers)
    for peer in peers:
        peer.close()
    return {"join_s": join_s, "notices": notices}


def count_notices(peer: socket.socket) -> int:
    """Count what the broker has sent by itself."""
    peer.setblocking(False)
    count = 0
    try:
        while piece := peer.recv(1 << 16):
            count += piece.count(paced.NOTICE)
            count += piece.count(b'"code":40') if paced.NOTICE not in piece else 0
    except BlockingIOError:
        pass
    return count


def pulls(options: argparse.Namespace) -> dict:
    """Let pulls wait at the ends of some queues until their time is over."""
    peer = paced.connect(options.port)
    create = topic_fields("Held", HELD_QUEUES)
    header, _ = paced.call(peer, paced.frame(CREATE, create))
    assert paced.OK in header, header
    for queue in range(HELD_QUEUES):
        header, _ = paced.call(peer, paced.send_frame("Held", queue, b"first"))
        assert paced.OK in header, header
    time.sleep(0.2)
    fields = {
        "topic": "Held", "queueOffset": "1", "maxMsgNums": "32", "sysFlag": "6",
        "commitOffset": "0", "suspendTimeoutMillis": str(HOLD_MS),
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    began, sent = time.monotonic(), []
    askers = [paced.connect(options.port) for _ in range(20)]
    for number in range(options.count):
        own = {"consumerGroup": GROUP, "queueId": str(number % HELD_QUEUES)}
        sent.append(paced.frame(paced.PULL, {**fields, **own}, number=number))
    for number, peer in enumerate(askers):
        peer.sendall(b"".join(sent[number :: len(askers)]))
    hold_s, answers = time.monotonic() - began, 0
    for number, peer in enumerate(askers):
        wanted = len(sent[number :: len(askers)])
        paced.receive_answers(peer, wanted)
        answers += wanted
    return {"answers": answers, "hold_s": hold_s}


PARTS = {
    "ping": ping,
    "topics": topics,
    "commits": commits,
    "members": members,
    "pulls": pulls,
    **dict.fromkeys(NAME_PARTS, repeated),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("port", type=int)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--pid", type=int, default=0, help="the broker that is pinged")
    options = parser.parse_args()
    print(json.dumps(PARTS[options.part](options)), flush=True)


if __name__ == "__main__":
    main()
