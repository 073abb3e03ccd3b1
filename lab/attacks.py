"""Attacks of strangers on a broker: one function for each, run by `abuse.py`.

Each ends when its time has passed, in a process of its own, over loopback addresses
that the honest client does not use. An attack is cheap for the attacker: floods are
paced (FLOOD_RATE), memory and bytes on the disk are bounded.
"""

import contextlib
import itertools
import json
import select
import socket
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator

from bench.load.tls import first_hello
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

FLOOD_RATE = 500
MANY = 10_000
CLIENTS_PER_ADDRESS = 5_000
DISK_BYTES = 1 << 30
HONEST_TOPIC = "Honest"
HUGE = (16_777_216).to_bytes(4, "big") + b"\0\0\0\x10"
SEND_FIELDS = {
    "producerGroup": "PG", "topic": "Hostile", "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0",
    "bornTimestamp": "1795230112758", "flag": "0", "properties": "",
}  # fmt: skip
PULL_FIELDS = {
    "consumerGroup": "G", "topic": "Hostile", "queueId": "0", "queueOffset": "0",
    "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
    "suspendTimeoutMillis": "20000", "subscription": "*", "subVersion": "0",
}  # fmt: skip
REGISTRATION = {
    "brokerName": "b", "brokerAddr": "10.0.0.1:1", "clusterName": "C",
    "haServerAddr": "10.0.0.1:2", "brokerId": "0",
}  # fmt: skip


class Attacker:
    """Sockets to a broker and its name server, until a moment."""

    def __init__(self, port: int, names_port: int, seconds: float) -> None:
        self.port = port
        self.names_port = names_port
        self.end = time.monotonic() + seconds
        self.kept: list[socket.socket] = []
        self._made = itertools.count()

    @property
    def is_on(self) -> bool:
        """Whether the attack goes on."""
        return time.monotonic() < self.end

    def connect(self, port: int | None = None) -> socket.socket:
        """Connect from one of many addresses: ports of one run out."""
        number = next(self._made) // CLIENTS_PER_ADDRESS
        source = (f"127.0.0.{2 + number % 200}", 0)
        made = socket.create_connection(("127.0.0.1", port or self.port), 5, source)
        made.setblocking(False)
        return made

    def connect_many(self, count: int) -> list[socket.socket]:
        """Connect as often as broker and machine allow; OSError if not once."""
        peers = [self.connect()]
        with contextlib.suppress(OSError):
            while len(peers) < count and self.is_on:
                peers.append(self.connect())
        return peers

    def connect_names(self) -> list[socket.socket]:
        """Connect once to the name server; nothing if it refuses."""
        with contextlib.suppress(OSError):
            return [self.connect(self.names_port)]
        return []

    def ask(self, peer: socket.socket, request: Command) -> None:
        """Send a request; a connection that was ended is no error."""
        self.push(peer, encode(request))

    def push(self, peer: socket.socket, data: bytes) -> None:
        """Send bytes, for at most a second."""
        with contextlib.suppress(OSError):
            peer.settimeout(1)
            peer.sendall(data)
            peer.setblocking(False)

    def exchange(self, peer: socket.socket, request: Command) -> None:
        """Send a request and wait at most 5 s for bytes of its answer."""
        with contextlib.suppress(OSError):
            peer.settimeout(5)
            peer.sendall(encode(request))
            peer.recv(1 << 16)
            peer.setblocking(False)

    def paced(self, rate: float = FLOOD_RATE) -> Iterator[int]:
        """Count up at a rate, until the end."""
        began = time.monotonic()
        for number in itertools.count():
            if not self.is_on:
                return
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            yield number

    def drain(self, peers: list[socket.socket]) -> None:
        """Read what has come, and forget it."""
        for peer in peers:
            with contextlib.suppress(OSError):
                while peer.recv(1 << 20):
                    pass

    def wait(self) -> None:
        """Do nothing until the end."""
        time.sleep(max(0.0, self.end - time.monotonic()))


# -- connections


def silent(attacker: Attacker) -> None:
    """10,000 connections say nothing."""
    peers = attacker.connect_many(MANY)
    attacker.wait()
    del peers


def idle(attacker: Attacker) -> None:
    """10,000 connections said something once."""
    peers = attacker.connect_many(MANY)
    for peer in peers:
        attacker.ask(peer, Command(9_999))
    attacker.wait()


def slow_loris(attacker: Attacker) -> None:
    """3,000 clients send a byte now and then, of a frame or of a PROXY line."""
    peers = attacker.connect_many(3_000)
    for number, peer in enumerate(peers):
        attacker.push(peer, b"PROX" if number % 3 == 0 else HUGE)
    for number in attacker.paced(2_000):
        with contextlib.suppress(OSError):
            peers[number % len(peers)].send(b"x")


