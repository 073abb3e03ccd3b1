"""Primary: sends this broker's log to replicas, and counts what they acknowledge.

The HA port has no names and no passwords, and whoever reads it reads every message.  So
only the registered brokers of the group are served, and what `rmq.haPeers` names: by
address, before a byte is read.  A peer sends eight bytes at a time; one that reports
what cannot be is closed with a sentence, which `refusals` keeps for tools.
Known in Java as `DefaultHAService`.
"""

import ipaddress
import logging
import socket
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from rmq._fastpath import Watermark
from rmq.cluster.acks import Acks
from rmq.cluster.config import ReplicationConfig
from rmq.core.address import Address, host_of
from rmq.core.errors import PeerError, RemoteProtocolError
from rmq.core.logs import Foreign, SparseLog, caused_by
from rmq.remoting.sniffer import plain_address
from rmq.store.commit_log import CommitLog

if TYPE_CHECKING:
    from rmq.cluster.link_tls import LinkTls
    from rmq.cluster.session import Follower
    from rmq.cluster.term_state import Control

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

MAX_FOLLOWERS = 64
MAX_REFUSALS = 8
REFUSALS_KEPT_S = 600.0
"""How long tools show why a peer was refused."""

MEMBERS_KEPT_S = 30.0
"""How long the addresses of the group are believed; a stranger asks for them sooner."""

PORTION_S = 0.001
"""How often replicas get what was stored if nobody waits for them: each portion costs
a turn of both event loops."""

REST_S = 0.002
"""When the end of a burst leaves that no later poll sends, and, in a group with a
controller, what has been confirmed since."""

MEMBERS_PAUSE_S = 1.0
BACK_OFF_S = 0.1
SETTLE_PAUSE_S = 0.005

Members = Callable[[], Awaitable[Collection[str]]]
"""Returns "host:port" of the group's brokers; PeerError if nobody knows."""


class FollowerStatus(NamedTuple):
    """A replica, as tools see it."""

    address: str
    acknowledged: int
    next_offset: int
    behind: int
    is_in_sync: bool
    bytes_per_second: int


