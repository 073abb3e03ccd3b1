"""The price of TLS: the same load plain and with TLS, in turns, on one broker.

The generator is one Python process. Each round sends WINDOW requests on each connection
with one system call, and waits for all answers. `each` puts every frame into a record
of its own, as Java's clients do; `gathered` fills the records. The figure is the
broker's CPU for a message, as a ratio to plain in the same run, the median of all
turns; the rates are the generator's. p50 is the time from the first send of a round to
the last byte of its answers, in turns of their own with a pause before each round: the
generator encrypts before and decrypts after it. Without the pause only a plain
generator is so fast that the broker does not sleep between two rounds.
*floor* is the ratio if TLS cost only the time of `ssl` for a request and its answer, a
record each: in this process, with as many connections in turn, after a pause.

Then it measures idle connections, handshakes by kind of key, and handshakes that a
stranger asks for while an honest client sends. Writes JSON to bench/results/.

    python bench/load/tls.py [--rounds 5] [--seconds 0.5] [--cases send-1x1,…]
"""

import argparse
import multiprocessing
import os
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from bench.load import run  # noqa: E402 - found by the line above
from bench.load.turns import precise_cpu_seconds  # noqa: E402
from rmq.protocol.codes import RequestCode  # noqa: E402
from rmq.protocol.command import Command  # noqa: E402
from rmq.protocol.frames import encode  # noqa: E402
from rmq.remoting.self_signed import add_self_signed  # noqa: E402

CASES = {
    "send-1x1": (1, 1),
    "send-64x1": (64, 1),
    "send-4x64": (4, 64),
    "send-64x16": (64, 16),
    "pull-1x1": (1, 1),
}
MODES = "plain", "each", "gathered"
RECORD = 16_384
BODY = 128
PULL_BODY = 1_024
PULL_MESSAGES = 32
ANSWER = 275
"""Bytes of the answer to a send."""

PAUSE_S = 0.0002
"""A pause before each round whose time counts, and before each round of the cipher."""

FLOOR_ROUNDS = 50

TOPIC = "BenchTls"
PULLED = "BenchTlsOld"
IDLE = 1_000, 5_000
STORM_PER_S = 2_000


