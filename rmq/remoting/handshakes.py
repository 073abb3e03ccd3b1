"""Handshakes: prepares TLS connections for the reactor, in a separate thread.

A handshake costs 0.1 ms with a key of the curve P-256 and 1 ms with RSA 2048: too long
for the reactor's thread. The thread has one epoll set and no task. A socket belongs to
it from `begin` until `finish` gives it back to the trio thread.

Limits: at most ACTIVE_LIMIT handshakes at a time, ACTIVE_PER_ADDRESS for one address;
others wait, and each address gets its turn. A handshake has HANDSHAKE_TIMEOUT_S and
HANDSHAKE_BYTES. It has only GRACE_S while other handshakes of its address wait, or
while there is no room. So half handshakes keep no client waiting for longer.
`Admission` counts all these connections as silent ones, and may end them for new ones.
"""

import itertools
import os
import select
import socket
import ssl
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import trio

from rmq._fastpath.reactor.tls_layer import TlsLayer
from rmq.core.threads import in_thread
from rmq.protocol.hosts import network_of

HANDSHAKE_TIMEOUT_S = 10.0
GRACE_S = 1.0
ACTIVE_LIMIT: Final = 256
"""Maximum number of handshakes at a time: each takes about 50 KiB."""

ACTIVE_PER_ADDRESS: Final = 32
HANDSHAKE_BYTES: Final = 128 * 1024
"""A chain of client certificates has 100 KiB at most in OpenSSL."""

RECEIVE_SIZE: Final = 16 * 1024
EVENTS_PER_TURN: Final = 32

FINISHES_PER_TURN: Final = 4
"""Maximum number of `finish` calls before other tasks run: about 0.2 ms."""

THREAD_NICENESS: Final = 10
"""Below the reactor's priority: on one core, a send does not wait for a handshake."""

LOOK_AGAIN_S: Final = 0.1
"""Pause between two looks for half handshakes while others wait."""


Finish = Callable[[TlsLayer | None, str], None]


class HandshakeStatistics(NamedTuple):
    """Sums since the start, and the current numbers."""

    finished: int
    resumed: int
    failed: int
    late: int
    """Ended because the peer did not finish in time."""

    active: int
    waiting: int


class Handshake:
    """A connection; `finish` gets its TlsLayer, or None and the reason."""

    __slots__ = (
        "address", "finish", "incoming", "is_blocked", "is_done", "outgoing", "plain",
        "received", "source", "started_s", "tls", "unsent",
    )  # fmt: skip

    def __init__(self, plain: socket.socket, address: str, finish: Finish) -> None:
        self.plain = plain
        self.address = network_of(address)
        self.finish = finish
        self.source: _Source | None = None
        self.received = 0
        self.started_s = 0.0
        self.is_blocked = self.is_done = False
        self.unsent = b""
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls: ssl.SSLObject | None = None


class _Source:
    """The handshakes of one address, each table in the order of arrival."""

    __slots__ = ("active", "address", "has_turn", "waiting")

    def __init__(self, address: str) -> None:
        self.address = address
        self.waiting: OrderedDict[Handshake, None] = OrderedDict()
        self.active: dict[int, Handshake] = {}
        self.has_turn = False


