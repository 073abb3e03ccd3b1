"""Pauses: how long one client's work keeps a ping of another client waiting.

Each row is an event of an ordinary day that is large: a wide group is listed, thousands
of messages come due together, a machine with a thousand clients stops. Pings go over a
connection of their own, one each millisecond. *pause* is the worst wait of a ping, with
whatever else the machine did; *busy* is the most time that the broker's serving thread
ran while one ping waited. *step* is at least the longest step of this thread between
two looks at its connections: it serves no client meanwhile. A ping waits longer than a
step if a broker that has more to do than it can serves others first. Prints the rows
and writes JSON to bench/results/.

    python lab/pauses.py [--parts groups,popped,…]
"""

import argparse
import json
import re
import signal
import socket
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.load import crowd, paced, run
from lab import growth
from lab.pop import Asking
from rmq.protocol.bodies.topics import CreateTopicListRequestBody, TopicConfig
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.headers.route import UnRegisterBrokerRequestHeader
from tests.interop.processes import free_port

TOPICS, QUEUES, MANY, WIDE = 8_000, 4, 1_000, 1_000
LISTED = 5_000
DUE = 57_000
TIMERS = 50_000
HALVES = 20_000
PULLS = 10_000
TOGETHER = 256
"""Requests that are sent before their answers are read."""

REPEATED = 3
STEPS = re.compile(r'^rmq_step_seconds_bucket\{.*le="([^"]+)".*\} (\d+)', re.MULTILINE)
PRODUCERS = "OrdinaryProducer"
BROKER = "broker-rmq"
NAMESRV_PORT = free_port()
METRICS_PORT = free_port()

Steps = Iterator[str]
"""Prepares, yields the name of an event, and lets it happen; again and again."""


class Many(crowd.Asker):
    """Requests of which some are in flight."""

    def ask(self, code: int, fields: dict[str, str], times: int = 1) -> None:
        """Send a request and wait for its answer, some times."""
        for _ in range(times):
            self.send(code, fields)
            self.receive()

    def ask_all(self, frames: Iterator[bytes]) -> None:
        """Send frames, TOGETHER of them at a time, and wait for all answers."""
        wanted = self.answers
        for frame in frames:
            self._peer.sendall(frame)
            wanted += 1
            if wanted % TOGETHER == 0:
                self.wait_for(wanted)
        self.wait_for(wanted)

    def wait_for(self, answers: int) -> None:
        """Receive until so many answers have come."""
        while self.answers < answers:
            self.receive()

    def create(self, topic: str, queues: int) -> None:
        """Create a topic."""
        self.ask(crowd.CREATE, crowd.topic_fields(topic, queues))