def client_context() -> ssl.SSLContext:
    """Return a context that trusts any server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Peer:
    """A connection of the generator, plain or with TLS over memory BIOs."""

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._context = context
        self._have = b""
        self.received_ns = 0
        if context is not None:
            self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = context.wrap_bio(self._incoming, self._outgoing)
            self._shake_hands()

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.socket.sendall(self._outgoing.read())
                self._incoming.write(self.socket.recv(65_536))
            else:
                self.socket.sendall(self._outgoing.read())
                return

    def encrypt(self, frames: list[bytes], *, is_gathered: bool) -> bytes:
        """Return the bytes for one send."""
        if self._context is None:
            return b"".join(frames)
        if is_gathered:
            data = b"".join(frames)
            frames = [data[at : at + RECORD] for at in range(0, len(data), RECORD)]
        for frame in frames:
            self._tls.write(frame)
        return self._outgoing.read()

    def receive(self, count: int) -> None:
        """Receive so many answers; an answer begins with its length."""
        have = self._have
        while True:
            at = 0
            while count and len(have) - at >= 4:
                size = 4 + int.from_bytes(have[at : at + 4])
                if len(have) - at < size:
                    break
                at, count = at + size, count - 1
            have = have[at:]
            if not count:
                break
            have += self._receive_bytes()
        self._have = have

    def _receive_bytes(self) -> bytes:
        data = self.socket.recv(1 << 20)
        assert data, "the broker closed the connection"
        self.received_ns = time.perf_counter_ns()
        if self._context is None:
            return data
        self._incoming.write(data)
        parts = []
        with suppress(ssl.SSLWantReadError):
            while part := self._tls.read(RECORD):
                parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def send_frame(number: int, topic: str = TOPIC, body: int = BODY) -> bytes:
    """Return a send of `body` zeros."""
    fields = {
        "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0",
        "g": "1795230112758", "h": "0", "i": f"UNIQ_KEY\x017F01{number:08}\x02",
        "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return encode(
        Command(RequestCode.SEND_MESSAGE_V2, fields, bytes(body), opaque=number)
    )


def pull_frame(number: int) -> bytes:
    """Return a pull of 32 messages from the beginning."""
    fields = {
        "consumerGroup": "G", "topic": PULLED, "queueId": "0",
        "queueOffset": "0", "maxMsgNums": str(PULL_MESSAGES), "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
        "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return encode(Command(RequestCode.PULL_MESSAGE, fields, opaque=number))


def play(
    server: run.Server,
    peers: list[Peer],
    window: int,
    mode: str,
    is_pull: bool,
    s: float,
    pause_s: float = 0.0,
) -> dict[str, float]:
    """Play one turn; microseconds of broker CPU for a request, rate, median time."""
    make = pull_frame if is_pull else send_frame
    frames = [make(number) for number in range(window)]
    times: list[int] = []
    count = 0
    cpu, began = precise_cpu_seconds(server.pid), time.perf_counter()
    while time.perf_counter() - began < s:
        ready = [peer.encrypt(frames, is_gathered=mode == "gathered") for peer in peers]
        if pause_s:
            time.sleep(pause_s)
        start = time.perf_counter_ns()
        # in a burst: plain and encrypted make equal polls
        for peer, data in zip(peers, ready, strict=True):
            peer.socket.sendall(data)
        for peer in peers:
            peer.receive(window)
        times.append(max(peer.received_ns for peer in peers) - start)
        count += window * len(peers)
    elapsed = time.perf_counter() - began
    return {
        "cpu_us": (precise_cpu_seconds(server.pid) - cpu) / count * 1e6,
        "rate": count / elapsed,
        "p50_us": statistics.median(times) / 1e3,
    }


def measure_case(server: run.Server, case: str, rounds: int, s: float) -> dict:
    """Play a case in all modes, in turns; the medians and the ratios to plain."""
    connections, window = CASES[case]
    is_pull = case.startswith("pull")
    context = client_context()
    peers = {
        mode: [
            Peer(server.port, None if mode == "plain" else context)
            for _ in range(connections)
        ]
        for mode in MODES
    }
    floor = Cipher(connections, window, is_pull)
    turns: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    paced: dict[str, list[float]] = {mode: [] for mode in MODES}
    for mode in MODES:
        play(server, peers[mode], window, mode, is_pull, 0.1)
    for _ in range(rounds):
        for mode in MODES:
            turns[mode].append(play(server, peers[mode], window, mode, is_pull, s))
        for mode in MODES:
            turn = play(server, peers[mode], window, mode, is_pull, s, PAUSE_S)
            paced[mode].append(turn["p50_us"])
        for _ in range(FLOOR_ROUNDS):
            floor.measure()
    for mode in MODES:
        for peer in peers[mode]:
            peer.close()
    medians = {
        mode: {
            name: statistics.median(turn[name] for turn in turns[mode])
            for name in ("cpu_us", "rate")
        }
        | {"p50_us": statistics.median(paced[mode])}
        for mode in MODES
    }
    for mode in MODES[1:]:
        medians[mode]["ratio"] = medians[mode]["cpu_us"] / medians["plain"]["cpu_us"]
        medians[mode]["p50_ratio"] = (
            medians[mode]["p50_us"] / medians["plain"]["p50_us"]
        )
    cipher = statistics.median(floor.times_us)
    plain = medians["plain"]
    medians["cipher"] = {
        "cpu_us": cipher,
        "ratio": 1 + cipher / plain["cpu_us"],
        "p50_ratio": 1 + cipher * connections * window / plain["p50_us"],
    }
    return medians


class Session(NamedTuple):
    """One end of a connection without a socket."""

    read: Callable[..., int]
    write: Callable[[bytes], int]
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO


class Cipher:
    """What `ssl` alone does for the requests and answers of a round, a record each."""

    def __init__(self, connections: int, window: int, is_pull: bool) -> None:
        self._window = window
        self._request = pull_frame(0) if is_pull else send_frame(0)
        size = PULL_MESSAGES * (PULL_BODY + 200) if is_pull else ANSWER
        self._answers = [
            bytes(min(RECORD, size * window - at))
            for at in range(0, size * window, RECORD)
        ]
        self._pairs = [_shaken_pair() for _ in range(connections)]
        self._room = bytearray(RECORD)
        self.times_us: list[float] = []

    def measure(self) -> None:
        """Measure a round, after the caller has waited: caches are as cold as there."""
        ready = []
        for client, _ in self._pairs:
            for _ in range(self._window):
                client.write(self._request)
            ready.append(client.outgoing.read())
        time.sleep(PAUSE_S)
        began = time.perf_counter_ns()
        for (_, server), records in zip(self._pairs, ready, strict=True):
            server.incoming.write(records)
            for _ in range(self._window):
                server.read(RECORD, self._room)
        for _, server in self._pairs:
            for answer in self._answers:
                server.write(answer)
            server.outgoing.read()
        took = time.perf_counter_ns() - began
        self.times_us.append(took / 1e3 / len(self._pairs) / self._window)


def _shaken_pair() -> list[Session]:
    """Make a handshake in memory: the client's session, and the server's."""
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    add_self_signed(accepting)
    ways = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(ways[0], ways[1])
    server = accepting.wrap_bio(ways[1], ways[0], server_side=True)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for end in (client, server):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
                done.add(end)
    return [
        Session(client.read, client.write, ways[0], ways[1]),
        Session(server.read, server.write, ways[1], ways[0]),
    ]


def fill(server: run.Server) -> None:
    """Store the messages that are pulled."""
    peer = Peer(server.port, None)
    frame = send_frame(1, PULLED, PULL_BODY)
    for _ in range(2 * PULL_MESSAGES):
        peer.socket.sendall(frame)
        peer.receive(1)
    peer.close()


def measure_idle(server: run.Server, count: int, s: float = 5.0) -> dict[str, float]:
    """Open so many connections that have sent once; memory, descriptors, CPU."""
    memory, files = run.resident_mib(server.pid), descriptors(server.pid)
    context = client_context()
    peers = []
    for number in range(count):
        peer = Peer(server.port, context)
        peer.socket.sendall(peer.encrypt([send_frame(number)], is_gathered=False))
        peer.receive(1)
        peers.append(peer)
    time.sleep(1)
    cpu = precise_cpu_seconds(server.pid)
    time.sleep(s)
    result = {
        "kib_each": (run.resident_mib(server.pid) - memory) * 1024 / count,
        "descriptors_each": (descriptors(server.pid) - files) / count,
        "core_percent": 100 * (precise_cpu_seconds(server.pid) - cpu) / s,
    }
    for peer in peers:
        peer.close()
    return result


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def measure_handshakes(server: run.Server, s: float, *, resumed: bool) -> dict:
    """Make handshakes one after the other; the rate and the broker's CPU for one."""
    context, session, count = client_context(), None, 0
    cpu, began = precise_cpu_seconds(server.pid), time.perf_counter()
    while time.perf_counter() - began < s:
        plain = socket.create_connection(("127.0.0.1", server.port))
        with context.wrap_socket(plain, session=session) as tls:
            if resumed and session is None:
                tls.sendall(send_frame(0))
                tls.recv(4096)
                session = tls.session
        count += 1
    return {
        "rate": count / (time.perf_counter() - began),
        "cpu_us": (precise_cpu_seconds(server.pid) - cpu) / count * 1e6,
    }


