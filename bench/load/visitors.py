"""Clients that come and go: each consumes one topic for some seconds.

lab/steady.py starts it. Every visitor is a member of the group that reads its topic,
keeps a pull waiting at each queue, and commits its offsets when it leaves; every other
one leaves without a word. A topic has one group, because the broker remembers each pair
of them: with new pairs all the time its memory would grow by their number. Prints one
line of JSON after its input has ended.

    python bench/load/visitors.py PORT --visitors 200 --topics 1000
"""

import argparse
import json
import random
import selectors
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.load import crowd, paced

QUEUES = 4
GROUPS = 20
"""Each has a twentieth of the topics."""

UNREGISTER = 35


class Visitor(paced.Follower):
    """A consumer that knows when it leaves."""

    def __init__(self, port: int, number: int, options: argparse.Namespace) -> None:
        self.leaves_at = time.monotonic() + options.stay * random.uniform(0.25, 1.75)
        self._is_polite = number % 2 == 0
        self._client = f"visitor@{number}"
        place = random.randrange(options.topics)
        topic = f"{options.prefix}{place}"
        ends = paced.end_offsets(port, QUEUES, topic)
        super().__init__(port, f"Visitors{place % GROUPS}", ends, topic)
        self.peer.sendall(crowd.heartbeat(self._group, self._client))

    def leave(self) -> None:
        """Commit, unregister if it is polite, and close."""
        for queue, offset in enumerate(self._next):
            fields = {
                "consumerGroup": self._group, "topic": self._topic,
                "queueId": str(queue), "commitOffset": str(offset),
            }  # fmt: skip
            self.peer.sendall(paced.frame(crowd.COMMIT, fields))
        if self._is_polite:
            fields = {"clientID": self._client, "consumerGroup": self._group}
            self.peer.sendall(paced.frame(UNREGISTER, fields))
        self.peer.close()

    def _frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield answers to pulls only: the broker also sends notices."""
        return ((head, body) for head, body in super()._frames() if paced.NEXT in head)

    def _take(self, body: bytes, now_ns: int) -> None:
        at = 0
        while at < len(body):
            self.messages += 1
            at += int.from_bytes(body[at : at + 4], "big")


def visit(options: argparse.Namespace) -> dict:
    """Keep so many visitors there until the input ends."""
    selector, came, messages = selectors.DefaultSelector(), 0, 0
    selector.register(sys.stdin, selectors.EVENT_READ)
    visitors: set[Visitor] = set()
    print("ready", flush=True)
    while True:
        for key, _ in selector.select(0.05):
            if key.data is None:
                for visitor in visitors:
                    visitor.leave()
                    messages += visitor.messages
                return {"visits": came, "messages": messages}
            key.data.receive()
        now = time.monotonic()
        for visitor in [each for each in visitors if each.leaves_at < now]:
            selector.unregister(visitor.peer)
            visitors.discard(visitor)
            visitor.leave()
            messages += visitor.messages
        if len(visitors) < options.visitors:
            visitor = Visitor(options.port, came, options)
            selector.register(visitor.peer, selectors.EVENT_READ, visitor)
            visitors.add(visitor)
            came += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--visitors", type=int, default=200)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--prefix", default="All")
    parser.add_argument("--stay", type=float, default=20, help="seconds, about")
    print(json.dumps(visit(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
