"""What hostile peers cost: memory of the broker and latency of a client that does not
belong to them.

For each case a fresh broker runs; the load generator (one connection, one request in
flight) plays against it alone, and again while attackers in another process do what
the case says. Memory is the largest resident size seen. Prints a table and writes JSON
to bench/results/; exit code 1 if a case took more memory than its limit, or if the
client saw an error.  Cases whose name ends with "flood" are paced (FLOOD_RATE).

    python bench/hostile.py [--seconds 2] [--cases silent,slow-loris,…]
"""

import argparse
import contextlib
import itertools
import json
import os
import resource
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent / "load"))

import run as load

from rmq.protocol.command import Command
from rmq.protocol.frames import encode

FLOOD_RATE = 500
MANY = 10_000
CLIENTS_PER_ADDRESS = 5_000
MEMORY_LIMIT_MIB = 900
VICTIM = ["--connections=1", "--window=1", "--topic=Friend", "--warm-up=0.1"]
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


class Attacker:
    """Sockets to a broker and its name server, until a moment."""

    def __init__(self, port: int, names_port: int, seconds: float) -> None:
        self.port = port
        self.names_port = names_port
        self.end = time.monotonic() + seconds
        self._made = itertools.count()

    @property
    def is_on(self) -> bool:
        """Whether the attack goes on."""
        return time.monotonic() < self.end

    def connect(self, port: int | None = None) -> socket.socket:
        """Connect from one of many addresses: ports of one run out."""
        made = socket.socket()
        number = next(self._made) // CLIENTS_PER_ADDRESS
        made.bind((f"127.0.0.{2 + number % 200}", 0))
        made.connect(("127.0.0.1", port or self.port))
        made.setblocking(False)
        return made

    def ask(self, peer: socket.socket, request: Command) -> None:
        """Send a request; a connection that was ended is no error."""
        with contextlib.suppress(OSError):
            peer.sendall(encode(request))

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


def silent(attacker: Attacker) -> None:
    """10,000 connections say nothing."""
    peers = [attacker.connect() for _ in range(MANY)]
    attacker.wait()
    del peers


def idle(attacker: Attacker) -> None:
    """10,000 connections that said something once."""
    peers = [attacker.connect() for _ in range(MANY)]
    for peer in peers:
        attacker.ask(peer, Command(9_999))
    attacker.wait()


def never_reads(attacker: Attacker) -> None:
    """50 clients pull megabytes and read nothing."""
    peer = attacker.connect()
    for _ in range(40):
        peer.setblocking(True)
        attacker.ask(peer, Command(10, SEND_FIELDS, b"m" * (1 << 20)))
        peer.recv(4096)
    pull = encode(Command(11, PULL_FIELDS))
    deaf = [attacker.connect() for _ in range(50)]
    while attacker.is_on:
        for each in deaf:
            with contextlib.suppress(OSError):
                each.send(pull * 20)
        time.sleep(0.02)


def half_frames(attacker: Attacker) -> None:
    """300 clients send 8 MiB of a frame of 16 MiB, 2.4 GiB in all."""
    peers = [attacker.connect() for _ in range(300)]
    for peer in peers:
        peer.send(HUGE)
    piece, sent = b"x" * 65_536, dict.fromkeys(peers, 0)
    while attacker.is_on:
        open_peers = [peer for peer, size in sent.items() if size < (8 << 20)]
        if not open_peers:
            attacker.wait()
            return
        _, writable, _ = select.select([], open_peers[:500], [], 0.1)
        for peer in writable:
            try:
                sent[peer] += peer.send(piece)
            except OSError:
                del sent[peer]


def byte_by_byte(attacker: Attacker) -> None:
    """100 clients send their frames byte by byte, 5,000 bytes a second in all."""
    frame = encode(Command(10, SEND_FIELDS, b"slow"))
    peers = [attacker.connect() for _ in range(100)]
    for number in attacker.paced(5_000):
        place = number // len(peers) % len(frame)
        with contextlib.suppress(OSError):
            peers[number % len(peers)].send(frame[place : place + 1])


def slow_loris(attacker: Attacker) -> None:
    """3,000 clients send a byte now and then, of a frame or of a PROXY line."""
    peers = [attacker.connect() for _ in range(3_000)]
    for number, peer in enumerate(peers):
        peer.send(b"PROX" if number % 3 == 0 else HUGE)
    for number in attacker.paced(2_000):
        with contextlib.suppress(OSError):
            peers[number % len(peers)].send(b"x")