def resets(attacker: Attacker) -> None:
    """500 connections a second are reset in the middle of a frame."""
    frame = encode(Command(10, SEND_FIELDS, b"cut"))
    for number in attacker.paced():
        for peer in attacker.connect_many(1):
            attacker.push(peer, frame[: number % len(frame)])
            linger = struct.pack("ii", 1, 0)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            peer.close()


# -- TLS


def handshake_storm(attacker: Attacker) -> None:
    """2,000 TLS handshakes a second are begun and left after the server's answer."""
    hello = first_hello()
    begun: deque[socket.socket] = deque()
    for _ in attacker.paced(2_000):
        for peer in attacker.connect_many(1):
            attacker.push(peer, hello)
            begun.append(peer)
        if len(begun) > 500:
            begun.popleft().close()


def slow_handshakes(attacker: Attacker) -> None:
    """1,000 clients send a TLS hello byte by byte, 5,000 bytes a second in all."""
    hello = first_hello()
    peers = attacker.connect_many(1_000)
    for number in attacker.paced(5_000):
        place = number // len(peers) % len(hello)
        with contextlib.suppress(OSError):
            peers[number % len(peers)].send(hello[place : place + 1])


# -- buffers


def half_frames(attacker: Attacker) -> None:
    """300 clients send 8 MiB of a frame of 16 MiB, 2.4 GiB in all."""
    fill(attacker, attacker.connect_many(300), 8 << 20)


def small_halves(attacker: Attacker) -> None:
    """9,000 clients send 40 kB of a frame of 16 MiB, 360 MB in all."""
    peers = attacker.connect_many(9_000)
    for start in range(0, len(peers), 300):
        fill(attacker, peers[start : start + 300], 40_000)
    attacker.wait()


def fill(attacker: Attacker, peers: list[socket.socket], size: int) -> None:
    """Send so much of a huge frame on each connection."""
    piece, sent = b"x" * min(size, 65_536), dict.fromkeys(peers, 0)
    waiting = select.poll()
    numbers = {peer.fileno(): peer for peer in peers}
    for peer in peers:
        attacker.push(peer, HUGE)
        waiting.register(peer, select.POLLOUT)
    while numbers and attacker.is_on:
        for number, _ in waiting.poll(100):
            peer = numbers[number]
            try:
                sent[peer] += peer.send(piece)
            except OSError:
                sent[peer] = size
            if sent[peer] >= size:
                waiting.unregister(number)
                del numbers[number]


def byte_by_byte(attacker: Attacker) -> None:
    """100 clients send their frames byte by byte, 5,000 bytes a second in all."""
    frame = encode(Command(10, SEND_FIELDS, b"slow"))
    peers = attacker.connect_many(100)
    for number in attacker.paced(5_000):
        place = number // len(peers) % len(frame)
        with contextlib.suppress(OSError):
            peers[number % len(peers)].send(frame[place : place + 1])


def never_reads(attacker: Attacker) -> None:
    """50 clients pull megabytes and read nothing."""
    peer = attacker.connect()
    for _ in range(40):
        attacker.exchange(peer, Command(10, SEND_FIELDS, b"m" * (1 << 20)))
    pulls = encode(Command(11, PULL_FIELDS)) * 20
    deaf = attacker.connect_many(50)
    while attacker.is_on:
        for each in deaf:
            with contextlib.suppress(OSError):
                each.send(pulls)
        time.sleep(0.02)


# -- strange JSON


def strange_headers(attacker: Attacker) -> None:
    """Headers in fastjson's dialect, 100 a second, one in 20 of 250 KiB."""
    peers = attacker.connect_many(8)
    for number in attacker.paced(100):
        is_big = number % 20 == 0
        fields = "".join(f"'a{each}':'x'," for each in range(19_000 if is_big else 250))
        header = f"{{'code':9999,'extFields':{{{fields}}},'opaque':{number}}}".encode()
        length = len(header).to_bytes(4, "big")
        if is_big:  # it may cost the connection
            peers[0].close()
            peers[0] = attacker.connect()
        peer = peers[0 if is_big else number % len(peers)]
        attacker.push(peer, (len(header) + 4).to_bytes(4, "big") + length + header)
        attacker.drain([peer])


def many_fields(attacker: Attacker) -> None:
    """Headers of 14 MB with a million fields, in both forms, five a second."""
    fields = ",".join([f'"{number:07}":""' for number in range(1_000_000)])
    text = f'{{"code":9999,"opaque":5,"extFields":{{{fields}}}}}'.encode()
    pairs = b"".join([b"\0\7%07d\0\0\0\1x" % number for number in range(1_000_000)])
    binary = struct.pack(">hbhiiii", 9999, 0, 1, 5, 0, 0, len(pairs)) + pairs
    for number in attacker.paced(5):
        kind, header = (1, binary) if number % 2 else (0, text)
        sizes = struct.pack(">II", len(header) + 4, kind << 24 | len(header))
        peer = attacker.connect()
        attacker.push(peer, sizes + header)
        attacker.drain([peer])
        peer.close()


