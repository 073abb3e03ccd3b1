"""Replication: connects the parts that copy the log between the brokers of a group.

Every broker serves its log to the others (`LogServer`).  A slave fetches the log of its
master (`ReplicaFetcher`) and copies its tables (`SlaveSynchronizer`).

Known in Java as `DefaultHAService` and, in a group with a controller,
`AutoSwitchHAService`.
"""

import logging
import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from rmq._fastpath.log.watermark import Watermark
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.directory import Directory
from rmq.cluster.group_role import GroupRole
from rmq.cluster.known_members import KnownMembers
from rmq.cluster.log_server import LogServer
from rmq.cluster.read_suggestion import ReadSuggestion
from rmq.cluster.slave_acks import Acks
from rmq.cluster.slave_synchronize import SlaveSynchronizer
from rmq.config.broker import BrokerConfig
from rmq.core.errors import PeerError, RequestRejected
from rmq.core.logs import Foreign
from rmq.core.offsets import PhysicalOffset
from rmq.core.threads import in_thread
from rmq.protocol.command import Command
from rmq.store.config import BrokerRole
from rmq.store.message_store import MessageStore
from rmq.store.service import StoreService

if TYPE_CHECKING:
    from rmq.cluster.acting_master import ActingMaster
    from rmq.cluster.fetcher import ReplicaFetcher
    from rmq.cluster.link_tls import LinkTls
    from rmq.cluster.log_source import LogSource
    from rmq.cluster.membership import Membership
    from rmq.cluster.remote_escape import RemoteEscape
    from rmq.cluster.term_state import TermState

logger = logging.getLogger(__name__)

MEMBERS_INTERVAL_S = 60.0
"""Period in which a broker asks name servers for the other brokers of its group."""

MEMBERS_MS = 1_000
"""Time in which another broker of the group has to answer, as in Java."""

TOPICS_INTERVAL_S = 1.0
"""Period in which a slave searches for its first compaction topic."""

FIRST_INTERVAL_S = 2.0
"""The period of a broker that knows no other broker of its group yet."""


