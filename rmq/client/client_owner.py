"""ClientOwner: the base of `Producer` and `Consumer`, which use a shared client or
their own.
"""

import sys
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, cast

from rmq.client.client import Client, Member
from rmq.client.errors import ClientClosed
from rmq.client.lifecycle import Lifecycle
from rmq.core.errors import PeerError, RmqError
from rmq.protocol.bodies.heartbeat import ConsumerData, ProducerData
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.client import UnregisterClientRequestHeader

UNREGISTER_MS: Final = 1_000


class ClientOwner(Lifecycle):
    """Base class that opens and closes its own client, or uses a shared client."""

    def __init__(self, client: "Client | str | None") -> None:
        super().__init__()
        self.client = client if isinstance(client, Client) else Client(client)
        self._owns_client = not isinstance(client, Client)
        self._is_open = False
        self.is_accepted = False

    def _check_open(self) -> None:
        """Raise an error unless the object is open in this process."""
        if not (self._is_open and self.client.is_open):
            self.client.check_open()
            raise ClientClosed(f"this {type(self).__name__} is not open: `async with`")

    async def __aenter__(self) -> Self:
        """Open the client first, if it belongs to this object alone."""
        if self._owns_client:
            await self.client.__aenter__()
        is_open = False
        try:
            await super().__aenter__()
            is_open = True
        finally:
            if not is_open and self._owns_client:
                await self.client.__aexit__(*sys.exc_info())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Close the client last, if it belongs to this object alone."""
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            if self._owns_client and self.client.is_open:
                await self.client.__aexit__(kind, error, trace)
        return False

    def _add_to_client(self) -> None:
        self.client.add_member(cast("Member", self))

    def _remove_from_client(self) -> None:
        """Leave the heartbeats."""
        self.client.remove_member(cast("Member", self))

    async def _unregister(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Leave a group on all known brokers, and wait for their answers.

        The caller first removes the group from the heartbeats, because a later
        heartbeat would join the group again.
        """
        brokers = self.client.broker_addresses()
        self._remove_from_client()
        header = UnregisterClientRequestHeader(
            client_id=self.client.client_id,
            producer_group=producer_group,
            consumer_group=consumer_group,
        )
        for address, connection in list(self.client.connections.items()):
            if address in brokers:
                request = Command.request(RequestCode.UNREGISTER_CLIENT, header)
                with suppress(PeerError):
                    await connection.request(request, UNREGISTER_MS)

    def on_lost(self, address: str) -> None:
        """Do nothing: sends try other brokers, pulls wait for this one."""

    def on_refused(self, error: RmqError) -> None:
        """Do nothing: the sends of a producer get their own answers."""

    def producer_data(self) -> ProducerData | None:
        """Return None; producers override it."""
        return None

    def consumer_data(self) -> ConsumerData | None:
        """Return None; consumers override it."""
        return None
