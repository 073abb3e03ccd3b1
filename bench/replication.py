"""What a slave costs its master, and how long senders wait for one.

In turns, with the C echo beside them: a master alone, with a slave (ASYNC_MASTER), and
one that waits for its slave (SYNC_MASTER, inSyncReplicas 2); processes of their own, a
name server, all on loopback.  Prints rate, times of answers, and CPU seconds for a
million messages of the master and of its slave, then how fast an empty slave catches
up.

    python bench/replication.py [--rounds 3] [--seconds 2] [--folder /dev/shm]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.load import run
from tests.interop import wire

READY = r"ready broker=\S+ address=[\d.]+:(\d+)"
NAMESRV = r"ready namesrv=[\d.]+:(\d+)"
SHAPES = {
    "4 x 64": ["--connections=4", "--window=64"],
    "1 x 1": ["--connections=1", "--window=1"],
}
CASES = {
    "alone": ("ASYNC_MASTER", "ASYNC_FLUSH", False),
    "with a slave": ("ASYNC_MASTER", "ASYNC_FLUSH", True),
    "waits for it": ("SYNC_MASTER", "ASYNC_FLUSH", True),
    "waits for two disks": ("SYNC_MASTER", "SYNC_FLUSH", True),
    "waits for its disk, alone": ("ASYNC_MASTER", "SYNC_FLUSH", False),
}
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
        self._opened = opened
        self._folder = folder / name.replace(" ", "-").replace(",", "")
        self._settings = [
            f"namesrvAddr=127.0.0.1:{namesrv}", f"flushDiskType={flush}",
            f"brokerName={self._folder.name}", "inSyncReplicas=2",
            "messageIndexEnable=false",
        ]  # fmt: skip
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
    options = parser.parse_args()
    run.build()
    wanted = [name for name in CASES if name in options.cases.split(",")]
    with ExitStack() as opened:
        folder = Path(
            opened.enter_context(tempfile.TemporaryDirectory(dir=options.folder))
        )
        echo = opened.enter_context(
            run.serving([str(run.BINARIES / "echo")], r"ready (\d+)", "stdout", None)
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
                    if name == "with a slave":
                        catch_up(group)
                subprocess.run(["rm", "-rf", *folder.iterdir()], check=True)
        show(figures)


def catch_up(group: Group) -> None:
    """An empty slave gets the log: MB in a second, with its start."""
    size, began = end_of(group.master), time.monotonic()
    slave = group.start("second", "brokerRole=SLAVE", "brokerId=2")
    used = cpu_s(slave.pid)
    wait_equal(group.master, slave)
    took = time.monotonic() - began
    print(
        f"catch-up: {size >> 20} MiB in {took:.2f} s with {slave.start_s:.2f} s of "
        f"start, {cpu_s(slave.pid) - used:.2f} CPU s"
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
