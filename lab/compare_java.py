"""rmq, Java RocketMQ 5.5.0, Redis and the C echo side by side, on this machine, now.

Installs Java's broker from Maven Central as `make interop` does, starts it with a heap
of 1 GiB and drives all servers with the same generator, in turns, so that a busy moment
of the machine affects each of them. Nothing is pinned. Java is warmed up for 20 s and
then stays; rmq and its files are new for each case, which bounds the disk in use. Both
append to fresh log files. No transaction is ever sent: after one, Java's broker spins.

Redis Streams take part if redis-server is on the PATH. Each case has a server of its
own, emptied before each round, because it keeps in memory what it stores, and has an
append-only file that is synced every second under ASYNC_FLUSH and before each answer
under SYNC_FLUSH and never rewritten, as no broker rewrites its log. A round that fills
half of the machine's memory ends the run.

Prints a table and writes JSON to bench/results/; lab/side_by_side.py puts that into
docs/reference/performance.md. A turn of which other processes took over 10 % of the
machine is played again, four times in all; exit code 2 if most stayed disturbed, or if
Java or Maven is not on this machine.

    python lab/compare_java.py [--rounds 5] [--seconds 2]
"""

import argparse
import importlib.metadata
import os
import platform
import re
import signal
import socket
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

from bench.load import memory, run
from bench.load.turns import (
    OTHERS_LIMIT,
    Turn,
    cpu_seconds,
    quiet,
)
from lab import side_by_side
from tests.interop.processes import free_port
from tests.interop.toolchains import JavaServers, absent, plain_environment

HEAP_MIB = 1024
START_LIMIT_S = 60
STOP_LIMIT_S = 60
WARM_UP_S = 20.0
BRIEF_WARM_UP_S = 1.0  # makes the topic and teaches rmq's compiled handlers
SETTLE_S = 5.0  # flushes and the index end what the load has left them
IDLE_S = 5.0
SYNCS = 200
JAVA_SETTINGS = {
    # a cold JVM would refuse what waits longer than 200 ms; a warm one never gets there
    "waitTimeMillsInSendQueue": "5000",
}
REDIS_SYNCS = {"ASYNC_FLUSH": "everysec", "SYNC_FLUSH": "always"}
WARM_UP_CASE = "send-4x64"
CASES = {
    "ASYNC_FLUSH": ("send-4x64", "send-4x64-1k", "send-64x16", "send-64x1", "send-1x1"),
    "SYNC_FLUSH": ("send-4x64", "send-1x1"),
}


@contextmanager
def started(
    command: list[str], home: Path, port: int, sign: bytes
) -> Iterator[run.Server]:
    """A server from the line of its output that holds `sign` on; gone at the end."""
    output = home / "output"
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
            while sign not in output.read_bytes():
                late = time.perf_counter() - began > START_LIMIT_S
                if late or process.poll() is not None:
                    end = output.read_text()[-2000:]
                    raise SystemExit(f"{command[0]} did not start:\n…{end}")
                time.sleep(0.01)
            yield run.Server(process.pid, port, time.perf_counter() - began)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def java_broker(home: Path, settings: dict[str, str]) -> Iterator[run.Server]:
    """Java's broker, in a new folder or one that such a broker has left."""
    home.mkdir(exist_ok=True)
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
    config = home / "broker.conf"
    config.write_text("".join(f"{k}={v}\n" for k, v in everything.items()))
    command = JavaServers().command(home, "broker.BrokerStartup", config, HEAP_MIB)
    with started(command, home, port, b"boot success") as server:
        yield server


def rmq_broker(folder: Path, mode: str, *settings: str):
    command = run.broker_command(folder, [f"flushDiskType={mode}", *settings])
    return run.serving(command, r"ready broker=\S+ address=\S+:(\d+)", "stderr", None)


def redis_server(folder: Path, mode: str):
    port = free_port()
    settings = {
        "port": port, "bind": "127.0.0.1", "dir": folder, "save": "",
        "appendonly": "yes", "appendfsync": REDIS_SYNCS[mode],
        "auto-aof-rewrite-percentage": 0,
        "maxmemory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2,
    }  # fmt: skip
    words = [word for k, v in settings.items() for word in (f"--{k}", str(v))]
    command = ["redis-server", *words]
    return started(command, folder, port, b"Ready to accept connections")


def empty_redis(server: run.Server) -> None:
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address, START_LIMIT_S) as connection:
        connection.sendall(b"FLUSHALL\r\n")
        answer = connection.recv(64)
    if answer != b"+OK\r\n":
        raise SystemExit(f"Redis did not become empty: {answer.decode()}")


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


# -- the machine


def machine_facts(folder: Path) -> dict[str, str]:
    cpus = Path("/proc/cpuinfo").read_text()
    kib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 10
    java = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=True
    ).stderr.splitlines()
    facts = {
        "processor": re.search(r"model name\s*: (.*)", cpus)[1],
        "cores": str(len(os.sched_getaffinity(0))),
        "hypervisor": "yes" if " hypervisor" in cpus else "no",
        "memory": f"{kib / (1 << 20):.0f} GiB",
        "kernel": platform.release(),
        "file system": file_system(folder),
        "4 KiB write and fdatasync": f"{sync_us(folder):.0f} µs",
        "a page of a new file": f"{memory.page_us(folder):.2f} µs of CPU",
        "Python": platform.python_version(),
        "rmq": importlib.metadata.version("rmq"),
        "Java": java[0],
        "RocketMQ": f"5.5.0, heap {HEAP_MIB} MiB",
    }
    if not absent("redis-server"):
        facts["Redis"] = redis_version()
    return facts


