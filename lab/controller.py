"""A group with a controller: what it costs while idle, and how long it has no master.

Two pairs of brokers beside each other, one with a controller and one without, both
without clients: CPU of each process over the same time.  Then the master of the group
is killed, or stopped as if it were cut off, again and again: the time until the next
one takes a message.  Clients that ask for routes add their own time to that.

    python lab/controller.py [--seconds 60] [--kills 10] [--cuts 3]
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.interop.groups import (
    Group,
    rmq_controller,
    send_one,
)
from tests.interop.processes import (
    Server,
    broker_arguments,
    free_port,
    serving,
)

SETTLE_S = 15.0
POLL_S = 0.02
LIMIT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--cuts", type=int, default=3)
    chosen = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pids = stack.enter_context(plain_pair(folder / "plain"))
        names = stack.enter_context(serving("namesrv", "--set", "listenPort=0"))
        addresses, _ = stack.enter_context(rmq_controller(folder / "controller"))
        kinds = {"a": "rmq", "b": "rmq"}
        group = Group(folder, names.namesrv, addresses, kinds)
        stack.callback(group.close)
        group.start_all()
        pids |= {f"in a group, {name}": pid_at(group.address(name)) for name in kinds}
        pids["the controller"] = pid_at(addresses[0])
        time.sleep(SETTLE_S)
        idle(pids, chosen.seconds)
        times("killed", [failover(group, kill) for _ in range(chosen.kills)])
        times("cut off", [failover(group, pause) for _ in range(chosen.cuts)])


@contextmanager
def plain_pair(folder: Path) -> Iterator[dict[str, int]]:
    """A master and its slave without a controller, with the other keys of `Group`."""
    with ExitStack() as stack:
        names = stack.enter_context(serving("namesrv", "--set", "listenPort=0"))
        pids = {}
        for role, number in (("SYNC_MASTER", 0), ("SLAVE", 1)):
            port = free_port()
            settings = (
                f"listenPort={port}", f"haListenPort={port - 1}", f"brokerRole={role}",
                f"brokerId={number}", "inSyncReplicas=2", "brokerName=plain",
                f"namesrvAddr={names.namesrv}", "bindAddress=127.0.0.1",
                "haSendHeartbeatInterval=1000", "registerNameServerPeriod=10000",
            )  # fmt: skip
            server = Server(*broker_arguments(folder / role, *settings))
            stack.callback(server.kill)
            pids[f"without, {role}"] = pid_at(server.address)
        yield pids


def pid_at(address: str) -> int:
    """The process that listens at an address of this machine."""
    port = int(address.rpartition(":")[2])
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and int(words[1].partition(":")[2], 16) == port:
            return owner_of(f"socket:[{words[9]}]")
    raise SystemExit(f"nobody listens at {address}")


def owner_of(link: str) -> int:
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(path) == link:
                return int(path.parts[2])
        except OSError:
            continue
    raise SystemExit(f"nobody has {link}")


def idle(pids: dict[str, int], seconds: float) -> None:
    before = {name: cpu_s(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    for name, pid in pids.items():
        used = (cpu_s(pid) - before[name]) / seconds
        print(f"{name:24} {100 * used:.3f} % of a core in {seconds:g} s")


def cpu_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)


def kill(group: Group, name: str) -> None:
    group.kill(name)


def pause(group: Group, name: str) -> None:
    """It answers nobody, and its connections stay open."""
    os.kill(pid_at(group.address(name)), signal.SIGSTOP)


def failover(group: Group, end: Callable[[Group, str], None]) -> float:
    """End the master; seconds until the next one takes a message."""
    group.await_all()
    master, epoch = group.master(), group.epoch()
    address = group.address(master)
    pid = pid_at(address)
    begun = time.monotonic()
    end(group, master)
    while True:
        state = group.state()
        found = state.get("masterAddress")
        is_new = state.get("masterEpoch", 0) > epoch and found != address
        if is_new and send_one(found, "Probe") == 0:
            break
        if time.monotonic() - begun > LIMIT_S:
            raise SystemExit(f"no master in {LIMIT_S:g} s")
        time.sleep(POLL_S)
    took = time.monotonic() - begun
    if end is kill:
        group.start(master)
    else:
        os.kill(pid, signal.SIGCONT)
    return took


def times(what: str, found: list[float]) -> None:
    if found:
        print(
            f"{what:24} {statistics.median(found):.2f} s until the next one takes a "
            f"message, at most {max(found):.2f} s, {len(found)} times"
        )


if __name__ == "__main__":
    main()
