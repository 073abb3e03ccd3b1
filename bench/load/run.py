"""Load test of a broker process against the C echo ceiling of the same run.

Builds the generator and echo, starts both servers, and plays every profile in
interleaved rounds: first on memory as it is, then, with most of it held by another
process, on pages that were used before. The figure to compare is `ratio`: the server's
CPU seconds for a million messages, divided by those of echo in the same turn; the
median of all turns. *faults* are major faults of the thread that serves. Prints what a
page of a new file costs now, and a table, and writes JSON to bench/results/. A pull
counts as the 32 messages that it brings; echo, whose replies are small, is no ceiling
for pulls and gets none. A batch counts as its messages. A turn of which other processes
took over 10 % is played again, four times in all; a profile of which most turns stayed
so is marked as disturbed. Topics are created before the rounds, so that no round pays
for them.

    python bench/load/run.py [--rounds 5] [--seconds 0.4] [--profiles send-4x64,…]
                             [--memory fresh,warm]
"""

import argparse
import compileall
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from bench.load import memory  # noqa: E402 - found by the line above
from bench.load.turns import OTHERS_LIMIT, Turn, quiet  # noqa: E402

BINARIES = HERE / "bin"
RESULTS = HERE.parent / "results"
START_LIMIT_S = 20
RUN_LIMIT_S = 3600
MEMORY = ("fresh", "warm")
TOPICS_S = 1  # at most: creates the topics of a profile

WIDE = ["--topic=Wide", "--queues=1100"]
PROFILES = {
    "send-4x64": ["--connections=4", "--window=64"],
    "send-4x64-1k": ["--connections=4", "--window=64", "--body=1024"],
    "send-4x64-binary": ["--connections=4", "--window=64", "--binary"],
    "send-64x16": ["--connections=64", "--window=16"],
    "send-64x1": ["--connections=64", "--window=1"],
    "send-1x1": ["--connections=1", "--window=1"],
    "send-4x64-signed": ["--connections=4", "--window=64", "--user=u", "--secret=p"],
    "mixed-8x32": [
        "--connections=8",
        "--window=32",
        "--mixed",
        "--topics=64",
        "--queues=8",
    ],
    "send-1100-queues": ["--connections=4", "--window=64", *WIDE],
    "send-32-properties": ["--connections=4", "--window=64", "--properties=32"],
    "batch-32": ["--connections=4", "--window=16", "--batch=32"],
    "batch-256": ["--connections=4", "--window=4", "--batch=256"],
    "pull-128": ["--connections=4", "--window=8", "--body=128"],
    "pull-128-signed": [
        "--connections=4",
        "--window=8",
        "--body=128",
        "--user=u",
        "--secret=p",
    ],
    "pull-128-1x1": ["--connections=1", "--window=1", "--body=128"],
    "pull-128-binary": ["--connections=4", "--window=8", "--body=128", "--binary"],
    "pull-1k": ["--connections=4", "--window=8", "--body=1024"],
    "pull-8k": ["--connections=4", "--window=8", "--body=7900"],
}
PULLED_MESSAGES = 65_536
"""Messages that a topic of pulls holds; they are read again and again."""

MESSAGES_PER_PULL = 32


class Server(NamedTuple):
    """A child that answers on a loopback port."""

    pid: int
    port: int
    start_s: float


def build() -> None:
    """Compile both programs and the Python modules where a source is newer."""
    for folder in ("rmq", "plugins"):
        compileall.compile_dir(ROOT / folder, quiet=1)
    BINARIES.mkdir(exist_ok=True)
    for name in ("echo", "generator"):
        source, binary = HERE / f"{name}.c", BINARIES / name
        if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
            subprocess.run(["gcc", "-O2", "-o", binary, source], check=True)


