"""Frames that no client would send, against a running node.

    python tests/hostile/fuzz.py [--frames 1000000] [--seed N] [--golden FOLDER]

Two kinds of frames go over many connections to the broker and its name server: recorded
ones with bytes changed, and requests made up of known codes, names of fields and values
that hurt. Everything is drawn from the seed, which is printed; the same seed sends the
same frames. A friendly client sends a message now and then and must never notice.

Reported are frames, crashes (the node died, or a handler failed with what is no
RequestRejected) and leaks (what is left of connections, waiting work, held pulls and
buffers when all are gone; memory that grows from the half to the end, tables aside).
"""

import argparse
import base64
import contextlib
import json
import logging
import lzma
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import trio

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "plugins")]

from rmq.errors import RemoteProtocolError  # noqa: E402
from rmq.protocol.codes import (  # noqa: E402
    OwnRequestCode,
    RequestCode,
    SerializeType,
)
from rmq.protocol.command import Command  # noqa: E402
from rmq.protocol.frames import FrameDecoder, decode, encode  # noqa: E402
from rmq.testing import running_node  # noqa: E402

BATCH = 50
CONNECTIONS = 8
BATCHES_PER_CONNECTION = 40
FRIEND_EVERY = 1_000
ANSWER_LIMIT_S = 30
BARRIER = 9_999
SETTINGS = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "enablePropertyFilter": "true",
    "brokerName": "broker-fuzz",
}
MEMORY_GROWTH_MIB = 200
"""From the half to the end: tables fill up with what the frames make."""

NUMBERS = [
    b"0", b"1", b"-1", b"2147483647", b"-2147483648", b"2147483648", b"1e9", b"0.5",
    b"9223372036854775807", b"9223372036854775808", b"9" * 400, b"null", b"true",
    b'""', b"[]", b"{}", b'"\\ud800"', b'"\\u0000"', b"\xff", b"NaN",
]  # fmt: skip
TEXTS = [
    "", " ", "0", "1", "-1", "2147483647", "-9223372036854775808", "9" * 400, "true",
    "null", "T", "G", "%RETRY%G", "%DLQ%G", "%RETRY%", "../../x", "x" * 128, "x" * 300,
    "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "broker-fuzz", "*",
    "a || b", "a > 1 AND b IS NULL", "((((", "SQL92", "TAG", "\0", "\U0001f642",
    "\u0663", "DELAY\x013\x02", "TRAN_MSG\x01true\x02PGROUP\x01PG\x02",
    "KEYS\x01k\x02TAGS\x01a\x02", "TIMER_DELAY_MS\x01-5\x02", "+a=b", "SINGLE_TAG",
    "7F0000010000000000000000", "7F00000100002A9F0000000000000000",
    "7F00000100002A9FFFFFFFFFFFFFFFFF", "1,2,3",
]  # fmt: skip
NAMES = re.findall(
    r"\w+",
    """
    a b c d e f g h i j k l m n topic consumerGroup group producerGroup queueId
    queueOffset maxMsgNums sysFlag commitOffset suspendTimeoutMillis subscription
    subVersion expressionType defaultTopic defaultTopicQueueNums bornTimestamp flag
    properties reconsumeTimes unitMode batch maxReconsumeTimes offset delayLevel
    originMsgId originTopic tranStateTableOffset commitLogOffset commitOrRollback
    fromTransactionCheck msgId transactionId clientID clientId key maxNum
    beginTimestamp endTimestamp timestamp isForce readQueueNums writeQueueNums perm
    topicFilterType topicSysFlag order attributes brokerName brokerAddr clusterName
    haServerAddr brokerId namespace value boundaryType setZeroIfNotFound cluster
    topicName lo jstackEnable consumerTableTimeout index count groupName liteTopic
    maxMsgBytes requestSource
    """,
)
BODIES = [
    b"", b"{}", b"[]", b"null", b"hello", b"\x78\x9c", b"{{}:1}", b"[" * 500,
    b'{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":'
    b'[{"topic":"T","subString":"a||b"}]}],"producerDataSet":[{"groupName":"P"}]}',
    b'{"clientId":"c","consumerGroup":"G","mqSet":[{"topic":"T","brokerName":"b",'
    b'"queueId":0}]}',
    b'{"topicConfigList":[{"topicName":"T"}]}', b'{"groupName":"G"}',
    b"\0\0\0\x16" + b"\0" * 18, b"\0\0\0\x18" + b"\0" * 12 + b"\0\0\0\x02ab\0\0",
]  # fmt: skip
CODES = [*RequestCode, *OwnRequestCode, 0, -1, 65_536, 2**31 - 1]
COMMON = [10, 11, 310, 320, 34, 15, 14, 35, 41, 42, 36, 37, 105, 103, 12, 33, 361, 46]


