"""POP beside Java's broker: what a message costs that is popped and acked by itself.

For each broker, Java first, after a warm-up: POPs of 32 messages, one after the other,
each followed by 32 single acks that are sent together; rate, CPU of the broker for a
message, bytes of its log for a message that was acked within ten seconds.  Then how
much later than its invisible time a message comes again to a POP that waits, and the
CPU of a broker with 1,000 POPs that wait.  One connection asks; its own work limits the
rate. So two processes ask rmq's broker again, with clients that only compare most
answers.  At last, how long a message of 30 a second takes to a POP that waits.

    python lab/pop.py --java
"""

import argparse
import multiprocessing
import re
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.load import run
from bench.load.paced import percentile_us
from bench.load.turns import cpu_seconds
from lab.compare_java import (
    end_children_on_sigterm,
    idle_cpu_percent,
    java_broker,
    rmq_broker,
)
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from tests.interop.toolchains import JavaServers

QUEUES = 8
TOGETHER = 50
POP_SIZE = 32
INVISIBLE_MS = 2_000
HELD = 1_000
QUICK = 300_000
QUICK_CLIENTS, QUICK_CONNECTIONS = 2, 2
DELIVERIES, DELIVERY_S = 450, 1 / 30
WARM_UPS = 2
"""As many messages before, each time."""

BODY = b"x" * 128
HEARTBEAT = b'{"clientID":"c","consumerDataSet":[],"producerDataSet":[]}'


class Asking:
    """One connection of a client that pops."""

    def __init__(self, port: int, broker: str, opaque: int = 0) -> None:
        """The first request has the number after `opaque`."""
        self._broker = broker
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder()
        self._opaque = opaque

    def frame(self, code: int, body: bytes = b"", **fields: object) -> bytes:
        """The text of a request."""
        self._opaque += 1
        texts = {name: str(value) for name, value in fields.items()}
        return encode(Command(code, texts, body, None, self._opaque, language="JAVA"))

    def leave(self, frames: list[bytes]) -> None:
        """Send frames together, and wait for no answer."""
        self._socket.sendall(b"".join(frames))

    def ask(self, frames: list[bytes]) -> list[Command]:
        """Send frames together; their answers, in the order of arrival."""
        self.leave(frames)
        return self.receive(len(frames))

    def receive(self, count: int) -> list[Command]:
        """Return so many answers, in the order of arrival."""
        answers: list[Command] = []
        while len(answers) < count:
            frames_of_broker = self._decoder.feed(self._socket.recv(1 << 20))
            answers += [each for each in frames_of_broker if each.is_response]
        for answer in answers:
            if answer.code not in (0, 209, 210):
                raise SystemExit(f"the broker answers {answer.code}: {answer.remark}")
        return answers

    def begin(self, topic: str) -> None:
        """Make a topic; become a client that the broker knows."""
        self.ask([
            self.frame(
                Code.UPDATE_AND_CREATE_TOPIC, topic=topic, defaultTopic="TBW102",
                readQueueNums=QUEUES, writeQueueNums=QUEUES, perm=6,
                topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false",
            ),
            self.frame(Code.HEART_BEAT, HEARTBEAT),
        ])  # fmt: skip

    def fill(self, topic: str, count: int) -> None:
        """Send so many messages."""
        for first in range(0, count, TOGETHER):
            numbers = range(first, min(first + TOGETHER, count))
            self.ask([self.send(topic, number) for number in numbers])

    def send(self, topic: str, number: int) -> bytes:
        """A send to the queue of a number."""
        return self.frame(
            Code.SEND_MESSAGE_V2, BODY, a="PG", b=topic, c="TBW102", d=4,
            e=number % QUEUES, f=0, g=1, h=0, i="", j=0, k="false", m="false",
        )  # fmt: skip

    def pop(
        self, topic: str, invisible_ms: int, wait_ms: int = 0, size: int = POP_SIZE
    ) -> bytes:
        """A POP of any queue."""
        return self.frame(
            Code.POP_MESSAGE, consumerGroup="G", topic=topic, queueId=-1,
            maxMsgNums=size, invisibleTime=invisible_ms, pollTime=wait_ms,
            bornTime=int(time.time() * 1_000), initMode=0, expType="TAG", exp="*",
            order="false",
        )  # fmt: skip

    def acks(self, topic: str, popped: Command) -> list[bytes]:
        """The acks of the messages in an answer."""
        return [
            self.frame(
                Code.ACK_MESSAGE, consumerGroup="G", topic=topic, queueId=queue,
                offset=offset, extraInfo=handle,
            )
            for queue, offset, handle in self.handles(popped.ext_fields)
        ]  # fmt: skip

    def handles(self, fields: dict[str, str]) -> Iterator[tuple[str, str, str]]:
        """Queue, offset and handle of each message of an answer."""
        starts = {}
        for text in filter(None, fields.get("startOffsetInfo", "").split(";")):
            kind, queue, start = text.split(" ")
            starts[kind, queue] = start
        for text in filter(None, fields.get("msgOffsetInfo", "").split(";")):
            kind, queue, offsets = text.split(" ")
            for offset in offsets.split(","):
                words = (
                    starts[kind, queue], fields["popTime"], fields["invisibleTime"],
                    fields["reviveQid"], kind, self._broker, queue, offset,
                )  # fmt: skip
                yield queue, offset, " ".join(words)

    def consume(self, topic: str, count: int) -> None:
        """Pop and ack so many messages."""
        done = 0
        while done < count:
            [popped] = self.ask([self.pop(topic, 60_000)])
            acks = self.acks(topic, popped)
            if not acks:
                raise SystemExit(f"{count - done} messages of {topic} do not come")
            done += len(self.ask(acks))

    def log_end(self) -> int:
        """The end of the broker's log."""
        [answer] = self.ask([self.frame(Code.GET_BROKER_RUNTIME_INFO)])
        text = answer.body.partition(b'"commitLogMaxOffset":"')[2]
        return int(text.partition(b'"')[0])


