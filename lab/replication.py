"""What a slave costs its master, and how long senders wait for one.

In turns, with the C echo beside them: a master alone, with a slave (ASYNC_MASTER), and
one that waits for its slave (SYNC_MASTER, inSyncReplicas 2); processes of their own, a
name server, all on loopback.  Prints rate, times of answers, and CPU seconds for a
million messages of the master and of its slave; then how far a slave is behind at half
of that load, how fast an empty slave catches up, and what senders notice of that.  With
--java a pair of Java 5.5.0 plays the same, after a warm-up.

    python lab/replication.py [--rounds 3] [--seconds 2] [--folder /dev/shm] [--java]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.load import run
from lab.compare_java import java_broker
from tests.cluster.test_link_tls import Keys
from tests.interop import wire
from tests.interop.toolchains import JavaServers

READY = r"ready broker=\S+ address=[\d.]+:(\d+)"
NAMESRV = r"ready namesrv=[\d.]+:(\d+)"
LOADED = "4 x 64"
SHAPES = {
    "4 x 64": ["--connections=4", "--window=64"],
    "1 x 1": ["--connections=1", "--window=1"],
}
CASES = {
    "alone": ("ASYNC_MASTER", "ASYNC_FLUSH", False),
    "with a slave": ("ASYNC_MASTER", "ASYNC_FLUSH", True),
    "waits for it": ("SYNC_MASTER", "ASYNC_FLUSH", True),
    "waits for two disks": ("SYNC_MASTER", "SYNC_FLUSH", True),
    "its disk alone": ("ASYNC_MASTER", "SYNC_FLUSH", False),
    "with a slave by TLS": ("ASYNC_MASTER", "ASYNC_FLUSH", True),
}
CAUGHT_UP = "with a slave", "with a slave by TLS"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
CATCH_UP_LIMIT_S = 60


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def end_of(server: run.Server) -> int:
    answer = wire.call(f"127.0.0.1:{server.port}", 28)
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


def wait_equal(master: run.Server, slave: run.Server) -> None:
    limit = time.monotonic() + CATCH_UP_LIMIT_S
    while end_of(slave) != end_of(master):
        assert time.monotonic() < limit, "the slave does not catch up"
        time.sleep(0.005)


class Group:
    """The brokers of one case."""

    def __init__(self, folder: Path, name: str, namesrv: int, opened: ExitStack):
        role, flush, has_slave = CASES[name]
        self.name = name
        self._opened = opened
        self._folder = folder / name.replace(" ", "-").replace(",", "")
        self._settings = [
            f"namesrvAddr=127.0.0.1:{namesrv}", f"flushDiskType={flush}",
            f"brokerName={self._folder.name}", "inSyncReplicas=2",
            "messageIndexEnable=false",
        ]  # fmt: skip
        if name.endswith("TLS"):
            keys = Keys(folder).values(**{"rmq.haTls": "enforcing"})
            self._settings += [f"{key}={value}" for key, value in keys.items()]
        self.master = self.start("master", f"brokerRole={role}")
        self.slave = self.start_slave("slave") if has_slave else None

    def start(self, name: str, *more: str) -> run.Server:
        """Start a broker of the group."""
        settings = [*self._settings, *more]
        command = run.broker_command(self._folder / name, settings)
        return self._opened.enter_context(run.serving(command, READY, "stderr", None))

    def start_slave(self, name: str) -> run.Server:
        """Start a slave; it has everything when this returns."""
        slave = self.start(name, "brokerRole=SLAVE", "brokerId=1")
        wait_equal(self.master, slave)
        return slave

    def play(self, shape: str, seconds: float) -> dict:
        """Send for so long; also how long the slave then needs for the rest."""
        before = cpu_s(self.slave.pid) if self.slave else 0.0
        figures = run.play(self.master, SHAPES[shape], seconds, None)
        if self.slave:
            began = time.monotonic()
            wait_equal(self.master, self.slave)
            figures["lag_ms"] = 1_000 * (time.monotonic() - began)
            used = cpu_s(self.slave.pid) - before
            figures["slave_s_per_million"] = used / figures["messages"] * 1e6
        return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--java", action="store_true")
    options = parser.parse_args()
    run.build()
    wanted = [name for name in CASES if name in options.cases.split(",")]
    with ExitStack() as opened:
        folder = Path(
            opened.enter_context(tempfile.TemporaryDirectory(dir=options.folder))
        )
        echo_command = [str(run.BINARIES / "echo"), str(run.RUN_LIMIT_S)]
        echo = opened.enter_context(
            run.serving(echo_command, r"ready (\d+)", "stdout", None)
        )
        command = [sys.executable, "-m", "rmq", "namesrv", "--set", "listenPort=0"]
        namesrv = opened.enter_context(run.serving(command, NAMESRV, "stderr", None))
        figures: dict[tuple[str, str], list[dict]] = {}
        for _ in range(options.rounds):
            for shape in SHAPES:
                played = run.play(echo, SHAPES[shape], options.seconds, None)
                figures.setdefault((shape, "echo"), []).append(played)
            for name in wanted:
                with ExitStack() as brokers:
                    group = Group(folder, name, namesrv.port, brokers)
                    for shape in SHAPES:
                        played = group.play(shape, options.seconds)
                        figures.setdefault((shape, name), []).append(played)
                    if name in CAUGHT_UP:
                        half = int(figures[LOADED, name][-1]["rate"]) // 2
                        half_load(group, half, options.seconds)
                        catch_up(group, half, options.seconds)
                subprocess.run(["rm", "-rf", *folder.iterdir()], check=True)
        show(figures)
        if options.java:
            java_pair(folder, namesrv.port, options.seconds)


def half_load(group: Group, rate: int, seconds: float) -> None:
    """How long ago the slave's end was the master's, at half of the load."""
    behind: list[int] = []
    with sampling(group, behind):
        before = end_of(group.master)
        run.play(group.master, [*SHAPES[LOADED], f"--rate={rate}"], seconds, None)
        per_ms = (end_of(group.master) - before) / seconds / 1_000
    behind.sort()
    middle, most = (behind[len(behind) * part // 100] / per_ms for part in (50, 99))
    print(
        f"{group.name}: at {rate}/s the slave lacks {middle:.2f} ms of the log, "
        f"p99 {most:.2f} ms ({len(behind)} samples)"
    )


@contextmanager
def sampling(group: Group, behind: list[int]) -> Iterator[None]:
    """Ask the master, again and again, how many bytes its slave lacks."""
    is_over = threading.Event()

    def sample() -> None:
        while not is_over.wait(0.01):
            answer = wire.call(f"127.0.0.1:{group.master.port}", 907)
            behind.append(json.loads(answer.body)["haConnectionInfo"][0]["diff"])

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def catch_up(group: Group, rate: int, seconds: float) -> None:
    """An empty slave gets the log: MiB in a second without its start."""
    options = [*SHAPES[LOADED], f"--rate={rate}"]
    quiet = run.play(group.master, options, seconds, None)["p99_us"]
    size, began = end_of(group.master), time.monotonic()
    slave = group.start("second", "brokerRole=SLAVE", "brokerId=2")
    used = cpu_s(slave.pid)
    wait_equal(group.master, slave)
    took = time.monotonic() - began - slave.start_s
    print(
        f"{group.name}: catch-up: {size >> 20} MiB in {took:.2f} s, "
        f"{(size >> 20) / took:.0f} MiB/s, {cpu_s(slave.pid) - used:.2f} CPU s"
    )
    played: list[float] = []
    sender = threading.Thread(
        target=lambda: played.append(
            run.play(group.master, options, seconds, None)["p99_us"]
        )
    )
    sender.start()
    group.start("third", "brokerRole=SLAVE", "brokerId=3")
    sender.join()
    print(
        f"{group.name}: senders' p99 at {rate}/s: {quiet:.0f} us; while a slave "
        f"starts and catches up {played[0]:.0f} us"
    )


JAVA = {
    "brokerName": "java-pair",
    "flushDiskType": "ASYNC_FLUSH",
    "inSyncReplicas": "2",
}
WARM_UP_S = 15.0


def java_pair(folder: Path, namesrv: int, seconds: float) -> None:
    """Java's SYNC_MASTER with Java's slave, by the same generator."""
    JavaServers().prepare()
    more = JAVA | {"namesrvAddr": f"127.0.0.1:{namesrv}"}
    with ExitStack() as opened:
        master, slave = (
            opened.enter_context(java_broker(folder / role, more | settings))
            for role, settings in (
                ("java-master", {"brokerRole": "SYNC_MASTER"}),
                ("java-slave", {"brokerRole": "SLAVE", "brokerId": "1"}),
            )
        )
        limit = time.monotonic() + CATCH_UP_LIMIT_S
        address = f"127.0.0.1:{master.port}"
        while not json.loads(wire.call(address, 907).body)["haConnectionInfo"]:
            assert time.monotonic() < limit, "Java's slave does not come"
            time.sleep(0.2)
        run.play(master, SHAPES[LOADED], WARM_UP_S, None)
        for shape, options in SHAPES.items():
            before = cpu_s(slave.pid)
            played = run.play(master, options, seconds, None)
            used = cpu_s(slave.pid) - before
            print(
                f"Java pair, waits, {shape}: {played['rate']:.0f}/s, p50 "
                f"{played['p50_us']:.0f} us, p99 {played['p99_us']:.0f} us, "
                f"{played['s_per_million']:.2f} and "
                f"{used / played['messages'] * 1e6:.2f} CPU s for a million"
            )


def show(figures: dict[tuple[str, str], list[dict]]) -> None:
    keys = "rate", "p50_us", "p99_us", "s_per_million", "slave_s_per_million", "lag_ms"
    print(f"{'':34}" + "".join(f"{key:>21}" for key in keys))
    for (shape, name), rounds in sorted(figures.items()):
        values = [
            statistics.median(each[key] for each in rounds) if key in rounds[0] else 0.0
            for key in keys
        ]
        print(f"{shape:8}{name:26}" + "".join(f"{value:21,.2f}" for value in values))


if __name__ == "__main__":
    main()