# -- frames


@dataclass
class Frames:
    """A stream of frames from a seed."""

    random: random.Random
    corpus: list[tuple[str, bytes]] = field(default_factory=list)

    def next(self) -> tuple[str, bytes]:
        """Return where a frame goes, and the frame."""
        if self.corpus and self.random.random() < 0.5:
            to, frame = self.random.choice(self.corpus)
            chance = self.random.random()
            if chance < 0.01:
                return to, self._damaged(frame)
            if chance < 0.06:
                return to, self._changed(frame)
            return to, self._varied(decode(frame))
        to = "namesrv" if self.random.random() < 0.2 else "broker"
        return to, self._made_up()

    def _made_up(self) -> bytes:
        draw = self.random
        code = draw.choice(COMMON if draw.random() < 0.6 else CODES)
        fields = {
            draw.choice(NAMES): draw.choice(TEXTS) for _ in range(draw.randrange(14))
        }
        if draw.random() < 0.7:
            fields |= {"topic": "T", "b": "T", "consumerGroup": "G", "queueId": "0"}
        is_binary = draw.random() < 0.25 and -32_768 <= code < 32_768
        command = Command(
            int(code),
            fields,
            draw.choice(BODIES),
            opaque=draw.choice([0, 1, 7, -1, draw.getrandbits(31)]),
            flag=draw.choice([0, 0, 0, 0, 0, 1, 2, 3]),
            version=draw.choice([0, 36, 400, 413, 513, -1]),
            serialize_type=SerializeType(is_binary),
        )
        return encode(command)

    def _varied(self, command: Command) -> bytes:
        """Change fields and body of a request that can still be read."""
        draw, fields = self.random, command.ext_fields
        for _ in range(draw.randrange(3)):
            kind = draw.randrange(4)
            name = draw.choice([*fields, "topic"])
            if kind == 0:
                fields.pop(name, None)
            elif kind == 1:
                fields[draw.choice(NAMES)] = draw.choice(TEXTS)
            else:
                fields[name] = draw.choice(TEXTS)
        if command.body and draw.random() < 0.5:
            command.body = self._mutated(command.body)
        elif draw.random() < 0.1:
            command.body = draw.choice(BODIES)
        return encode(command)

    def _changed(self, frame: bytes) -> bytes:
        """Change header or body, and keep the lengths right."""
        word = int.from_bytes(frame[4:8], "big")
        size = word & 0xFFFFFF
        header, body = frame[8 : 8 + size], frame[8 + size :]
        for _ in range(self.random.randrange(1, 4)):
            if body and self.random.random() < 0.4:
                body = self._mutated(body)
            else:
                header = self._mutated(header)
        word = (word & 0xFF000000) | len(header)
        sizes = (4 + len(header) + len(body)).to_bytes(4, "big")
        return sizes + word.to_bytes(4, "big") + header + body

    def _mutated(self, data: bytes) -> bytes:
        draw = self.random
        place = draw.randrange(len(data) + 1)
        kind = draw.randrange(6)
        if kind == 0:
            return data[:place] + bytes([draw.randrange(256)]) + data[place + 1 :]
        if kind == 1:
            return data[:place] + data[place + draw.randrange(1, 20) :]
        if kind == 2:
            return data[:place] + data[place - draw.randrange(1, 20) :]
        if kind == 3:
            numbers = list(re.finditer(rb"-?\d+|true|false|null", data))
            if numbers:
                at = draw.choice(numbers)
                return data[: at.start()] + draw.choice(NUMBERS) + data[at.end() :]
        if kind == 4:
            texts = list(re.finditer(rb'"([^"\\]*)"', data))
            if texts:
                at = draw.choice(texts)
                text = json.dumps(draw.choice(TEXTS)).encode()
                return data[: at.start()] + text + data[at.end() :]
        return data[:place] + draw.choice(NUMBERS) + data[place:]

    def _damaged(self, frame: bytes) -> bytes:
        """Change bytes anywhere: the lengths may lie."""
        data = bytearray(frame)
        for _ in range(self.random.randrange(1, 5)):
            data[self.random.randrange(min(len(data), 60))] = self.random.randrange(256)
        return bytes(data)