class Handshakes:
    """The handshakes of a server: `begin` and `_run` belong to the trio thread."""

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        """`context` is called in the thread, for each handshake."""
        self._context = context
        self._orders: deque[tuple[bool, Handshake]] = deque()
        self._is_running = self._is_stopped = False
        self._wake_descriptor = -1
        self._token: trio.lowlevel.TrioToken | None = None
        self._ended: deque[tuple[Finish, TlsLayer | None, str]] = deque()
        # of the thread
        self._ready: select.epoll
        self._active: dict[int, Handshake] = {}
        self._sources: dict[str, _Source] = {}
        self._turns: deque[_Source] = deque()
        self._full: dict[_Source, None] = {}
        self._waiting_count = 0
        self._finished = self._resumed = self._failed = self._late = 0

    def begin(
        self,
        plain: socket.socket,
        address: str,
        finish: Finish,
        nursery: trio.Nursery,
    ) -> Callable[[], None]:
        """Begin a handshake; return a function that ends it early.

        `finish` is called on the trio thread, which owns the socket again, unless the
        server stops. The first handshake starts the thread.
        """
        if not self._is_running:
            self._is_running = True
            self._token = trio.lowlevel.current_trio_token()
            self._wake_descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            nursery.start_soon(self._run)
        handshake = Handshake(plain, address, finish)
        self._order(handshake, is_new=True)
        return partial(self._order, handshake, is_new=False)

    def statistics(self) -> HandshakeStatistics:
        """Return the counters."""
        return HandshakeStatistics(
            self._finished,
            self._resumed,
            self._failed,
            self._late,
            len(self._active),
            self._waiting_count,
        )

    def _order(self, handshake: Handshake, *, is_new: bool) -> None:
        """Let the thread begin a handshake, or end it; after the stop, close it."""
        if self._is_stopped:
            if is_new:
                handshake.plain.close()
            return
        self._orders.append((is_new, handshake))
        if len(self._orders) == 1:
            os.eventfd_write(self._wake_descriptor, 1)

    async def _run(self) -> None:
        """Run the thread until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._run_thread)
                try:
                    await trio.sleep_forever()
                finally:
                    self._is_stopped = True
                    os.eventfd_write(self._wake_descriptor, 1)
        finally:
            os.close(self._wake_descriptor)
            while self._ended:
                self._finish_some()
            for is_new, handshake in self._orders:
                if is_new:
                    handshake.plain.close()
            for source in list(self._sources.values()):
                for handshake in (*source.active.values(), *source.waiting):
                    handshake.plain.close()

    async def _run_thread(self) -> None:
        await in_thread(self._serve, limiter=trio.CapacityLimiter(1))

    # -- the thread

    def _serve(self) -> None:
        # on Linux of this thread alone; after the stop, trio soon ends an unused thread
        niceness = os.getpriority(os.PRIO_PROCESS, os.getpid()) + THREAD_NICENESS
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
        with select.epoll() as self._ready:
            self._ready.register(self._wake_descriptor, select.EPOLLIN)
            while not self._is_stopped:
                for number, _ in self._ready.poll(self._pause_s(), EVENTS_PER_TURN):
                    if number == self._wake_descriptor:
                        os.eventfd_read(number)
                    else:
                        self._advance(self._active[number])
                self._take_orders()
                self._end_late()
                self._start_waiting()

    def _pause_s(self) -> float | None:
        """Return the time for which the thread may sleep; None: until an event."""
        if self._full or self._turns:
            return LOOK_AGAIN_S
        if not self._active:
            return None
        oldest = next(iter(self._active.values()))
        return max(0.0, oldest.started_s + HANDSHAKE_TIMEOUT_S - time.monotonic())

    def _take_orders(self) -> None:
        while self._orders:
            is_new, handshake = self._orders.popleft()
            if not is_new:
                self._end(handshake, None, "another connection took its place")
                continue
            source = self._sources.get(handshake.address)
            if source is None:
                source = self._sources[handshake.address] = _Source(handshake.address)
            handshake.source = source
            source.waiting[handshake] = None
            self._waiting_count += 1
            self._give_turn(source)

    def _give_turn(self, source: _Source) -> None:
        """Let an address start one more if one waits; forget it without any."""
        is_full = len(source.active) >= ACTIVE_PER_ADDRESS and bool(source.waiting)
        if is_full:
            self._full[source] = None
        else:
            self._full.pop(source, None)
        if source.waiting and not is_full and not source.has_turn:
            source.has_turn = True
            self._turns.append(source)
        if not source.waiting and not source.active:
            self._sources.pop(source.address, None)

    def _start_waiting(self) -> None:
        """Start handshakes while there is room, one of each address in turn."""
        while self._turns and len(self._active) < ACTIVE_LIMIT:
            source = self._turns.popleft()
            source.has_turn = False
            if source.waiting:
                handshake, _ = source.waiting.popitem(last=False)
                self._waiting_count -= 1
                self._start(handshake, source)
            self._give_turn(source)

    def _start(self, handshake: Handshake, source: _Source) -> None:
        number = handshake.plain.fileno()
        handshake.started_s = time.monotonic()
        self._active[number] = source.active[number] = handshake
        try:
            handshake.tls = self._context().wrap_bio(
                handshake.incoming, handshake.outgoing, server_side=True
            )
            self._ready.register(number, select.EPOLLIN)
        except Exception as error:  # supervises the handshakes
            self._fail(handshake, error)

    def _fail(self, handshake: Handshake, error: Exception) -> None:
        self._failed += 1
        self._end(handshake, None, f"TLS handshake: {error}")

    def _end_late(self) -> None:
        """End the handshakes whose time limit has passed."""
        is_crowded = bool(self._turns) and len(self._active) >= ACTIVE_LIMIT
        self._end_older(self._active, GRACE_S if is_crowded else HANDSHAKE_TIMEOUT_S)
        for source in list(self._full):
            self._end_older(source.active, GRACE_S)

    def _end_older(self, table: dict[int, Handshake], seconds: float) -> None:
        """End handshakes that began so long ago; the table is in their order."""
        last_s = time.monotonic() - seconds
        late = itertools.takewhile(
            lambda handshake: handshake.started_s <= last_s, table.values()
        )
        for handshake in list(late):
            self._late += 1
            reason = f"no TLS handshake in {seconds:g} s"
            if seconds == GRACE_S:
                reason += ", and other handshakes wait"
            self._end(handshake, None, reason)

    def _advance(self, handshake: Handshake) -> None:
        """Take the step for which bytes or room have come."""
        try:
            if not handshake.unsent:
                self._receive(handshake)
            self._send(handshake)
            if handshake.is_done and not handshake.unsent:
                self._finish(handshake)
        except BlockingIOError:
            return
        except Exception as error:  # supervises the handshakes
            self._fail(handshake, error)

    def _receive(self, handshake: Handshake) -> None:
        tls = handshake.tls
        assert tls is not None
        data = handshake.plain.recv(RECEIVE_SIZE)
        if not data:
            raise ConnectionAbortedError("the peer closed the connection")
        handshake.received += len(data)
        if handshake.received > HANDSHAKE_BYTES:
            raise ConnectionAbortedError(f"it has more than {HANDSHAKE_BYTES} bytes")
        handshake.incoming.write(data)
        try:
            tls.do_handshake()
            handshake.is_done = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            with suppress(OSError):  # the alert; the handshake's error counts
                handshake.plain.send(handshake.outgoing.read())
            raise
        handshake.unsent = handshake.outgoing.read()

    def _send(self, handshake: Handshake) -> None:
        """Send bytes while the socket accepts them, and wait for room for others."""
        if not handshake.unsent:
            return
        with suppress(BlockingIOError):
            sent = handshake.plain.send(handshake.unsent)
            handshake.unsent = handshake.unsent[sent:]
        if handshake.unsent or handshake.is_blocked:
            handshake.is_blocked = bool(handshake.unsent)
            wanted = select.EPOLLOUT if handshake.is_blocked else select.EPOLLIN
            self._ready.modify(handshake.plain, wanted)

    def _finish(self, handshake: Handshake) -> None:
        assert handshake.tls is not None
        self._finished += 1
        self._resumed += bool(handshake.tls.session_reused)
        layer = TlsLayer(handshake.tls, handshake.incoming, handshake.outgoing)
        self._end(handshake, layer, "")

    def _end(self, handshake: Handshake, layer: TlsLayer | None, reason: str) -> None:
        """Give a connection back to the trio thread, once."""
        source, handshake.source = handshake.source, None
        if source is None:
            return
        number = handshake.plain.fileno()
        if self._active.pop(number, None) is None:
            del source.waiting[handshake]
            self._waiting_count -= 1
        else:
            del source.active[number]
            with suppress(OSError):  # it was never registered
                self._ready.unregister(number)
        self._give_turn(source)
        self._ended.append((handshake.finish, layer, reason))
        if len(self._ended) == 1:
            self._finish_soon()

    def _finish_soon(self) -> None:
        """Let the trio thread call `finish` for the handshakes that ended."""
        assert self._token is not None
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._finish_some)

    # -- the trio thread again

    def _finish_some(self) -> None:
        """Call `finish` for some handshakes; others get the next turn."""
        for _ in range(min(FINISHES_PER_TURN, len(self._ended))):
            finish, layer, reason = self._ended[0]
            finish(layer, reason)
            self._ended.popleft()  # not before: `_end` looks for an empty queue
        if self._ended:
            self._finish_soon()
