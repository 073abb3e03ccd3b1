"""gRPC at a broker: what calls cost, idle clients, and a good client beside attacks.

* costs: CPU of the whole broker for a send, and for a message that is received with 31
  others and acked by itself. CPU is the time of all threads by schedstat.
* waits: CPU for a receive that waits for its message, without the send and the ack, and
  the time from the send's answer until the message arrives. A pull that waits
  (remoting) and the C echo are measured in turns with it, at the same rate.
* idle: memory of CLIENTS clients with settings and a heartbeat each 10 s, and the CPU
  of the broker, beside the C echo.
* attacks: the p99 of a client that sends and receives, while another process attacks as
  fast as it can; and the CPU of the broker, which shows that the attack reaches it.

    python lab/grpc.py [--parts costs,waits,idle,attacks] [--attacks resets,…]
"""

import argparse
import contextlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.load import run
from bench.load.run import Server
from bench.load.turns import precise_cpu_seconds
from lab.compare_java import echo_server, memory_mib, rmq_broker
from lab.pop import Asking
from rmq.protocol.codes import RequestCode
from rmq_plugins.grpc import schema
from tests.fastpath.http2 import caller as h2
from tests.plugins.grpc import speaker as speakers
from tests.plugins.grpc.clients import sent
from tests.plugins.grpc.grpc_sides import ack_of
from tests.plugins.grpc.speaker import Speaker, messages_of, register

TOPIC, UNREAD, GROUP, OTHER_GROUP = "T", "Unread", "G", "Other"
BODY = b"x" * 128
BATCH = 32
CLIENTS = 10_000
BEAT_EVERY_S = 10
WAIT_RATE = 1_000
"""Messages a second to receives that wait."""

SETTLE_S = 0.003
"""Time after which receives that were sent together wait at the broker."""

TOGETHER = 64
TEN_DIGITS = 10**9
"""The echo answers requests whose numbers have ten digits."""

receive_call = partial(speakers.receive_call, invisible_s=30)


def send_call(topic: str = TOPIC) -> tuple[str, Any]:
    return "SendMessage", sent(topic, BODY)


def ack_call(handle: str) -> tuple[str, Any]:
    return "AckMessage", ack_of(handle, topic=TOPIC, group=GROUP)


def handles_of(answer: list[bytes]) -> list[str]:
    """The receipt handles of an answer to a receive."""
    messages = messages_of(answer)
    return [each.system_properties.receipt_handle for each in messages]


