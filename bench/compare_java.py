"""rmq, Java RocketMQ 5.5.0 and the C echo side by side, on this machine, now.

Installs Java's broker from Maven Central as `make interop` does, starts it with a heap
of 1 GiB and drives all three with the same generator, in turns, so that a busy moment
of the machine hits each of them. Nothing is pinned. Java is warmed up for 20 s and then
stays; rmq and its files are new for each case, which bounds the disk in use. Both
append to fresh log files. No transaction is ever sent: after one, Java's broker spins.

Prints a table and writes JSON to bench/results/; bench/side_by_side.py puts that into
docs/performance.md. Exit code 2 if Java or Maven is not on this machine, or if the run
is void: the echo was too slow, or other processes took over 10 % of the machine.

    python bench/compare_java.py [--rounds 5] [--seconds 2]
"""

import argparse
import importlib.metadata
import json
import os
import platform
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench import side_by_side  # noqa: E402 - found by the line above
from bench.load import run  # noqa: E402
from tests.interop.processes import free_port  # noqa: E402
from tests.interop.toolchains import JavaServers, plain_environment  # noqa: E402

HEAP_MIB = 1024
JAVA_START_LIMIT_S = 60
JAVA_STOP_LIMIT_S = 60
WARM_UP_S = 20.0
BRIEF_WARM_UP_S = 1.0  # of rmq: makes the topic and teaches the compiled handlers
SETTLE_S = 5.0  # flushes and the index end what the load has left them
IDLE_S = 5.0
SYNCS = 200
JAVA_SETTINGS = {
    # a cold JVM would refuse what waits longer than 200 ms; a warm one never gets there
    "waitTimeMillsInSendQueue": "5000",
}
OTHERS_LIMIT = 0.10
"""Share of all cores that processes outside the comparison may take."""

WARM_UP_CASE = "send-4x64"
CASES = {
    "ASYNC_FLUSH": ("send-4x64", "send-4x64-1k", "send-64x16", "send-64x1", "send-1x1"),
    "SYNC_FLUSH": ("send-4x64", "send-1x1"),
}


