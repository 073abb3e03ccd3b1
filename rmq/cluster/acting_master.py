"""ActingMaster: the members of a group without a controller agree on the broker that
serves readers.

With `enableSlaveActingMaster` each member sends heartbeats to the name servers, so a
dead member is noticed after `brokerNotActiveTimeoutMillis` (10 s). Each member asks for
the group every `syncBrokerMemberGroupPeriod`. While the master is away, the slave with
the smallest id acts. Name servers with `supportActingMaster` show this slave as the
master, with queues that are only readable. It serves pulls, offsets and locks, and
refuses sends.

A master that comes back first copies the offsets that consumers committed at the acting
master (`fetch_offsets`). Then the master registers. Known in Java as RIP-32.
"""

import logging
from collections.abc import Callable, Collection

import trio

from rmq.cluster.config import ReplicationConfig
from rmq.cluster.directory import MASTER, Directory
from rmq.cluster.group_role import GroupRole
from rmq.cluster.last_offsets import fetch_last_offsets
from rmq.config.broker import BrokerConfig
from rmq.core.errors import PeerError, RequestRejected
from rmq.core.logs import Foreign
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.cluster import BrokerHeartbeatRequestHeader

logger = logging.getLogger(__name__)

HEARTBEAT_TIMEOUT_MS = 1_000


class ActingMaster:
    """One member's view of its group."""

    def __init__(
        self,
        config: ReplicationConfig,
        broker: BrokerConfig,
        role: GroupRole,
        directory: Directory,
    ) -> None:
        self._config = config
        self._broker = broker
        self._role = role
        self._directory = directory
        self._due = trio.Event()

    def look_soon(self) -> None:
        """Ask for the group soon: a name server has sent a notice."""
        self._due.set()

    async def run(self) -> None:
        """Send heartbeats and follow the group until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_heartbeats)
            if not self._role.is_master:
                nursery.start_soon(self._follow_group)

    async def _send_heartbeats(self) -> None:
        period_s = self._config.heartbeat_interval_ms / 1000
        while True:
            async with trio.open_nursery() as nursery:
                for address in self._directory.name_servers:
                    nursery.start_soon(self._send_heartbeat, address)
                nursery.start_soon(trio.sleep, period_s)

    async def _send_heartbeat(self, address: str) -> None:
        header = BrokerHeartbeatRequestHeader(
            cluster_name=self._broker.broker_cluster_name,
            broker_addr=self._directory.own_address,
            broker_name=self._broker.broker_name,
            broker_id=self._role.broker_id,
        )
        request = Command.request(RequestCode.BROKER_HEARTBEAT, header)
        try:
            await self._directory.send_request(address, request, HEARTBEAT_TIMEOUT_MS)
        except (PeerError, RequestRejected) as error:
            logger.debug("heartbeat to name server %s: %s", address, Foreign(error))

    async def _follow_group(self) -> None:
        while True:
            await self.update_role()
            with trio.move_on_after(self._config.group_look_period_ms / 1000):
                await self._due.wait()
            self._due = trio.Event()

    async def update_role(self) -> None:
        """Act if no live member has a smaller id. Without an answer of a name server
        the role stays.
        """
        try:
            members = await self._directory.group_members()
        except PeerError as error:
            logger.debug("members of the group: %s", Foreign(error))
            return
        role = self._role
        smallest = min(members, default=role.broker_id)
        role.is_master_away = MASTER not in members
        role.set_acting(is_acting=role.is_master_away and role.broker_id <= smallest)


async def fetch_offsets(
    directory: Directory, tables: Collection[tuple[int, Callable[[bytes], object]]]
) -> None:
    """Apply the offsets of each slave that runs, before this master registers.

    `tables` has requests, and functions that apply the bodies of their answers.
    """
    try:
        members = await directory.group_members()
    except PeerError as error:
        logger.info("no slave is known to this master: %s", Foreign(error))
        return
    for broker_id, address in sorted(members.items()):
        if broker_id != MASTER and address != directory.own_address:
            for code, apply in tables:
                await fetch_last_offsets(directory.send_request, address, apply, code)
