"""LogServer: sends the log of this broker to slaves, and counts their acknowledgements.

The HA port has no names and no passwords, and a reader gets every message. So it serves
only the registered brokers of the group, and the addresses in `rmq.haPeers`. It checks
the address before it reads a byte. In a group with acting masters a host may also
follow after it asked for the HA address, because Java's slaves register later. Each
report of a peer has eight bytes. The server closes the connection of a peer with an
impossible report; `recent_refusals` keeps the reason for tools. Known in Java as
`DefaultHAService`.
"""

import ipaddress
import logging
import socket
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import trio

from rmq._fastpath.log.watermark import Watermark
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.slave_acks import Acks
from rmq.core.address import Address, host_of
from rmq.core.errors import PeerError, RemoteProtocolError
from rmq.core.logs import Foreign, SparseLog, caused_by
from rmq.core.offsets import PhysicalOffset
from rmq.remoting.sniffer import plain_address
from rmq.store.commit_log import CommitLog

if TYPE_CHECKING:
    from rmq.cluster.link import Link
    from rmq.cluster.link_tls import LinkTls
    from rmq.cluster.session import ReplicaSession
    from rmq.cluster.term_state import TermState
    from rmq.plugin.replicas import SlaveStatus

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

MAX_SESSIONS = 64
MAX_REFUSALS = 8
REFUSAL_TTL_S = 600.0
"""Time for which tools show the refusal of a peer."""

MEMBERS_TTL_S = 30.0
"""Time for which the addresses of the group are cached; an unknown peer refreshes them.
"""

PORTION_S = 0.001
"""Pause between two portions of new bytes if no sender waits: each portion costs a turn
of both event loops.
"""

REST_S = 0.002
"""Delay after which the last bytes of a burst are sent without another poll. A new
confirm offset, in a group with a controller, has the same delay.
"""

EXPECTED_S = 60.0
"""Time in which a host that has asked for the HA address may connect."""

MEMBERS_PAUSE_S = 1.0
BACK_OFF_S = 0.1
SETTLE_PAUSE_S = 0.005

Members = Callable[[], Awaitable[Collection[str]]]
"""Returns "host:port" of the group's brokers; PeerError if no name server answers."""