def acked(asking: Asking, pid: int, count: int) -> Iterable[tuple[str, str]]:
    """Rate, CPU and bytes of the log."""
    asking.begin("Acked")
    asking.fill("Acked", (WARM_UPS + 1) * (count + POP_SIZE))
    for _ in range(WARM_UPS):
        asking.consume("Acked", count)
    began, cpu, end = time.perf_counter(), cpu_seconds(pid), asking.log_end()
    asking.consume("Acked", count)
    took, used = time.perf_counter() - began, cpu_seconds(pid) - cpu
    grown = asking.log_end() - end
    yield "messages/s, popped 32 and acked 1 at a time", f"{count / took:,.0f}"
    yield "CPU µs a message", f"{used / count * 1e6:.1f}"
    yield "bytes of log a message", f"{grown / count:.1f}"


def late(asking: Asking, rounds: int) -> Iterable[tuple[str, str]]:
    """How late a message comes again that nobody acked."""
    lateness = []
    for number in range(rounds):
        topic = f"Late{number}"
        asking.begin(topic)
        asking.fill(topic, 1)
        [popped] = asking.ask([asking.pop(topic, INVISIBLE_MS)])
        due = int(popped.ext_fields["popTime"]) + INVISIBLE_MS
        [again] = asking.ask([asking.pop(topic, 60_000, 15_000)])
        if not again.code:
            lateness.append(time.time() * 1_000 - due)
        asking.ask(asking.acks(topic, again))
    found = f"{statistics.median(lateness):.0f}" if lateness else "is not held"
    yield "comes again late, ms (median)", found


def held(asking: Asking, pid: int, port: int) -> Iterable[tuple[str, str]]:
    """CPU of a broker without work, and with POPs that wait."""
    yield "CPU % when idle", f"{idle_cpu_percent(pid, 5):.2f}"
    asking.begin("Held")
    waiting = Asking(port, "")
    waiting.leave([waiting.pop("Held", 60_000, 30_000) for _ in range(HELD)])
    yield f"CPU % with {HELD} POPs that wait", f"{idle_cpu_percent(pid, 5):.2f}"


class QuickPopper:
    """A connection that pops and acks, and reads only the answers to POPs."""

    _STARTS = re.compile(rb'"startOffsetInfo":"([^"]*)"')
    _OFFSETS = re.compile(rb'"msgOffsetInfo":"([^"]*)"')
    _TIMES = re.compile(rb'"(popTime|invisibleTime|reviveQid)":"([^"]*)"')
    _ACK = (
        b'{"code":200051,"extFields":{"consumerGroup":"G","topic":"%b","queueId":"%b",'
        b'"offset":"%b","extraInfo":"%b %b %b"},"flag":0,"language":"JAVA",'
        b'"opaque":1,"serializeTypeCurrentRPC":"JSON","version":513}'
    )

    def __init__(self, port: int, broker: str, topic: str) -> None:
        asking = Asking(port, broker)
        self._pop = asking.pop(topic, 60_000)
        self._topic, self._broker = topic.encode(), broker.encode()
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self._ack_answer = b""
        self._acks: list[bytes] = []

    def ask(self) -> None:
        """Send the acks of the last POP, and the next POP."""
        self._socket.sendall(b"".join([*self._acks, self._pop]))

    def receive(self) -> int:
        """Wait for all answers, the POP's last; return the number of messages."""
        acks_end = len(self._acks) * len(self._ack_answer)
        while len(self._data) < acks_end + 8 or len(self._data) < self._end(acks_end):
            self._data += self._socket.recv(1 << 20)
        if self._acks and not acks_end:  # the first ones show what an answer is
            end = self._end(0)
            self._ack_answer = self._data[:end]
            return self.receive()
        if not self._data.startswith(self._ack_answer * len(self._acks)):
            raise SystemExit("the broker refuses an ack")
        header_size = int.from_bytes(self._data[acks_end + 5 : acks_end + 8], "big")
        header = self._data[acks_end + 8 : acks_end + 8 + header_size]
        self._data = self._data[self._end(acks_end) :]
        self._acks = list(self._acks_of(header))
        return len(self._acks)

    def _end(self, at: int) -> int:
        """Return where the frame at a position ends."""
        return at + 4 + self._size(at)

    def _size(self, at: int) -> int:
        return int(struct.unpack_from(">i", self._data, at)[0])

    def _acks_of(self, header: bytes) -> Iterator[bytes]:
        starts = self._STARTS.search(header)
        offsets = self._OFFSETS.search(header)
        if starts is None or offsets is None:
            return
        start_of = {}
        for text in filter(None, starts[1].split(b";")):
            kind, queue, start = text.split(b" ")
            start_of[kind, queue] = start
        times = dict(self._TIMES.findall(header))
        common = b" ".join(times[each] for each in (b"popTime", b"invisibleTime"))
        for text in filter(None, offsets[1].split(b";")):
            kind, queue, part = text.split(b" ")
            head = b"%b %b" % (start_of[kind, queue], common)
            tail = b"%b %b %b %b" % (times[b"reviveQid"], kind, self._broker, queue)
            for offset in part.split(b","):
                ack = self._ACK % (self._topic, queue, offset, head, tail, offset)
                yield struct.pack(">ii", 4 + len(ack), len(ack)) + ack