@contextmanager
def serving(
    command: list[str], ready: str, stream: str, cpu: int | None
) -> Iterator[Server]:
    """Run `command` until the block ends; `ready` matches the line with its port."""

    def pin() -> None:
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})

    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, text=True, preexec_fn=pin, **{stream: subprocess.PIPE}
    ) as process:
        lines = getattr(process, stream)
        try:
            yield wait_ready(process, lines, ready, began)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(START_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_ready(process, lines, ready: str, began: float) -> Server:
    seen = []
    for line in lines:
        seen.append(line)
        match = re.match(ready, line)
        if match:
            return Server(process.pid, int(match[1]), time.perf_counter() - began)
    raise SystemExit("the server ended before it was ready:\n" + "".join(seen))


ACCESS_CONTROL = [
    "authenticationEnabled=true",
    "authorizationEnabled=true",
    'initAuthenticationUser={"username":"u","password":"p"}',
]
"""Settings of the brokers of the `-signed` profiles."""


def broker_command(folder: Path, settings: list[str]) -> list[str]:
    command = [sys.executable, "-m", "rmq", "broker", "--log-level", "error"]
    for setting in (
        "listenPort=0",
        "rmq.namesrv.listenPort=0",
        f"storePathRootDir={folder}",
        *settings,
    ):
        command += ["--set", setting]
    return command


def play(server: Server, options: list[str], seconds: float, cpu: int | None) -> dict:
    """One round; the generator checks every reply and fails on the first wrong one."""
    command = [
        str(BINARIES / "generator"),
        f"--port={server.port}",
        f"--server-pid={server.pid}",
        f"--seconds={seconds}",
        *options,
        *([] if cpu is None else [f"--cpu={cpu}"]),
    ]
    faults = major_faults(server.pid)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds + 120, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    figures = json.loads(done.stdout)
    figures["major_faults"] = major_faults(server.pid) - faults
    messages = messages_per_request(options)
    figures["messages"] *= messages
    figures["rate"] *= messages
    figures["s_per_million"] = figures["server_cpu_s"] / figures["messages"] * 1e6
    return figures


def major_faults(pid: int) -> int:
    """How often the first thread of a process, which serves, has waited for a page."""
    text = Path(f"/proc/{pid}/task/{pid}/stat").read_text()
    return int(text.rpartition(") ")[2].split()[9])


def messages_per_request(options: list[str]) -> int:
    """Return how many messages a request sends, or its answer brings."""
    if is_pull(options):
        return MESSAGES_PER_PULL
    batches = [each for each in options if each.startswith("--batch=")]
    return int(batches[0].removeprefix("--batch=")) if batches else 1


def is_pull(options: list[str]) -> bool:
    return any(option.startswith("--pull=") for option in options)


def is_signed(profile: str) -> bool:
    """Whether the profile has a broker of its own, with access control."""
    return profile.endswith("-signed")


def prepare(broker: Server, profile: str) -> list[str]:
    """Make the topic of a profile, and what is pulled from it; options of a round."""
    options = PROFILES[profile]
    if WIDE[0] in options:
        create_wide_topic(broker)
    if not profile.startswith("pull-"):
        play(broker, [*options, f"--warm-up={TOPICS_S}"], 0.01, None)
        return options
    topic = f"--topic=Bench-{profile}"
    count = [f"--messages={PULLED_MESSAGES}", "--warm-up=0"]
    play(broker, [*options[2:], topic, *count], 60, None)
    return [*options, topic, f"--pull={PULLED_MESSAGES}"]


def create_wide_topic(broker: Server) -> None:
    """Create a topic with more queues than a send may ask for."""
    queues = WIDE[1].removeprefix("--queues=")
    command = [sys.executable, "-m", "rmq", "admin", "updateTopic"]
    command += ["--brokerAddr", f"127.0.0.1:{broker.port}", "--topic", "Wide"]
    command += ["--readQueueNums", queues, "--writeQueueNums", queues]
    subprocess.run(command, check=True, capture_output=True)


def medians(rounds: list[dict]) -> dict:
    return {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}


def resident_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


def disk_mib(folder: Path) -> float:
    return sum(p.stat().st_blocks for p in folder.rglob("*") if p.is_file()) / 2048


def bare_trio_start_s(repeats: int = 5) -> float:
    """Time a process that imports trio and runs an empty main: the floor of a start."""
    program = "import trio\nasync def main(): pass\ntrio.run(main)"
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measure(options: argparse.Namespace) -> dict:
    cpus = sorted(os.sched_getaffinity(0))
    pinned = options.pin and len(cpus) > 1
    server_cpu, generator_cpu = (cpus[0], cpus[1]) if pinned else (None, None)
    echo_command = [str(BINARIES / "echo"), str(RUN_LIMIT_S)]
    tables: dict[str, dict] = {}
    pages: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="rmq-load-", dir=options.directory) as name,
        serving(echo_command, r"ready (\d+)", "stdout", server_cpu) as echo,
        serving(
            broker_command(Path(name) / "store", options.set),
            r"ready broker=\S+ address=\S+:(\d+)",
            "stderr",
            server_cpu,
        ) as broker,
        ExitStack() as stack,
    ):
        start = {
            "broker_start_s": broker.start_s,
            "bare_trio_start_s": bare_trio_start_s(),
            "idle_resident_mib": resident_mib(broker.pid),
        }
        play(broker, ["--connections=1", "--window=1", "--warm-up=0"], 0.01, None)
        start["first_message_disk_mib"] = disk_mib(Path(name))
        brokers = dict.fromkeys(options.profiles, broker)
        for profile in filter(is_signed, options.profiles):
            settings = [*options.set, *ACCESS_CONTROL]
            command = broker_command(Path(name) / profile, settings)
            ready = r"ready broker=\S+ address=\S+:(\d+)"
            own = serving(command, ready, "stderr", server_cpu)
            brokers[profile] = stack.enter_context(own)
        prepared = {name: prepare(brokers[name], name) for name in options.profiles}
        cases = {
            profile: ({"echo": echo, "broker": brokers[profile]}, settings)
            for profile, settings in prepared.items()
        }
        for kind in options.memory:
            with memory.held() if kind == "warm" else nullcontext(True) as has_memory:
                if not has_memory:
                    print("no warm memory: this machine has too little to hold some")
                    continue
                pages[kind] = memory.page_us(name)
                tables[kind] = summary(play_rounds(cases, options, generator_cpu))
        start["loaded_resident_mib"] = resident_mib(broker.pid)
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "settings": options.set,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "pinned": pinned,
        "process": start,
        "page_us": pages,
        "profiles": next(iter(tables.values()), {}),
        "memory": tables,
        "children_cpu_s": resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime,
    }


