"""RemotingServer: all listeners of a process over one reactor.

Each listener has a name, a table of handlers and an idle limit.  `run` drives the
reactor; `bind` takes an address, and `start_accepting` begins to serve it.
Stop: `stop_accepting`, `drain`, then cancel `run`.
"""

# tidy: long — one class: the listeners of a process, and what they serve

import fcntl
import logging
import os
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import trio

from rmq._fastpath.log.watermark import Watermark
from rmq._fastpath.reactor.connections import EventKind
from rmq._fastpath.reactor.grants import Grants
from rmq._fastpath.reactor.native import NativeHandler
from rmq._fastpath.reactor.reactor import Reactor, ReactorStatistics
from rmq._fastpath.reactor.rpc_times import RpcTime
from rmq._fastpath.reactor.tls_layer import TlsLayer
from rmq.core.logs import Foreign, SparseLog, caused_by
from rmq.protocol.command import Command
from rmq.protocol.frames import MAX_FRAME_SIZE, decode, encode
from rmq.protocol.hosts import host_bytes
from rmq.remoting import http2
from rmq.remoting.admission import Admission, AdmissionStatistics, Admitted
from rmq.remoting.alarm import Alarm
from rmq.remoting.connection import Connection
from rmq.remoting.dispatch import Dispatcher, HandlerTable
from rmq.remoting.ends import QUIET, describe_end
from rmq.remoting.handshakes import Handshakes, HandshakeStatistics
from rmq.remoting.imports import load_in_thread
from rmq.remoting.inner_caller import InnerCaller
from rmq.remoting.listener import accept_forever, open_listener
from rmq.remoting.loop import Event, serve_reactor
from rmq.remoting.loop_clock import now_ms
from rmq.remoting.sniffer import Address, Balancers, Sniffed, Sniffer
from rmq.remoting.tls import (
    TlsConfig,
    TlsMode,
    WatchedContext,
    port_context,
)
from rmq.remoting.turns import TurnTaker

if TYPE_CHECKING:
    from rmq._fastpath.log.claim import Claim
    from rmq.remoting.grpc_server import GrpcServer, GrpcService

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

MAX_BUFFER_BYTES = 512 * 1024 * 1024
IDLE_SCAN_INTERVAL_S = 5.0
"""Period of the search for idle connections."""

WAITING_RETRY_MS = 50
"""Pause after which waiting frames are offered to their handlers again, even without a
signal.
"""

TABLE_DESCRIPTORS = 65_536
"""Size of the kernel's table of descriptors from the start: 512 KiB."""

LOOPBACK = "127.0.0.0/8, ::1"
"""Addresses whose PROXY headers are trusted by default."""

_FRAME = int(EventKind.FRAME)

CloseListener = Callable[[Connection], None]
MakeService = Callable[[], "GrpcService"]
LoadLibraries = Callable[[], object]
"""Runs in another thread before the service is made; ImportError without libraries."""


class Listener(msgspec.Struct):
    """One bound address."""

    name: str
    index: int
    idle_timeout_ms: int
    bound: socket.socket
    port: int
    on_close: CloseListener | None = None
    accepting: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)


NativeCounts = dict[tuple[str, int], tuple[int, dict[str, int]]]
"""Frames that were served, and declined by reason, by listener and request code."""


class ServerStatistics(NamedTuple):
    """The counters of the reactor and of dispatch."""

    reactor: ReactorStatistics
    admission: AdmissionStatistics
    handshakes: HandshakeStatistics
    requests: int
    failures: int
    running: int


