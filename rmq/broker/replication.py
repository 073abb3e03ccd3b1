"""Replication: the ends of the log's copy in one broker, put together.

Every broker serves its log to the others of its group (`Primary`); a slave follows its
master (`Replica`) and copies its tables (`copied_tables.py`).
"""

import logging
import socket
from collections.abc import Callable, Collection

import trio

from rmq.broker.copied_tables import CopiedTables
from rmq.broker.nameservers import NameServers
from rmq.broker.role import Role
from rmq.errors import ConnectFailed, RequestRejected
from rmq.protocol.bodies.common import KVTable
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.replication.config import ReplicationConfig
from rmq.replication.primary import Primary
from rmq.replication.replica import Bounds, Replica
from rmq.store.config import BrokerRole
from rmq.store.message_store import MessageStore
from rmq.store.replica_writer import ReplicaWriter

logger = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 3_000
LOOK_UP_PAUSE_S = 1.0
LOOK_UP_LIMIT_S = 30.0
"""A slave without a master asks the name servers at such a pause, which doubles."""


class Replication:
    """The replication of one broker. Known in Java as `HAService`."""

    def __init__(
        self,
        config: ReplicationConfig,
        role: Role,
        store: MessageStore,
        name_servers: NameServers,
    ) -> None:
        self.config = config
        self.role = role
        self.tables = CopiedTables(role, name_servers.ask)
        self.replica: Replica | None = None
        self._store = store
        self._name_servers = name_servers
        self._master_found = trio.Event()
        role.on_change.append(self._master_found.set)
        self._look_up_s = LOOK_UP_PAUSE_S
        self._tried_s = self._asked_s = -LOOK_UP_LIMIT_S
        needed = 0
        replicated = None
        if role.kind is BrokerRole.SYNC_MASTER:
            needed = config.in_sync_replicas - 1
        if needed:
            timeout_ms = config.replica_timeout_ms
            replicated = store.durability.await_replicas(timeout_ms)
        self.primary = Primary(
            config, store.log, self._members, needed=needed, replicated=replicated
        )

    def warn(self) -> None:
        """Log what an operator may not expect."""
        kind = self.role.kind
        if kind is BrokerRole.SYNC_MASTER and self.config.in_sync_replicas == 1:
            logger.warning(
                "brokerRole=SYNC_MASTER with inSyncReplicas=1 waits for no slave, as "
                "in Java: set inSyncReplicas=2"
            )

    async def run(self, listening: socket.socket) -> None:
        """Serve replicas, and follow the master if this is a slave."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.primary.serve, listening)
            if self.replica is not None:
                nursery.start_soon(self.replica.run)
                nursery.start_soon(self.tables.run)

    def become_replica(self, on_append: Callable[[], None]) -> None:
        """Have `run` follow the master; `on_append` wakes those who wait for messages.

        The store is open.
        """
        is_sync = self._store.config.is_sync_flush
        self.replica = Replica(
            self.config,
            ReplicaWriter(self._store),
            find_master=self._find_master,
            ask_bounds=self._ask_bounds,
            on_append=on_append,
            durable=self._store.durability.durable if is_sync else None,
        )

    # -- what they ask others

    async def _members(self) -> Collection[str]:
        """Return the addresses of the other brokers of the group."""
        return await self._name_servers.group_members()

    async def _find_master(self) -> str:
        """Return the HA address of the master, as far as it is known.

        It is asked for again as long as it cannot be followed.
        """
        if not self.config.ha_master_address and not self.role.master_ha_address:
            with trio.move_on_after(LOOK_UP_PAUSE_S):
                await self._master_found.wait()
        self._look_up()
        return self.config.ha_master_address or self.role.master_ha_address

    def _look_up(self) -> None:
        """Register soon, as the answer names the master, but ever less often."""
        now = trio.current_time()
        if now - self._tried_s > LOOK_UP_LIMIT_S:  # a start, or it has followed
            self._look_up_s, self._asked_s = LOOK_UP_PAUSE_S, now
        self._tried_s = now
        if now - self._asked_s >= self._look_up_s:
            self._asked_s = now
            self._look_up_s = min(2 * self._look_up_s, LOOK_UP_LIMIT_S)
            self._name_servers.register_soon()

    async def _ask_bounds(self) -> Bounds:
        """Ask the master where its log begins and ends."""
        master = self.role.master_address
        if not master:
            raise ConnectFailed("no name server names the master")
        request = Command.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        answer = await self._name_servers.ask(master, request, ASK_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ConnectFailed(f"it answers {answer.code}: {answer.remark}")
        try:
            facts = KVTable.decode(answer.body).table
            oldest = int(facts["commitLogMinOffset"])
            return Bounds(max(0, oldest), int(facts["commitLogMaxOffset"]))
        except (KeyError, ValueError, RequestRejected) as error:
            raise ConnectFailed(f"it does not tell the bounds: {error}") from error
