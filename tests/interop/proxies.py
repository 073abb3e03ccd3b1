"""Machines without namespaces: a proxy before each port, which cuts by machine.

A machine is an address of 127.0.0.0/8.  Its processes listen on 127.0.0.1 and advertise
the machine's address; a variable of their environment names it.  Twenty times a second
a thread looks which ports they listen on, serves the same ports at the machine's
address, and passes bytes on.  Who has connected, it finds by the process that has the
socket: so all peers may use one address, each link can be cut alone, and who is
called sees the address of the caller.

Java's brokers listen for slaves on all addresses, whatever `bindAddress` says.  A
library loaded before libc moves them to 127.0.0.1.

Packets that are lost are imitated in part: between two machines that are cut, a
connection is made and says nothing; it is closed when they are joined.  What earlier
connections were given arrives then.
"""

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import trio

from .machines import HERE, HUB, Machine
from .sockets import Socket, end_of, listeners

VARIABLE = "RMQ_TEST_MACHINE"
SOURCE = Path(__file__).parent / "loopback_bind.c"
INTERVAL_S = 0.05
PIECE = 1 << 16

Link = frozenset[str]
"""The addresses of two machines."""


class Owners:
    """Whose a socket is."""

    def __init__(self, hub: str) -> None:
        """`hub`: the machine of this process, which connects most often."""
        self._own = {str(os.getpid()): hub}
        self._processes = self._own
        """Their machines, by number."""

    def of(self, inode: int) -> str | None:
        """The machine with this socket; None if it is nobody's."""
        found = self._search(inode)
        if found is None:
            self._processes = self._own | dict(processes())
            found = self._search(inode)
        return found

    def _search(self, inode: int) -> str | None:
        for number, machine in self._processes.items():
            if f"socket:[{inode}]" in descriptors(number):
                return machine
        return None


def processes() -> Iterator[tuple[str, str]]:
    """Those on machines, with these."""
    pattern = re.compile(rb"(?:^|\0)%b=([^\0]+)" % VARIABLE.encode())
    for number in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            found = pattern.search(Path(f"/proc/{number}/environ").read_bytes())
            if found:
                yield number, found[1].decode()


def descriptors(process: str) -> set[str]:
    """What a process has open; nothing if it has ended."""
    found = set()
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{process}/fd"):
            with suppress(OSError):
                found.add(os.readlink(entry.path))
    return found


class Proxies:
    """Machines with one network, made one by one, as those of `machines.Network`."""

    def __init__(self, net: str, library: Path) -> None:
        self.net = net
        self._library = library
        self._hosts: list[str] = []
        self.hub = self._made(HUB)
        self._cut: set[Link] = set()
        self._changed = trio.Event()
        self._owners = Owners(self.hub.host)
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._thread.start()
        self._is_ready.wait()

    def machine(self) -> Machine:
        """Add a machine."""
        return self._made(len(self._hosts))

    def _made(self, number: int) -> Machine:
        host = f"{self.net}.{number}"
        self._hosts.append(host)
        words = (
            "env", f"{VARIABLE}={host}", f"LD_PRELOAD={self._library}",
            "JAVA_TOOL_OPTIONS=-Djava.net.preferIPv4Stack=true",
        )  # fmt: skip
        return Machine(host, words, HERE.bound)

    def cut(self, machine: Machine) -> None:
        """Nobody reaches it, and it reaches nobody."""
        self._change(self._cut.update, links(machine.host, self._hosts))

    def heal(self, machine: Machine) -> None:
        self._change(self._cut.difference_update, links(machine.host, self._hosts))

    def part(self, one: Machine, *others: Machine) -> None:
        """One machine and the others do not reach each other; third ones reach both."""
        hosts = [each.host for each in others]
        self._change(self._cut.update, links(one.host, hosts))

    def join(self, one: Machine, *others: Machine) -> None:
        hosts = [each.host for each in others]
        self._change(self._cut.difference_update, links(one.host, hosts))

    def close(self) -> None:
        self._in_thread(self._nursery.cancel_scope.cancel)
        self._thread.join()

    def _change(self, change: Callable[[set[Link]], None], which: set[Link]) -> None:
        def run() -> None:
            change(which)
            self._changed.set()
            self._changed = trio.Event()

        self._in_thread(run)

    def _in_thread(self, run: Callable[[], None]) -> None:
        trio.from_thread.run_sync(run, trio_token=self._token)

    # -- in the thread

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            self._is_ready.set()
            known: dict[Socket, trio.CancelScope | None] = {}
            while True:
                await self._look(known)
                await trio.sleep(INTERVAL_S)

    async def _look(self, known: dict[Socket, trio.CancelScope | None]) -> None:
        """Serve new ports of machines, and no longer those that are closed."""
        ports = {each for each in listeners() if each.host == HERE.bound}
        for closed in known.keys() - ports:
            if scope := known.pop(closed):
                scope.cancel()
        for new in ports - known.keys():
            known[new] = None
            if machine := self._owners.of(new.inode):
                known[new] = await self._nursery.start(self._serve, machine, new.port)

    async def _serve(
        self,
        machine: str,
        port: int,
        *,
        task_status: trio.TaskStatus[trio.CancelScope],
    ) -> None:
        listeners = await trio.open_tcp_listeners(port, host=machine)
        with trio.CancelScope() as scope:
            task_status.started(scope)
            await trio.serve_listeners(
                partial(self._connect, machine, port),
                listeners,
                handler_nursery=self._nursery,
            )

    async def _connect(self, machine: str, port: int, near: trio.SocketStream) -> None:
        caller = self._caller(near)
        link = frozenset((machine, caller))
        connect = partial(trio.open_tcp_stream, local_address=caller)
        async with near:
            if link in self._cut:
                await self._pass(link)
                return
            with suppress(OSError):
                async with (
                    await connect(HERE.bound, port) as far,
                    trio.open_nursery() as both,
                ):
                    both.start_soon(self._pump, link, near, far, both.cancel_scope)
                    both.start_soon(self._pump, link, far, near, both.cancel_scope)

    def _caller(self, stream: trio.SocketStream) -> str:
        """Who has connected: a machine, or the test."""
        end = end_of(stream.socket.getpeername(), stream.socket.getsockname())
        owner = self._owners.of(end.inode) if end else None
        return owner or self.hub.host

    async def _pump(
        self,
        link: Link,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        both: trio.CancelScope,
    ) -> None:
        try:
            while data := await source.receive_some(PIECE):
                await self._pass(link)
                await sink.send_all(data)
            await self._pass(link)
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._pass(link)
            both.cancel()

    async def _pass(self, link: Link) -> None:
        """Wait until the machines reach each other."""
        while link in self._cut:
            await self._changed.wait()


def links(host: str, others: list[str]) -> set[Link]:
    """Those of a machine to others."""
    return {frozenset((host, other)) for other in others if other != host}


@contextmanager
def proxies(net: str, folder: Path) -> Iterator[Proxies]:
    """Machines for one test."""
    library = folder / "loopback_bind.so"
    compiler = shutil.which("cc")
    assert compiler is not None, "rmq needs one, too"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True
    )
    made = Proxies(net, library)
    try:
        yield made
    finally:
        made.close()