class Replication:
    """The replication of one broker. Known in Java as `HAService`."""

    def __init__(
        self,
        config: ReplicationConfig,
        broker: BrokerConfig,
        role: GroupRole,
        store: MessageStore,
        directory: Directory,
        tls: "LinkTls | None" = None,
        membership: "Membership | None" = None,
        on_sessions_changed: Callable[[bool, float], None] | None = None,
    ) -> None:
        """`on_sessions_changed` is as in `LogServer`."""
        self.config = config
        self.role = role
        self.fetcher: ReplicaFetcher | None = None
        self.synchronizer = SlaveSynchronizer(
            role,
            directory.send_request,
            is_copy=lambda: self.fetcher is not None and self.fetcher.is_copy,
            safe_offset=lambda: store.positions.safe_offset,
        )
        self.read_suggestion = ReadSuggestion(broker, role, store, directory)
        self._store = store
        self._known = KnownMembers(store.directory.root, store.clock)
        self._directory = directory
        self._tls = tls
        self._membership = membership
        self.term_state: TermState | None = None
        """The state of the running term; None in a group without a controller."""

        self._acting = (
            _acting_master(config, broker, role, directory) if role.may_act else None
        )
        self.escape: RemoteEscape | None = None
        """Sends messages to other groups, if a slave may do this."""

        if role.may_act and not role.is_master and config.remote_escape_enable:
            self.escape = _remote_escape(broker, role, directory)
        if membership is not None:
            self._join_group(membership)
            return
        needed = 0
        replicated = None
        if role.kind is BrokerRole.SYNC_MASTER:
            needed = config.in_sync_replicas - 1
        if needed:
            timeout_ms = config.replica_timeout_ms
            replicated = store.durability.await_replicas(timeout_ms)
        self.log_server = LogServer(
            config,
            store.log,
            self._group_members,
            replicated=replicated,
            tls=tls,
            acks=Acks(needed),
            on_sessions_changed=on_sessions_changed,
        )

    @property
    def lock_quorum(self) -> int:
        """Number of brokers that must lock a queue for a consumer."""
        config = self.config
        is_strict = config.lock_in_strict_mode and self._membership is None
        return config.total_replicas // 2 + 1 if is_strict else 1

    async def ask_members(self, request: Command) -> list[Command]:
        """Send a request to the other brokers of the group; return their answers."""
        answers: list[Command] = []

        async def ask_one(address: str) -> None:
            try:
                answers.append(
                    await self._directory.send_request(address, request, MEMBERS_MS)
                )
            except (PeerError, RequestRejected) as error:
                logger.info("member %s of the group: %s", address, Foreign(error))

        with suppress(PeerError):
            members = await self._directory.group_members()
            async with trio.open_nursery() as nursery:
                for address in members.values():
                    if address != self._directory.own_address:
                        nursery.start_soon(ask_one, address)
        return answers

    def _join_group(self, membership: "Membership") -> None:
        """Take the role that the controller assigned."""
        # imported on use: most groups have no controller
        from rmq.cluster.slave_acks import SetAcks

        store, config = self._store, self.config
        log, positions = store.log, store.positions
        replicated = acks = None
        if membership.running_term.is_master:
            replicated = store.durability.await_group(config.replica_timeout_ms)
            visible_limit = positions.acknowledged
        else:
            confirm_offset = min(store.checkpoint.confirm_offset, log.end_offset)
            visible_limit = Watermark(confirm_offset)
        positions.confirm_by(visible_limit)
        term_state = self.term_state = membership.begin_term(
            store, visible_limit, lambda: self.log_server.acknowledge()
        )
        if term_state.sync_set is not None:
            acks = SetAcks(
                term_state.sync_set,
                needed=config.in_sync_replicas - 1,
                needs_all=config.needs_all,
                least=config.least_in_sync,
                end=lambda: log.end_offset,
                now_ms=store.clock.steady_ms,
                on_change=membership.review_set_soon,
            )
        self.log_server = LogServer(
            config,
            log,
            self._group_members,
            replicated=replicated,
            tls=self._tls,
            acks=acks,
            term_state=term_state,
        )
        self.log_server.acknowledge()

    def refresh_role(self) -> None:
        """Ask the controller for the master, or the name servers if there is no
        controller.
        """
        if self._membership is not None:
            self._membership.ask_role_soon()
        elif self._acting is not None:
            self._acting.look_soon()

    def keep_set(self) -> None:
        """Do not change the sync state set any more, because a stop closes the
        connections of slaves.
        """
        if self._membership is not None:
            self._membership.keep_set()

    def log_warnings(self) -> None:
        """Log settings that may surprise an operator."""
        kind = self.role.kind
        if self.term_state is not None:
            return
        if kind is BrokerRole.SYNC_MASTER and self.config.in_sync_replicas == 1:
            logger.warning(
                "brokerRole=SYNC_MASTER with inSyncReplicas=1 waits for no slave, as "
                "in Java: set inSyncReplicas=2"
            )

    async def run(self, listening: socket.socket) -> None:
        """Serve slaves, and follow the master if this broker is a slave."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.log_server.serve, listening)
            nursery.start_soon(self.read_suggestion.run)
            if self.role.kind is not BrokerRole.ASYNC_MASTER:
                nursery.start_soon(self._watch_members)
            if self._acting is not None:
                nursery.start_soon(self._acting.run)
            if self._tls is not None:
                nursery.start_soon(self._tls.run)
            if self.fetcher is not None:
                nursery.start_soon(self.fetcher.run)
                nursery.start_soon(self.synchronizer.run)
                nursery.start_soon(self._pull_earlier)

    def become_slave(
        self,
        service: StoreService,
        register_soon: Callable[[], None],
        on_append: Callable[[], None],
        on_cut: Callable[[], None],
    ) -> None:
        """Let `run` follow the master; `on_append` wakes held pulls.

        `register_soon` has name servers name the master again.  `on_cut` is called
        when the log of the open store has become shorter or empty.
        """
        # imported on use: a master has no fetcher
        from rmq.cluster.fetcher import ReplicaFetcher
        from rmq.cluster.remote_broker import AppointedMaster, MasterSource
        from rmq.store.log_backup import LogBackup
        from rmq.store.replica_writer import ReplicaWriter

        writer = ReplicaWriter(self._store)
        self._store.compaction.pulls_earlier = True

        async def cut_log(end: PhysicalOffset) -> Sequence[object]:
            backup = LogBackup(self._store.directory)
            steps = writer.cut_steps(end) if end else writer.reseed_steps(backup)
            with trio.CancelScope(shield=True):
                async with service.pause():
                    for step in steps:
                        await in_thread(step)
            if self.term_state is not None:
                self.term_state.cut_to(end)
            self.log_server.close_sessions()
            on_cut()
            return writer.cuts if end else [backup]

        source: LogSource
        if self.term_state is None:
            source = MasterSource(
                self.config, self.role, self._directory.send_request, register_soon
            )
        else:
            source = AppointedMaster(
                self.role.master_address, self._directory.send_request
            )
        is_sync = self._store.config.is_sync_flush
        self.fetcher = ReplicaFetcher(
            self.config,
            writer,
            source,
            on_append=on_append,
            on_following=self.synchronizer.copy_soon,
            durable=self._store.positions.durable if is_sync else None,
            cut=cut_log,
            tls=self._tls,
            term_state=self.term_state,
        )

    async def _group_members(self) -> Collection[str]:
        """Return the addresses of current and earlier other brokers of the group.

        A broker with a damaged log is not registered, and must be able to read this
        log.
        """
        try:
            await self._ask_members()
        except PeerError:
            if not self._known.addresses:
                raise
        own = self._directory.own_address
        return [each for each in self._known.addresses if each != own]

    async def _ask_members(self) -> None:
        """Ask name servers for the other brokers; save the addresses."""
        members = {*(await self._directory.other_members()).values()}
        if master := self.role.master_address:
            members.add(master)
        self._known.add(members)
        if self._known.has_changed:
            await in_thread(self._known.save)

    async def heal_blocks(self) -> None:
        """Get the bytes of bad blocks from other brokers, whenever there are any.

        For `StoreService`: no other task truncates the log meanwhile.
        """
        digests = self._store.digests
        found, token = trio.Event(), trio.lowlevel.current_trio_token()
        digests.has_peers = lambda: bool(self._known.addresses)
        digests.on_bad = lambda: token.run_sync_soon(lambda: found.set())
        try:
            while True:
                if not digests.bad:
                    await found.wait()
                found = trio.Event()
                # imported on use: a log is rarely damaged
                from rmq.cluster.block_healing import BlockHealer
                from rmq.cluster.healing import GroupPeers

                peers = GroupPeers(self._directory, self._known)
                own_id = (
                    None if self._membership is None else self._membership.place.own_id
                )
                healer = BlockHealer(self.config, digests, peers, own_id, self._tls)
                await healer.heal_all()
        finally:  # the log outlives this run of trio
            digests.on_bad = lambda: None

    async def _pull_earlier(self) -> None:
        """Pull the messages that compaction topics of this slave lack, as soon as there
        are such topics.
        """
        compaction = self._store.compaction
        while not compaction.topics:  # noqa: ASYNC110 - they come with the tables
            await trio.sleep(TOPICS_INTERVAL_S)
        # imported on use: few brokers have compaction topics
        from rmq.cluster.earlier_messages import EarlierMessages

        fetcher = self.fetcher
        await EarlierMessages(
            compaction,
            self.role,
            self._directory.send_request,
            lambda: fetcher is not None and fetcher.is_copy,
        ).run()

    async def _watch_members(self) -> None:
        while True:
            with suppress(PeerError):  # it asks again
                await self._ask_members()
            is_known = bool(self._known.addresses)
            await trio.sleep(MEMBERS_INTERVAL_S if is_known else FIRST_INTERVAL_S)


def _acting_master(
    config: ReplicationConfig,
    broker: BrokerConfig,
    role: GroupRole,
    directory: Directory,
) -> "ActingMaster":
    # imported on use: most groups have no acting masters
    from rmq.cluster.acting_master import ActingMaster

    return ActingMaster(config, broker, role, directory)


def _remote_escape(
    broker: BrokerConfig, role: GroupRole, directory: Directory
) -> "RemoteEscape":
    # imported on use: few groups have this setting
    from rmq.cluster.remote_escape import RemoteEscape

    return RemoteEscape(role, directory, broker.broker_name)
