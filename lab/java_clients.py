"""The official Java benchmark clients against rmq and against Java's broker, in turns.

Installs the benchmark Producer and Consumer of rocketmq-example 5.5.0 and Java's broker
from Maven Central as `make interop` does. Two cases: the producer alone, and with a
consumer that reads its messages. Each turn has new clients and a topic of its own, and
the clients' first report is of cold JVMs and does not count. Both brokers stay for the
whole run, each with a name server of rmq, whose address is all that the clients get.

TPS and RT are what the clients print; on few cores the clients' JVMs limit them more
than the broker does. The CPU seconds of the broker per million messages are measured
here, from the broker's process and its count of stored messages, between two reports.

Prints a table and writes JSON to bench/results/. Exit code 2 if Java or Maven is not on
this machine, or if other processes took over 10 % of it, which makes the run void.

    python lab/java_clients.py [--rounds 3] [--seconds 20] [--servers rmq,java]
"""

import argparse
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.load import run
from bench.load.turns import OtherProcesses, cpu_seconds
from lab import (
    compare_java,
    side_by_side,
)
from rmq.client.admin import AdminClient
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import RequestCode
from tests.interop.processes import serving
from tests.interop.toolchains import JavaExamples, JavaServers

SERVERS = ("rmq", "java")
SEND, CONSUME = "send", "send and consume"
CASES = (SEND, CONSUME)
QUEUES = 8
REPORT_S = 10
"""The clients report so often, on the last nine seconds."""

LATE_S = 60
"""A report may come so much later: a JVM that starts on a busy machine."""

NUMBER = r"\s*(NaN|[\d.]+)"
SENT = re.compile(
    rf"^Current Time: .*\| Send TPS:{NUMBER} \| Max RT\(ms\):{NUMBER} "
    rf"\| Average RT\(ms\):{NUMBER} \| Send Failed:{NUMBER} "
    rf"\| Response Failed:{NUMBER}$",
    re.MULTILINE,
)
CONSUMED = re.compile(
    rf"^Current Time: .*\| Consume TPS:{NUMBER} \| AVG\(B2C\) RT\(ms\):{NUMBER} "
    rf"\| AVG\(S2C\) RT\(ms\):{NUMBER} \| MAX\(B2C\) RT\(ms\):{NUMBER} "
    rf"\| MAX\(S2C\) RT\(ms\):{NUMBER} \| Consume Fail:{NUMBER}$",
    re.MULTILINE,
)

COLUMNS = (
    "case", "server", "CPU s per million", "send TPS", "average RT ms", "max RT ms",
    "failed", "consume TPS", "B2C RT ms", "S2C RT ms",
)  # fmt: skip


class Sent(NamedTuple):
    """A report of the producer; `max_rt_ms` and the failures are since its start."""

    tps: float
    max_rt_ms: float
    average_rt_ms: float
    send_failed: float
    response_failed: float


class Consumed(NamedTuple):
    """A report of the consumer: times from birth (B) and store (S) to consumer (C)."""

    tps: float
    b2c_rt_ms: float
    s2c_rt_ms: float
    max_b2c_rt_ms: float
    max_s2c_rt_ms: float
    failed: float


class Broker(NamedTuple):
    """A broker under test and the name server that knows it."""

    process: run.Server
    namesrv: str

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.process.port}"


class Reading(NamedTuple):
    """A broker's own CPU time and count of stored messages."""

    cpu_s: float
    stored: int


# -- what the clients print


def sent_reports(text: str) -> list[Sent]:
    return [Sent(*map(float, row)) for row in SENT.findall(text)]


def consumed_reports(text: str) -> list[Consumed]:
    return [Consumed(*map(float, row)) for row in CONSUMED.findall(text)]


def wait_for(home: Path, reports: Callable[[str], list], count: int) -> list:
    """The reports of the client in `home`, as soon as there are so many."""
    end = time.perf_counter() + count * REPORT_S + LATE_S
    while True:
        text = (home / "output").read_text()
        found = reports(text)
        if len(found) >= count:
            return found
        if time.perf_counter() > end:
            raise SystemExit(
                f"{home.name} has printed {len(found)} of {count} reports in time:\n"
                f"…{text[-2000:]}"
            )
        time.sleep(0.05)


# -- servers and clients


def start_rmq(
    folder: Path, mode: str, namesrv: str
) -> AbstractContextManager[run.Server]:
    return compare_java.rmq_broker(folder / "store", mode, f"namesrvAddr={namesrv}")


def start_java(
    folder: Path, mode: str, namesrv: str
) -> AbstractContextManager[run.Server]:
    settings = {"flushDiskType": mode, "namesrvAddr": namesrv}
    return compare_java.java_broker(folder / "java", settings)