def recorded(folder: Path | None) -> list[tuple[str, bytes]]:
    """Requests of the golden recordings, in a fixed order; none without the folder."""
    found = []
    for path in sorted(folder.glob("frames/*.jsonl.xz")) if folder else ():
        if path.name.startswith("ha-") or "-output." in path.name:
            continue
        with lzma.open(path, "rt") as file:
            for line in file:
                row = json.loads(line)
                frame = base64.b64decode(row["raw"])
                is_request = not decode(frame).is_response
                if row["dir"] == "c2s" and is_request and len(frame) < 20_000:
                    found.append((row["to"], frame))
    return found


# -- the node, in a process of its own


async def serve(folder: Path) -> None:
    """Run a node until a line comes; then print what is left of the fuzz."""
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    async with running_node(folder, SETTINGS) as node:
        ports = [node.address, node.name_servers[0]]
        print(json.dumps(ports), flush=True)  # noqa: T201 - the parent reads it
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            if line.strip() == "end":
                await node.server.drain(20)  # relayed requests take some seconds
            print(json.dumps(state_of(node)), flush=True)  # noqa: T201


def state_of(node) -> dict[str, float]:
    counts = node.server.statistics()
    own = sum(1 for _ in node.server.connections("namesrv"))
    context = node.broker.context
    size = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    return {
        "connections": counts.reactor.connections - own,
        "buffer_bytes": counts.reactor.buffer_bytes,
        "held_replies": counts.reactor.held,
        "running": counts.running,
        "members": sum(1 for _ in context.consumers.all())
        + sum(1 for _ in context.producers.all()),
        "failures": counts.failures,
        "requests": counts.requests,
        "memory_mib": int(size[1]) / 1024,
        "topics": len(context.topics.all()),
    }


# -- the clients


class Target:
    """The node's process and its two addresses."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--serve", str(folder / "store")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        broker, names = json.loads(self._line())
        self.addresses = {"broker": broker, "namesrv": names, "fast": broker}

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Crash(f"the node died: {self.log.read_text()[-3000:]}")
        return line

    def state(self, *, is_end: bool = False) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write("end\n" if is_end else "look\n")
        self.process.stdin.flush()
        return json.loads(self._line())

    def stop(self) -> int:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            return self.process.wait()


class Crash(Exception):
    """The node is gone, or a good client was hurt."""


class Conversation:
    """One connection; batches end with a request whose answer ends the wait."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_LIMIT_S)
        self._decoder = FrameDecoder()
        self.batches = 0
        self.answers: Counter[int] = Counter()

    def play(self, frames: list[bytes]) -> bool:
        """Send a batch; False if the node ended the connection, as it may."""
        self.batches += 1
        mark = 1_000_000_000 + self.batches
        end = encode(Command(BARRIER, opaque=mark))
        try:
            self._socket.sendall(b"".join(frames) + end)
            if any(announced(frame) != len(frame) for frame in frames):
                self._socket.shutdown(socket.SHUT_WR)  # it may wait for the rest
            while True:
                data = self._socket.recv(1 << 18)
                if not data:
                    return False
                for answer in self._decoder.feed(data):
                    self.answers[answer.code] += answer.is_response
                    if answer.opaque == mark and answer.code == 3:
                        return True
        except (ConnectionError, RemoteProtocolError):
            return False
        except TimeoutError as error:
            raise Crash(f"no answer within {ANSWER_LIMIT_S} s") from error

    def ask(self, request: Command) -> Command:
        self._socket.sendall(encode(request))
        while True:
            data = self._socket.recv(1 << 16)
            if not data:
                raise Crash("the friendly connection was closed")
            for answer in self._decoder.feed(data):
                if answer.is_response and answer.opaque == request.opaque:
                    return answer

    def close(self) -> None:
        self._socket.close()


def announced(frame: bytes) -> int:
    return int.from_bytes(frame[:4], "big", signed=True) + 4


