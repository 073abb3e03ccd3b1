"""BroadcastOffsets: the offsets of the clients of broadcast groups.

A client of the broker keeps its offsets in a file, a client of a proxy keeps no
offsets. The broker remembers the offset of each client's last pull. A client that
changes from the broker to a proxy, or back, gets this offset with OFFSET_RESET and
continues there. Every 5 s the broker commits the smallest offset of all clients of a
group for `group@broadcast`. An unknown client of a proxy starts at this offset.

Compiled pulls report one client of each queue at a time. An offset is reported only
when the client has pulled from it. So a client that changes to a proxy may get some
messages twice. Limits: MAX_CLIENTS; clients beyond it keep their own offsets only.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
import trio

from rmq.plugin import BrokerContext, Connection, QueueOffset, RequestRejected
from rmq.protocol.bodies.heartbeat import ConsumeType, MessageModel
from rmq.protocol.headers.pull import PullMessageRequestHeader
from rmq.protocol.topics import broadcast_group

SCAN_INTERVAL_S: Final = 5
MAX_CLIENTS: Final = 100_000
"""Maximum number of clients of all topics; each takes about 400 bytes."""

FROM_PROXY: Final = 1
"""`requestSource` of pulls that a proxy makes for a client of a broadcast group."""

Pair = tuple[str, str]
"""Group and topic."""


class _Client(msgspec.Struct):
    is_behind_proxy: bool
    updated_ms: int
    offsets: dict[int, int] = msgspec.field(default_factory=dict)
    served: dict[int, int] = msgspec.field(default_factory=dict)
    """Ends of the last compiled pulls, by queue."""


class BroadcastOffsets:
    """Known in Java as `BroadcastOffsetManager`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._config = broker.config
        self._consumers = broker.consumers
        self._connection_of = broker.connection_of
        self._messages = broker.messages
        self._offsets = broker.offsets
        self._next_turn = broker.next_turn
        self._now_ms = broker.clock.now_ms
        self._clients: dict[Pair, dict[str, _Client]] = {}
        self._count = 0
        self.on_proxy: Callable[[str], None] = lambda _group: None
        """Callback that gets the group of a pull from a proxy: compiled pulls would not
        see that the client is back.
        """

    def has_proxies(self, group: str, topic: str) -> bool:
        """Whether clients of the group may come back from a proxy."""
        clients = self._clients.get((group, topic), {})
        return any(each.is_behind_proxy for each in clients.values())

    def find_start(
        self, header: PullMessageRequestHeader, connection: Connection
    ) -> int:
        """Return the offset at which a client has to continue; -1: at the requested
        offset.
        """
        client_id, is_from_proxy = self._identify_client(header, connection)
        if client_id is None:
            return -1
        pair = header.consumer_group, header.topic
        needs_start = is_from_proxy and header.queue_offset < 0
        client = self._clients.get(pair, {}).get(client_id)
        if client is None:
            return self._find_offset(None, header) if needs_start else -1
        has_moved = client.is_behind_proxy != is_from_proxy
        if has_moved or (client.is_behind_proxy and header.queue_offset < 0):
            return self._find_offset(client, header)
        return -1

    def record_pull(
        self, header: PullMessageRequestHeader, connection: Connection, moved: int
    ) -> None:
        """Record the offset of a pull; `moved` is the offset at which it continues, or
        -1.
        """
        client_id, is_from_proxy = self._identify_client(header, connection)
        if client_id is None:
            return
        pair = header.consumer_group, header.topic
        client = self._find_client(pair, client_id)
        if client is None:
            return
        if is_from_proxy and not client.is_behind_proxy:
            self.on_proxy(header.consumer_group)
        client.is_behind_proxy = is_from_proxy
        self._set(client, header.queue_id, moved if moved >= 0 else header.queue_offset)

    def record_served(
        self, group: str, topic: str, queue_id: int, next_offset: int, token: int
    ) -> None:
        """Record a compiled pull that ended before `next_offset`."""
        if not self._config.enable_broadcast_offset_store:
            return
        if not self._is_broadcast(group):
            return
        connection = self._connection_of(token)
        client_id = None if connection is None else self._member_id(group, connection)
        if client_id is None:
            return
        client = self._find_client((group, topic), client_id)
        if client is None:
            return
        before = client.served.get(queue_id)
        if before is not None and before < next_offset:
            self._set(client, queue_id, before)
        client.served[queue_id] = next_offset

    def _set(self, client: _Client, queue_id: int, offset: int) -> None:
        client.updated_ms = self._now_ms()
        client.offsets[queue_id] = max(offset, client.offsets.get(queue_id, -1))

    def _is_broadcast(self, group: str) -> bool:
        online = self._consumers.group(group)
        return (
            online is not None
            and online.message_model == MessageModel.BROADCASTING
            and online.consume_type == ConsumeType.CONSUME_PASSIVELY
        )

    def _member_id(self, group: str, connection: Connection) -> str | None:
        online = self._consumers.group(group)
        member = None if online is None else online.members.get(connection)
        return None if member is None else member.client_id

    def _identify_client(
        self, header: PullMessageRequestHeader, connection: Connection
    ) -> tuple[str | None, bool]:
        """Return the client of a broadcast group or None, and whether a proxy sent the
        pull.
        """
        if not self._config.enable_broadcast_offset_store:
            return None, False
        if header.request_source == FROM_PROXY:
            return header.proxy_froward_client_id, True
        if not self._is_broadcast(header.consumer_group):
            return None, False
        return self._member_id(header.consumer_group, connection), False

    def _find_client(self, pair: Pair, client_id: str) -> _Client | None:
        """Return a client; add a new client if there is room."""
        clients = self._clients.get(pair, {})
        client = clients.get(client_id)
        if client is None and self._count < MAX_CLIENTS:
            client = clients[client_id] = _Client(False, self._now_ms())
            self._clients[pair] = clients
            self._count += 1
        return client

    def _find_offset(
        self, client: _Client | None, header: PullMessageRequestHeader
    ) -> int:
        queue_id = header.queue_id
        offset = -1 if client is None else client.offsets.get(queue_id, -1)
        if offset < 0:
            group = broadcast_group(header.consumer_group)
            offset = self._offsets.query(group, header.topic, queue_id)
        if offset >= 0:
            return offset
        if self._messages.is_in_memory(header.topic, queue_id, QueueOffset(0)):
            return 0
        return self._messages.max_offset(header.topic, queue_id)

    # -- the task

    async def scan_regularly(self) -> None:
        """Commit and expire until cancelled."""
        while True:
            await trio.sleep(SCAN_INTERVAL_S)
            for pair in list(self._clients):
                self.scan(pair)
                await self._next_turn()

    def scan(self, pair: Pair) -> None:
        """Commit the smallest offset of the clients; remove clients that are gone."""
        group, topic = pair
        online = set(self._consumers.client_ids(group))
        expires_ms = self._config.broadcast_offset_expire_s * 1_000
        longest_ms = self._config.broadcast_offset_expire_max_s * 1_000
        now_ms = self._now_ms()
        smallest: dict[int, int] = {}
        clients = self._clients[pair]
        for client_id, client in list(clients.items()):
            age_ms = now_ms - client.updated_ms
            is_online = client_id in online
            if is_online or age_ms < expires_ms:
                for queue_id, offset in client.offsets.items():
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
            if age_ms >= (longest_ms if is_online else expires_ms):
                del clients[client_id]
                self._count -= 1
        if not clients:
            del self._clients[pair]
        for queue_id, offset in smallest.items():
            with suppress(RequestRejected):  # the table of offsets is full
                self._offsets.commit(
                    "a broadcast", broadcast_group(group), topic, queue_id, offset
                )
