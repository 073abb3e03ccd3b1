"""Figures that rmq promises beside throughput, each with its limit.

The start of a broker against that of a process that only imports trio (interleaved).
CPU per message with 1,000 connections of one request in flight against 64 of them
(interleaved, median of the rounds; a round that others disturb is played again), memory
with 10,000 idle connections, and a name server with 1,000 brokers of 2,000 topics each:
CPU of one more full registration and of a question for a route, and memory. Exit code 1
if a limit is missed.

    python bench/figures.py [--rounds 5] [--seconds 0.4] [--only namesrv]
"""

import argparse
import os
import resource
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent / "load"))

import run as load

from bench.load.turns import OTHERS_LIMIT, Turn, quiet
from rmq._fastpath.bytes.checksum import body_crc
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.register import RegisterBrokerBody
from rmq.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.headers.route import (
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
)

START_LIMIT_S = 0.2
STARTS = 15
CONNECTIONS_LIMIT = 1.3
IDLE_COUNT = 10_000
IDLE_LIMIT_MB = 100
BROKERS, TOPICS = 1_000, 2_000
REGISTRATION_LIMIT_MS = 20
REGISTRATIONS = 50
ROUTE_LIMIT_US = 30
ROUTES = 20_000
ROUTES_AT_ONCE = 100
NAME_SERVER_LIMIT_MIB = 150
"""90 were measured."""

CLIENTS_PER_ADDRESS = 5_000
Row = tuple[str, float, float]
"""What, how much, and how much at most."""

READY = r"ready broker=\S+ address=\S+:(\d+)"


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_s() -> float:
    """Return what a broker's start takes beyond that of an empty trio process."""
    times, more = [], []
    for _ in range(STARTS):
        with tempfile.TemporaryDirectory(prefix="rmq-figures-") as name:
            command = load.broker_command(Path(name) / "store", [])
            with load.serving(command, READY, "stderr", None) as broker:
                times.append(broker.start_s)
        more.append(broker.start_s - load.bare_trio_start_s(1))
    print(f"start of a broker: {statistics.median(times):.2f} s")
    return statistics.median(more)


def many_connections(rounds: int, seconds: float) -> float:
    """Return the CPU per message of 1,000 x 1, divided by that of 64 x 1."""
    profiles = {n: [f"--connections={n}", "--window=1"] for n in (64, 1_000)}
    figures: dict[int, list[float]] = {n: [] for n in profiles}
    shares: list[float] = []
    with tempfile.TemporaryDirectory(prefix="rmq-figures-") as name:
        command = load.broker_command(Path(name) / "store", [])
        with load.serving(command, READY, "stderr", None) as broker:
            for options in profiles.values():
                load.play(broker, [*options, "--warm-up=1"], 0.1, None)

            def turn() -> Turn:
                return {
                    str(count): load.play(broker, options, seconds, None)
                    for count, options in profiles.items()
                }

            for _ in range(rounds):
                played, share = quiet(turn, [broker.pid])
                shares.append(share)
                for count, each in figures.items():
                    each.append(played[str(count)]["s_per_million"])
    medians = {count: statistics.median(each) for count, each in figures.items()}
    print(f"CPU s per million: 64 x 1 {medians[64]:.2f}, 1,000 x 1 {medians[1000]:.2f}")
    if statistics.median(shares) > OTHERS_LIMIT:
        print(f"DISTURBED: others took {statistics.median(shares):.0%}")
    return medians[1_000] / medians[64]


def idle_connections() -> float:
    """Return the resident MB of a broker with 10,000 connections that spoke once."""
    asked = encode(Command(9_999, opaque=1))
    with tempfile.TemporaryDirectory(prefix="rmq-figures-") as name:
        command = load.broker_command(Path(name) / "store", [])
        with load.serving(command, READY, "stderr", None) as broker:
            peers = []
            for number in range(IDLE_COUNT):
                peer = socket.socket()
                peer.bind((f"127.0.0.{2 + number // CLIENTS_PER_ADDRESS}", 0))
                peer.connect(("127.0.0.1", broker.port))
                peer.sendall(asked)
                peers.append(peer)
            for peer in peers:
                assert peer.recv(4096), "the broker closed a connection"
            time.sleep(1)
            return load.resident_mib(broker.pid) * 1.048576


