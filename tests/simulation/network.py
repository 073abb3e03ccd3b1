"""A network between simulated machines: delay, cuts in each direction, half-open ends.

A machine has an address; what runs on it finds it in `MACHINE`.  A connection is two
pairs of sockets, of which the nodes have one end each; the network carries bytes from
the other end of one pair to that of the other, in order, after a time that the seed
chooses; in some seeds it loses packets, so that bytes come seconds later, and after
those of younger connections.  A cut holds bytes back, as their senders would repeat
them, and connections that are being opened; it ends none.  The kernel of a killed
process sends what that had written.  A machine that dies at once closes nothing: who
sends to it hears of that when the machine is there again.
"""

import contextlib
import ctypes
import errno
import itertools
import os
import random
import socket
from collections import deque
from contextvars import ContextVar
from functools import partial
from typing import Self

import trio

MACHINE: ContextVar[str] = ContextVar("MACHINE")
TRAVEL_S = 0.0001, 0.003
LATE_S = 0.05, 3.0
CHUNK = 1 << 16
EPHEMERAL = 40_000


class Listening:
    """What a node listens with: of a socket's methods those that listeners use."""

    def __init__(self, network: "Network", host: str, port: int) -> None:
        self._network, self._where = network, (host, port)
        self._ready = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
        self._arrived: deque[tuple[socket.socket, tuple[str, int]]] = deque()

    def arrive(self, near: socket.socket, peer: tuple[str, int]) -> None:
        self._arrived.append((near, peer))
        os.eventfd_write(self._ready, 1)

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if not self._arrived:
            raise BlockingIOError(errno.EAGAIN, "nobody came")
        os.eventfd_read(self._ready)
        return self._arrived.popleft()

    def fileno(self) -> int:
        return self._ready

    def getsockname(self) -> tuple[str, int]:
        return self._where

    def close(self) -> None:
        if self._ready >= 0:
            self._network.forget(self, self._where)
            while self._arrived:
                self._arrived.popleft()[0].close()
            os.close(self._ready)
            self._ready = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Network:
    """All machines and what lies between them."""

    def __init__(self, library: ctypes.CDLL, chance: random.Random) -> None:
        self._library, self._chance = library, chance
        self._listening: dict[tuple[str, int], Listening] = {}
        self._ports = itertools.count(EPHEMERAL)
        self._cut: set[tuple[str, str]] = set()
        self._changed = trio.Event()
        self._dead: set[str] = set()
        self._arrivals: dict[str, trio.Event] = {}
        self.late = 0.0
        """Share of the pieces of a connection that come late."""

        self._connections: dict[str, list[Connection]] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status=trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            for connection in itertools.chain(*self._connections.values()):
                connection.close()

    # -- what nodes call

    async def listen(self, host: str, port: int, _key: str = "") -> Listening:
        """What `open_listener` does."""
        await trio.lowlevel.checkpoint()
        host, port = MACHINE.get(), port or next(self._ports)
        assert (host, port) not in self._listening, f"{host}:{port} is in use"
        made = self._listening[host, port] = Listening(self, host, port)
        return made

    def forget(self, listening: Listening, where: tuple[str, int]) -> None:
        if self._listening.get(where) is listening:
            del self._listening[where]

    async def connect(self, host: str, port: int, **_: object) -> trio.SocketStream:
        """What `trio.open_tcp_stream` does."""
        source = MACHINE.get()
        await self.travel(source, host)
        await self.travel(host, source)
        listening = self._listening.get((host, port))
        if listening is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port}: refused")
        assert self._nursery is not None
        here, there = (source, next(self._ports)), (host, port)
        ends = self._pair(here, there), self._pair(there, here)
        connection = Connection(self, source, host, ends[0][1], ends[1][1])
        for machine in (source, host):
            self._connections.setdefault(machine, []).append(connection)
        for one_way in (False, True):
            self._nursery.start_soon(connection.carry, one_way)
        listening.arrive(ends[1][0], here)
        return trio.SocketStream(trio.socket.from_stdlib_socket(ends[0][0]))

    def _pair(self, here, there) -> tuple[socket.socket, socket.socket]:
        """Return a node's end, and the network's."""
        near, far = socket.socketpair()
        for end in (near, far):
            end.setblocking(False)
        numbers = [
            part
            for host, port in (here, there)
            for part in (int.from_bytes(socket.inet_aton(host)), port)
        ]
        self._library.outside_name(near.fileno(), *numbers)
        self._library.outside_name(far.fileno(), 0, 0, 0, 0)
        return near, far

    # -- what the simulation does

    async def travel(self, source: str, target: str) -> None:
        """Return when bytes have come from one machine to another."""
        await trio.sleep(self._chance.uniform(*TRAVEL_S))
        while (source, target) in self._cut or target in self._dead:
            await self._changed.wait()
        if target in self._arrivals:
            self._arrivals.pop(target).set()

    async def delay(self) -> None:
        """Have a piece come late, if the seed wants that."""
        if self.late and self._chance.random() < self.late:
            await trio.sleep(self._chance.uniform(*LATE_S))

    async def arrival(self, target: str) -> None:
        """Wait until something comes to a machine."""
        await self._arrivals.setdefault(target, trio.Event()).wait()

    def cut(self, source: str, target: str) -> None:
        """Hold back what one sends to the other."""
        self._cut.add((source, target))

    @property
    def is_cut(self) -> bool:
        """Whether any link is."""
        return bool(self._cut)

    def heal(self) -> None:
        """End all cuts."""
        self._cut.clear()
        self._change()

    def end(self, machine: str, *, is_seen: bool) -> None:
        """End all that a machine had; it is unreachable unless its kernel lives."""
        for where in [each for each in self._listening if each[0] == machine]:
            self._listening.pop(where)
        if not is_seen:
            self._dead.add(machine)
        assert self._nursery is not None, "it runs"
        for connection in self._connections.pop(machine, []):
            if connection.is_open:
                lose = partial(connection.lose, machine, is_seen=is_seen)
                self._nursery.start_soon(lose)

    def begin(self, machine: str) -> None:
        """Let a machine be there again."""
        self._dead.discard(machine)
        self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class Connection:
    """What carries bytes between the network's ends of two pairs."""

    def __init__(
        self,
        network: Network,
        source: str,
        target: str,
        near: socket.socket,
        far: socket.socket,
    ) -> None:
        self._network = network
        self._machines = source, target
        self._ends = near, far
        self._ended = 0
        self._is_lost = False
        self._killed = ""
        """The machine of which only the kernel still has it."""

        self._turns = trio.Lock(), trio.Lock()
        """Each direction's, for one piece after the other."""

    @property
    def is_open(self) -> bool:
        return any(end.fileno() >= 0 for end in self._ends)

    async def carry(self, is_back: bool) -> None:
        source, target = self._machines[::-1] if is_back else self._machines
        near, far = self._ends[::-1] if is_back else self._ends
        try:
            while True:
                await readable(near)
                async with self._turns[is_back]:
                    data = near.recv(CHUNK)
                    await self._network.delay()
                    await self._network.travel(source, target)
                    if self._is_lost and source != self._killed:
                        self.close()
                        return
                    await send(far, data)
                if not data:
                    far.shutdown(socket.SHUT_WR)
                    self._ended += 1
                    if self._ended == 2:
                        break
                    return
        except (OSError, ValueError, trio.ClosedResourceError):
            pass  # an end is closed
        if not self._is_lost:
            self.close()

    async def lose(self, machine: str, *, is_seen: bool) -> None:
        """One machine has it no longer; the other one hears of it, now or later."""
        self._is_lost = True
        index = self._machines.index(machine)
        near, far = self._ends[index], self._ends[1 - index]
        if not is_seen:
            close(near)
            return
        self._killed = machine
        written = rest(near)
        close(near)
        async with self._turns[index]:
            await self._network.travel(machine, self._machines[1 - index])
            with contextlib.suppress(OSError, ValueError, trio.ClosedResourceError):
                await send(far, written)
        self.close()

    def close(self) -> None:
        for end in self._ends:
            close(end)


async def readable(near: socket.socket) -> None:
    if near.fileno() < 0:
        raise trio.ClosedResourceError
    await trio.lowlevel.wait_readable(near)


async def send(far: socket.socket, data: bytes) -> None:
    while data:
        if far.fileno() < 0:
            raise trio.ClosedResourceError
        try:
            data = data[far.send(data) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(far)


def rest(near: socket.socket) -> bytes:
    """Return what was written to an end, and nobody has taken yet."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        while data := near.recv(CHUNK):
            found.append(data)
    return b"".join(found)


def close(end: socket.socket) -> None:
    """Close an end for which tasks may wait."""
    if end.fileno() >= 0:
        trio.lowlevel.notify_closing(end)
        end.close()