class LogServer:
    """The listener for slaves, and their sessions."""

    def __init__(
        self,
        config: ReplicationConfig,
        log: CommitLog,
        members: Members,
        *,
        replicated: Watermark | None = None,
        tls: "LinkTls | None" = None,
        acks: Acks | None = None,
        term_state: "TermState | None" = None,
        on_sessions_changed: Callable[[bool, float], None] | None = None,
    ) -> None:
        """`acks` defines which brokers must have a message, and so moves `replicated`.

        `on_sessions_changed` gets two values: whether slaves are connected, and the
        maximum seconds until a stored message is sent to them.
        """
        self.acks = acks or Acks(0)
        self._on_sessions_changed = on_sessions_changed
        self._portion_s = PORTION_S if replicated is None else 0.0
        self._config = config
        self._log = log
        self._members = members
        self._replicated = replicated
        self._tls = tls
        self._term_state = term_state
        self._networks = config.peer_networks()
        self._refusals: deque[tuple[float, str]] = deque(maxlen=MAX_REFUSALS)
        self._sessions: dict[ReplicaSession, trio.CancelScope] = {}
        self._member_hosts: Counter[str] = Counter()
        self._expected_until: dict[str, float] = {}
        """The time up to which a host that is not registered may connect."""

        self._arriving = 0
        """Number of connections that are neither accepted nor refused yet."""

        self._next_push_s = 0.0
        self._pushed_end = -1
        self._has_rest = False
        self._rest_added = trio.Event()
        self._refreshed_s = -MEMBERS_TTL_S
        self._refresh_lock = trio.Lock()

    async def serve(self, listening: socket.socket) -> None:
        """Accept slaves until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._push_rests)
            while True:
                await trio.lowlevel.wait_readable(listening)
                try:
                    connected, peer = listening.accept()
                except BlockingIOError:
                    continue
                except OSError as error:
                    logger.error("cannot accept a slave: %s", error.strerror)
                    await trio.sleep(BACK_OFF_S)
                    continue
                if self._arriving >= MAX_SESSIONS:
                    connected.close()
                    continue
                connected.setblocking(False)
                self._arriving += 1
                nursery.start_soon(self._accept_peer, connected, *plain_address(peer))

    def push(self) -> None:
        """Send new bytes to slaves; call it after each poll."""
        if self._term_state is not None and self._log.end_offset > self._pushed_end:
            self._pushed_end = self._log.end_offset
            self.acknowledge()  # for a master that is alone in its set
        if not self._sessions:
            return
        now_s = trio.current_time()
        if now_s < self._next_push_s:
            self._push_soon()
            return
        self._next_push_s = now_s + self._portion_s
        self._has_rest = False
        for follower in self._sessions:
            follower.push()

    def _push_soon(self) -> None:
        self._has_rest = True
        self._rest_added.set()

    async def _push_rests(self) -> None:
        while True:
            await self._rest_added.wait()
            self._rest_added = trio.Event()
            while self._has_rest:
                await trio.sleep(REST_S)
                if self._has_rest:
                    self.push()

    def acknowledge(self) -> None:
        """Answer the senders whose messages enough brokers have."""
        if self._replicated is not None:
            self._replicated.advance(self.acks.replicated_offset())

    async def wait_replicated(self, limit_s: float) -> None:
        """Wait until every slave has the whole log, for `limit_s` at most."""
        with trio.move_on_after(limit_s):
            while any(
                0 <= self.acks.offset_of(each) < self._log.end_offset
                for each in self._sessions
            ):
                self.push()
                await trio.sleep(SETTLE_PAUSE_S)

    def close_sessions(self) -> None:
        """Close all connections: the log has become shorter."""
        for scope in self._sessions.values():
            scope.cancel()

    def session_statuses(self) -> "list[SlaveStatus]":
        """Return the state of each connected slave."""
        end, gap = self._log.end_offset, self._config.in_sync_gap
        # imported on use: the Protocols of this module take time
        from rmq.plugin.replicas import SlaveStatus

        return [
            SlaveStatus(
                each.address,
                self.acks.offset_of(each),
                each.next_offset,
                max(0, end - self.acks.offset_of(each)),  # an empty slave reports 1
                self.acks.is_in_sync(each, end, gap),
                each.rate.per_second(),
            )
            for each in self._sessions
        ]

    @property
    def recent_refusals(self) -> list[str]:
        """Reasons of recent refusals of peers; the newest is the last."""
        if not self._refusals:  # also before the event loop and its clock exist
            return []
        oldest_s = trio.current_time() - REFUSAL_TTL_S
        return [text for at_s, text in self._refusals if at_s > oldest_s]

    # -- one connection

    async def _accept_peer(
        self, connected: socket.socket, host: str, port: int
    ) -> None:
        address = str(Address(host, port))
        with connected, ExitStack() as arrival:
            arrival.callback(self._end_arrival)
            refusal = await self._find_refusal(host)
            is_tls = False
            if self._tls is not None and not refusal:
                is_tls, refusal = await self._detect_tls(self._tls, connected)
            if refusal:
                self._refuse(address, refusal)
                return
            with suppress(OSError):  # the peer is gone; the first read will fail
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                link = await self._open_link(connected, is_tls=is_tls)
            except OSError as error:
                self._refuse(address, str(error))
                return
            arrival.close()
            await self._serve(link, address)

    async def _open_link(self, connected: socket.socket, *, is_tls: bool) -> "Link":
        # imported on use: most brokers have no slave
        from rmq.cluster.link import Link

        if self._tls is not None and is_tls:
            return await self._tls.accept(connected)
        return Link(connected)

    def _end_arrival(self) -> None:
        self._arriving -= 1

    async def _detect_tls(
        self, tls: "LinkTls", connected: socket.socket
    ) -> tuple[bool, str]:
        """Return whether a peer begins with a TLS handshake, or the reason why it is
        not served.
        """
        try:
            is_tls = await tls.starts_with_handshake(connected)
        except OSError as error:
            return False, str(error)
        if is_tls is None:
            return False, "the peer sent nothing"
        if not is_tls and not tls.takes_plain:
            return (
                False,
                "the peer does not use TLS, and this broker has rmq.haTls=enforcing",
            )
        return is_tls, ""

    async def _serve(self, link: "Link", address: str) -> None:
        # imported on use: most brokers have no slave
        from rmq.cluster.session import ReplicaSession

        async with link:
            follower = ReplicaSession(
                link,
                address,
                self._log,
                self._config,
                self._apply_report,
                self._term_state,
                self._close_older_session,
            )
            logger.info("the slave %s is connected", address)
            with trio.CancelScope() as scope:
                await self._run_session(follower, scope)
        logger.info("the slave %s is disconnected", address)

    async def _run_session(
        self, follower: "ReplicaSession", scope: trio.CancelScope
    ) -> None:
        self._sessions[follower] = scope
        self._announce_sessions()
        try:
            await follower.run()
        except* RemoteProtocolError as errors:
            self._refuse(follower.address, str(errors.exceptions[0]))
        except* OSError as errors:
            logger.info("the slave %s: %s", follower.address, errors.exceptions[0])
        finally:
            del self._sessions[follower]
            self.acks.remove(follower)
            self._announce_sessions()

    def _announce_sessions(self) -> None:
        if self._on_sessions_changed is not None:
            self._on_sessions_changed(bool(self._sessions), self._portion_s)

    def _apply_report(self, follower: "ReplicaSession", offset: PhysicalOffset) -> None:
        has_more = offset > self.acks.offset_of(follower)
        self.acks.report(follower, offset, sent=follower.next_offset)
        self.acknowledge()
        if self._term_state is not None and has_more:
            self._push_soon()  # readers at slaves wait for the confirm offset

    def _close_older_session(self, follower: "ReplicaSession") -> None:
        """Close an older session of the same broker id."""
        assert follower.handshake is not None, "it has sent a handshake"
        for each, scope in self._sessions.items():
            is_same = each.handshake is not None and (
                each.handshake.broker_id == follower.handshake.broker_id
            )
            if is_same and each is not follower:
                scope.cancel()

    def _refuse(self, address: str, reason: str) -> None:
        text = f"{address} may not follow: {reason}"
        self._refusals.append((trio.current_time(), text))
        logger.warning("%s", Foreign(text, 400), extra=caused_by(address))

    # -- access

    def expect_slave(self, host: str) -> None:
        """Let a host that has asked for the HA address connect, also unregistered.

        It has one session at a time, and EXPECTED_S to connect. Only in a group with
        acting masters, and for at most MAX_SESSIONS hosts.
        """
        if not self._config.acting_master_enable:
            return
        now_s = trio.current_time()
        for each, until_s in list(self._expected_until.items()):
            if until_s < now_s:
                del self._expected_until[each]
        if len(self._expected_until) < MAX_SESSIONS:
            self._expected_until[host] = now_s + EXPECTED_S

    def _is_expected(self, host: str) -> bool:
        return self._expected_until.get(host, 0.0) > trio.current_time()

    async def _find_refusal(self, host: str) -> str:
        """Return the reason why a peer is not served; empty if it is served."""
        if len(self._sessions) >= MAX_SESSIONS:
            return f"{MAX_SESSIONS} slaves are connected"
        known = ipaddress.ip_address(host.partition("%")[0])
        if any(known in network for network in self._networks):
            return ""
        same = [each for each in self._sessions if host_of(each.address) == host]
        is_old = trio.current_time() - self._refreshed_s > MEMBERS_TTL_S
        if is_old or len(same) >= self._member_hosts[host]:
            await self._refresh_members()
        allowed = self._member_hosts[host] or int(self._is_expected(host))
        if not allowed:
            return (
                "no other broker of this group is registered with this address; if the "
                "peer belongs to the group, add the address to rmq.haPeers"
            )
        for each in same[: max(0, len(same) + 1 - allowed)]:
            if each in self._sessions:
                self._sessions[each].cancel()  # the peer has a new connection
        return ""

    async def _refresh_members(self) -> None:
        async with self._refresh_lock:
            if trio.current_time() - self._refreshed_s < MEMBERS_PAUSE_S:
                return
            self._refreshed_s = trio.current_time()
            try:
                found = await self._members()
            except PeerError as error:
                logger.warning(
                    "cannot read the group members from the name servers: %s",
                    Foreign(error),
                )
                return
            self._member_hosts = Counter()
            for address in found:
                self._member_hosts[await _resolve_host(host_of(address))] += 1


async def _resolve_host(host: str) -> str:
    """Return the address of a host name; a name without an address matches no peer."""
    try:
        found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ""
    return str(found[0][4][0])