class Friend:
    """A client that does everything right, and looks whether all is kept."""

    def __init__(self, target: Target) -> None:
        self._talk = Conversation(target.addresses["broker"])
        self.sent = 0

    def send(self) -> None:
        fields = {
            "producerGroup": "friend", "topic": "FriendlyTopic", "flag": "0",
            "defaultTopic": "BenchmarkTest", "defaultTopicQueueNums": "1",
            "queueId": "0", "sysFlag": "0", "bornTimestamp": "1795230112758",
            "properties": "KEYS\x01k\x02",
        }  # fmt: skip
        if not self.sent:
            topic = {"topic": "FriendlyTopic", "defaultTopic": "TBW102",
                     "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                     "topicFilterType": "SINGLE_TAG", "order": "false"}  # fmt: skip
            self._talk.ask(Command(17, topic, opaque=1))
        answer = self._talk.ask(Command(10, fields, b"friendly", opaque=2))
        if answer.code or int(answer.ext_fields["queueOffset"]) != self.sent:
            raise Crash(f"message {self.sent} of the friend: {answer}")
        self.sent += 1

    def close(self) -> None:
        self._talk.close()


@dataclass
class Report:
    """What came of it."""

    seed: int
    frames: int = 0
    ended_connections: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    crashes: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield (
            f"seed {self.seed}: {self.frames} frames in {self.seconds:.0f} s, "
            f"{self.answers.total()} answers, {self.ended_connections} connections "
            "ended by the node"
        )
        yield f"answers by code: {dict(self.answers.most_common(12))}"
        yield f"crashes {len(self.crashes)}, leaks {len(self.leaks)}"
        yield from self.crashes
        yield from self.leaks


def fuzz(folder: Path, count: int, seed: int, golden: Path | None) -> Report:
    """Send `count` frames and report."""
    report = Report(seed)
    frames = Frames(random.Random(seed), recorded(golden))
    target = Target(folder)
    began = time.monotonic()
    half: dict[str, float] = {}
    try:
        friend = Friend(target)
        friend.send()
        talks: dict[tuple[str, int], Conversation] = {}
        while report.frames < count:
            if not half and report.frames >= count // 2:
                half = target.state()
            play_batch(frames, target, talks, report)
            if report.frames % FRIEND_EVERY < BATCH:
                friend.send()
        friend.send()
        for talk in talks.values():
            report.answers += talk.answers
            talk.close()
        friend.close()
        judge(report, half, target.state(is_end=True), target)
    except (Crash, OSError) as error:
        report.crashes.append(f"after {report.frames} frames: {error}")
    finally:
        status = target.stop()
        if status:
            report.crashes.append(f"the node ended with {status}: {tail(target.log)}")
    report.seconds = time.monotonic() - began
    return report


def play_batch(frames, target, talks, report) -> None:
    """One batch to each of the addresses it is for."""
    batch: dict[str, list[bytes]] = {}
    for _ in range(BATCH):
        to, frame = frames.next()
        batch.setdefault(to, []).append(frame)
    number = report.frames // BATCH % CONNECTIONS
    for to, some in batch.items():
        key = (to, number)
        talk = talks.get(key)
        if talk is None:
            talk = talks[key] = Conversation(
                target.addresses.get(to, target.addresses["broker"])
            )
        if not talk.play(some):
            report.ended_connections += 1
        elif talk.batches < BATCHES_PER_CONNECTION:
            continue
        report.answers += talk.answers
        talk.close()
        del talks[key]
    report.frames += BATCH


def judge(report: Report, half: dict, end: dict, target: Target) -> None:
    """Turn what the node says of itself into crashes and leaks."""
    if end["failures"]:
        report.crashes.append(
            f"{end['failures']:.0f} handlers failed: {tail(target.log)}"
        )
    for name in ("connections", "buffer_bytes", "held_replies", "running", "members"):
        if end[name]:
            report.leaks.append(f"{name}: {end[name]:.0f} left")
    growth = end["memory_mib"] - half["memory_mib"]
    if growth > MEMORY_GROWTH_MIB:
        report.leaks.append(f"memory: {growth:.0f} MiB more than at the half")


def tail(log: Path) -> str:
    """The errors of the log, each kind once with its trace."""
    text = log.read_text(errors="replace")
    records = re.split(r"(?m)^(?=request -?\d+ of )", text)
    kinds = {each.strip().rsplit("\n", 1)[-1][:60]: each for each in records}
    return "\n".join(kinds.values())[-20_000:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument(
        "--seed", type=int, default=int.from_bytes(os.urandom(4), "big")
    )
    shared = os.environ.get("RMQ_GOLDEN") or ROOT.parent / "shared" / "golden"
    parser.add_argument("--golden", type=Path, default=Path(shared))
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        trio.run(serve, options.serve)
        return 0
    print(f"seed {options.seed}", flush=True)  # noqa: T201 - repeats the run
    with tempfile.TemporaryDirectory(prefix="rmq-fuzz-") as folder:
        report = fuzz(Path(folder), options.frames, options.seed, options.golden)
    print("\n".join(report.lines()))  # noqa: T201 - the report
    return int(bool(report.crashes or report.leaks))


if __name__ == "__main__":
    raise SystemExit(main())