def play_rounds(
    cases: dict[str, tuple[dict[str, Server], list[str]]],
    options: argparse.Namespace,
    cpu: int | None,
) -> dict[str, list[tuple[Turn, float]]]:
    """Play all profiles in turns; of each turn the figures and what others took."""
    rounds: dict[str, list[tuple[Turn, float]]] = {profile: [] for profile in cases}
    for _ in range(options.rounds):
        for profile, (servers, settings) in cases.items():

            def turn(servers=servers, settings=settings) -> Turn:
                return {
                    kind: play(server, settings, options.seconds, cpu)
                    for kind, server in servers.items()
                    if kind != "echo" or not is_pull(settings)
                }

            pids = [server.pid for server in servers.values()]
            rounds[profile].append(quiet(turn, pids))
    return rounds


def write_result(name: str, result: object, path: Path | None = None) -> Path:
    """Write figures as JSON, to a new file of bench/results/ unless told where."""
    RESULTS.mkdir(exist_ok=True)
    path = path or RESULTS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    return path


def summary(rounds: dict[str, list[tuple[Turn, float]]]) -> dict:
    """Medians of the turns; the ratio is that of each turn, before the median."""
    profiles = {}
    for profile, turns in rounds.items():
        figures = {
            kind: medians([played[kind] for played, _ in turns]) for kind in turns[0][0]
        }
        if "echo" in figures:
            figures["ratio"] = statistics.median(
                played["broker"]["s_per_million"] / played["echo"]["s_per_million"]
                for played, _ in turns
            )
        figures["others_share"] = statistics.median(share for _, share in turns)
        figures["is_disturbed"] = figures["others_share"] > OTHERS_LIMIT
        profiles[profile] = figures
    return profiles


def show(result: dict) -> None:
    for name, value in result["process"].items():
        print(f"{name:<24} {value:9.3f}")
    for kind, profiles in result["memory"].items():
        cost = f"{result['page_us'][kind]:.2f} us of CPU for a page of a new file"
        print(
            f"\n{kind} memory: {cost}\n"
            f"{'profile':<18}{'server':<8}{'rate/s':>11}{'s/M':>9}{'ratio':>8}"
            f"{'p50 us':>10}{'p99 us':>10}{'p99.9 us':>10}{'faults':>8}  generator"
        )
        for profile, kinds in profiles.items():
            show_profile(profile, kinds)


def show_profile(profile: str, kinds: dict) -> None:
    for kind in ("echo", "broker"):
        if kind not in kinds:
            continue
        f = kinds[kind]
        ratio = f"{kinds['ratio']:.2f}" if "ratio" in kinds else ""
        if kind == "echo":
            ratio = "1"
        notes = "  is the limit" if f["generator_share"] > 0.95 else ""
        if kind == "broker" and kinds["is_disturbed"]:
            notes += f"  DISTURBED: others took {kinds['others_share']:.0%}"
        print(
            f"{profile:<18}{kind:<8}{f['rate']:>11,.0f}{f['s_per_million']:>9.3f}"
            f"{ratio:>8}{f['p50_us']:>10.1f}{f['p99_us']:>10.1f}"
            f"{f['p999_us']:>10.1f}{f['major_faults']:>8.0f}  "
            f"{f['generator_share']:.2f}{notes}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=5, choices=range(1, 51), metavar="1…50"
    )
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument(
        "--profiles", type=lambda text: text.split(","), default=list(PROFILES)
    )
    parser.add_argument(
        "--memory", type=lambda text: text.split(","), default=list(MEMORY)
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--directory", help="where the temporary store goes")
    parser.add_argument("--no-pin", dest="pin", action="store_false")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    unknown = set(options.profiles) - set(PROFILES)
    unknown |= set(options.memory) - set(MEMORY)
    if unknown or not 0 < options.seconds <= 60:
        parser.error(f"{sorted(unknown)} is not known, or seconds are not in 0…60")
    build()
    result = measure(options)
    path = write_result("load", result, options.output)
    show(result)
    print(f"\nwritten to {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