def resets(attacker: Attacker) -> None:
    """500 connections a second are reset in the middle of a frame."""
    frame = encode(Command(10, SEND_FIELDS, b"cut"))
    for number in attacker.paced():
        peer = attacker.connect()
        peer.send(frame[: number % len(frame)])
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()


def heartbeat_flood(attacker: Attacker) -> None:
    """Each heartbeat names ten new groups and a new client, 5,000 groups a second."""
    peers = [attacker.connect() for _ in range(20)]
    for number in attacker.paced():
        consumers = [
            {"groupName": f"g{number}-{each}", "consumeType": "CONSUME_PASSIVELY",
             "messageModel": "CLUSTERING", "subscriptionDataSet": [
                 {"topic": f"t{number}", "subString": "*", "subVersion": number}]}
            for each in range(10)
        ]  # fmt: skip
        producers = [{"groupName": f"p{number}"}]
        data = {"clientID": f"c{number}", "consumerDataSet": consumers,
                "producerDataSet": producers}  # fmt: skip
        body = json.dumps(data).encode()
        attacker.ask(peers[number % 20], Command(34, {}, body))
        attacker.drain([peers[number % 20]])


def topic_flood(attacker: Attacker) -> None:
    """Each message goes to a topic of its own."""
    peer = attacker.connect()
    for number in attacker.paced():
        fields = SEND_FIELDS | {"topic": f"flood{number}"}
        attacker.ask(peer, Command(10, fields, b"one"))
        attacker.drain([peer])


def offset_flood(attacker: Attacker) -> None:
    """Offsets are committed for ever more queues."""
    peer = attacker.connect()
    attacker.ask(peer, Command(10, SEND_FIELDS, b"one"))
    attacker.ask(peer, Command(11, PULL_FIELDS))
    for number in attacker.paced():
        fields = {"consumerGroup": "G", "topic": "Hostile",
                  "queueId": str(number % 60_000), "commitOffset": "1"}  # fmt: skip
        attacker.ask(peer, Command(15, fields))
        attacker.drain([peer])


def registration_flood(attacker: Attacker) -> None:
    """Brokers of 100 topics each register, 50 a second."""
    peer = attacker.connect(attacker.names_port)
    for number in attacker.paced(FLOOD_RATE / 10):
        topics = {f"t{number}-{each}": {"topicName": "t"} for each in range(100)}
        wrapper = {"topicConfigTable": topics, "dataVersion": {"counter": 1}}
        body = json.dumps({"topicConfigSerializeWrapper": wrapper}).encode()
        fields = {"brokerName": f"b{number}", "brokerAddr": f"10.0.0.1:{number}",
                  "clusterName": "C", "haServerAddr": "10.0.0.1:2",
                  "brokerId": "0"}  # fmt: skip
        attacker.ask(peer, Command(103, fields, body, version=513))
        attacker.drain([peer])


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
        peer.setblocking(True)
        attacker.ask(peer, Command(34, {}, bodies[number % len(bodies)]))
        peer.close()


def bombs(attacker: Attacker) -> None:
    """Compressed registrations of a gigabyte, five a second."""
    packer = zlib.compressobj(9)
    piece = b"\0" * (1 << 20)
    bomb = b"".join(packer.compress(piece) for _ in range(1_000)) + packer.flush()
    fields = {"brokerName": "b", "brokerAddr": "10.0.0.1:1", "clusterName": "C",
              "haServerAddr": "10.0.0.1:2", "brokerId": "0"}  # fmt: skip
    for _ in attacker.paced(5):
        peer = attacker.connect(attacker.names_port)
        peer.setblocking(True)
        attacker.ask(peer, Command(103, fields, bomb, version=400))
        peer.recv(4096)
        peer.close()


def opaque_reuse(attacker: Attacker) -> None:
    """Every request of a connection has the same number."""
    peer = attacker.connect()
    for _ in attacker.paced():
        attacker.ask(peer, Command(10, SEND_FIELDS, b"same", opaque=5))
        attacker.drain([peer])


