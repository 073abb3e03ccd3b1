"""Transport: a connection of kombu to rmq, `rmq://[user:password@]host[:9876][/space]`.

One socket, driven by the event loop of a Celery worker, or by `drain_events`. When the
connection breaks, the transport connects again: leases belong to the broker, and remain
valid. Celery is notified only if the broker is away for `recover_s`.
"""

import os
import socket
import sys
import threading
import time
from typing import Any, Final

from kombu.transport import virtual

from rmq import __version__
from rmq.core.errors import PeerError, RmqError
from rmq.integrations.keeper import start_keeper
from rmq.integrations.kombu.channel import Channel
from rmq.integrations.kombu.cursors import cursors_of
from rmq.integrations.kombu.options import Options
from rmq.integrations.names import Names
from rmq.integrations.settling import Settler
from rmq.integrations.task_link import RECONNECT_S, TaskLink
from rmq.integrations.topics import Topics
from rmq.outgoing.identity import Identity, Trust
from rmq.outgoing.refused import AnswerRefused

DEFAULT_PORT: Final = 9876
LONGEST_WAIT_S: Final = 1.0
END_S: Final = 2.0
"""Time limit for answers to acks when a connection ends."""

CELERY_STEPS: Final = (
    ("celery.worker.consumer.mingle", "Mingle"),
    ("celery.worker.consumer.gossip", "Gossip"),
)
SOLO_POOL: Final = "celery.concurrency.solo"
"""The module of the pool that runs tasks in the thread of the event loop."""