def documents(attacker: Attacker) -> None:
    """Deep, huge and double JSON, two megabytes twice a second."""
    size = 2 << 20
    bodies = [
        b"[" * size,
        b"{a:1," + b"b:[]," * (size // 5) + b"}",
        b'{"clientID":"c","consumerDataSet":[' + b"{}," * (size // 3) + b"{}]}",
        b'{"clientID":"a",' * (size // 16) + b"}",
    ]
    for number in attacker.paced(2):
        peer = attacker.connect()
        attacker.push(peer, encode(Command(34, {}, bodies[number % len(bodies)])))
        peer.close()


def bombs(attacker: Attacker) -> None:
    """Compressed registrations of a gigabyte of zeros, five a second."""
    packer = zlib.compressobj(9)
    piece = b"\0" * (1 << 20)
    bomb = b"".join(packer.compress(piece) for _ in range(1_000)) + packer.flush()
    register(attacker, bomb, 5)


def packed_mappings(attacker: Attacker) -> None:
    """Compressed registrations of 8 MB of strange JSON in pieces, two a second."""
    mapping = b"{" + b"a:'x'," * 40_000 + b"}"
    pieces = [b'{"counter":1}', b"[]", *[mapping] * 33]
    sized = [len(each).to_bytes(4, "big") + each for each in pieces]
    counts = [bytes(4), (33).to_bytes(4, "big")]
    body = sized[0] + counts[0] + sized[1] + counts[1] + b"".join(sized[2:])
    register(attacker, zlib.compress(body, 9), 2)


def register(attacker: Attacker, body: bytes, rate: float) -> None:
    """Register a broker with this body, each time on a new connection."""
    for _ in attacker.paced(rate):
        for peer in attacker.connect_names():
            attacker.exchange(peer, Command(103, REGISTRATION, body, version=513))
            peer.close()


# -- held pulls


def held_pulls(attacker: Attacker) -> None:
    """10,000 pulls wait for a tag that the honest client never sends."""
    heartbeat(attacker, "G")
    peers = attacker.connect_many(10)
    waiting = PULL_FIELDS | {
        "topic": HONEST_TOPIC, "sysFlag": "6", "queueOffset": str(1 << 40),
        "subscription": "never", "suspendTimeoutMillis": "600000",
    }  # fmt: skip
    for number in range(MANY):
        end = {"queueOffset": str(number % 100)}
        attacker.ask(peers[number % 10], Command(11, waiting | end, opaque=number))
    while attacker.is_on:
        attacker.drain(peers)
        time.sleep(0.05)


def vanished_pulls(attacker: Attacker) -> None:
    """500 clients a second hold a pull and are gone."""
    heartbeat(attacker, "G")
    waiting = PULL_FIELDS | {"sysFlag": "6", "queueOffset": "1"}
    held = []
    for number in attacker.paced():
        for each in attacker.connect_many(1):
            attacker.ask(each, Command(11, waiting))
            held.append(each)
        if number % 100 == 99:
            for gone in held:
                gone.close()
            held.clear()


def heartbeat(attacker: Attacker, group: str) -> None:
    """Make the hostile topic, and be a member of a group."""
    peer = attacker.connect()
    attacker.exchange(peer, Command(10, SEND_FIELDS, b"one"))
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING", "subscriptionDataSet": [],
    }  # fmt: skip
    body = json.dumps({"clientID": "hostile", "consumerDataSet": [consumer]}).encode()
    attacker.exchange(peer, Command(34, {}, body))
    attacker.kept.append(peer)


# -- tables


def topic_flood(attacker: Attacker) -> None:
    """Each message goes to a topic of its own."""
    peer = attacker.connect()
    for number in attacker.paced():
        fields = SEND_FIELDS | {"topic": f"flood{number}"}
        attacker.ask(peer, Command(10, fields, b"one"))
        attacker.drain([peer])


def group_flood(attacker: Attacker) -> None:
    """Each heartbeat names ten new groups and a new client, 5,000 groups a second."""
    peers = attacker.connect_many(20)
    for number in attacker.paced():
        consumers = [
            {"groupName": f"g{number}-{each}", "consumeType": "CONSUME_PASSIVELY",
             "messageModel": "CLUSTERING", "subscriptionDataSet": [
                 {"topic": f"t{number}", "subString": "*", "subVersion": number}]}
            for each in range(10)
        ]  # fmt: skip
        data = {"clientID": f"c{number}", "consumerDataSet": consumers,
                "producerDataSet": [{"groupName": f"p{number}"}]}  # fmt: skip
        body = json.dumps(data).encode()
        attacker.ask(peers[number % len(peers)], Command(34, {}, body))
        attacker.drain(peers[number % len(peers) :][:1])


def producer_places(attacker: Attacker) -> None:
    """One client is a producer of 1,000 groups in each heartbeat."""
    peer = attacker.connect()
    for number in attacker.paced(200):
        producers = [{"groupName": f"p{number}-{each}"} for each in range(1_000)]
        body = json.dumps({"clientID": "one", "producerDataSet": producers}).encode()
        attacker.ask(peer, Command(34, {}, body))
        attacker.drain([peer])


def offset_flood(attacker: Attacker) -> None:
    """Offsets are committed for ever more groups and queues, 5,000 a second."""
    heartbeat(attacker, "G")
    peer = attacker.connect()
    for number in attacker.paced():
        fields = [
            {"consumerGroup": f"g{number % 100}", "topic": "Hostile",
             "queueId": str((number * 10 + each) % 60_000), "commitOffset": "1"}
            for each in range(10)
        ]  # fmt: skip
        attacker.push(peer, b"".join(encode(Command(15, each)) for each in fields))
        attacker.drain([peer])


def kv_flood(attacker: Attacker) -> None:
    """The name server's table of key and value is filled, then changed without end."""
    for peer in attacker.connect_names():
        for number in attacker.paced(5_000):
            key = number if number < 20_000 else 0
            fields = {"namespace": f"n{key % 50}", "key": f"k{key}", "value": "v" * 200}
            attacker.ask(peer, Command(100, fields))
            attacker.drain([peer])


def registration_flood(attacker: Attacker) -> None:
    """Brokers of 100 topics each register, 50 a second."""
    for peer in attacker.connect_names():
        for number in attacker.paced(FLOOD_RATE / 10):
            topics = {f"t{number}-{each}": {"topicName": "t"} for each in range(100)}
            wrapper = {"topicConfigTable": topics, "dataVersion": {"counter": 1}}
            body = json.dumps({"topicConfigSerializeWrapper": wrapper}).encode()
            fields = REGISTRATION | {
                "brokerName": f"b{number}", "brokerAddr": f"10.0.0.1:{number}"
            }  # fmt: skip
            attacker.ask(peer, Command(103, fields, body, version=513))
            attacker.drain([peer])


# -- logs and the disk


def refusals(attacker: Attacker) -> None:
    """Requests that are refused for each reason that has a line in the log."""
    keys = ["x" * 30_000, "stranger", "a\n2026-01-01 INFO forged line", "\x1b[2J"]
    odd = [
        b"\x16\x03\x01\0\xff" + b"x" * 300,
        b"PROXY TCP6 fe80::1%\nforged ::1 1 2\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 64,
    ]
    peer = attacker.connect()
    for number in attacker.paced():
        fields = {"AccessKey": keys[number % 4], "Signature": "no", "topic": "T"}
        attacker.ask(peer, Command(number % 400, fields, opaque=number))
        attacker.drain([peer])
        for other in attacker.connect_many(1):
            attacker.push(other, odd[number % 4])
            other.close()


def big_messages(attacker: Attacker) -> None:
    """4 connections send messages of 1 MiB, up to a gibibyte in all."""
    peers = attacker.connect_many(4)
    request = Command(10, SEND_FIELDS, b"m" * (1 << 20))
    for _ in range(DISK_BYTES // (4 << 20)):
        for peer in peers:
            attacker.exchange(peer, request)
        if not attacker.is_on:
            return
    attacker.wait()


def opaque_reuse(attacker: Attacker) -> None:
    """Every request of a connection has the same number."""
    peer = attacker.connect()
    for _ in attacker.paced():
        attacker.ask(peer, Command(10, SEND_FIELDS, b"same", opaque=5))
        attacker.drain([peer])


RESOURCES: dict[str, tuple[Callable[[Attacker], None], ...]] = {
    "connections": (silent, idle, slow_loris, resets),
    "TLS": (handshake_storm, slow_handshakes),
    "buffers": (half_frames, small_halves, byte_by_byte, never_reads),
    "JSON": (strange_headers, many_fields, documents, bombs, packed_mappings),
    "held pulls": (held_pulls, vanished_pulls),
    "topics": (topic_flood,),
    "groups": (group_flood, producer_places),
    "offsets": (offset_flood,),
    "KV": (kv_flood,),
    "routes": (registration_flood,),
    "logs": (refusals,),
    "disk": (big_messages, opaque_reuse),
}
ATTACKS = {
    attack.__name__.replace("_", "-"): attack
    for attacks in RESOURCES.values()
    for attack in attacks
}