def vanished_pulls(attacker: Attacker) -> None:
    """500 clients a second hold a pull and are gone."""
    peer = attacker.connect()
    attacker.ask(peer, Command(10, SEND_FIELDS, b"one"))
    waiting = PULL_FIELDS | {"sysFlag": "6", "queueOffset": "1000"}
    held = []
    for number in attacker.paced():
        each = attacker.connect()
        attacker.ask(each, Command(11, waiting | {"queueOffset": "1"}))
        held.append(each)
        if number % 100 == 99:
            for gone in held:
                gone.close()
            held.clear()


CASES: dict[str, Callable[[Attacker], None]] = {
    case.__name__.replace("_", "-"): case
    for case in (
        silent, idle, never_reads, half_frames, byte_by_byte, slow_loris, resets,
        heartbeat_flood, topic_flood, offset_flood, registration_flood, documents,
        bombs, opaque_reuse, vanished_pulls,
    )
}  # fmt: skip
PREPARE_S = 3.0
"""How long an attack has to get going before the client is measured."""


class MemoryWatch:
    """The largest resident size of a process, looked at every 20 ms."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.peak_mib = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.02):
            with contextlib.suppress(OSError, TypeError):
                self.peak_mib = max(self.peak_mib, load.resident_mib(self._pid))


def measure(case: str, seconds: float) -> dict:
    """One case against a broker of its own."""
    ready = r"ready broker=\S+ address=\S+:(\d+) namesrv=\S+:\d+"
    with tempfile.TemporaryDirectory(prefix="rmq-hostile-") as folder:
        names_port = free_port()
        settings = [f"rmq.namesrv.listenPort={names_port}"]
        command = load.broker_command(Path(folder) / "store", settings)
        with load.serving(command, ready, "stderr", None) as broker:
            load.play(broker, VICTIM, 0.3, None)
            before = [load.play(broker, VICTIM, seconds / 3, None) for _ in range(3)]
            start_mib = load.resident_mib(broker.pid)
            attack = [
                sys.executable, __file__, "--attack", case, "--port", str(broker.port),
                "--names-port", str(names_port),
                "--seconds", str(PREPARE_S + 2 * seconds + 1),
            ]  # fmt: skip
            with (
                MemoryWatch(broker.pid) as watch,
                subprocess.Popen(attack, preexec_fn=lambda: os.nice(10)) as attacker,
            ):
                time.sleep(PREPARE_S)
                during = [load.play(broker, VICTIM, seconds / 3, None) for _ in "123"]
                attacker.wait(60 + 3 * seconds)
                assert attacker.returncode == 0, case
            time.sleep(0.5)
            load.play(broker, VICTIM, 0.1, None)
            end_mib = load.resident_mib(broker.pid)
    return {
        "case": case,
        "start_mib": start_mib,
        "peak_mib": watch.peak_mib,
        "end_mib": end_mib,
        **{
            f"{name}_{figure}": statistics.median(each[figure] for each in figures)
            for name, figures in (("before", before), ("during", during))
            for figure in ("p50_us", "p99_us")
        },
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def show(rows: list[dict]) -> None:
    print(
        f"{'case':<20}{'memory MiB':>11}{'peak':>7}{'after':>7}"
        f"{'p50 us':>9}{'during':>8}{'p99 us':>9}{'during':>9}{'factor':>8}"
    )
    for row in rows:
        factor = row["during_p99_us"] / row["before_p99_us"]
        print(
            f"{row['case']:<20}{row['start_mib']:>11.0f}{row['peak_mib']:>7.0f}"
            f"{row['end_mib']:>7.0f}{row['before_p50_us']:>9.0f}"
            f"{row['during_p50_us']:>8.0f}{row['before_p99_us']:>9.0f}"
            f"{row['during_p99_us']:>9.0f}{factor:>8.1f}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--cases", type=lambda text: text.split(","), default=[*CASES])
    parser.add_argument("--attack", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--names-port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.attack:
        attacker = Attacker(options.port, options.names_port, options.seconds)
        CASES[options.attack](attacker)
        return 0
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"unknown cases {sorted(unknown)}; there are {', '.join(CASES)}")
    load.build()
    rows = []
    for case in options.cases:
        rows.append(measure(case, options.seconds))
        show(rows[-1:])
    print()
    show(rows)
    print(f"\nwritten to {load.write_result('hostile', rows)}")
    return int(any(row["peak_mib"] > MEMORY_LIMIT_MIB for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