class Cost:
    """CPU of a process between two moments, per step in microseconds."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = precise_cpu_seconds(pid)

    def per_step(self, steps: int) -> float:
        """Return the microseconds of each of so many steps, so far."""
        return (precise_cpu_seconds(self._pid) - self._began) / steps * 1e6


# -- costs


def measure_costs(port: int, pid: int, rounds: int) -> Iterator[tuple[str, str]]:
    """CPU of sends, and of received messages."""
    speaker, sender = make_clients(port)
    yield "send, 1 x 1: µs", f"{median(lambda: cost_of_sends(sender, pid, 1)):.1f}"
    yield "send, 1 x 64: µs", f"{median(lambda: cost_of_sends(sender, pid, 64)):.2f}"
    for name, is_renewed in ("simple", False), ("push", True):
        found = median(
            partial(cost_of_messages, speaker, sender, pid, rounds, is_renewed)
        )
        yield f"message of {BATCH}, acked alone, {name} consumer: µs", f"{found:.2f}"


def make_clients(port: int) -> tuple[Speaker, Speaker]:
    """A consumer and a producer that compiled code knows."""
    speaker, sender = Speaker(port), Speaker(port)
    register(speaker, GROUP)
    for _ in range(50):
        sender.ask(send_call(), send_call(UNREAD))
    while consume(speaker, poll_s=5):
        pass
    return speaker, sender


def median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(5))


def consume(speaker: Speaker, **options: Any) -> int:
    """Receive once and ack; return the number of messages."""
    [answer] = speaker.ask(receive_call(TOPIC, GROUP, **options))
    handles = handles_of(answer)
    speaker.ask(*map(ack_call, handles))
    return len(handles)


def cost_of_sends(sender: Speaker, pid: int, together: int) -> float:
    rounds = 400 if together == 1 else 60
    made = [[send_call(UNREAD) for _ in range(together)] for _ in range(rounds)]
    cost = Cost(pid)
    for calls in made:
        sender.ask(*calls)
    return cost.per_step(rounds * together)


def cost_of_messages(
    speaker: Speaker, sender: Speaker, pid: int, rounds: int, is_renewed: bool
) -> float:
    """CPU of a message: receives of 32, each followed by 32 acks sent together."""
    for _ in range(rounds):
        sender.ask(*[send_call() for _ in range(BATCH)])
    time.sleep(0.2)
    cost, done = Cost(pid), 0
    while done < BATCH * (rounds - 1):
        done += consume(speaker, auto_renew=is_renewed)
    found = cost.per_step(done)
    while done < BATCH * rounds:
        done += consume(speaker, auto_renew=is_renewed)
    return found


# -- waits


def measure_waits(port: int, pid: int, rounds: int) -> Iterator[tuple[str, str]]:
    """CPU of receives and pulls that wait, and of the echo."""
    run.build()
    speaker, sender = make_clients(port)
    pulls = Pulls(port)
    rows: dict[str, list[float]] = {}
    with echo_server() as echo:
        asking = Asking(echo.port, "", TEN_DIGITS)
        for _ in range(3):
            used_us, delays = cost_of_receives(speaker, sender, pid, rounds)
            found = {
                f"receive that waits, {WAIT_RATE:,}/s: µs": used_us,
                "from the send's answer to the message, p50: ms": delays,
                f"pull that waits, {WAIT_RATE:,}/s: µs": pulls.cost(pid, rounds),
                f"echo, {WAIT_RATE:,}/s: µs": cost_of_echoes(asking, echo.pid, rounds),
                f"receive that waits, {TOGETHER} together: µs": cost_together(
                    speaker, sender, pid
                ),
            }
            for name, value in found.items():
                rows.setdefault(name, []).append(value)
    for name, values in rows.items():
        yield name, f"{statistics.median(values):.3f}"


def paced(count: int) -> Iterator[int]:
    """The numbers below `count`, WAIT_RATE of them a second."""
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / WAIT_RATE - time.monotonic()))
        yield number


def cost_of_receives(
    speaker: Speaker, sender: Speaker, pid: int, rounds: int
) -> tuple[float, float]:
    """CPU of a receive that waits; and the median delay in ms."""
    call, receive_one = send_call(), receive_call(TOPIC, GROUP, batch=1)
    used, delays = Cost(pid), []
    waiting = speaker.begin(receive_one)
    for _ in paced(rounds):
        sender.ask(call)
        began = time.perf_counter()
        [answer] = speaker.finish(waiting)
        delays.append((time.perf_counter() - began) * 1e3)
        speaker.ask(ack_call(*handles_of(answer)))
        waiting = speaker.begin(receive_one)
    whole = used.per_step(rounds)
    sender.ask(call)
    handles = handles_of(*speaker.finish(waiting))
    sender.ask(*[call] * (rounds - 1))
    while len(handles) < rounds:
        handles += handles_of(*speaker.ask(receive_call(TOPIC, GROUP)))
    used = Cost(pid)
    for number in paced(rounds):
        sender.ask(send_call(UNREAD))
        speaker.ask(ack_call(handles[number]))
    return whole - used.per_step(rounds), statistics.median(delays)


def cost_together(speaker: Speaker, sender: Speaker, pid: int) -> float:
    """CPU of a receive of many that wait; a poll of the broker serves many of them."""
    rounds = 20
    call, receive_one = send_call(), receive_call(TOPIC, GROUP, batch=1)
    whole = 0.0
    for _ in range(rounds):
        used = Cost(pid)
        waiting = speaker.begin(*[receive_one] * TOGETHER)
        time.sleep(SETTLE_S)
        sender.ask(*[call] * TOGETHER)
        answers = speaker.finish(waiting)
        whole += used.per_step(TOGETHER)
        speaker.ask(*[ack_call(*handles_of(each)) for each in answers])
    used = Cost(pid)
    for _ in range(rounds):
        time.sleep(SETTLE_S)
        sender.ask(*[send_call(UNREAD)] * TOGETHER)
    return whole / rounds - used.per_step(rounds * TOGETHER)


class Pulls:
    """A producer and a consumer of remoting, whose pulls wait."""

    def __init__(self, port: int) -> None:
        self._sender, self._consumer = Asking(port, ""), Asking(port, "")
        self._sender.begin("Pulled")
        self._offset = 0

    def _send(self) -> None:
        self._sender.ask([self._sender.send("Pulled", 0)])

    def _begin(self) -> None:
        self._consumer.leave([
            self._consumer.frame(
                RequestCode.PULL_MESSAGE, consumerGroup=GROUP, topic="Pulled",
                queueId=0, queueOffset=self._offset, maxMsgNums=32, sysFlag=6,
                commitOffset=0, suspendTimeoutMillis=15_000, subscription="*",
                subVersion=0, expressionType="TAG",
            )
        ])  # fmt: skip

    def _finish(self) -> None:
        [answer] = self._consumer.receive(1)
        self._offset = int(answer.ext_fields["nextBeginOffset"])

    def cost(self, pid: int, rounds: int) -> float:
        """CPU of a pull that waits, without the send."""
        used = Cost(pid)
        self._begin()
        for _ in paced(rounds):
            self._send()
            self._finish()
            self._begin()
        whole = used.per_step(rounds)
        self._send()
        self._finish()
        used = Cost(pid)
        for _ in paced(rounds):
            self._send()
            self._offset += 1
        return whole - used.per_step(rounds)


def cost_of_echoes(asking: Asking, pid: int, rounds: int) -> float:
    used = Cost(pid)
    for _ in paced(rounds):
        asking.ask([asking.send(TOPIC, 0)])
    return used.per_step(rounds)


# -- idle clients


def measure_idle(port: int, pid: int, clients: int) -> Iterator[tuple[str, str]]:
    """Memory of idle clients, and their CPU with heartbeats."""
    register(Speaker(port), GROUP)
    time.sleep(2)
    before = memory_mib(pid)["own_mib"]
    speakers = []
    for number in range(clients):
        speaker = Speaker(port, f"127.0.0.{2 + number // 5_000}")
        command = schema.TelemetryCommand()
        command.settings.client_type = 3
        command.settings.subscription.group.name = GROUP
        entry = command.settings.subscription.subscriptions.add()
        entry.topic.name, entry.expression.expression = TOPIC, "*"
        stream, data = speaker.frames("Telemetry", command)
        message = h2.message(command.SerializeToString())
        head = data.removesuffix(h2.data(stream, message, ends=True))
        speaker.socket.sendall(head + h2.data(stream, message))  # the stream stays open
        while stream not in speaker.answers:
            speaker.read()
        speaker.answers.clear()
        register(speaker, GROUP)
        register(speaker, GROUP)
        speakers.append(speaker)
    time.sleep(2)
    grown = memory_mib(pid)["own_mib"] - before
    yield f"{clients} idle clients: MiB", f"{grown:.1f}"
    beat = schema.HeartbeatRequest(client_type=3)
    beat.group.name = GROUP
    send_beats(speakers, beat, BEAT_EVERY_S / 2)  # Python serves and registers them
    used = Cost(pid)
    send_beats(speakers, beat, BEAT_EVERY_S)
    percent = used.per_step(1) / 1e6 / BEAT_EVERY_S * 100
    yield "CPU with their heartbeats: % of a core", f"{percent:.2f}"
    used = Cost(pid)
    time.sleep(10)
    yield "CPU between heartbeats: % of a core", f"{used.per_step(1) / 1e7 * 100:.2f}"
    for speaker in speakers:
        speaker.socket.close()
    run.build()
    with echo_server() as echo:
        asking = Asking(echo.port, "", TEN_DIGITS)
        percent = cost_of_echoes(asking, echo.pid, WAIT_RATE) * WAIT_RATE / 1e4
    yield f"CPU of an echo, {WAIT_RATE:,}/s: % of a core", f"{percent:.2f}"


def send_beats(speakers: list[Speaker], beat: Any, seconds: float) -> None:
    """Send a heartbeat of each client, evenly over so many seconds."""
    made = [each.frames("Heartbeat", beat) for each in speakers]
    began = time.monotonic()
    pace = seconds / len(speakers)
    for number, (speaker, (_, data)) in enumerate(zip(speakers, made, strict=True)):
        time.sleep(max(0.0, began + number * pace - time.monotonic()))
        speaker.socket.sendall(data)


# -- attacks


def flood(port: int, seconds: float, make: Callable[[Speaker], bytes]) -> None:
    """Send what `make` returns again and again; reconnect when refused."""
    end, speaker = time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            speaker = speaker or Speaker(port, "127.0.0.2")
            speaker.socket.settimeout(0.5)
            speaker.socket.sendall(make(speaker))
            speaker.socket.setblocking(False)  # with a time limit, recv waits for it
            with contextlib.suppress(BlockingIOError):
                while speaker.socket.recv(1 << 20):
                    pass
        except OSError:
            if speaker is not None:
                speaker.socket.close()
            speaker = None


def call(speaker: Speaker, method: str, request: Any, **changes: bytes) -> bytes:
    return speaker.frames(method, request, **changes)[1]


def query() -> Any:
    request = schema.QueryRouteRequest()
    request.topic.name = TOPIC
    return request


def reset_call(speaker: Speaker, method: str, request: Any) -> bytes:
    number, data = speaker.frames(method, request)
    return data + h2.reset(number)


def reset_query(speaker: Speaker) -> bytes:
    return reset_call(speaker, "QueryRoute", query())


def broken_call(speaker: Speaker, payload: bytes) -> bytes:
    number, _ = speaker.frames("QueryRoute", query())
    return h2.call(number, payload, b"QueryRoute", x_mq_client_id=speaker.client_id)


def huge_block(speaker: Speaker) -> bytes:
    """A block in many CONTINUATION frames."""
    number, _ = speaker.frames("QueryRoute", query())
    parts = b"".join(
        h2.frame(h2.CONTINUATION, 0, number, b"\0\1a\1b" * 50) for _ in range(50)
    )
    return h2.frame(h2.HEADERS, 0, number, b"\x82") + parts


def bomb(speaker: Speaker) -> bytes:
    """A block whose entries repeat a long text."""
    number, _ = speaker.frames("QueryRoute", query())
    block = b"\x40\1a\x7f\x81\x0e" + b"v" * 1_920 + b"\xbe" * 4_000
    return h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, number, block)


def announced(speaker: Speaker) -> bytes:
    """A message that announces 4 MiB, and has 100 bytes of them."""
    number, data = speaker.frames("SendMessage", query())
    head = 9 + int.from_bytes(data[:3])
    prefix = b"\0" + (4 << 20).to_bytes(4) + bytes(100)
    return data[:head] + h2.data(number, prefix)


def waiting_receives(speaker: Speaker) -> bytes:
    """A receive of another group: in its own, the good client would share messages."""
    return call(speaker, *receive_call(TOPIC, OTHER_GROUP, batch=1))


ATTACKS: dict[str, Callable[[Speaker], bytes]] = {
    "resets": lambda each: b"".join(reset_query(each) for _ in range(50)),
    "resets-one-by-one": reset_query,
    "pings": lambda _: h2.frame(h2.PING, 0, 0, bytes(8)) * 100,
    "settings": lambda _: h2.settings((h2.INITIAL_WINDOW, 65_535)) * 100,
    "window-updates": lambda _: h2.window_update(0, 1) * 100,
    "unknown-frames": lambda _: h2.frame(0x77, 0, 0, b"x") * 100,
    "continuations": huge_block,
    "bombs": bomb,
    "announced-sizes": announced,
    "broken-messages": lambda each: broken_call(each, b"\xff" * 100),
    "nested-messages": lambda each: broken_call(each, b"\x7b" * 60_000),
    "cold-calls": lambda each: call(each, "QueryRoute", query()),
    "many-cold-calls": lambda each: b"".join(
        call(each, "QueryRoute", query()) for _ in range(64)
    ),
    "unknown-methods": lambda each: call(each, "None", query()),
    "waiting-receives": waiting_receives,
    "sends": lambda each: b"".join(call(each, *send_call()) for _ in range(64)),
    "sends-with-reset": lambda each: b"".join(
        reset_call(each, *send_call()) for _ in range(64)
    ),
    "no-window": lambda each: (
        h2.settings((h2.INITIAL_WINDOW, 0)) + waiting_receives(each)
    ),
    "connections": lambda each: each.socket.close() or b"",
}


def good_client(port: int, seconds: float) -> list[float]:
    """The times in ms of sends, receives and acks, at most 50 rounds a second."""
    speaker, times = Speaker(port), []
    register(speaker, GROUP)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for made in send_call(), receive_call(TOPIC, GROUP):
            answer, took_ms = timed(speaker, made)
            times.append(took_ms)
        acks = [ack_call(handle) for handle in handles_of(answer)[:1]]
        times += [timed(speaker, made)[1] for made in acks]
        time.sleep(0.02)
    return times


def timed(speaker: Speaker, made: tuple[str, Any]) -> tuple[list[bytes], float]:
    """The answer to a call, and its time in ms."""
    began = time.perf_counter()
    [answer] = speaker.ask(made)
    return answer, (time.perf_counter() - began) * 1e3


def measure_attacks(
    port: int, pid: int, names: list[str], seconds: float
) -> Iterator[tuple[str, str]]:
    """The p99 of a good client beside each attack, and the CPU of the broker."""
    for name in ["", *names]:
        attacker = None
        if name:
            words = [sys.executable, __file__, "--attack", name, "--port", str(port)]
            attacker = subprocess.Popen([*words, "--seconds", str(seconds + 4)])
            time.sleep(2)
        began, used = time.monotonic(), Cost(pid)
        try:
            times = good_client(port, seconds)
        except (OSError, IndexError) as error:
            yield name, f"failed: {error}"
            continue
        finally:
            if attacker is not None:
                attacker.kill()
                attacker.wait()
        percent = used.per_step(1) / 1e6 / (time.monotonic() - began) * 100
        p99 = statistics.quantiles(times, n=100)[98]
        found = f"p99 {p99:.1f} ms, most {max(times):.1f} ms, CPU {percent:.0f} %"
        yield name or "quiet", found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", default="costs,waits,idle,attacks")
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        flood(options.port, options.seconds, ATTACKS[options.attack])
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for part in options.parts.split(","):
        with (
            tempfile.TemporaryDirectory(prefix="rmq-lab-grpc-") as folder,
            rmq_broker(Path(folder), "ASYNC_FLUSH") as server,
        ):
            for topic in TOPIC, UNREAD:
                Asking(server.port, "").begin(topic)
            for name, value in measure(part, server, options):
                print(f"{name:64} {value}", flush=True)


def measure(
    part: str, server: Server, options: argparse.Namespace
) -> Iterator[tuple[str, str]]:
    """The rows of a part."""
    if part == "costs":
        return measure_costs(server.port, server.pid, options.rounds)
    if part == "waits":
        return measure_waits(server.port, server.pid, options.rounds)
    if part == "idle":
        return measure_idle(server.port, server.pid, options.clients)
    names = options.attacks.split(",")
    return measure_attacks(server.port, server.pid, names, options.seconds)


if __name__ == "__main__":
    main()