@contextmanager
def java_broker(home: Path, settings: dict[str, str]) -> Iterator[run.Server]:
    """Java's broker, from its line of success on; gone at the end."""
    servers = JavaServers()
    home.mkdir()
    port = free_port()
    everything = {
        "brokerName": "broker-java",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(port),
        "haListenPort": str(port - 1),
        "storePathRootDir": str(home / "store"),
        "storePathCommitLog": str(home / "store" / "commitlog"),
        **JAVA_SETTINGS,
        **settings,
    }
    config, output = home / "broker.conf", home / "output"
    config.write_text("".join(f"{k}={v}\n" for k, v in everything.items()))
    command = servers.command(home, "broker.BrokerStartup", config, HEAP_MIB)
    began = time.perf_counter()
    with (
        output.open("wb") as log,
        subprocess.Popen(
            command,
            cwd=home,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=plain_environment() | {"HOME": str(home)},
        ) as process,
    ):
        try:
            while b"boot success" not in output.read_bytes():
                late = time.perf_counter() - began > JAVA_START_LIMIT_S
                if late or process.poll() is not None:
                    end = output.read_text()[-2000:]
                    raise SystemExit(f"Java did not start:\n…{end}")
                time.sleep(0.01)
            yield run.Server(process.pid, port, time.perf_counter() - began)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(JAVA_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def rmq_broker(folder: Path, mode: str):
    command = run.broker_command(folder, [f"flushDiskType={mode}"])
    return run.serving(command, r"ready broker=\S+ address=\S+:(\d+)", "stderr", None)


def echo_server():
    command = [str(run.BINARIES / "echo"), str(run.RUN_LIMIT_S)]
    return run.serving(command, r"ready (\d+)", "stdout", None)


# -- one process


def memory_mib(pid: int) -> dict[str, float]:
    """Memory of its own, and with the pages of the files that it has mapped."""
    text = Path(f"/proc/{pid}/status").read_text()
    return {
        name: int(re.search(rf"{field}:\s+(\d+)", text)[1]) / 1024
        for name, field in (("own_mib", "RssAnon"), ("with_files_mib", "VmRSS"))
    }


def idle_cpu_percent(pid: int, seconds: float) -> float:
    time.sleep(SETTLE_S)
    before = cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / seconds * 100


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- the machine


class OtherProcesses:
    """Watches what share of all cores goes to others than our servers and generator."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._began = time.perf_counter()
        self._before = self._taken()

    def share(self) -> float:
        """Return their share since this object was made, 0 to 1."""
        seconds = (time.perf_counter() - self._began) * os.cpu_count()
        return max(0.0, (self._taken() - self._before) / seconds)

    def _taken(self) -> float:
        """CPU seconds of the whole machine without ours; time stolen from it counts."""
        line = Path("/proc/stat").read_text().partition("\n")[0]
        user, nice, system, _, _, *rest = (int(word) for word in line.split()[1:9])
        busy = (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        servers = sum(cpu_seconds(pid) for pid in self._pids)
        return busy - children.ru_utime - children.ru_stime - servers


def machine_facts(folder: Path) -> dict[str, str]:
    cpus = Path("/proc/cpuinfo").read_text()
    memory = Path("/proc/meminfo").read_text()
    kib = int(re.search(r"MemTotal:\s+(\d+)", memory)[1])
    java = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=True
    ).stderr.splitlines()
    return {
        "processor": re.search(r"model name\s*: (.*)", cpus)[1],
        "cores": str(len(os.sched_getaffinity(0))),
        "hypervisor": "yes" if " hypervisor" in cpus else "no",
        "memory": f"{kib / (1 << 20):.0f} GiB",
        "kernel": platform.release(),
        "file system": file_system(folder),
        "4 KiB write and fdatasync": f"{sync_us(folder):.0f} µs",
        "Python": platform.python_version(),
        "rmq": importlib.metadata.version("rmq"),
        "Java": java[0],
        "RocketMQ": f"5.5.0, heap {HEAP_MIB} MiB",
    }


def file_system(folder: Path) -> str:
    done = subprocess.run(
        ["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def sync_us(folder: Path) -> float:
    """Median time to write 4 KiB over zeros that are on the disk, and sync them."""
    times = []
    page = b"x" * 4096
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(len(page) * SYNCS))
        os.fsync(file.fileno())
        for number in range(SYNCS):
            began = time.perf_counter()
            os.pwrite(file.fileno(), page, number * len(page))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


# -- the run


def measure(options: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory(
        prefix="rmq-compare-", dir=options.directory
    ) as name:
        folder = Path(name)
        machine = machine_facts(folder)
        modes, processes = {}, {}
        for mode in options.modes:
            modes[mode], processes[mode] = measure_mode(folder / mode, mode, options)
    return {
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "java_settings": JAVA_SETTINGS,
        "modes": modes,
        "processes": processes,
    }


def measure_mode(
    folder: Path, mode: str, options: argparse.Namespace
) -> tuple[dict, dict]:
    """Play all cases of a flush mode; figures by case and server, and the processes."""
    folder.mkdir()
    warm_up = run.PROFILES[WARM_UP_CASE]
    cases, rmq_processes = {}, []
    with ExitStack() as stack:
        echo = stack.enter_context(echo_server())
        java = stack.enter_context(
            java_broker(folder / "java", {"flushDiskType": mode})
        )
        java_process = {"start_s": java.start_s, "new": memory_mib(java.pid)}
        print(f"{mode}: Java is up after {java.start_s:.1f} s, warming up", flush=True)
        run.play(java, warm_up, options.warm_up, None)
        for case in CASES[mode]:
            with (
                tempfile.TemporaryDirectory(prefix="rmq-", dir=folder) as store,
                rmq_broker(Path(store), mode) as rmq,
            ):
                process = {"start_s": rmq.start_s, "new": memory_mib(rmq.pid)}
                servers = {"echo": echo, "rmq": rmq, "java": java}
                cases[case] = play_case(servers, case, options)
                process["loaded"] = memory_mib(rmq.pid)
                if case == CASES[mode][-1]:
                    process["idle_percent"] = idle_cpu_percent(rmq.pid, IDLE_S)
                rmq_processes.append(process)
        java_process["loaded"] = memory_mib(java.pid)
        java_process["idle_percent"] = idle_cpu_percent(java.pid, IDLE_S)
    return cases, {"rmq": combined(rmq_processes), "java": java_process}


def play_case(
    servers: dict[str, run.Server], case: str, options: argparse.Namespace
) -> dict:
    profile = run.PROFILES[case]
    rounds: dict[str, list[dict]] = {kind: [] for kind in servers}
    for kind in ("rmq", "java"):
        run.play(servers[kind], profile, BRIEF_WARM_UP_S, None)
    for _ in range(options.rounds):
        for kind, server in servers.items():
            others = OtherProcesses([each.pid for each in servers.values()])
            figures = run.play(server, profile, options.seconds, None)
            figures["others_share"] = others.share()
            rounds[kind].append(figures)
    figures = {kind: run.medians(each) for kind, each in rounds.items()}
    rates = ", ".join(f"{kind} {f['rate']:,.0f}/s" for kind, f in figures.items())
    print(f"  {case}: {rates}", flush=True)
    return figures


def combined(processes: list[dict]) -> dict:
    """One picture of the rmq processes of a mode: usual start, largest memory."""
    fullest = max(processes, key=lambda process: process["loaded"]["own_mib"])
    return {
        "start_s": statistics.median(process["start_s"] for process in processes),
        "new": processes[0]["new"],
        "loaded": fullest["loaded"],
        "idle_percent": processes[-1]["idle_percent"],
    }


def doubts(result: dict) -> str:
    """Why the machine was too busy or too slow for the figures to mean much, or ""."""
    modes = result["modes"].values()
    echo = max(cases[run.ECHO_PROFILE]["echo"]["s_per_million"] for cases in modes)
    others = statistics.median(
        figures["others_share"]
        for cases in modes
        for servers in cases.values()
        for figures in servers.values()
    )
    found = []
    if others > OTHERS_LIMIT:
        found.append(f"other processes took {others:.0%} of the machine")
    if echo > run.ECHO_LIMIT_S_PER_MILLION:
        found.append(
            f"the echo needed {echo:.2f} CPU seconds per million at 4 x 64, "
            f"not {run.ECHO_LIMIT_S_PER_MILLION}"
        )
    return " and ".join(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=5, choices=range(1, 21), metavar="1…20"
    )
    parser.add_argument("--seconds", type=float, default=2, help="of each round")
    parser.add_argument(
        "--warm-up", type=float, default=WARM_UP_S, help="seconds of Java's warm-up"
    )
    parser.add_argument(
        "--modes", type=lambda text: text.split(","), default=list(CASES)
    )
    parser.add_argument("--directory", help="where the temporary stores go")
    options = parser.parse_args()
    if not 0 < options.seconds <= 60 or set(options.modes) - set(CASES):
        parser.error(f"seconds are 0…60, modes are {', '.join(CASES)}")
    missing = JavaServers.missing()
    if missing:
        print(f"not run: {missing}")
        return 2
    JavaServers().prepare()
    run.build()
    result = measure(options)
    result["doubts"] = doubts(result)
    run.RESULTS.mkdir(exist_ok=True)
    path = run.RESULTS / f"compare-java-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print("\n" + side_by_side.text(result))
    print(f"written to {path.relative_to(ROOT)}")
    if result["doubts"]:
        print(f"VOID: {result['doubts']}")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