def name_server() -> list[Row]:
    """Return the figures of a name server that knows 1,000 brokers."""
    names = [f"topic-of-some-length-{number}" for number in range(TOPICS)]
    topics = {name: TopicConfig(topic_name=name) for name in names}
    command = [sys.executable, "-m", "rmq", "namesrv", "--set", "listenPort=0"]
    with tempfile.TemporaryDirectory(prefix="rmq-figures-") as name:
        command += ["--set", f"kvConfigPath={name}/kv.json"]
        with (
            load.serving(command, r"ready namesrv=\S+:(\d+)", "stderr", None) as server,
            socket.create_connection(("127.0.0.1", server.port), 20) as peer,
        ):
            empty = load.resident_mib(server.pid)
            data = body(topics, 0)
            for number in range(BROKERS):
                register(peer, number, data)
            alone = body(topics | {"alone": TopicConfig(topic_name="alone")}, 1)
            register(peer, 0, alone)
            full = load.resident_mib(server.pid)
            print(f"memory of a name server: empty {empty:.0f}, full {full:.0f} MiB")
            bodies = [body(topics, counter) for counter in range(2, 2 + REGISTRATIONS)]
            began = cpu_s(server.pid)
            for data in bodies:
                register(peer, 7, data)
            registration_ms = (cpu_s(server.pid) - began) / REGISTRATIONS * 1e3
            route_us = routes_us(server.pid, peer, "alone", ROUTES)
            wide_us = routes_us(server.pid, peer, names[7], ROUTES // 20)
            print(f"CPU us of a route over {BROKERS:,} brokers: {wide_us:.0f}")
    return [
        (f"CPU ms of a registration of {TOPICS:,} topics", registration_ms,
         REGISTRATION_LIMIT_MS),
        ("CPU us of a question for a route", route_us, ROUTE_LIMIT_US),
        (f"MiB of a name server with {BROKERS:,} brokers", full, NAME_SERVER_LIMIT_MIB),
    ]  # fmt: skip


def body(topics: dict[str, TopicConfig], counter: int) -> bytes:
    """Return a registration with another version of the topics."""
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            data_version=DataVersion(counter=counter), topic_config_table=topics
        )
    ).encode()


def register(peer: socket.socket, number: int, data: bytes) -> None:
    """Register a broker and wait."""
    host = f"10.0.{number // 250}.{number % 250}"
    header = RegisterBrokerRequestHeader(
        broker_name=f"broker-{number}", broker_addr=f"{host}:10911",
        cluster_name="DefaultCluster", ha_server_addr=f"{host}:10912", broker_id=0,
        compressed=False, body_crc32=body_crc(data),
    )  # fmt: skip
    command = Command.request(RequestCode.REGISTER_BROKER, header, data)
    peer.sendall(encode(command))
    read_answers(peer, 1)


def routes_us(pid: int, peer: socket.socket, topic: str, count: int) -> float:
    """Return the CPU us that the name server spends on a question for a topic."""
    header = GetRouteInfoRequestHeader(topic=topic)
    command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    batch = encode(command) * ROUTES_AT_ONCE
    began = cpu_s(pid)
    for _ in range(count // ROUTES_AT_ONCE):
        peer.sendall(batch)
        read_answers(peer, ROUTES_AT_ONCE)
    return (cpu_s(pid) - began) / count * 1e6


def read_answers(peer: socket.socket, count: int) -> None:
    decoder = FrameDecoder()
    while count:
        for answer in decoder.feed(peer.recv(1 << 20)):
            assert answer.code == 0, answer.remark
            count -= 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--only", choices=["namesrv"])
    options = parser.parse_args()
    rows = name_server()
    if options.only is None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        load.build()
        rows += [
            ("s of a start beyond an empty trio process", start_s(), START_LIMIT_S),
            (
                "CPU per message, 1,000 x 1 against 64 x 1",
                many_connections(options.rounds, options.seconds),
                CONNECTIONS_LIMIT,
            ),
            ("MB with 10,000 idle connections", idle_connections(), IDLE_LIMIT_MB),
        ]
    for text, figure, limit in rows:
        print(f"{text:<45}{figure:>8.2f}  at most {limit}")
    return int(any(figure > limit for _, figure, limit in rows))


if __name__ == "__main__":
    raise SystemExit(main())
