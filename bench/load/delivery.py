"""Load test of delayed, transactional and SQL-filtered messages.

A broker without compiled handlers serves everything; the unit is its cost of a plain
message. A delayed message counts its store and its delivery, a transaction its half
message, its end and the op message, SQL the stored records that a pull reads. Lateness
is how long after its time a message was stored for its topic, one sent each
millisecond. In the end a broker starts with a backlog of messages that are due while
others send.

    python bench/load/delivery.py [--messages 200000] [--backlog 1000000]
"""

import argparse
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from run import (
    BINARIES,
    Server,
    broker_command,
    build,
    play,
    serving,
)

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.records import StoredMessage, decode_stored
from rmq.protocol.topics import SCHEDULE_TOPIC

TOPIC = "BenchTopic"
GROUP = "BenchGroup"
WINDOW = 256
DELAY_S = 2
SETTINGS = [
    "rmq.nativeHandlers=false",
    f"messageDelayLevel={DELAY_S}s",
    "enablePropertyFilter=true",
]
OTHERS, OTHERS_S = ["--topic=Other", "--connections=4", "--window=1"], 2
LOAD = ["--connections=4", "--window=64", "--warm-up=0"]
FIELDS = {
    "a": GROUP, "b": TOPIC, "c": "TBW102", "d": "8", "e": "0", "f": "0",
    "g": "1795230112758", "h": "0", "j": "0", "k": "false", "l": "16", "m": "false",
}  # fmt: skip
PROPERTIES = (
    "KEYS\x01key0000000000\x02UNIQ_KEY\x017F000001000A18B4AAC200000000000A\x02"
    "WAIT\x01true\x02TAGS\x01TagA\x02"
)
SELECTORS = {
    "sql-none": "TAGS = 'TagB' AND KEYS IS NOT NULL",
    "sql-all": "TAGS = 'TagA' AND KEYS IS NOT NULL",
}


