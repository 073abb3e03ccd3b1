"""Rates of rmq, Java RocketMQ, Redis Streams, NATS JetStream and RabbitMQ in one run.

At three settings of durability each broker stores the same bodies, in turns, for the
same generator: one Python process that sends frames it has made before, and counts the
answers. `4x64` has four connections with 64 messages in flight, `1x1` has one message.

    memory   messages are lost with the process; rmq and Java have no such setting
    later    they are in files, and the disk has them some time after the answer
    synced   the disk has them before the answer

A broker that is not on this machine is named and left out: `redis-server`,
`nats-server` (in PATH or beside Python) and `rabbitmq-server`; Java's broker is
installed as `make interop` does. Prints the table of docs/start/comparison.md;
`--page` writes it there.

    make lab NAME=comparison ARGS="--rounds 3 --seconds 1.5"
"""

import argparse
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import amqp

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.load import run, tls
from bench.load.turns import precise_cpu_seconds
from lab.compare_java import java_broker, memory_mib, rmq_broker, started
from lab.tasks import rabbitmq
from tests.interop.processes import free_port

PAGE = ROOT / "docs/start/comparison.md"
BEGIN, END = "<!-- rates: begin -->\n", "<!-- rates: end -->\n"
BODY = bytes(tls.BODY)
TITLES = {
    "memory": "in memory",
    "later": "on the disk later",
    "synced": "on the disk before the answer",
}
SETTINGS = tuple(TITLES)
CASES = {"4x64": (4, 64), "1x1": (1, 1)}
FLUSHES = {"later": "ASYNC_FLUSH", "synced": "SYNC_FLUSH"}
WARM_UP_S = 1.0
JAVA_WARM_UP_S = 15.0


# -- clients: frames for one send, and a count of the answers in what comes back


class Remoting(tls.Peer):
    """A client of rmq or Java."""

    def __init__(self, port: int, _setting: str, window: int) -> None:
        super().__init__(port, None)
        self.frames = b"".join(map(tls.send_frame, range(window)))


class Counting:
    """A client whose answers have one mark each."""

    mark = b""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def receive(self, count: int) -> None:
        """Receive so many answers."""
        while count > 0:
            data = self.socket.recv(1 << 20)
            assert data, "the broker closed the connection"
            count -= self.answers(self._rest + data)

    def answers(self, data: bytes) -> int:
        """Count the marks, of which one may come in two parts."""
        self._rest = data[len(data) - len(self.mark) + 1 :]
        return data.count(self.mark)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class Redis(Counting):
    """XADD to a stream; an answer is the id as a bulk string."""

    mark = b"$"

    def __init__(self, port: int, _setting: str, window: int) -> None:
        super().__init__(port)
        words = b"XADD", b"s", b"*", b"b", BODY
        parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
        self.frames = b"".join([b"*%d\r\n" % len(words), *parts]) * window


class Nats(Counting):
    """PUB to a subject of a stream, with an inbox for the answers in JSON."""

    mark = b'"seq":'

    def __init__(self, port: int, setting: str, window: int) -> None:
        super().__init__(port)
        storage = "memory" if setting == "memory" else "file"
        stream = f'{{"name":"S","subjects":["s"],"storage":"{storage}"}}'
        create = f"PUB $JS.API.STREAM.CREATE.S made {len(stream)}\r\n{stream}\r\n"
        self.socket.sendall(
            f'CONNECT {{"verbose":false}}\r\nSUB made 1\r\n{create}'.encode()
        )
        seen = b""
        while b'"created"' not in seen:  # also if the stream is there already
            seen += self.socket.recv(1 << 16)
            assert b'"error"' not in seen, seen
        inbox = f"inbox.{self.socket.getsockname()[1]}"
        self.socket.sendall(f"SUB {inbox} 2\r\n".encode())
        frame = f"PUB s {inbox} {len(BODY)}\r\n".encode() + BODY + b"\r\n"
        self.frames = frame * window

    def answers(self, data: bytes) -> int:
        """Count the answers, and answer a ping of the server."""
        if b"PING\r\n" in data[len(self._rest) :]:
            self.socket.sendall(b"PONG\r\n")
        return super().answers(data)


