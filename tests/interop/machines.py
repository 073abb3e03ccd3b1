"""Machines of a laboratory: network namespaces on one bridge, cut off one by one.

The thread of the test is in a namespace of its own, with the bridge: everything that it
starts there reaches every machine.  Packets to and from a machine that is cut off are
lost without a word, as those to a machine whose cable is out.
"""

import ctypes
import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

NET = "10.87.0"
HUB = 254
"""The number of this thread; machines count from 1."""

NOBODY = "02:00:00:00:00:01"
"""An Ethernet address that no machine has."""

_CLONE_NEWNET = 0x4000_0000


class Machine(NamedTuple):
    """Where a process runs.

    `host`: the address at which others reach it; `inside`: the command that starts it
    there; `bound`: the address at which it listens.
    """

    host: str = "127.0.0.1"
    inside: tuple[str, ...] = ()
    bound: str = "127.0.0.1"


HERE = Machine()


class Network:
    """Machines with one network, made one by one."""

    def __init__(self, net: str = NET) -> None:
        self.net = net
        hub = f"{net}.{HUB}"
        self.hub = Machine(hub, (), hub)
        self._holders: list[subprocess.Popen[bytes]] = []
        self._numbers = itertools.count(1)
        self._links: dict[Machine, str] = {}

    @staticmethod
    def is_missing() -> str | None:
        """Why this machine has no namespaces for a test; None if it has."""
        done = subprocess.run(
            ["unshare", "-n", "ip", "link", "add", "b0", "type", "bridge"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return None
        return f"network namespaces are not allowed here: {done.stderr.strip()}"

    def machine(self) -> Machine:
        """Add a machine."""
        holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        self._holders.append(holder)
        while _net_of(holder.pid) == _net_of("thread-self"):
            time.sleep(0.01)
        number = next(self._numbers)
        link, host = f"v{number}", f"{self.net}.{number}"
        inside = ("nsenter", "-t", str(holder.pid), "-n")
        ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns",
           str(holder.pid))  # fmt: skip
        ip("link", "set", link, "master", "b0", "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{host}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
        ):
            ip(*words, inside=inside)
        made = Machine(host, inside, host)
        self._links[made] = link
        return made

    def cut(self, machine: Machine) -> None:
        """Nobody reaches it, and it reaches nobody."""
        ip("link", "set", self._links[machine], "down")

    def heal(self, machine: Machine) -> None:
        ip("link", "set", self._links[machine], "up")

    def part(self, one: Machine, *others: Machine) -> None:
        """One machine and the others do not reach each other; third ones reach both."""
        for at, to in _both(one, others):
            ip("neigh", "replace", to.host, "lladdr", NOBODY, "dev", "eth0", "nud",
               "permanent", inside=at.inside)  # fmt: skip

    def join(self, one: Machine, *others: Machine) -> None:
        for at, to in _both(one, others):
            ip("neigh", "del", to.host, "dev", "eth0", inside=at.inside)

    def close(self) -> None:
        for holder in self._holders:
            holder.kill()
            holder.wait()


@contextmanager
def network(net: str = NET) -> Iterator[Network]:
    """Move this thread, and those that it starts, to a network of their own."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    if libc.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    made = Network(net)
    try:
        ip("link", "set", "lo", "up")
        ip("link", "add", "b0", "type", "bridge", "forward_delay", "0")
        ip("addr", "add", f"{made.hub.host}/24", "dev", "b0")
        ip("link", "set", "b0", "up")
        yield made
    finally:
        made.close()
        libc.setns(before, _CLONE_NEWNET)
        os.close(before)


def ip(*words: str, inside: tuple[str, ...] = ()) -> None:
    subprocess.run([*inside, "ip", *words], check=True)


def _net_of(process: object) -> str:
    return os.readlink(f"/proc/{process}/ns/net")


def _both(
    one: Machine, others: tuple[Machine, ...]
) -> Iterator[tuple[Machine, Machine]]:
    for other in others:
        yield one, other
        yield other, one
