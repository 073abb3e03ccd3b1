"""Replication: the ends of the log's copy in one broker, put together.

Every broker serves its log to the others of its group (`Primary`); a slave follows its
master (`Replica`) and copies its tables (`slave_synchronize.py`).
"""

import logging
import socket
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import trio

from rmq.broker.nameservers import NameServers
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.log_server import Primary
from rmq.cluster.read_suggestion import Suggestion
from rmq.cluster.role import Role
from rmq.cluster.slave_synchronize import CopiedTables
from rmq.config.broker import BrokerConfig
from rmq.core.threads import in_thread
from rmq.store.config import BrokerRole
from rmq.store.message_store import MessageStore
from rmq.store.service import StoreService

if TYPE_CHECKING:
    from rmq.cluster.fetcher import Replica
    from rmq.cluster.link_tls import LinkTls
    from rmq.cluster.membership import Membership
    from rmq.cluster.term_state import Control
    from rmq.cluster.upstream import Upstream

logger = logging.getLogger(__name__)


class Replication:
    """The replication of one broker. Known in Java as `HAService`."""

    def __init__(
        self,
        config: ReplicationConfig | None,
        broker: BrokerConfig,
        role: Role,
        store: MessageStore,
        name_servers: NameServers,
        tls: "LinkTls | None" = None,
        membership: "Membership | None" = None,
    ) -> None:
        self.config = config = config or ReplicationConfig()
        self.role = role
        self.tables = CopiedTables(role, name_servers.ask)
        self.suggestion = Suggestion(broker, role, store, name_servers)
        self.replica: Replica | None = None
        self._store = store
        self._name_servers = name_servers
        self._tls = tls
        self.control: Control | None = None
        """What the controller has said; None in a group without one."""

        self.look_again: Callable[[], None] = lambda: None
        """Asks the controller, if there is one, who is the master."""

        if membership is not None:
            self._join(membership)
            return
        needed = 0
        replicated = None
        if role.kind is BrokerRole.SYNC_MASTER:
            needed = config.in_sync_replicas - 1
        if needed:
            timeout_ms = config.replica_timeout_ms
            replicated = store.durability.await_replicas(timeout_ms)
        self.primary = Primary(
            config,
            store.log,
            self._members,
            needed=needed,
            replicated=replicated,
            tls=tls,
        )

    def _join(self, membership: "Membership") -> None:
        """Take the role that the controller gave."""
        # imported on use: most groups have no controller
        from rmq.cluster.set_acks import SetAcks

        store, config = self._store, self.config
        durability, log, positions = store.durability, store.log, store.positions
        control = self.control = membership.begin(store)
        self.look_again = membership.ask_soon
        replicated = acks = None
        if control.group is None:
            confirm = control.confirm
            confirm.reset(min(store.checkpoint.confirm_offset, log.end_offset))
        else:
            replicated = durability.await_group(config.replica_timeout_ms)
            acks = SetAcks(
                control.group,
                needed=config.in_sync_replicas - 1,
                needs_all=config.needs_all,
                least=config.least_in_sync,
                end=lambda: log.end_offset,
                now_ms=store.clock.steady_ms,
                on_change=membership.look_soon,
            )
            control.confirm = confirm = positions.acknowledged
        positions.limit_visible(confirm)
        self.primary = Primary(
            config,
            log,
            self._members,
            replicated=replicated,
            tls=self._tls,
            acks=acks,
            control=control,
        )
        self.primary.acknowledge()
        membership.on_set = self.primary.acknowledge

    def warn(self) -> None:
        """Log what an operator may not expect."""
        kind = self.role.kind
        if self.control is not None:
            return
        if kind is BrokerRole.SYNC_MASTER and self.config.in_sync_replicas == 1:
            logger.warning(
                "brokerRole=SYNC_MASTER with inSyncReplicas=1 waits for no slave, as "
                "in Java: set inSyncReplicas=2"
            )

    async def run(self, listening: socket.socket) -> None:
        """Serve replicas, and follow the master if this is a slave."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.primary.serve, listening)
            nursery.start_soon(self.suggestion.run)
            if self._tls is not None:
                nursery.start_soon(self._tls.run)
            if self.replica is not None:
                nursery.start_soon(self.replica.run)
                nursery.start_soon(self.tables.run)

    def become_replica(
        self,
        service: StoreService,
        on_append: Callable[[], None],
        on_cut: Callable[[], None],
    ) -> None:
        """Have `run` follow the master; `on_append` wakes those who wait for messages.

        The store is open; `on_cut` is called when its log has become shorter or empty.
        """
        # imported on use: a master follows nobody
        from rmq.cluster.fetcher import Replica
        from rmq.cluster.master_requests import AppointedMaster, MasterUpstream
        from rmq.store.aside import Aside
        from rmq.store.replica_writer import ReplicaWriter

        is_sync = self._store.config.is_sync_flush
        writer = ReplicaWriter(self._store)

        async def cut(end: int) -> Sequence[object]:
            aside = Aside(self._store.directory)
            steps = writer.cut_steps(end) if end else writer.begin_anew_steps(aside)
            with trio.CancelScope(shield=True):
                async with service.paused():
                    for step in steps:
                        await in_thread(step)
            if self.control is not None:
                self.control.cut(end)
            self.primary.leave_all()
            on_cut()
            return writer.cuts if end else [aside]

        upstream: Upstream
        if self.control is None:
            upstream = MasterUpstream(self.config, self.role, self._name_servers)
        else:
            master, ask = self.role.master_address, self._name_servers.ask
            upstream = AppointedMaster(master, ask)
        self.replica = Replica(
            self.config,
            writer,
            upstream,
            on_append=on_append,
            durable=self._store.positions.durable if is_sync else None,
            cut=cut,
            tls=self._tls,
            control=self.control,
        )
        replica = self.replica
        self.tables.safe_end = lambda: replica.safe_offset
        self.replica.on_follow = self.tables.note_change
        self.tables.is_copy = lambda: self.replica is not None and self.replica.is_copy

    async def _members(self) -> Collection[str]:
        """Return the addresses of the other brokers of the group."""
        members = await self._name_servers.group_members()
        master = self.role.master_address
        return [*members, master] if master and master not in members else members