class Rabbit:
    """Publishes with confirms; a confirm may be for several messages."""

    def __init__(self, port: int, setting: str, window: int) -> None:
        self._connection = amqp.Connection(f"127.0.0.1:{port}")
        self._connection.connect()
        channel = self._connection.channel()
        is_kept = setting != "memory"
        arguments = {"x-queue-type": "quorum"} if setting == "synced" else {}
        channel.queue_declare(
            "q", durable=is_kept, auto_delete=False, arguments=arguments
        )
        channel.confirm_select()
        self.socket = self._connection.transport.sock
        self.socket.setblocking(True)
        number = channel.channel_id
        publish = struct.pack(">HHHBB", 60, 40, 0, 0, 1) + b"q\0"
        header = struct.pack(">HHQHB", 60, 0, len(BODY), 0x1000, 2 if is_kept else 1)
        self.frames = window * b"".join(
            struct.pack(">BHI", kind, number, len(payload)) + payload + b"\xce"
            for kind, payload in ((1, publish), (2, header), (3, BODY))
        )
        self._open: set[int] = set()
        self._sent = 0
        self._rest = b""

    def receive(self, count: int) -> None:
        """Receive the confirms of so many messages, the last ones."""
        self._open.update(range(self._sent + 1, self._sent + count + 1))
        self._sent += count
        while self._open:
            data = self.socket.recv(1 << 20)
            assert data, "the broker closed the connection"
            self._open, self._rest = confirmed(self._rest + data, self._open)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def confirmed(data: bytes, tags: set[int]) -> tuple[set[int], bytes]:
    """Return the tags that RabbitMQ has not confirmed yet, and the incomplete frame."""
    tags = set(tags)
    at = 0
    while len(data) - at >= 7:
        kind, _, size = struct.unpack_from(">BHI", data, at)
        if len(data) - at < size + 8:
            break
        if kind == 1:
            method = struct.unpack_from(">HH", data, at + 7)
            assert method == (60, 80), f"no confirm: method {method}"
            tag, is_multiple = struct.unpack_from(">QB", data, at + 11)
            tags.discard(tag)
            if is_multiple:
                tags = {each for each in tags if each > tag}
        at += size + 8
    return tags, data[at:]


Client = Remoting | Redis | Nats | Rabbit


# -- servers


def rmq_server(folder: Path, setting: str) -> AbstractContextManager[run.Server]:
    """Run rmq with its defaults."""
    return rmq_broker(folder, FLUSHES[setting])


def java_server(folder: Path, setting: str) -> AbstractContextManager[run.Server]:
    """Run Java's broker with a heap of 1 GiB."""
    return java_broker(folder, {"flushDiskType": FLUSHES[setting]})


def redis_server(folder: Path, setting: str) -> AbstractContextManager[run.Server]:
    """Run Redis with an append-only file that is never rewritten, or without one."""
    port = free_port()
    syncs = {"later": "everysec", "synced": "always"}
    settings = {
        "port": port, "bind": "127.0.0.1", "dir": folder, "save": "",
        "appendonly": "yes" if setting in syncs else "no",
        "appendfsync": syncs.get(setting, "no"), "auto-aof-rewrite-percentage": 0,
    }  # fmt: skip
    words = [word for k, v in settings.items() for word in (f"--{k}", str(v))]
    return started(["redis-server", *words], folder, port, b"Ready to accept")


def nats_server(folder: Path, setting: str) -> AbstractContextManager[run.Server]:
    """Run NATS with JetStream; `later` syncs every two minutes, its default."""
    port = free_port()
    interval = "always" if setting == "synced" else "2m"
    config = folder / "nats.conf"
    config.write_text(
        f"listen: 127.0.0.1:{port}\n"
        f'jetstream {{ store_dir: "{folder}", sync_interval: {interval} }}\n'
    )
    command = [found("nats-server"), "-c", str(config)]
    return started(command, folder, port, b"Server is ready")


@contextmanager
def rabbit_server(folder: Path, _setting: str) -> Iterator[run.Server]:
    """Run RabbitMQ; its script changes to the user rabbitmq."""
    folder.chmod(0o777)
    began = time.perf_counter()
    with rabbitmq(folder) as broker:
        took_s = time.perf_counter() - began
        yield run.Server(broker.pid, urlsplit(broker.url).port or 0, took_s)


class Kind(NamedTuple):
    """A broker: how it starts, its client, and the settings that it has."""

    start: Callable[[Path, str], AbstractContextManager[run.Server]]
    client: Callable[[int, str, int], Client]
    settings: tuple[str, ...]
    programs: tuple[str, ...] = ()


KINDS = {
    "rmq": Kind(rmq_server, Remoting, ("later", "synced")),
    "RocketMQ 5.5.0": Kind(java_server, Remoting, ("later", "synced"), ("java", "mvn")),
    "NATS JetStream": Kind(nats_server, Nats, SETTINGS, ("nats-server",)),
    "Redis Streams": Kind(redis_server, Redis, SETTINGS, ("redis-server",)),
    "RabbitMQ": Kind(rabbit_server, Rabbit, SETTINGS, ("rabbitmq-server",)),
}


def found(program: str) -> str:
    """Return the path of a program, "" if it is not here."""
    places = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return shutil.which(program, path=places) or ""


# -- the run