def quick(asking: Asking, pid: int, port: int, name: str) -> Iterable[tuple[str, str]]:
    """Rate and CPU with quick clients, each in a process of its own."""
    run.build()
    asking.begin("Quick")
    load = ["--connections=4", "--window=64", "--warm-up=0", "--topic=Quick"]
    load += [f"--queues={QUEUES}", f"--messages={2 * QUICK}"]
    run.play(run.Server(pid, port, 0.0), load, 120, None)
    context = multiprocessing.get_context("fork")
    meeting = context.Barrier(QUICK_CLIENTS + 1)
    clients = [
        context.Process(target=pop_quickly, args=(port, name, meeting))
        for _ in range(QUICK_CLIENTS)
    ]
    for client in clients:
        client.start()
    meeting.wait(60)  # the warm-up ends
    began, cpu = time.perf_counter(), cpu_seconds(pid)
    meeting.wait(60)
    took, used = time.perf_counter() - began, cpu_seconds(pid) - cpu
    for client in clients:
        client.join()
    yield f"messages/s, {QUICK_CLIENTS} quick clients", f"{QUICK / took:,.0f}"
    yield "CPU µs a message", f"{used / QUICK * 1e6:.2f}"
    yield "CPU of the broker, % of a core", f"{used / took * 100:.0f}"


def pop_quickly(port: int, name: str, meeting: Barrier) -> None:
    """Pop and ack a share of the messages, half as many before; meet after each."""
    poppers = [QuickPopper(port, name, "Quick") for _ in range(QUICK_CONNECTIONS)]
    for share in (2 * QUICK_CLIENTS, QUICK_CLIENTS):
        done = 0
        for popper in poppers:
            popper.ask()
        while done < QUICK // share:
            for popper in poppers:
                done += popper.receive()
                popper.ask()
        for popper in poppers:
            popper.receive()
        meeting.wait(60)


def delivered(asking: Asking, port: int, name: str) -> Iterable[tuple[str, str]]:
    """How long a message takes to a POP that waits."""
    asking.begin("Delivered")
    waiting, times_ns = Asking(port, name), []
    waiting.begin("Delivered")
    for number in range(DELIVERIES):
        waiting.leave([waiting.pop("Delivered", 60_000, 15_000)])
        time.sleep(DELIVERY_S)
        began_ns = time.perf_counter_ns()
        asking.leave([asking.send("Delivered", number)])
        [answer] = waiting.receive(1)
        times_ns.append(time.perf_counter_ns() - began_ns)
        asking.receive(1)
        waiting.ask(waiting.acks("Delivered", answer))
    for percent in (50, 99):
        figure = percentile_us(times_ns, percent) / 1e3
        yield f"send to delivery at 30/s, ms, p{percent}", f"{figure:.2f}"


@contextmanager
def brokers(
    folder: Path, kind: str, settings: dict[str, str] | None = None
) -> Iterator[tuple[int, int, str]]:
    """Process, port and name of a broker of one kind."""
    more = settings or {}
    if kind == "Java":
        toolchain = JavaServers()
        toolchain.prepare()
        with java_broker(folder / "java", more) as server:
            yield server.pid, server.port, "broker-java"
    else:
        with rmq_broker(
            folder,
            "ASYNC_FLUSH",
            "brokerName=broker-rmq",
            *(f"{key}={value}" for key, value in more.items()),
        ) as server:
            yield server.pid, server.port, "broker-rmq"


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--java", action="store_true")
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    end_children_on_sigterm()
    for kind in ("Java", "rmq") if options.java else ("rmq",):
        with (
            tempfile.TemporaryDirectory() as folder,
            brokers(Path(folder), kind) as (pid, port, name),
        ):
            asking = Asking(port, name)
            parts = [
                acked(asking, pid, options.messages),
                late(asking, options.rounds),
                delivered(asking, port, name),
                held(asking, pid, port),
            ]
            if kind == "rmq":
                parts.insert(1, quick(asking, pid, port, name))
            for part in parts:
                for what, figure in part:
                    print(f"{kind:5} {what:45} {figure:>10}", flush=True)


if __name__ == "__main__":
    main()
