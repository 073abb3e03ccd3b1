"""Damaged conversations and header blocks: no crash, no stream and no byte is kept.

RMQ_FUZZ_S is the time of each part in seconds, for a run under AddressSanitizer, and
RMQ_FUZZ_SEED another seed, for a further run:

    RMQ_FUZZ_S=240 make asan TESTS="tests/plugins/grpc/test_grpc_fuzz.py -s"
"""

import base64
import copy
import os
import random
import socket
import sys
import time
from collections import defaultdict

import pytest

from rmq._fastpath.http2.hpack import HeaderDecoder
from rmq._fastpath.reactor.connections import EventKind
from rmq.protocol.hosts import host_bytes
from rmq_plugins.grpc import schema
from tests.fastpath.http2 import caller as h2
from tests.golden.grpc_conversations import Frames, conversations
from tests.plugins.grpc.clients import sent
from tests.plugins.grpc.grpc_sides import GrpcSide, ack_of
from tests.plugins.sides import MAIN

FUZZ_S = float(os.environ.get("RMQ_FUZZ_S", "0"))
pytestmark = [pytest.mark.slow] if FUZZ_S else []

ROUNDS = 60
"""Rounds without RMQ_FUZZ_S."""

SEED = int(os.environ.get("RMQ_FUZZ_SEED", "20261127"))


def rounds(part):
    """Random generators, one a round: by a number of rounds, or a time."""
    end, number = time.monotonic() + FUZZ_S, 0
    while time.monotonic() < end if FUZZ_S else number < ROUNDS:
        yield random.Random(f"{SEED} {part} {number}")
        number += 1


def damaged(rng, data):
    """The bytes with one to four changes."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        end = min(len(found), at + rng.choice([1, 1, 4, 9, 40]))
        match rng.randrange(5):
            case 0 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(found):
                found[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            case 2:
                del found[at:end]
            case 3:
                found[at:at] = found[at:end]
            case _:
                found[at:at] = rng.randbytes(rng.choice([1, 2, 9]))
    return bytes(found)


def recorded_clients():
    """The bytes of each recorded connection of an SDK."""
    found = defaultdict(bytes)
    for sdk, rows in conversations().items():
        for row in rows:
            if row["dir"] == "c2s":
                found[sdk, row["conn"]] += base64.b64decode(row["raw"])
    return list(found.values())


def made_calls():
    """Calls that compiled code serves, on a connection of their own."""
    beat = schema.HeartbeatRequest(client_type=3)
    beat.group.name = "G"
    receive = schema.ReceiveMessageRequest(batch_size=8)
    receive.group.name, receive.message_queue.topic.name = "G", "T"
    receive.invisible_duration.seconds = 30
    requests = [
        (b"SendMessage", sent("T", b"b" * 40, tag="a", properties={"p": "v"})),
        (b"Heartbeat", beat),
        (b"Heartbeat", beat),
        (b"ReceiveMessage", receive),
        (b"AckMessage", ack_of("0 1 30000 0 0 broker-a 0 0 0")),
    ] * 3
    return (
        h2.PREFACE
        + h2.settings((h2.INITIAL_WINDOW, 1 << 20))
        + b"".join(
            h2.call(
                2 * number + 1,
                request.SerializeToString(),
                method,
                x_mq_client_id=b"me",
                x_mq_language=b"JAVA",
            )
            for number, (method, request) in enumerate(requests)
        )
    )


class Fuzzed(GrpcSide):
    """It serves one damaged connection after the other."""

    def talk(self, rng, data):
        """Send bytes in random pieces, and close the connection."""
        peer, ours = socket.socketpair()
        peer.setblocking(False)
        ours.setblocking(False)
        token = self.reactor.connections.add(
            ours.detach(), MAIN, host_bytes("127.0.0.1", 40_002), 0
        )
        self.connections[token] = copy.copy(self.connection)
        self.connections[token].token = token
        try:
            while data:
                size = rng.choice([1, 9, 100, 5_000, 60_000])
                peer.sendall(data[:size])
                data = data[size:]
                self.poll()
                peer.recv(1 << 20)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            self.poll()
        self.end(token)
        peer.close()

    def end(self, token):
        """Close a connection as the server does; once."""
        if self.connections.pop(token, None) is not None:
            self.grpc.end_connection(token)
            self.reactor.connections.close(token)

    def take_ends(self):
        for kind, token, _ in self.reactor.take_events():
            assert kind != EventKind.FRAME, "no frame of remoting"
            self.end(token)


@pytest.fixture
def side(tmp_path):
    side = Fuzzed(tmp_path, compiled=True)
    yield side
    side.close()


def test_damaged_conversations(side, caplog):
    seeds = [made_calls(), *recorded_clients()]
    for number, rng in enumerate(rounds("frames")):
        side.talk(rng, damaged(rng, rng.choice(seeds)))
        if number % 500 == 0:
            side.broker.clock.ms += 1_000
    statistics = side.grpc.statistics()
    print(statistics, file=sys.stderr)  # noqa: T201
    assert (statistics.connections, statistics.open_calls) == (1, 0)
    assert statistics.frames > ROUNDS
    assert "Traceback" not in caplog.text


def test_damaged_header_blocks():
    blocks = []
    for data in recorded_clients():
        frames = Frames(has_preface=True)
        blocks += [
            frame[9:] for kind, _, frame in frames.feed(data) if kind == h2.HEADERS
        ]
    count = failed = 0
    for rng in rounds("blocks"):
        decoder = HeaderDecoder()
        for _ in range(200):
            count += 1
            try:
                decoder.decode(damaged(rng, rng.choice(blocks)))
            except ValueError:
                failed += 1
                decoder = HeaderDecoder()
    print(count, "blocks,", failed, "refused", file=sys.stderr)  # noqa: T201
    assert count >= 200 * ROUNDS
