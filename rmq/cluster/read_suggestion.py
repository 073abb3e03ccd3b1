"""ReadSuggestion: the broker from which a consumer that lags far should read.

Old messages come from the disk. A master may advise consumers to read them from a slave
(`slaveReadEnable`, and `whichBrokerWhenConsumeSlowly` of the group). The client keeps
the advice until it gets other advice, so the master asks the slave first. The slave
must be reachable, serve readers, and have the next messages of the consumer.  The
answer is cached, and refreshed only if a consumer needs it again.
"""

from typing import TYPE_CHECKING

import trio

from rmq.cluster.directory import Directory
from rmq.cluster.group_role import GroupRole
from rmq.config.broker import BrokerConfig
from rmq.core.errors import PeerError
from rmq.store.message_store import MessageStore

if TYPE_CHECKING:
    from rmq.cluster.remote_broker import RemoteBroker

MASTER_ID = 0
KEPT_S = 10.0


class ReadSuggestion:
    """The advice of one master."""

    def __init__(
        self,
        config: BrokerConfig,
        role: GroupRole,
        store: MessageStore,
        directory: Directory,
    ) -> None:
        self._config = config
        self._role = role
        self._log = store.log
        self._window = store.config.memory_window
        self._directory = directory
        self._serving: frozenset[int] = frozenset()
        self._wanted = trio.Event()

    def broker_for(self, broker_id: int) -> int:
        """Return the broker id from which a group with this choice should read when it
        lags far.

        Readers stay at a slave while it serves them.
        """
        if not self._config.slave_read_enable or self._role.is_acting:
            return MASTER_ID
        if not self._role.is_master:
            return self._role.broker_id
        self._wanted.set()
        return broker_id if broker_id in self._serving else MASTER_ID

    async def run(self) -> None:
        """Find the slaves that serve readers when advice is needed; until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            await self._find_serving_slaves()
            await trio.sleep(KEPT_S)
            if not self._wanted.is_set():
                # this answer is too old for the next consumer
                self._serving = frozenset()

    async def _find_serving_slaves(self) -> None:
        # imported on use: most groups have a single broker
        from rmq.cluster.remote_broker import RemoteBroker

        ask = self._directory.send_request
        try:
            members = await self._directory.other_members()
        except PeerError:
            members = {}
        found = set()
        for broker_id, address in members.items():
            if broker_id != MASTER_ID and await self._is_serving(
                RemoteBroker(address, ask)
            ):
                found.add(broker_id)
        self._serving = frozenset(found)

    async def _is_serving(self, slave: "RemoteBroker") -> bool:
        try:
            settings, bounds = await slave.fetch_config(), await slave.find_bounds()
        except PeerError:
            return False
        is_near = bounds.end >= self._log.end_offset - self._window
        return is_near and settings.get("slaveReadEnable") == "true"
