"""ClientOwner: the base of `Producer` and `Consumer`: a client, shared or their own."""

import sys
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, cast

from rmq.client.client import Client, Member
from rmq.client.errors import ClientClosed
from rmq.client.lifecycle import Lifecycle
from rmq.core.errors import PeerError
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.bodies.heartbeat import ConsumerData, ProducerData
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.client import UnregisterClientRequestHeader

UNREGISTER_MS: Final = 1_000


class ClientOwner(Lifecycle):
    """Base of what may share a client, or have one of its own."""

    def __init__(self, client: "Client | str | None") -> None:
        super().__init__()
        self.client = client if isinstance(client, Client) else Client(client)
        self._owns_client = not isinstance(client, Client)
        self._is_open = False

    def _check_open(self) -> None:
        """Raise unless it is open in this process."""
        if not (self._is_open and self.client.is_open):
            self.client.check_open()
            raise ClientClosed(f"this {type(self).__name__} is not open: `async with`")

    async def __aenter__(self) -> Self:
        """Open the client first, if it is our own."""
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
        """Close the client last, if it is our own."""
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            if self._owns_client and self.client.is_open:
                await self.client.__aexit__(kind, error, trace)
        return False

    def _join(self) -> None:
        self.client.add_member(cast("Member", self))

    def _leave(self) -> None:
        """Stop being in the heartbeats."""
        self.client.remove_member(cast("Member", self))

    async def _unregister(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Leave a group on all brokers that we know; an answer shows that it is so.

        No heartbeat that says otherwise follows.
        """
        brokers = self.client.broker_addresses()
        self._leave()
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
        """Nothing: sends fail and go on elsewhere, pulls when the broker is back."""

    def on_refused(self, error: AnswerRefused) -> None:
        """Nothing: what a producer sends is refused, too, or is not."""

    def producer_data(self) -> ProducerData | None:
        """What heartbeats say of it: nothing, unless it produces."""
        return None

    def consumer_data(self) -> ConsumerData | None:
        """What heartbeats say of it: nothing, unless it consumes."""
        return None