def play(
    server: run.Server, clients: list[Client], window: int, s: float
) -> dict[str, float]:
    """Play one turn; rate, the broker's CPU for a message, median time of a round."""
    times: list[int] = []
    cpu, began = precise_cpu_seconds(server.pid), time.perf_counter()
    while time.perf_counter() - began < s:
        start = time.perf_counter_ns()
        for client in clients:
            client.socket.sendall(client.frames)
        for client in clients:
            client.receive(window)
        times.append(time.perf_counter_ns() - start)
    count = window * len(clients) * len(times)
    return {
        "rate": count / (time.perf_counter() - began),
        "cpu_us": (precise_cpu_seconds(server.pid) - cpu) / count * 1e6,
        "p50_us": statistics.median(times) / 1e3,
    }


def measure(
    setting: str, names: list[str], options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Start all brokers with a setting, and let them play in turns."""
    result: dict[str, dict[str, float]] = {}
    with (
        tempfile.TemporaryDirectory(
            prefix="rmq-comparison-", ignore_cleanup_errors=True
        ) as place,
        ExitStack() as stack,
    ):
        Path(place).chmod(0o755)  # RabbitMQ runs as another user
        servers: dict[str, run.Server] = {}
        for number, name in enumerate(names):
            folder = Path(place) / str(number)
            folder.mkdir()
            server = stack.enter_context(KINDS[name].start(folder, setting))
            servers[name] = server
            own_mib = memory_mib(server.pid)["own_mib"]
            result[name] = {"start_s": server.start_s, "memory_mib": own_mib}
        for case in CASES:
            figures = play_case(case, setting, servers, options)
            for name, each in figures.items():
                result[name] |= {f"{case} {key}": value for key, value in each.items()}
    return result


def play_case(
    case: str,
    setting: str,
    servers: dict[str, run.Server],
    options: argparse.Namespace,
) -> dict[str, dict[str, float]]:
    """Warm all brokers up, and play a case in turns; the medians."""
    connections, window = CASES[case]
    clients: dict[str, list[Client]] = {}
    for name, server in servers.items():
        client = KINDS[name].client
        clients[name] = [
            client(server.port, setting, window) for _ in range(connections)
        ]
        is_java = "java" in KINDS[name].programs
        play(server, clients[name], window, JAVA_WARM_UP_S if is_java else WARM_UP_S)
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    for _ in range(options.rounds):
        for name, server in servers.items():
            turns[name].append(play(server, clients[name], window, options.seconds))
    for client in (each for group in clients.values() for each in group):
        client.close()
    figures = {name: run.medians(each) for name, each in turns.items()}
    rates = ", ".join(f"{name} {each['rate']:,.0f}/s" for name, each in figures.items())
    print(f"{setting} {case}: {rates}", file=sys.stderr, flush=True)
    return figures


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """Return the table of all settings."""
    lines = [
        "| messages | broker | start s | memory MiB | 4x64: per s | CPU µs each |"
        " 1x1: p50 µs | CPU µs each |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for setting, figures in results.items():
        for name, each in figures.items():
            lines.append(
                f"| {TITLES[setting]} | {name} | {each['start_s']:.1f}"
                f" | {each['memory_mib']:.0f} | {each['4x64 rate']:,.0f}"
                f" | {each['4x64 cpu_us']:.1f} | {each['1x1 p50_us']:,.0f}"
                f" | {each['1x1 cpu_us']:.0f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure the brokers that are here; print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.name}, too")
    options = parser.parse_args()
    here = [name for name, each in KINDS.items() if is_here(each)]
    missing = sorted(KINDS.keys() - set(here))
    if missing:
        print(f"not measured, because not here: {', '.join(missing)}", file=sys.stderr)
    results = {
        setting: measure(
            setting, [n for n in here if setting in KINDS[n].settings], options
        )
        for setting in options.settings.split(",")
    }
    run.write_result("comparison", results)
    text = table(results)
    if missing:
        text += f"\nNot measured in this run: {', '.join(missing)}.\n"
    print(text, end="")
    if options.page:
        PAGE.write_text(with_rates(PAGE.read_text(), f"{run_line(options)}\n\n{text}"))
    return 0


def run_line(options: argparse.Namespace) -> str:
    """Return the sentence above the table."""
    command = ("git", "log", "-1", "--abbrev=12", "--format=%h of %cs")
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    return (
        f"Medians of {options.rounds} rounds of {options.seconds:g} s, at the commit "
        f"{commit.strip()}:"
    )


def with_rates(page: str, text: str) -> str:
    """Return the page with this text between its marks."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + text + END + rest.partition(END)[2]


def is_here(kind: Kind) -> bool:
    """True if the machine has all programs of a broker."""
    return all(found(program) for program in kind.programs)


if __name__ == "__main__":
    sys.exit(main())