class Primary:
    """The listener of replicas, and those that are connected."""

    def __init__(
        self,
        config: ReplicationConfig,
        log: CommitLog,
        members: Members,
        *,
        needed: int = 0,
        replicated: Watermark | None = None,
        tls: "LinkTls | None" = None,
        acks: Acks | None = None,
        control: "Control | None" = None,
    ) -> None:
        """`needed` replicas move `replicated`; senders wait for that.

        In a group with a controller `acks` says who has to have a message.
        """
        self.acks = acks or Acks(needed)
        self.on_followed: Callable[[bool, float], None] = lambda _is, _portion_s: None
        """Called with whether there are replicas, when that changes, and with how long
        they may wait for what was stored."""

        self._portion_s = PORTION_S if replicated is None else 0.0
        self._config = config
        self._log = log
        self._members = members
        self._replicated = replicated
        self._tls = tls
        self._control = control
        self._networks = config.peer_networks()
        self._refusals: deque[tuple[float, str]] = deque(maxlen=MAX_REFUSALS)
        self._followers: dict[Follower, trio.CancelScope] = {}
        self._hosts: Counter[str] = Counter()
        self._arriving = 0
        """Connections of which it is not known yet whether they may follow."""

        self._next_push_s = 0.0
        self._pushed_end = -1
        self._has_rest = False
        self._rest = trio.Event()
        self._asked_s = -MEMBERS_KEPT_S
        self._asking = trio.Lock()

    async def serve(self, listening: socket.socket) -> None:
        """Accept replicas until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._push_rests)
            while True:
                await trio.lowlevel.wait_readable(listening)
                try:
                    connected, peer = listening.accept()
                except BlockingIOError:
                    continue
                except OSError as error:
                    logger.error("cannot accept a replica: %s", error.strerror)
                    await trio.sleep(BACK_OFF_S)
                    continue
                if self._arriving >= MAX_FOLLOWERS:
                    connected.close()
                    continue
                connected.setblocking(False)
                self._arriving += 1
                nursery.start_soon(self._follow, connected, *plain_address(peer))

    def push(self) -> None:
        """Send replicas what was stored; call it after each poll."""
        if self._control is not None and self._log.end_offset > self._pushed_end:
            self._pushed_end = self._log.end_offset
            self.acknowledge()  # for a master that is alone in its set
        if not self._followers:
            return
        now_s = trio.current_time()
        if now_s < self._next_push_s:
            self._push_soon()
            return
        self._next_push_s = now_s + self._portion_s
        self._has_rest = False
        for follower in self._followers:
            follower.push()

    def _push_soon(self) -> None:
        self._has_rest = True
        self._rest.set()

    async def _push_rests(self) -> None:
        while True:
            await self._rest.wait()
            self._rest = trio.Event()
            while self._has_rest:
                await trio.sleep(REST_S)
                if self._has_rest:
                    self.push()

    def acknowledge(self) -> None:
        """Answer the senders whose messages enough brokers have."""
        if self._replicated is not None:
            self._replicated.advance(self.acks.replicated())

    async def settle(self, limit_s: float) -> None:
        """Wait until every replica has the whole log, for so long at most."""
        with trio.move_on_after(limit_s):
            while any(
                0 <= self.acks.of(each) < self._log.end_offset
                for each in self._followers
            ):
                self.push()
                await trio.sleep(SETTLE_PAUSE_S)

    def leave_all(self) -> None:
        """Close all connections: the log has become shorter."""
        for scope in self._followers.values():
            scope.cancel()

    def statuses(self) -> list[FollowerStatus]:
        """Return the connected replicas."""
        end, gap = self._log.end_offset, self._config.in_sync_gap
        return [
            FollowerStatus(
                each.address,
                self.acks.of(each),
                each.next_offset,
                max(0, end - self.acks.of(each)),  # an empty slave reports 1
                self.acks.is_in_sync(each, end, gap),
                each.rate.per_second(),
            )
            for each in self._followers
        ]

    @property
    def refusals(self) -> list[str]:
        """Why peers were refused lately; the newest is the last."""
        if not self._refusals:  # also before there is a loop, and its clock
            return []
        oldest_s = trio.current_time() - REFUSALS_KEPT_S
        return [text for at_s, text in self._refusals if at_s > oldest_s]

    # -- one connection

    async def _follow(self, connected: socket.socket, host: str, port: int) -> None:
        address = str(Address(host, port))
        with connected, ExitStack() as arrival:
            arrival.callback(self._end_arrival)
            refusal = await self._refusal(host)
            is_tls = False
            if self._tls is not None and not refusal:
                is_tls, refusal = await self._speaks_tls(self._tls, connected)
            if refusal:
                self._refuse(address, refusal)
                return
            with suppress(OSError):  # it is gone, which its first read finds
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None or not is_tls:
                arrival.close()
                await self._serve(connected, address)
                return
            async with trio.open_nursery() as nursery:

                def hand_over(decrypted: socket.socket) -> None:
                    arrival.close()
                    nursery.start_soon(self._serve, decrypted, address)

                await self._tls.serve(connected, hand_over, address)

    def _end_arrival(self) -> None:
        self._arriving -= 1

    async def _speaks_tls(
        self, tls: "LinkTls", connected: socket.socket
    ) -> tuple[bool, str]:
        """Return whether a peer begins with a handshake, or why it is not served."""
        try:
            is_tls = await tls.is_asked(connected)
        except OSError as error:
            return False, str(error)
        if is_tls is None:
            return False, "it said nothing"
        if not is_tls and not tls.takes_plain:
            return False, "it does not use TLS, and rmq.haTls is enforcing here"
        return is_tls, ""

    async def _serve(self, connected: socket.socket, address: str) -> None:
        # imported on use: most brokers have no replica
        from rmq.cluster.session import Follower

        with connected:
            follower = Follower(
                connected,
                address,
                self._log,
                self._config,
                self._take_report,
                self._control,
                self._leave_older,
            )
            logger.info("the replica %s is connected", address)
            with trio.CancelScope() as scope:
                await self._run(follower, scope)
        logger.info("the replica %s is gone", address)

    async def _run(self, follower: "Follower", scope: trio.CancelScope) -> None:
        self._followers[follower] = scope
        self.on_followed(True, self._portion_s)
        try:
            await follower.run()
        except* RemoteProtocolError as errors:
            self._refuse(follower.address, str(errors.exceptions[0]))
        except* OSError as errors:
            logger.info("the replica %s: %s", follower.address, errors.exceptions[0])
        finally:
            del self._followers[follower]
            self.acks.leave(follower)
            self.on_followed(bool(self._followers), self._portion_s)

    def _take_report(self, follower: "Follower", offset: int) -> None:
        has_more = offset > self.acks.of(follower)
        self.acks.report(follower, offset, sent=follower.next_offset)
        self.acknowledge()
        if self._control is not None and has_more:
            self._push_soon()  # readers of replicas wait for what is confirmed

    def _leave_older(self, follower: "Follower") -> None:
        """Close what a replica with this id had before: it came back."""
        assert follower.greeting is not None, "it has greeted"
        for each, scope in self._followers.items():
            is_same = each.greeting is not None and (
                each.greeting.broker_id == follower.greeting.broker_id
            )
            if is_same and each is not follower:
                scope.cancel()

    def _refuse(self, address: str, reason: str) -> None:
        text = f"{address} may not follow: {reason}"
        self._refusals.append((trio.current_time(), text))
        logger.warning("%s", Foreign(text, 400), extra=caused_by(address))

    # -- who may

    async def _refusal(self, host: str) -> str:
        """Return why a peer is not served, empty if it is."""
        if len(self._followers) >= MAX_FOLLOWERS:
            return f"{MAX_FOLLOWERS} replicas are connected"
        known = ipaddress.ip_address(host.partition("%")[0])
        if any(known in network for network in self._networks):
            return ""
        same = [each for each in self._followers if host_of(each.address) == host]
        is_old = trio.current_time() - self._asked_s > MEMBERS_KEPT_S
        if is_old or len(same) >= self._hosts[host]:
            await self._ask_members()
        allowed = self._hosts[host]
        if not allowed:
            return (
                "no other broker of this group is registered with its address; "
                "rmq.haPeers may name it"
            )
        for each in same[: max(0, len(same) + 1 - allowed)]:
            if each in self._followers:
                self._followers[each].cancel()  # it came back over a new connection
        return ""

    async def _ask_members(self) -> None:
        async with self._asking:
            if trio.current_time() - self._asked_s < MEMBERS_PAUSE_S:
                return
            self._asked_s = trio.current_time()
            try:
                found = await self._members()
            except PeerError as error:
                logger.warning("who is in this group: %s", Foreign(error))
                return
            self._hosts = Counter()
            for address in found:
                self._hosts[await _numeric(host_of(address))] += 1


async def _numeric(host: str) -> str:
    """Return the address of a host name; a name without one matches nobody."""
    try:
        found = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ""
    return str(found[0][4][0])