class Transport(virtual.Transport):
    """The transport `rmq`."""

    Channel = Channel
    default_port = DEFAULT_PORT
    driver_type = "rmq"
    driver_name = "rmq"
    polling_interval = None
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )
    connection_errors = (*virtual.Transport.connection_errors, OSError, PeerError)
    channel_errors = (*virtual.Transport.channel_errors, AnswerRefused)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = ()
    is_secure = False

    def __init__(self, client: Any, **kwargs: Any) -> None:  # noqa: ANN401 - kombu
        super().__init__(client, **kwargs)
        self.options = Options.read(client.transport_options)
        space = (client.virtual_host or "").strip("/")
        self.names = Names(space, self.options.topic_prefix, self.options.group_prefix)
        address = f"{client.hostname or '127.0.0.1'}:{client.port or DEFAULT_PORT}"
        self.link = TaskLink(
            [address],
            self._identity(),
            events=self,
            timeout_s=client.connect_timeout or 5.0,
            recover_s=self.options.recover_s,
            broker_name=self.options.broker_name,
        )
        self.settler = Settler(self.link, self.options.visibility_timeout)
        self.topics = Topics(self.link, may_create=self.options.create_topics)
        self.cursors = cursors_of((address, self.names))
        self.delivered = 0
        self.is_closed = False
        self._loop: Any = None
        self._loop_fd: int | None = None
        self._wake_fd: int | None = None
        self._timers: list[Any] = []
        self._wake_s = 0.0
        self._has_keeper = False
        _add_to_worker(self.driver_type)

    def _identity(self) -> Identity:
        client = self.client
        user, password = client.userid or "", client.password or ""
        if not (client.ssl or self.is_secure):
            return Identity(user, password)
        given = client.ssl if isinstance(client.ssl, dict) else {}
        trust = Trust(
            given.get("ca_certs") or "",
            given.get("certfile") or "",
            given.get("keyfile") or "",
            given.get("server_hostname") or "",
        )
        return Identity(user, password, trust)

    def driver_version(self) -> str:
        """Return the version that `celery report` shows."""
        return __version__

    # -- the connection

    def establish_connection(self) -> Any:  # noqa: ANN401 - kombu
        """Connect; PeerError if the broker is away."""
        try:
            self.link.connect()
        except RmqError:
            self.link.close()
            raise
        return super().establish_connection()

    def close_connection(self, connection: object) -> None:
        """Give messages back, wait for the answers to acks, and disconnect."""
        self.is_closed = True
        if self.link.is_foreign:
            self.link.close()
            return
        self._leave_loop()
        super().close_connection(connection)
        self._wait_for_answers()
        self.link.close()

    def _wait_for_answers(self) -> None:
        """Wait until the broker has answered all acks, and the messages of the last
        POPs are given back.
        """
        end_s = time.monotonic() + END_S
        self.settler.is_batching = False
        while self.link.is_open:
            self.link.run_callbacks()
            self.settler.flush()
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not self.settler.is_waiting:
                return
            self.link.receive(left_s)

    def on_connected(self) -> None:
        """Let the event loop wait for the new connection."""
        if self._loop is not None:
            self._loop_fd = self.link.fileno()
            self._loop.add_reader(self._loop_fd, self.on_readable)

    def on_lost(self) -> None:
        """Forget the requests under way; messages stay leased."""
        if self._loop is not None and self._loop_fd is not None:
            self._loop.remove(self._loop_fd)
        self._loop_fd = None
        self.settler.on_lost()
        for channel in self.channels:
            for source in channel.known_sources:
                source.on_lost()

    # -- the event loop of a worker

    def register_with_event_loop(self, connection: object, loop: Any) -> None:  # noqa: ANN401 - kombu
        """Let an event loop drive this connection."""
        if self._loop is not None:
            return
        self._loop = loop
        self.settler.is_batching = SOLO_POOL not in sys.modules
        if self.link.is_open:
            self.on_connected()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._wake_fd, self._on_wake)
        loop.on_tick.add(self.on_tick)
        pause_s = self.options.visibility_timeout / 3
        self._timers.append(loop.call_repeatedly(pause_s, self.settler.renew))
        if threading.current_thread() is not threading.main_thread():
            # no signal ends the wait of a worker in a thread: it looks for its end
            timer = loop.call_repeatedly(LONGEST_WAIT_S, self._wake)
            self._timers.append(timer)

    def unregister_from_event_loop(self, connection: object, loop: object) -> None:
        """Leave the event loop."""
        self._leave_loop()

    def _leave_loop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is None:
            return
        loop.on_tick.discard(self.on_tick)
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._loop_fd is not None:
            loop.remove(self._loop_fd)
        if self._wake_fd is not None:
            loop.remove(self._wake_fd)
            os.close(self._wake_fd)
        self._loop_fd = self._wake_fd = None

    def on_readable(self) -> None:
        """Receive what has arrived."""
        self.link.receive(0)
        self._run_turn()

    def on_tick(self) -> None:
        """Do the work of one turn before the loop waits.

        The loop has already chosen the length of its wait, and a pool may have sent its
        tasks. So a delivery or a new pause ends this wait.
        """
        before = self.delivered, self._wake_s
        self._run_turn()
        if self._wake_fd is not None and before != (self.delivered, self._wake_s):
            os.eventfd_write(self._wake_fd, 1)

    def _on_wake(self) -> None:
        if self._wake_fd is not None:
            os.eventfd_read(self._wake_fd)

    def _run_turn(self) -> None:
        """Run the callbacks of arrived answers; send acks and the next requests."""
        if self.is_closed or self.link.is_foreign:
            return
        self.link.run_callbacks()
        now_s = time.monotonic()
        next_s = self.begin_requests()
        is_pause = next_s < now_s + LONGEST_WAIT_S
        is_planned = now_s < self._wake_s <= next_s
        if self._loop is not None and is_pause and not is_planned:
            self._wake_s = next_s
            self._loop.call_later(max(next_s - now_s, 0.001), self._wake)

    def _wake(self) -> None:
        """Make the loop begin another turn, which calls `on_tick`."""

    # -- requests

    def begin_requests(self) -> float:
        """Send acks and the next requests; return when to call it again.

        Connects again if it is time; PeerError if the broker is away for too long.
        """
        now_s = time.monotonic()
        if not self.link.is_open and not self.link.recover():
            return now_s + RECONNECT_S
        next_s = now_s + LONGEST_WAIT_S
        try:
            self.settler.begin_requests()
            for channel in self.channels:
                if any(each.is_overdue(now_s) for each in channel.known_sources):
                    self.link.drop()
                    return now_s
                next_s = min(next_s, channel.begin_requests(now_s))
            self.link.flush()
        except PeerError:
            return now_s + RECONNECT_S
        return next_s

    def drain_events(self, connection: object, timeout: float | None = None) -> None:
        """Wait for messages and deliver them; TimeoutError without one in time."""
        end_s = None if timeout is None else time.monotonic() + timeout
        before = self.delivered
        while True:
            self.link.run_callbacks()
            next_s = self.begin_requests()
            now_s = time.monotonic()
            if self.delivered != before:
                return
            if self.is_late(now_s):
                self.settler.renew()
            wait_s = max(0.0, next_s - now_s)
            if end_s is not None:
                wait_s = min(wait_s, max(0.0, end_s - now_s))
            if self.link.has_arrived:
                continue
            if self.link.is_open:
                self.link.receive(min(wait_s, LONGEST_WAIT_S))
                self.link.run_callbacks()
            else:
                time.sleep(min(wait_s, RECONNECT_S))
            if self.delivered != before:
                self.begin_requests()
                return
            if end_s is not None and time.monotonic() >= end_s:
                raise socket.timeout  # noqa: UP041 - the name that kombu documents

    # -- leases

    def on_lease(self) -> None:
        """Start the thread that renews, if the owner may be busy with a message."""
        if self._has_keeper or self.settler.is_batching:
            return
        self._has_keeper = True
        start_keeper(self)

    def is_late(self, now_s: float) -> bool:
        """Whether leases have not been renewed in time."""
        return now_s > self.settler.renewed_s + self.options.visibility_timeout * 0.4

    def keep(self) -> None:
        """Renew the leases while the owner is busy."""
        if self.link.recover():
            self.settler.renew()
            self.settler.flush()
            self.link.receive(LONGEST_WAIT_S / 10)


class SecureTransport(Transport):
    """The transport `rmqs`: `rmq` over TLS."""

    is_secure = True


def _add_to_worker(driver_type: str) -> None:
    """Let the steps of a worker in this process accept the transport.

    Celery lists the transports on which workers greet each other (mingle) and follow
    each other's events (gossip).
    """
    for module, name in CELERY_STEPS:
        loaded = sys.modules.get(module)
        if loaded is not None:
            step = getattr(loaded, name)
            step.compatible_transports = step.compatible_transports | {driver_type}
