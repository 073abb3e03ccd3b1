"""Heartbeats: what this broker reports to the controllers of its group.

A heartbeat has the last epoch, the end and the confirmed offset of the log. It also has
the newest sync state set that this broker knows.
"""

import trio

from rmq.cluster.config import ReplicationConfig
from rmq.cluster.controllers import Controllers
from rmq.cluster.identity import Identity
from rmq.cluster.known_set import KnownSetFile
from rmq.cluster.term_state import TermState
from rmq.core.offsets import PhysicalOffset
from rmq.store.message_store import MessageStore


class Heartbeats:
    """The heartbeats of one broker; they begin with its open store."""

    def __init__(
        self,
        replication: ReplicationConfig,
        controllers: Controllers,
        identity: Identity,
        known_set: KnownSetFile,
    ) -> None:
        self.is_held_back = False
        """True: none is sent, so that the controller elects another broker."""

        self._replication = replication
        self._controllers = controllers
        self._identity = identity
        self._known_set = known_set
        self._term_state: TermState | None = None
        self._store: MessageStore | None = None
        self._log_end = PhysicalOffset(0)
        """End of the log; it does not change between two terms."""

    def begin_term(self, term_state: TermState, store: MessageStore) -> None:
        """Report the open store of this term from now on."""
        self._term_state, self._store = term_state, store
        self.is_held_back = False

    async def run(self, address: str) -> None:
        """Send heartbeats to one controller, in a task that may wait for it."""
        timeout_ms = self._replication.controller_timeout_ms
        while True:
            await trio.sleep(self._replication.heartbeat_interval_ms / 1000)
            await self._send(address, timeout_ms)

    async def send_to_all(self, timeout_ms: int) -> None:
        """Send one heartbeat to each controller; it is valid for `timeout_ms`."""
        async with trio.open_nursery() as nursery:
            for address in self._controllers.addresses:
                nursery.start_soon(self._send, address, timeout_ms)

    async def _send(self, address: str, timeout_ms: int) -> None:
        if self.is_held_back:
            return
        control, store = self._term_state, self._store
        assert control is not None, "heartbeats begin with an open store"
        assert store is not None, "heartbeats begin with an open store"
        if store.durability.is_open:
            self._log_end = store.log.end_offset
        await self._controllers.send_heartbeat(
            address,
            self._identity.broker_id,
            epoch=control.epochs.last_number,
            end=self._log_end,
            confirmed=control.confirm_offset(self._log_end),
            known_set=self._known_set.text,
            timeout_ms=timeout_ms,
        )
