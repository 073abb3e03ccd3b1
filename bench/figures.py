"""Figures that rmq promises beside throughput, each with its limit.

CPU per message with 1,000 connections of one request in flight against 64 of them
(interleaved, median of the rounds), memory with 10,000 idle connections, and CPU of a
registration of 2,000 topics at the name server. Exit code 1 if a limit is missed.

    python bench/figures.py [--rounds 5] [--seconds 0.4]
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

from rmq._fastpath import body_crc
from rmq.protocol.bodies.common import DataVersion
from rmq.protocol.bodies.register import RegisterBrokerBody
from rmq.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.headers.route import RegisterBrokerRequestHeader

CONNECTIONS_LIMIT = 1.3
IDLE_COUNT = 10_000
IDLE_LIMIT_MB = 100
REGISTRATION_TOPICS = 2_000
REGISTRATION_LIMIT_MS = 20
REGISTRATIONS = 20
CLIENTS_PER_ADDRESS = 5_000
READY = r"ready broker=\S+ address=\S+:(\d+)"


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def many_connections(rounds: int, seconds: float) -> float:
    """Return the CPU per message of 1,000 x 1, divided by that of 64 x 1."""
    profiles = {n: [f"--connections={n}", "--window=1"] for n in (64, 1_000)}
    figures: dict[int, list[float]] = {n: [] for n in profiles}
    with tempfile.TemporaryDirectory(prefix="rmq-figures-") as name:
        command = load.broker_command(Path(name) / "store", [])
        with load.serving(command, READY, "stderr", None) as broker:
            for options in profiles.values():
                load.play(broker, [*options, "--warm-up=1"], 0.1, None)
            for _ in range(rounds):
                for count, options in profiles.items():
                    played = load.play(broker, options, seconds, None)
                    figures[count].append(played["s_per_million"])
    medians = {count: statistics.median(each) for count, each in figures.items()}
    print(f"CPU s per million: 64 x 1 {medians[64]:.2f}, 1,000 x 1 {medians[1000]:.2f}")
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


def registration() -> float:
    """Return the CPU ms that a name server spends on 2,000 topics of a broker."""
    names = [f"Topic_{number:06}" for number in range(REGISTRATION_TOPICS)]
    topics = {name: TopicConfig(topic_name=name) for name in names}
    command = [sys.executable, "-m", "rmq", "namesrv", "--set", "listenPort=0"]
    with tempfile.TemporaryDirectory(prefix="rmq-figures-") as name:
        command += ["--set", f"kvConfigPath={name}/kv.json"]
        with (
            load.serving(command, r"ready namesrv=\S+:(\d+)", "stderr", None) as server,
            socket.create_connection(("127.0.0.1", server.port), 20) as peer,
        ):
            began = cpu_s(server.pid)
            for counter in range(REGISTRATIONS):
                register(peer, topics, counter)
            return (cpu_s(server.pid) - began) / REGISTRATIONS * 1_000


def register(peer: socket.socket, topics: dict[str, TopicConfig], counter: int) -> None:
    """Register a broker with another version of its topics, and wait."""
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            data_version=DataVersion(counter=counter), topic_config_table=topics
        )
    ).encode()
    header = RegisterBrokerRequestHeader(
        broker_name="b", broker_addr="10.0.0.1:10911", cluster_name="C",
        ha_server_addr="10.0.0.1:10912", broker_id=0, compressed=False,
        body_crc32=body_crc(body),
    )  # fmt: skip
    peer.sendall(encode(Command.request(RequestCode.REGISTER_BROKER, header, body)))
    decoder = FrameDecoder()
    while True:
        answers = decoder.feed(peer.recv(65_536))
        if answers:
            assert answers[0].code == 0, answers[0].remark
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    load.build()
    rows = [
        (
            "CPU per message, 1,000 x 1 against 64 x 1",
            many_connections(options.rounds, options.seconds),
            CONNECTIONS_LIMIT,
        ),
        ("MB with 10,000 idle connections", idle_connections(), IDLE_LIMIT_MB),
        (
            "CPU ms of a registration of 2,000 topics",
            registration(),
            REGISTRATION_LIMIT_MS,
        ),
    ]
    for text, figure, limit in rows:
        print(f"{text:<45}{figure:>8.2f}  at most {limit}")
    return int(any(figure > limit for _, figure, limit in rows))


if __name__ == "__main__":
    raise SystemExit(main())