def storm(port: int, per_s: int, is_over: Callable[[], bool]) -> None:
    """Ask for handshakes from an address of its own, and never wait for an answer.

    The honest client shares the core, and must not wait for this process.
    """
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    hello = first_hello()
    began, count = time.monotonic(), 0
    open_sockets: list[socket.socket] = []
    while not is_over():
        due = int((time.monotonic() - began) * per_s)
        for _ in range(min(due - count, 100)):
            with suppress(OSError):
                plain = socket.create_connection(
                    ("127.0.0.1", port), 5, ("127.0.0.2", 0)
                )
                plain.sendall(hello)
                open_sockets.append(plain)
        count = due
        while len(open_sockets) > 500:
            open_sockets.pop(0).close()
        time.sleep(0.005)


def first_hello() -> bytes:
    """Return the first bytes of a client."""
    outgoing = ssl.MemoryBIO()
    tls = client_context().wrap_bio(ssl.MemoryBIO(), outgoing)
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def measure_storm(server: run.Server, s: float) -> dict[str, float]:
    """Let an honest plain client send, quiet and in a storm; connect by TLS in it."""
    quiet = p99_us(server, s)
    over = multiprocessing.Event()
    stranger = multiprocessing.Process(
        target=storm, args=(server.port, STORM_PER_S, over.is_set)
    )
    stranger.start()
    time.sleep(1)
    stormy = p99_us(server, s)
    began = time.perf_counter()
    Peer(server.port, client_context()).close()
    connected_s = time.perf_counter() - began
    over.set()
    stranger.join()
    return {
        "quiet_p99_us": quiet,
        "storm_p99_us": stormy,
        "ratio": stormy / quiet,
        "honest_tls_s": connected_s,
    }