def redis_version() -> str:
    done = subprocess.run(
        ["redis-server", "--version"], capture_output=True, text=True, check=True
    )
    return re.search(r"v=(\S+)", done.stdout)[1]


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
    fresh = {"rmq": rmq_broker}
    if not absent("redis-server"):
        fresh["redis"] = redis_server
    cases, processes = {}, {kind: [] for kind in fresh}
    with ExitStack() as stack:
        echo = stack.enter_context(echo_server())
        java = stack.enter_context(
            java_broker(folder / "java", {"flushDiskType": mode})
        )
        java_process = {"start_s": java.start_s, "new": memory_mib(java.pid)}
        print(f"{mode}: Java is up after {java.start_s:.1f} s, warming up", flush=True)
        run.play(java, warm_up, options.warm_up, None)
        for case in CASES[mode]:
            with ExitStack() as case_stack:
                servers = {"echo": echo, "java": java}
                for kind, start in fresh.items():
                    store = case_stack.enter_context(
                        tempfile.TemporaryDirectory(prefix=f"{kind}-", dir=folder)
                    )
                    server = case_stack.enter_context(start(Path(store), mode))
                    process = {"start_s": server.start_s, "new": memory_mib(server.pid)}
                    servers[kind] = server
                    processes[kind].append(process)
                cases[case] = play_case(servers, case, options)
                for kind in fresh:
                    pid = servers[kind].pid
                    processes[kind][-1]["loaded"] = memory_mib(pid)
                    if case == CASES[mode][-1]:
                        idle = idle_cpu_percent(pid, IDLE_S)
                        processes[kind][-1]["idle_percent"] = idle
        java_process["loaded"] = memory_mib(java.pid)
        java_process["idle_percent"] = idle_cpu_percent(java.pid, IDLE_S)
    pictures = {kind: combined(each) for kind, each in processes.items()}
    return cases, {**pictures, "java": java_process}


def play_case(
    servers: dict[str, run.Server], case: str, options: argparse.Namespace
) -> dict:
    profiles = {kind: list(run.PROFILES[case]) for kind in servers}
    if "redis" in servers:
        profiles["redis"].append("--redis")
    rounds: dict[str, list[dict]] = {kind: [] for kind in servers}
    for kind, server in servers.items():
        if kind != "echo":
            run.play(server, profiles[kind], BRIEF_WARM_UP_S, None)

    def turn() -> Turn:
        played = {}
        for kind, server in servers.items():
            if kind == "redis":
                empty_redis(server)
            played[kind] = run.play(server, profiles[kind], options.seconds, None)
        return played

    pids = [each.pid for each in servers.values()]
    for _ in range(options.rounds):
        played, share = quiet(turn, pids)
        for kind, figures in played.items():
            ratio = figures["s_per_million"] / played["echo"]["s_per_million"]
            rounds[kind].append({**figures, "ratio": ratio, "others_share": share})
    figures = {kind: run.medians(each) for kind, each in rounds.items()}
    rates = ", ".join(f"{kind} {f['rate']:,.0f}/s" for kind, f in figures.items())
    print(f"  {case}: {rates}", flush=True)
    return figures


def combined(processes: list[dict]) -> dict:
    """One picture of a server's processes in a mode: usual start, largest memory."""
    fullest = max(processes, key=lambda process: process["loaded"]["own_mib"])
    return {
        "start_s": statistics.median(process["start_s"] for process in processes),
        "new": processes[0]["new"],
        "loaded": fullest["loaded"],
        "idle_percent": processes[-1]["idle_percent"],
    }


def doubts(result: dict) -> str:
    """Why the machine was too busy for the figures to mean much, or ""."""
    modes = result["modes"].values()
    played = [f for cases in modes for kinds in cases.values() for f in kinds.values()]
    return others_doubt(played)


def others_doubt(played: list[dict]) -> str:
    """That other processes took too much, in the median of the figures, or ""."""
    others = statistics.median(figures["others_share"] for figures in played)
    if others <= OTHERS_LIMIT:
        return ""
    return f"other processes took {others:.0%} of the machine"


def end_children_on_sigterm() -> None:
    """Leave all blocks at SIGTERM, as at Ctrl-C: a JVM without us would stay."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def report(name: str, result: dict, text: str) -> int:
    """Write a result and print what it says; the exit code, 2 if it was disturbed."""
    path = run.write_result(name, result)
    print(f"\n{text}\nwritten to {path.relative_to(ROOT)}")
    if result["doubts"]:
        print(f"DISTURBED: {result['doubts']}")
        return 2
    return 0


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
    end_children_on_sigterm()
    without_redis = absent("redis-server")
    if without_redis:
        print(f"Redis not run: {without_redis}")
    JavaServers().prepare()
    run.build()
    result = measure(options)
    result["doubts"] = doubts(result)
    return report("compare-java", result, side_by_side.text(result))


if __name__ == "__main__":
    raise SystemExit(main())