class RemotingServer:
    """Known in Java as `NettyRemotingServer`."""

    def __init__(
        self,
        *,
        max_frame_size: int = MAX_FRAME_SIZE,
        max_buffer_bytes: int = MAX_BUFFER_BYTES,
        max_connections: int = 0,
        max_connections_per_address: int = 0,
        proxy_protocol_from: str = LOOPBACK,
        busy_poll_us: int = 0,
        tls: TlsConfig | None = None,
        is_own: Callable[[Address], bool] = lambda _peer: False,
    ) -> None:
        """Accept plain connections of `is_own` peers even if TLS is enforced.

        `Admission` explains limits of 0, and `Balancers` explains PROXY headers.
        """
        tls = tls or TlsConfig()
        self.tls = port_context(tls)
        self._tls_mode = tls.mode
        self._handshakes = Handshakes(self._tls_context)
        self._is_own = is_own
        self.after_poll: list[Callable[[], None]] = [self._time_held]
        self._alarm = Alarm(now_ms)
        self._reactor = Reactor(
            max_frame_size=max_frame_size,
            max_buffer_bytes=max_buffer_bytes,
            busy_poll_us=busy_poll_us,
        )
        self._admission = Admission(
            self._reactor.connections.has_sent_frame,
            max_connections=max_connections,
            max_per_address=max_connections_per_address,
        )
        self._balancers = Balancers(proxy_protocol_from)
        self._dispatcher = Dispatcher(self._reactor, self._time_held)
        self._listeners: list[Listener] = []
        self.grpc: GrpcServer | None = None
        """Serves gRPC; None before the first client of HTTP/2."""

        self._make_service: MakeService | None = None
        self._load_libraries: LoadLibraries = lambda: None
        self._grpc_listeners: tuple[str, ...] = ()
        self._grpc_refusal = ""
        self._waits_for_grpc: list[Callable[[], None]] | None = None
        """Callbacks for the end of the load of gRPC; None if gRPC is not being
        loaded.
        """

        self._sniffers: list[Sniffer] = []
        self._connections: dict[int, Connection] = {}
        self._admitted: dict[int, Admitted] = {}
        self._nursery: trio.Nursery | None = None

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled."""
        raise_descriptor_limit()
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._dispatcher.start(nursery)
                nursery.start_soon(
                    serve_reactor, self._reactor, self._handle_events, self.after_poll
                )
                nursery.start_soon(self._expire_held)
                nursery.start_soon(self._dispatcher.inner_held.run)
                nursery.start_soon(self._end_idle)
                if isinstance(self.tls, WatchedContext):
                    nursery.start_soon(self.tls.follow)
                task_status.started()
        finally:
            self._nursery = None
            if self._waits_for_grpc is not None:
                # the load was cancelled; then the loop below ends its clients, too
                self._grpc_refusal = "the server stops"
                self._end_load()
            for connection in list(self._connections.values()):
                self._close(connection, "the server stops")
            for listener in self._listeners:
                listener.bound.close()

    async def bind(
        self,
        name: str,
        host: str,
        port: int,
        handlers: HandlerTable,
        *,
        idle_timeout_s: int = 120,
        key: str = "listenPort",
    ) -> int:
        """Bind an address; return the port. ConfigError names its key if it is in use.

        Peers wait until `start_accepting`.
        """
        bound = await open_listener(host, port, key)
        listener = Listener(
            name,
            len(self._listeners),
            idle_timeout_s * 1000,
            bound,
            bound.getsockname()[1],
        )
        self._listeners.append(listener)
        self._dispatcher.tables.append(handlers)
        return listener.port

    def start_accepting(self, name: str, on_close: CloseListener | None = None) -> None:
        """Accept on the bound address of this name; `on_close` gets closed ones."""
        assert self._nursery is not None, "run the server first"
        for listener in self._listeners:
            if listener.name == name:
                listener.on_close = on_close
                sniffer = Sniffer(
                    self._admission,
                    self._balancers,
                    partial(self._take_over, listener=listener),
                    listener.idle_timeout_ms / 1000,
                    partial(self._refuse_grpc, listener.name),
                )
                self._nursery.start_soon(self._accept, listener, sniffer)

    async def _accept(self, listener: Listener, sniffer: Sniffer) -> None:
        self._sniffers.append(sniffer)
        try:
            with listener.accepting, listener.bound:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(sniffer.run)
                    nursery.start_soon(accept_forever, listener.bound, sniffer)
        finally:
            self._sniffers.remove(sniffer)

    def _take_over(self, sniffed: Sniffed, listener: Listener) -> None:
        """Serve a connection in the protocol that its first byte shows, or close it."""
        plain, admitted = sniffed.plain, sniffed.admitted
        if refusal := self._why_refused(sniffed):
            logger.warning(
                "closing %s:%d: %s",
                *sniffed.remote,
                refusal,
                extra=caused_by(sniffed.peer[0]),
            )
            self._admission.remove_connection(admitted)
            plain.close()
        elif sniffed.is_tls:
            assert self._nursery is not None
            admitted.close = self._handshakes.begin(
                plain,
                sniffed.remote[0],
                partial(self._end_handshake, sniffed, listener),
                self._nursery,
            )
        else:
            self._add(plain, sniffed, listener)

    def _why_refused(self, sniffed: Sniffed) -> str:
        """Return the reason why a connection is not served; empty if it is served."""
        if not sniffed.is_tls:
            if self._tls_mode is TlsMode.enforcing and not self._is_own(sniffed.peer):
                return "the peer does not speak TLS"
            return ""
        if self.tls is None:
            return (
                "the peer speaks TLS, but this server has no certificate "
                "(tls.server.certPath, tls.server.keyPath)"
            )
        return ""

    def _tls_context(self) -> ssl.SSLContext:
        """Return the context for a new connection; called in another thread."""
        assert self.tls is not None
        return self.tls.context

    def _end_handshake(
        self, sniffed: Sniffed, listener: Listener, layer: TlsLayer | None, reason: str
    ) -> None:
        """Serve a connection after its handshake, or close it for a reason."""
        if layer is not None and self._admission.is_admitted(sniffed.admitted):
            if layer.selected_protocol == http2.ALPN_NAME and (
                self._refuse_grpc(listener.name) is None
            ):
                assert self._waits_for_grpc is not None, "gRPC is being loaded"
                self._waits_for_grpc.append(
                    partial(self._end_handshake, sniffed, listener, layer, reason)
                )
                return
            self._add(sniffed.plain, sniffed, listener, layer)
            self._reactor.wake()
            return
        if self._admission.is_admitted(sniffed.admitted):
            logger.warning(
                "closing %s:%d: %s",
                *sniffed.remote,
                Foreign(reason),
                extra=caused_by(sniffed.remote[0]),
            )
        self._admission.remove_connection(sniffed.admitted)
        sniffed.plain.close()

    def _add(
        self,
        plain: socket.socket,
        sniffed: Sniffed,
        listener: Listener,
        layer: TlsLayer | None = None,
    ) -> None:
        admitted, remote = sniffed.admitted, sniffed.remote
        try:
            host = host_bytes(*remote)
            token = self._reactor.connections.add(
                plain.fileno(), listener.index, host, now_ms(), layer
            )
        except (OSError, MemoryError, RuntimeError) as error:
            plain.close()
            self._admission.remove_connection(admitted)
            logger.error(
                "cannot serve %s: %s", remote, error, extra=caused_by(remote[0])
            )
            return
        plain.detach()
        connection = self._connections[token] = Connection(
            self._reactor,
            token,
            listener.index,
            listener.name,
            remote=remote,
            local=sniffed.local,
            peer=sniffed.peer,
            close=self._close,
        )
        self._admitted[token] = admitted
        admitted.token = token
        admitted.close = partial(
            self._close, connection, "another connection took its place"
        )

    def _handle_events(self, events: list[Event]) -> None:
        connections, dispatch = self._connections, self._dispatcher.dispatch
        for kind, token, frame in events:
            connection = connections.get(token)
            if connection is None:
                continue
            if kind == _FRAME:
                assert frame is not None
                dispatch(connection, frame)
            else:
                advice = partial(self._refuse_grpc, connection.listener_name)
                reason = describe_end(self._reactor, EventKind(kind), token, advice)
                if kind not in QUIET:
                    address = connection.remote_address
                    logger.warning(
                        "closing %s: %s", address, reason, extra=caused_by(address)
                    )
                self._close(connection, reason)

    def _close(self, connection: Connection, reason: str) -> None:
        """Free a connection and call the callbacks; once."""
        if self._connections.pop(connection.token, None) is None:
            return
        assert connection.is_open, connection
        connection.mark_closed(reason)
        if self.grpc is not None:
            self.grpc.end_connection(connection.token)
        self._reactor.connections.close(connection.token)
        self._admission.remove_connection(self._admitted.pop(connection.token))
        on_close = self._listeners[connection.listener_index].on_close
        if on_close is not None:
            on_close(connection)

    # -- gRPC

    def serve_grpc(
        self,
        make_service: MakeService,
        *listeners: str,
        load_libraries: LoadLibraries = lambda: None,
    ) -> None:
        """Serve clients of gRPC on these listeners, from the first one on."""
        self._make_service = make_service
        self._load_libraries = load_libraries
        self._grpc_listeners = listeners

    def _refuse_grpc(self, listener: str) -> str | None:
        """Return why a client of HTTP/2 is refused, or an empty text if it is served.

        None means that gRPC is being loaded. Only the first client loads it: a broker
        without one starts sooner and is smaller.
        """
        if self._make_service is None or listener not in self._grpc_listeners:
            return http2.GRPC_ADVICE
        if self.grpc is not None or self._grpc_refusal:
            return self._grpc_refusal
        if self._waits_for_grpc is None:
            assert self._nursery is not None
            self._waits_for_grpc = []
            self._nursery.start_soon(self._load_grpc)
        return None

    async def _load_grpc(self) -> None:
        """Import the libraries in another thread; then serve the clients that wait."""

        def load() -> None:
            self._load_libraries()
            # imported on use: it loads the compiled modules of HTTP/2
            import rmq.remoting.grpc_server  # noqa: F401

        try:
            await load_in_thread(load)
            self._open_grpc()
        except ImportError as error:
            logger.info("no gRPC: %s", error)
            self._grpc_refusal = http2.install_advice()
        self._end_load()

    def _end_load(self) -> None:
        """Serve the clients that waited for gRPC, or refuse them."""
        waiting, self._waits_for_grpc = self._waits_for_grpc or [], None
        for sniffer in self._sniffers:
            sniffer.look_again()
        for go_on in waiting:
            go_on()

    def _open_grpc(self) -> None:
        from rmq.remoting.grpc_server import GrpcServer

        assert self._make_service is not None, "serve_grpc was called"
        service = self._make_service()
        indexes = [
            each.index for each in self._listeners if each.name in self._grpc_listeners
        ]
        self.grpc = GrpcServer(self._reactor, self.connection_of, service, indexes)
        self.after_poll.insert(0, self.grpc.after_poll)

    def open_caller(
        self, connection: Connection, on_request: Callable[[Command], None]
    ) -> InnerCaller:
        """Return a client of another protocol on this connection."""
        return InnerCaller(
            connection, self._dispatcher.serve, self._close_caller, on_request
        )

    def _close_caller(self, caller: Connection, reason: str) -> None:
        """Remove a client of another protocol from all tables."""
        caller.mark_closed(reason)
        on_close = self._listeners[caller.listener_index].on_close
        if on_close is not None:
            on_close(caller)

    def _time_held(self) -> None:
        """Wake `_expire_held` in time for the replies that are held now."""
        if self._reactor.held.count:
            self._alarm.wake_at(self._reactor.held.earliest_ms)
        if self._reactor.connections.waiting_count:
            self._alarm.wake_at(now_ms() + WAITING_RETRY_MS)

    async def _expire_held(self) -> None:
        """Answer held replies whose time limit has passed."""
        while True:
            await self._alarm.wait()
            for token, reply, code in self._reactor.expire_held(now_ms()):
                self._reactor.send(token, _too_late(reply, code))
            if self._reactor.connections.waiting_count:
                self._reactor.wake()
            self._time_held()

    async def _end_idle(self) -> None:
        """Close connections that are silent for too long."""
        while True:
            await trio.sleep(IDLE_SCAN_INTERVAL_S)
            turns = TurnTaker(self.next_turn)
            for listener in self._listeners:
                before = now_ms() - listener.idle_timeout_ms
                idle = self._reactor.connections.idle_since(before, listener.index)
                for token in idle:
                    connection = self._connections.get(token)
                    if connection is not None:
                        self._close(connection, "idle for too long")
                    await turns()

    def stop_accepting(self, name: str | None = None) -> None:
        """Close all listening sockets, or only the sockets of one name."""
        for listener in self._listeners:
            if name is None or listener.name == name:
                listener.accepting.cancel()

    @property
    def running_requests(self) -> int:
        """Coroutines of handlers that run now."""
        return self._dispatcher.running

    async def drain(self, timeout_s: float) -> bool:
        """Wait until running handlers finish; False if the time was not enough.

        Clients of gRPC get GOAWAY first, so that they go to another broker.
        """
        with trio.move_on_after(timeout_s):
            if self.grpc is not None:
                await self.grpc.drain(self._connections.keys())
            await self._dispatcher.wait_idle()
            return True
        return False

    async def next_turn(self) -> None:
        """Let all other tasks run once; a task with long work calls this now and then.

        After a plain checkpoint the reactor may wait for its peers for a millisecond.
        """
        self._reactor.skip_wait()
        await trio.lowlevel.checkpoint()

    def poll_soon(self) -> None:
        """Wake the reactor, so that compiled handlers read the caller's results at
        once.
        """
        self._reactor.wake()

    def connection_of(self, token: int) -> Connection | None:
        """Return an open connection by its token."""
        return self._connections.get(token)

    def register_native(self, name: str, code: int, handler: NativeHandler) -> None:
        """Let a compiled handler see the frames of a code first, on this listener."""
        for listener in self._listeners:
            if listener.name == name:
                self._reactor.natives.register(listener.index, code, handler)

    def require(self, grants: Grants) -> None:
        """Let compiled handlers serve only requests that a guard has allowed before."""
        self._reactor.natives.require_grants(grants)

    def native_counts(self) -> NativeCounts:
        """Return the frames that compiled handlers served and declined."""
        return {
            (self._listeners[index].name, code): counts
            for (index, code), counts in self._reactor.natives.counts().items()
        }

    def attach_watermark(
        self,
        acknowledged: Watermark,
        timeout_ms: int,
        replicated: Watermark | None = None,
        claim: "Claim | None" = None,
    ) -> None:
        """Release held replies by this watermark; replies of compiled handlers wait at
        most `timeout_ms`.

        `replicated` is the part of this position that replicas advance, if senders wait
        for replicas. The `claim` of the log has the confirmed offset before the replies
        leave.
        """
        self._reactor.held.attach(acknowledged, timeout_ms, replicated, claim)
        self._dispatcher.inner_held.attach(acknowledged, replicated, claim)

    def leave_to_replicas(self, is_followed: bool, portion_s: float) -> None:
        """Set the longest time after which slaves get a stored message."""
        self._reactor.has_slaves = is_followed
        self._reactor.replication_interval_ns = int(portion_s * 1e9)

    @property
    def wake_descriptor(self) -> int:
        """The eventfd after whose signal frames are offered again to their handlers."""
        return self._reactor.wake_fd

    def detach_watermark(self) -> None:
        """Detach the watermark before its store is closed."""
        self._reactor.held.detach()
        self._dispatcher.inner_held.attach(None, None)

    def waiting_counts(self, *names: str) -> dict[int, int]:
        """Return, by code, the number of requests that wait for other requests."""
        counts: Counter[int] = Counter()
        for listener, table in zip(
            self._listeners, self._dispatcher.tables, strict=True
        ):
            if listener.name in names:
                for code, entry in table.entries.items():
                    counts[code] += entry.waiting_count
        return counts

    def step_times(self) -> tuple[list[int], float]:
        """Return the number of steps by duration, and the seconds of all steps.

        A step is the work of the serving thread between two looks at its connections.
        """
        return self._reactor.step_times()

    def rpc_times(self) -> list[RpcTime]:
        """Return the times of answers, except the answers of held pulls."""
        return self._reactor.rpc_times.rows()

    def connection_count(self) -> int:
        """Return the number of open connections."""
        return self._reactor.statistics().connections

    def statistics(self) -> ServerStatistics:
        """Return the counters."""
        return ServerStatistics(
            self._reactor.statistics(),
            self._admission.statistics(),
            self._handshakes.statistics(),
            self._dispatcher.requests,
            self._dispatcher.failures,
            self._dispatcher.running,
        )


def _too_late(reply: bytes, code: int) -> bytes:
    """Turn an answer that waited in vain into an answer with this code."""
    answer = decode(reply)
    answer.code = code
    return encode(answer)


def raise_descriptor_limit() -> None:
    """Raise the soft limit on descriptors to the hard one: each client needs one.

    The kernel's table of descriptors grows now. Later it would double several times,
    and block a process with threads for 5 to 20 ms each time.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    last = hard - 1 if 0 < hard < TABLE_DESCRIPTORS else TABLE_DESCRIPTORS - 1
    with open(os.devnull, "rb") as file, suppress(OSError):
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, last))