def start_client(
    name: str, folder: Path, broker: Broker, topic: str, *arguments: str
) -> AbstractContextManager[run.Server]:
    """`Producer` or `Consumer`, from its first line on; it prints to `output`."""
    home = folder / name
    home.mkdir()
    words = ("-n", broker.namesrv, "-t", topic, *arguments)
    command = JavaExamples().command(home, f"benchmark.{name}", *words)
    sign = b"Consumer Started." if name == "Consumer" else b"asyncEnable: "
    return compare_java.started(command, home, 0, sign)


def create_topic(broker: Broker, topic: str) -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": QUEUES,
        "writeQueueNums": QUEUES, "perm": 6, "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0, "order": False,
    }  # fmt: skip
    end = time.perf_counter() + LATE_S
    with AdminClient([broker.namesrv], timeout_s=LATE_S) as admin:
        admin.request(broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        while True:
            try:
                admin.route(topic)
            except AnswerRefused:
                if time.perf_counter() > end:
                    raise
                time.sleep(0.05)
            else:
                return


def read(broker: Broker) -> Reading:
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    with AdminClient([broker.namesrv], timeout_s=LATE_S) as admin:
        facts = admin.request_json(broker.address, code)["table"]
    cpu_s = cpu_seconds(broker.process.pid)
    return Reading(cpu_s, int(facts["msgPutTotalTodayNow"]))


# -- a turn


def play(broker: Broker, case: str, topic: str, folder: Path, seconds: int) -> dict:
    """One turn with new clients; the figures of its reports but the first."""
    create_topic(broker, topic)
    count = seconds // REPORT_S
    producer, consumer = folder / "Producer", folder / "Consumer"
    with ExitStack() as stack:
        if case == CONSUME:
            group = ("-g", f"group-of-{topic}", "-p", "false")
            stack.enter_context(start_client("Consumer", folder, broker, topic, *group))
        stack.enter_context(start_client("Producer", folder, broker, topic))
        warm = len(wait_for(producer, sent_reports, 1))
        if case == CONSUME:
            warm_consumer = len(wait_for(consumer, consumed_reports, 1))
        before = read(broker)
        sent = wait_for(producer, sent_reports, warm + count)[warm - 1 :]
        after = read(broker)
        figures = sent_figures(sent, before, after)
        if case == CONSUME:
            consumed = wait_for(consumer, consumed_reports, warm_consumer + count)
            figures |= consumed_figures(consumed[warm_consumer:])
    return figures


def sent_figures(reports: list[Sent], before: Reading, after: Reading) -> dict:
    """Figures of all reports but the first, which is the state they begin at."""
    cold, *sent = reports
    stored = after.stored - before.stored
    if not stored:
        raise SystemExit("the broker has stored nothing between two reports")
    return {
        "messages": stored,
        "server_cpu_s": after.cpu_s - before.cpu_s,
        "s_per_million": (after.cpu_s - before.cpu_s) / stored * 1e6,
        "send_tps": statistics.median(each.tps for each in sent),
        "average_rt_ms": statistics.median(each.average_rt_ms for each in sent),
        "max_rt_ms": sent[-1].max_rt_ms,
        "failed": failures(sent[-1]) - failures(cold),
    }


def failures(report: Sent) -> float:
    return report.send_failed + report.response_failed


def consumed_figures(consumed: list[Consumed]) -> dict:
    return {
        "consume_tps": statistics.median(each.tps for each in consumed),
        "b2c_rt_ms": statistics.median(each.b2c_rt_ms for each in consumed),
        "s2c_rt_ms": statistics.median(each.s2c_rt_ms for each in consumed),
        "max_b2c_rt_ms": max(each.max_b2c_rt_ms for each in consumed),
        "max_s2c_rt_ms": max(each.max_s2c_rt_ms for each in consumed),
    }


# -- the run


def measure(options: argparse.Namespace) -> dict:
    starts = {"rmq": start_rmq, "java": start_java}
    warm_up_s = {"rmq": compare_java.BRIEF_WARM_UP_S, "java": options.warm_up}
    with (
        tempfile.TemporaryDirectory(
            prefix="rmq-java-clients-", dir=options.directory
        ) as name,
        ExitStack() as stack,
    ):
        folder = Path(name)
        brokers = {}
        for kind in options.servers:
            arguments = ("namesrv", "--set", "listenPort=0")
            namesrv = stack.enter_context(serving(*arguments)).namesrv
            process = starts[kind](folder, options.mode, namesrv)
            broker = Broker(stack.enter_context(process), namesrv)
            print(f"{kind} is up, warming up", flush=True)
            profile = run.PROFILES[compare_java.WARM_UP_CASE]
            run.play(broker.process, profile, warm_up_s[kind], None)
            brokers[kind] = broker
        return {
            "when": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": compare_java.machine_facts(folder),
            "mode": options.mode,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "java_settings": compare_java.JAVA_SETTINGS,
            "cases": play_all(brokers, folder, options),
        }


def play_all(
    brokers: dict[str, Broker], folder: Path, options: argparse.Namespace
) -> dict:
    turns: dict = {case: {kind: [] for kind in brokers} for case in CASES}
    pids = [broker.process.pid for broker in brokers.values()]
    for number in range(1, options.rounds + 1):
        for index, case in enumerate(CASES):
            for kind, broker in brokers.items():
                topic = f"Benchmark-{number}-{index}"
                home = folder / f"{kind}-{topic}"
                home.mkdir()
                others = OtherProcesses(pids)
                figures = play(broker, case, topic, home, options.seconds)
                figures["others_share"] = others.share()
                turns[case][kind].append(figures)
                print(
                    f"  round {number}, {case}, {kind}: "
                    f"{figures['send_tps']:,.0f} TPS, "
                    f"{figures['s_per_million']:.2f} CPU s per million",
                    flush=True,
                )
    return {
        case: {kind: run.medians(each) for kind, each in kinds.items()}
        for case, kinds in turns.items()
    }


def doubts(result: dict) -> str:
    """Why the machine was too busy for the figures to mean much, or ""."""
    servers = [f for kinds in result["cases"].values() for f in kinds.values()]
    return compare_java.others_doubt(servers)


# -- the table


def rows(cases: dict) -> Iterator[tuple[str, ...]]:
    """A row for each server of each case; the name of a case stands once."""
    for case, servers in cases.items():
        name = case
        for kind, f in servers.items():
            cells = (
                f"{f['s_per_million']:.2f}",
                f"{f['send_tps']:,.0f}",
                f"{f['average_rt_ms']:.2f}",
                f"{f['max_rt_ms']:,.0f}",
                f"{f['failed']:,.0f}",
            )
            yield (name, side_by_side.LABELS[kind], *cells, *consumed_cells(f))
            name = ""
        if len(servers) == len(SERVERS):
            yield ("", "rmq : Java", *factors(servers["rmq"], servers["java"]))


def consumed_cells(figures: dict) -> tuple[str, str, str]:
    if "consume_tps" not in figures:
        return ("", "", "")
    return (
        f"{figures['consume_tps']:,.0f}",
        f"{figures['b2c_rt_ms']:,.2f}",
        f"{figures['s2c_rt_ms']:,.2f}",
    )


def factors(rmq: dict, java: dict) -> tuple[str, ...]:
    costs = side_by_side.part(rmq["s_per_million"], java["s_per_million"])
    tps = f"{rmq['send_tps'] / java['send_tps']:.1f} x"
    if "consume_tps" not in rmq:
        return (costs, tps, *[""] * 6)
    consumed = f"{rmq['consume_tps'] / java['consume_tps']:.1f} x"
    return (costs, tps, "", "", "", consumed, "", "")


def text(result: dict) -> str:
    title = f"Java's benchmark clients under {result['mode']}"
    return side_by_side.table_text(title, COLUMNS, list(rows(result["cases"])))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=3, choices=range(1, 21), metavar="1…20"
    )
    parser.add_argument(
        "--seconds",
        type=int,
        default=20,
        help="that count in a turn, a multiple of 10 up to 600; 10 more go before",
    )
    parser.add_argument(
        "--servers",
        type=lambda text: text.split(","),
        default=list(SERVERS),
        help="rmq,java or one of them",
    )
    parser.add_argument(
        "--mode", default="ASYNC_FLUSH", choices=("ASYNC_FLUSH", "SYNC_FLUSH")
    )
    parser.add_argument(
        "--warm-up",
        type=float,
        default=compare_java.WARM_UP_S,
        help="seconds of warm-up of Java's broker, with the load generator",
    )
    parser.add_argument("--directory", help="where the temporary stores go")
    options = parser.parse_args()
    if set(options.servers) - set(SERVERS):
        parser.error(f"servers are {', '.join(SERVERS)}")
    if options.seconds % REPORT_S or not 0 < options.seconds <= 600:
        parser.error("seconds are 10, 20, … 600: the clients report every 10 s")
    missing = JavaServers.missing()
    if missing:
        print(f"not run: {missing}")
        return 2
    compare_java.end_children_on_sigterm()
    JavaServers().prepare()
    JavaExamples().prepare()
    run.build()
    result = measure(options)
    result["doubts"] = doubts(result)
    return compare_java.report("java-clients", result, text(result))


if __name__ == "__main__":
    raise SystemExit(main())