def wide_groups(one: growth.Broker) -> Steps:
    """Tools ask for a group with offsets in 32,000 queues, and for a wide topic."""
    port = one.server.port
    crowd.topics(argparse.Namespace(port=port, count=TOPICS, queues=QUEUES))
    crowd.commits(argparse.Namespace(port=port, count=TOPICS))
    asker = Many(port)
    asker.create("Wide", WIDE)
    asker.ask_all(paced.send_frame("Wide", queue, b"x") for queue in range(WIDE))
    group = {"consumerGroup": crowd.GROUP}
    for name, code, fields in (
        ("progress of a group, 32,000 queues (208)", Code.GET_CONSUME_STATS, group),
        (
            "progress of all groups (317)",
            Code.GET_BROKER_CONSUME_STATS,
            {"isOrder": "false"},
        ),
        (
            "topics of a group (343)",
            Code.QUERY_TOPICS_BY_CONSUMER,
            {"group": crowd.GROUP},
        ),
        (
            "offsets of a topic, 1,000 queues (202)",
            Code.GET_TOPIC_STATS_INFO,
            {"topic": "Wide"},
        ),
        (
            "times of a topic, 1,000 queues (303)",
            Code.QUERY_CONSUME_TIME_SPAN,
            {"topic": "Wide", "group": crowd.GROUP},
        ),
    ):
        yield name
        asker.ask(code, fields, REPEATED)
    queues = TOPICS * QUEUES
    yield f"first messages of {queues:,} queues, and a metrics page"
    asker.ask_all(
        paced.send_frame(f"All{n % TOPICS}", n // TOPICS, b"x") for n in range(queues)
    )
    read_metrics()
    yield "100 topics created one after the other"
    for number in range(100):
        asker.create(f"More{number}", 4)
    yield "a topic of 1,000 queues is deleted"
    asker.ask(crowd.DELETE, {"topic": "Wide"})


def lists_of_topics(one: growth.Broker) -> Steps:
    """A tool creates many topics; a name server removes their broker, and gets it
    again.
    """
    asker, names = Many(one.server.port), Many(NAMESRV_PORT)
    body = CreateTopicListRequestBody(
        topic_config_list=[TopicConfig(topic_name=f"L{n}") for n in range(LISTED)]
    ).encode()
    yield f"{LISTED:,} topics created by one request (18)"
    asker.send(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
    asker.receive()
    time.sleep(5)
    yield f"a name server removes a broker with {LISTED:,} topics (104)"
    header = UnRegisterBrokerRequestHeader(
        broker_name=BROKER,
        broker_addr=f"127.0.0.1:{one.server.port}",
        cluster_name="DefaultCluster",
        broker_id=0,
    )
    names.ask(Code.UNREGISTER_BROKER, header.encode())
    time.sleep(1)


def first_table(one: growth.Broker) -> Steps:
    """A console asks a broker for its topics after a start."""
    port = one.server.port
    crowd.topics(argparse.Namespace(port=port, count=TOPICS, queues=4))
    one.restart(signal.SIGTERM)
    time.sleep(1)
    yield "the first request 21 after a start, 8,000 topics"
    Many(one.server.port).ask(crowd.ALL_TOPICS, {})


def new_queues(one: growth.Broker) -> Steps:
    """Messages for queues, and pulls that wait at queues, that never had a message."""
    asker = Many(one.server.port)
    asker.create("New", WIDE)
    yield "first messages of 1,000 queues"
    asker.ask_all(paced.send_frame("New", queue, b"x") for queue in range(WIDE))
    asker.create("Empty", WIDE)
    for name, is_woken in (
        ("10,000 pulls wait at 1,000 empty queues, and end", False),
        ("10,000 more, which messages wake", True),
    ):
        yield name
        peers = [paced.connect(one.server.port) for _ in range(20)]
        for number, peer in enumerate(peers):
            peer.sendall(
                b"".join(
                    paced.pull_frame(
                        "Empty", f"G{number}", queue % WIDE, 0, crowd.HOLD_MS
                    )
                    for queue in range(PULLS // len(peers))
                )
            )
        if is_woken:
            time.sleep(1)
            asker.ask_all(
                paced.send_frame("Empty", queue, b"x") for queue in range(WIDE)
            )
        for peer in peers:
            paced.receive_answers(peer, PULLS // len(peers))


def popped(one: growth.Broker) -> Steps:
    """A worker has popped 57,000 messages and dies, or acks late."""
    asking = Asking(one.server.port, BROKER)
    for topic in ("Due", "Kept"):
        asking.begin(topic)
        asking.fill(topic, DUE)
    yield "57,000 popped messages come due together"
    pop_all(asking, "Due", 32, 3_000)
    time.sleep(8)
    yield "57,000 checkpoints are written, after popMemoryMs"
    answers = pop_all(asking, "Kept", 1, 120_000)
    time.sleep(14)
    acks = [ack for answer in answers for ack in asking.acks("Kept", answer)]
    assert len(acks) == DUE, len(acks)
    yield "57,000 acks of written checkpoints"
    for start in range(0, DUE, TOGETHER):
        asking.ask(acks[start : start + TOGETHER])
    time.sleep(6)


def pop_all(asking: Asking, topic: str, size: int, invisible_ms: int) -> list:
    """Pop DUE messages, 32 POPs at a time."""
    answers, count = [], 0
    while count < DUE:
        found = asking.ask(
            [asking.pop(topic, invisible_ms, size=size) for _ in range(32)]
        )
        answers += found
        count += sum(len([*asking.handles(each.ext_fields)]) for each in found)
    return answers


def timers(one: growth.Broker) -> Steps:
    """Messages whose time is the same second."""
    asker = Many(one.server.port)
    asker.create("Timed", 8)
    due_ms = int(time.time() + 12) * 1_000
    text = f"TIMER_DELIVER_MS\x01{due_ms}\x02"
    asker.ask_all(
        paced.send_frame("Timed", number % 8, b"x", text) for number in range(TIMERS)
    )
    yield f"{TIMERS:,} timers of one second"
    time.sleep(max(0.0, due_ms / 1_000 - time.time()) + 5)


def transactions(one: growth.Broker) -> Steps:
    """Producers that leave their transactions open, and are asked for them."""
    port = one.server.port
    peers = [paced.connect(port) for _ in range(MANY)]
    for number, peer in enumerate(peers):
        paced.call(peer, heartbeat_of_producer(f"producer@{number}"))
    asker = Many(port)
    asker.create("Half", 8)
    asker.ask_all(half_frame(number) for number in range(HALVES))
    yield f"{HALVES:,} transactions are checked, {MANY:,} producers"
    time.sleep(12)
    for peer in peers:
        peer.close()


def heartbeat_of_producer(client: str) -> bytes:
    """Return a heartbeat of one producer."""
    body = {
        "clientID": client,
        "consumerDataSet": [],
        "producerDataSet": [{"groupName": PRODUCERS}],
    }
    return paced.frame(paced.HEARTBEAT, {}, json.dumps(body).encode())


def half_frame(number: int) -> bytes:
    """Return a send of a half message."""
    text = f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02UNIQ_KEY\x01{number:032X}\x02"
    fields = {
        "a": PRODUCERS, "b": "Half", "c": "TBW102", "d": "4", "e": str(number % 8),
        "f": "4", "g": str(int(time.time() * 1000)), "h": "0", "i": text, "j": "0",
        "k": "false", "m": "false",
    }  # fmt: skip
    return paced.frame(paced.SEND, fields, b"x")


def clients(one: growth.Broker) -> Steps:
    """A thousand clients come, go together, come back and fall silent."""
    port = one.server.port
    yield "1,000 clients come"
    peers = [connect_client(port, number) for number in range(MANY)]
    time.sleep(2)
    yield "1,000 clients go together"
    for peer in peers:
        peer.close()
    time.sleep(2)
    yield "1,000 clients come back together"
    peers = [paced.connect(port) for _ in range(MANY)]
    for number, peer in enumerate(peers):
        peer.sendall(crowd.heartbeat(crowd.GROUP, f"member@{number}"))
    time.sleep(3)
    yield "1,000 silent clients expire"
    time.sleep(22)
    for peer in peers:
        peer.close()


def connect_client(port: int, number: int) -> socket.socket:
    """Return the connection of a member of a group."""
    peer = paced.connect(port)
    paced.call(peer, crowd.heartbeat(crowd.GROUP, f"member@{number}"))
    return peer


def batches(one: growth.Broker) -> Steps:
    """As many batches in flight as the broker and the disk can take."""
    for size in (32, 256):
        load = ["--connections=400", "--window=1", f"--batch={size}"]
        run.play(one.server, load, 1, None)
        yield f"batches of {size} over 400 connections"
        run.play(one.server, load, 3, None)


PARTS: dict[str, tuple[Callable[[growth.Broker], Steps], tuple[str, ...]]] = {
    "groups": (wide_groups, ()),
    "lists": (
        lists_of_topics,
        (f"brokerName={BROKER}", f"rmq.namesrv.listenPort={NAMESRV_PORT}"),
    ),
    "table": (first_table, ()),
    "queues": (new_queues, ()),
    "popped": (popped, (f"brokerName={BROKER}",)),
    "timers": (timers, ()),
    "transactions": (
        transactions,
        ("transactionTimeOut=1000", "transactionCheckInterval=6000"),
    ),
    "clients": (clients, ("channelExpiredTimeout=6000",)),
    "batches": (batches, ()),
}


def measure(options: argparse.Namespace, part: str) -> Iterator[dict]:
    """Let the events of a part happen, each with its pings."""
    begin, settings = PARTS[part]
    metrics = "metricsExporterType=PROM", f"metricsPromExporterPort={METRICS_PORT}"
    with growth.broker(options, 20_000, *settings, *metrics) as one:
        steps = begin(one)
        name = next(steps, None)
        while name is not None:
            time.sleep(1)
            before = step_counts(read_metrics())
            with growth.Pings(one.server) as pings:
                following = next(steps, None)
            yield {
                "event": name,
                "pause_ms": pings.worst_ms,
                "busy_ms": pings.busy_ms,
                "p99_ms": pings.p99_ms,
                "step_ms": longest_ms(before, step_counts(read_metrics())),
            }
            name = following


def read_metrics() -> str:
    """Return the metrics of the broker."""
    url = f"http://127.0.0.1:{METRICS_PORT}/metrics"
    with urllib.request.urlopen(url, timeout=20) as page:
        return page.read().decode()


def step_counts(metrics: str) -> Counter[float]:
    """Return how many steps of the serving thread were up to each bound, in seconds."""
    return Counter({float(bound): int(n) for bound, n in STEPS.findall(metrics)})


def longest_ms(before: Counter[float], after: Counter[float]) -> float:
    """Return the lowest bound that no new step exceeds."""
    if after.total() < before.total():  # the broker has started again
        before = Counter()
    new = {bound: after[bound] - before[bound] for bound in sorted(after)}
    return (
        next(bound for bound, count in new.items() if count == new[float("inf")]) * 1e3
    )


def main() -> None:
    """Measure all parts, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--directory", help="where the temporary stores go")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    run.build()
    rows = []
    for part in options.parts.split(","):
        for row in measure(options, part):
            print(
                f"{row['event']:55} pause {row['pause_ms']:7.2f} ms"
                f"  busy {row['busy_ms']:7.2f}  p99 {row['p99_ms']:6.2f}"
                f"  step <= {row['step_ms']:g}",
                flush=True,
            )
            rows.append(row)
    run.write_result("pauses", {"when": time.strftime("%Y-%m-%d"), "rows": rows})


if __name__ == "__main__":
    main()