def p99_us(server: run.Server, s: float) -> float:
    """Return the 99th percentile of sends, one in flight."""
    peer, frame, times = Peer(server.port, None), send_frame(0), []
    end = time.perf_counter() + s
    while time.perf_counter() < end:
        began = time.perf_counter_ns()
        peer.socket.sendall(frame)
        peer.receive(1)
        times.append(time.perf_counter_ns() - began)
    peer.close()
    return statistics.quantiles(times, n=100)[98] / 1e3


def make_rsa(folder: Path) -> list[str]:
    """Make a certificate with RSA 2048 by `openssl`; its settings."""
    cert, key = folder / "rsa.pem", folder / "rsa.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return [f"tls.server.certPath={cert}", f"tls.server.keyPath={key}"]


@contextmanager
def broker(folder: Path, settings: list[str]) -> Iterator[run.Server]:
    """Run a broker on the first core."""
    command = run.broker_command(folder, settings)
    ready = r"ready broker=\S+ address=\S+:(\d+)"
    with run.serving(command, ready, "stderr", 0) as server:
        yield server


def main() -> int:
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--only-cases", action="store_true")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    cpus = os.cpu_count() or 1
    os.sched_setaffinity(0, {1 % cpus})
    result: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="rmq-bench-tls-") as name:
        folder = Path(name)
        with broker(folder / "ecdsa", []) as server:
            fill(server)
            print(
                f"{'case':12} {'plain us':>9} {'each':>7} {'gathered':>9} {'floor':>6}"
                f" {'p50':>6} {'floor':>6} {'ssl us':>7}"
            )
            for case in options.cases.split(","):
                found = measure_case(server, case, options.rounds, options.seconds)
                result[case] = found
                print(
                    f"{case:12} {found['plain']['cpu_us']:9.1f}"
                    f" {found['each']['ratio']:7.2f} {found['gathered']['ratio']:9.2f}"
                    f" {found['cipher']['ratio']:6.2f}"
                    f" {found['each']['p50_ratio']:6.2f}"
                    f" {found['cipher']['p50_ratio']:6.2f}"
                    f" {found['cipher']['cpu_us']:7.1f}"
                )
            if options.only_cases:
                return 0
            for count in IDLE:
                result[f"idle-{count}"] = found = measure_idle(server, count)
                print(f"idle {count}:", _shown(found))
            for resumed in (False, True):
                found = measure_handshakes(server, 2.0, resumed=resumed)
                result[f"handshakes-ecdsa{'-resumed' if resumed else ''}"] = found
                print(f"handshakes ECDSA resumed={resumed}:", _shown(found))
            result["storm"] = found = measure_storm(server, 3.0)
            print("storm of handshakes:", _shown(found))
        with broker(folder / "rsa", make_rsa(folder)) as server:
            result["handshakes-rsa"] = found = measure_handshakes(
                server, 2.0, resumed=False
            )
            print("handshakes RSA 2048:", _shown(found))
    run.write_result("tls", result)
    return 0


def _shown(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in found.items())


if __name__ == "__main__":
    sys.exit(main())