class Client:
    """One blocking connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder()
        self._opaque = 0

    def frame(self, code: int, fields: dict[str, str], body: bytes = b"", flag=0):
        """Return a request with an opaque of its own."""
        self._opaque += 1
        return encode(Command(code, fields, body, opaque=self._opaque, flag=flag))

    def send(self, data: bytes) -> None:
        """Send all of it."""
        self._socket.sendall(data)

    def receive(self) -> list[Command]:
        """Wait for something; the whole frames in it."""
        return self._decoder.feed(self._socket.recv(1 << 20))

    def call(self, code: int, fields: dict[str, str], body: bytes = b"") -> Command:
        """Ask, and wait for the answer."""
        self.send(self.frame(code, fields, body))
        answers: list[Command] = []
        while not answers:
            answers = self.receive()
        return answers[0]


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    return time.clock_gettime((~pid << 3) | 2)


def max_offset(client: Client, topic: str = TOPIC) -> int:
    fields = {"topic": topic, "queueId": "0"}
    return int(client.call(RequestCode.GET_MAX_OFFSET, fields).ext_fields["offset"])


def wait_for(client: Client, wanted: int, topic: str = TOPIC) -> None:
    """Return when a queue holds so many messages; few questions, so as not to cost."""
    deadline = time.monotonic() + 120
    while (found := max_offset(client, topic)) < wanted:
        assert time.monotonic() < deadline, f"{found} of {wanted} were delivered"
        time.sleep(0.05)


def generate(server: Server, messages: int, *options: str) -> dict:
    figures = play(server, [*LOAD, f"--messages={messages}", *options], 600, None)
    assert figures["answered"] >= messages, figures
    return figures


def plain(server: Server, messages: int) -> float:
    return generate(server, messages)["server_cpu_s"]


def delayed(server: Server, messages: int) -> float:
    client = Client(server.port)
    wanted, began = max_offset(client), cpu_s(server.pid)
    answered = generate(server, messages, "--delay-level=1")["answered"]
    wait_for(client, wanted + answered)
    return (cpu_s(server.pid) - began) * messages / answered


def transactional(server: Server, messages: int) -> float:
    """Send halves and commit them, as many at a time as plain sends are in flight."""
    client, began = Client(server.port), cpu_s(server.pid)
    wanted = max_offset(client) + messages
    text = f"{PROPERTIES}TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02"
    fields = {**FIELDS, "f": "4", "i": text}
    body = b"b" * 128
    for sent in range(0, messages, WINDOW):
        count = min(WINDOW, messages - sent)
        client.send(b"".join(client.frame(310, fields, body) for _ in range(count)))
        answers: list[Command] = []
        while len(answers) < count:
            answers += client.receive()
        client.send(b"".join(commit(client, answer) for answer in answers))
    wait_for(client, wanted)
    return cpu_s(server.pid) - began


def commit(client: Client, half: Command) -> bytes:
    assert half.code == 0, half
    fields = half.ext_fields
    end = {
        "producerGroup": GROUP,
        "tranStateTableOffset": fields["queueOffset"],
        "commitLogOffset": str(int(fields["msgId"][-16:], 16)),
        "commitOrRollback": "8",
        "msgId": "7F000001000A18B4AAC200000000000A",
    }
    return client.frame(RequestCode.END_TRANSACTION, end, flag=FLAG_ONEWAY)


def selected(server: Server, messages: int, selector: str) -> float:
    """Pull from the front until so many messages were looked at."""
    client, began, offset = Client(server.port), cpu_s(server.pid), 0
    while offset < messages:
        fields = {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0",
            "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "4",
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
            "subscription": selector, "expressionType": "SQL92",
        }  # fmt: skip
        answer = client.call(RequestCode.PULL_MESSAGE, fields)
        assert answer.code in (0, 20), answer
        offset = int(answer.ext_fields["nextBeginOffset"])
    return (cpu_s(server.pid) - began) * messages / offset


def stored(client: Client, topic: str) -> list[StoredMessage]:
    """Everything in queue 0 of a topic."""
    found: list[StoredMessage] = []
    while True:
        fields = {
            "consumerGroup": GROUP, "topic": topic, "queueId": "0",
            "queueOffset": str(len(found)), "maxMsgNums": "32", "sysFlag": "4",
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
            "subscription": "*",
        }  # fmt: skip
        answer = client.call(RequestCode.PULL_MESSAGE, fields)
        if answer.code:
            return found
        found += decode_stored(answer.body)


def lateness(server: Server, messages: int) -> dict:
    """How late messages are delivered when no others are waiting, in ms."""
    client, topic, body = Client(server.port), "Late", b"b" * 128
    aside = max_offset(client, SCHEDULE_TOPIC)
    for number in range(messages):
        text = f"{PROPERTIES}DELAY\x011\x02number\x01{number}\x02"
        answer = client.call(310, {**FIELDS, "b": topic, "i": text}, body)
        assert answer.code == 0, answer
        time.sleep(0.001)
    wait_for(client, messages, topic)
    due = {
        record.properties["number"]: record.store_timestamp + DELAY_S * 1_000
        for record in stored(client, SCHEDULE_TOPIC)[aside:]
    }
    late = sorted(
        record.store_timestamp - due[record.properties["number"]]
        for record in stored(client, topic)
    )
    assert len(late) == messages, len(late)
    return {"late_ms_least": late[0], "late_ms_p99": late[messages * 99 // 100]}


@contextmanager
def broker(folder: Path, settings: list[str], cpu: int | None) -> Iterator[Server]:
    ready = r"ready broker=\S+ address=\S+:(\d+)"
    with serving(broker_command(folder, settings), ready, "stderr", cpu) as server:
        yield server


def backlog(folder: Path, messages: int, cpus: tuple[int, int] | None) -> dict:
    """Store messages, let them become due while nobody serves, and start again.

    The generator has a core of its own; otherwise it waits for the broker's slices.
    """
    cpu, other_cpu = cpus or (None, None)
    delay_s = 3_600
    settings = [SETTINGS[0], f"messageDelayLevel={delay_s}s"]
    with broker(folder, settings, cpu) as server:
        count = generate(server, messages, "--delay-level=1")["answered"]
    with broker(folder, ["messageDelayLevel=1s"], cpu) as server:
        began, client = time.monotonic(), Client(server.port)
        before = max_offset(client)
        busy = play(server, OTHERS, OTHERS_S, other_cpu)
        seconds, delivered = time.monotonic() - began, max_offset(client) - before
        wait_for(client, count)
        used = cpu_s(server.pid)
        time.sleep(1)
        idle = play(server, OTHERS, OTHERS_S, other_cpu)
    return {
        "messages": count,
        "rate_while_others_send": delivered / seconds,
        "was_enough": delivered < count,
        "cpu_s": used,
        "plain_p99_us": busy["p99_us"],
        "plain_p99_us_idle": idle["p99_us"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--directory", help="where the temporary store goes")
    options = parser.parse_args()
    build()
    assert (BINARIES / "generator").exists(), "the generator was not built"
    cpus = sorted(os.sched_getaffinity(0))
    pair = (cpus[0], cpus[1]) if len(cpus) > 1 else None
    cpu = pair[0] if pair else None
    count = options.messages
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        with broker(Path(name) / "store", SETTINGS, cpu) as server:
            generate(server, 1_000)
            used = {"plain": plain(server, count)}
            for row, selector in SELECTORS.items():
                used[row] = selected(server, count, selector)
            used["delayed"] = delayed(server, count)
            used["transactional"] = transactional(server, count)
            late = lateness(server, 4_000)
        figures = {row: each / count * 1e6 for row, each in used.items()}
        for row, each in figures.items():
            print(f"{row:<16}{each:9.3f} s/M{each / figures['plain']:8.2f}")
        print(json.dumps(late))
        if options.backlog:
            print(json.dumps(backlog(Path(name) / "late", options.backlog, pair)))


if __name__ == "__main__":
    main()
