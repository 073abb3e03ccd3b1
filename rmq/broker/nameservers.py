# tidy: long — one task for each name server, and what it shares
"""NameServers: registers the broker and its topics at every name server.

Each name server has its own task. A server that is down or silent does not delay the
others or the start. When it is back, it gets the next periodic registration. The list
of name servers may change while the broker runs (`rmq/cluster/address_lookup.py`).

The task sends changed topics one by one, each with its version. A name server reads
each version once, and may remove topics that a full table lacks. The task sends the
full table if many topics changed. The task also sends the full table if the name server
refuses one topic because it does not know this broker yet.

In each period the task asks for the version that the name server has (request 322). If
this version is the current one, a registration of one topic renews the route. The cost
of this does not grow with the table. Every FULL_EVERY periods the task sends the full
table anyway.

The answer to a change of a topic waits in `wait_propagated`.  Clients ask a name server
for the route right after that answer, and some ask only once.
Known in Java as `BrokerOuterAPI`.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import msgspec
import trio

from rmq._fastpath.bytes.checksum import body_crc
from rmq.broker.tables.queue_mappings import QueueMappings
from rmq.broker.tables.topics import TopicTable
from rmq.cluster.address_lookup import AddressLookup
from rmq.cluster.directory import Directory, NameServerStatus
from rmq.cluster.group_role import GroupRole
from rmq.config.broker import BrokerConfig
from rmq.config.json_table import encode_in_turns
from rmq.core.errors import PeerError, RequestRejected
from rmq.core.logs import Foreign
from rmq.protocol.bodies.common import KVTable
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.queue_mapping import TopicQueueMappingInfo
from rmq.protocol.bodies.register import RegisterBrokerBody
from rmq.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.encoded_members import EncodedMembers, fill
from rmq.protocol.flags import PERM_READ_WRITE
from rmq.protocol.headers.route import (
    DELETED_TOPICS,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rmq.protocol.topics import SELF_TEST_TOPIC

logger = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_MS = 3_000
TOPICS_AT_ONCE = 20_000
"""Limit of topics in one registration: a frame has at most 16 MiB, a topic 150 to 500
bytes.
"""

SILENT_TIMEOUT_MS = 500
"""Time limit for unregistering from a name server that did not answer the last
request.
"""

START_WAIT_S = 1.0
"""Time that a start waits for its first registrations before it continues."""

TOPICS_ONE_BY_ONE = 32
"""Maximum number of changed topics that are sent one by one; for more, the full table
is sent.
"""

FULL_EVERY = 10
"""Periods (5 minutes) after which the full table is sent, even if the name server has
the version of this table.

This restores topics that were deleted only at the name server.
"""

PAUSE_FACTOR = 5
"""Factor of the pause after a registration of many topics: after 1 s of work it is 5
s.
"""


PROPAGATION_WAIT_S: Final = 1.0
"""Time that the answer to a change of topics waits for the name servers."""

MAX_DELETED: Final = 100
"""Maximum number of deleted topics that one registration names; there is room for names
of 127 bytes.
"""

PROPAGATED_AT_ONCE: Final = 1_000
"""Maximum number of topics of a broker that sends the full table at once after a
deletion.

A broker with more topics sends it in the next period: a table of 30,000 topics costs
0.2 s.
"""

T = TypeVar("T")


class _ServerState(msgspec.Struct):
    """The changes that one name server still lacks, and the result of the last call."""

    address: str
    changed: dict[str, tuple[TopicConfig, DataVersion]] = msgspec.field(
        default_factory=dict
    )
    """Topics with their versions, at most TOPICS_ONE_BY_ONE + 1."""

    deleted: dict[str, None] = msgspec.field(default_factory=dict)
    """Topics deleted since the full table was sent, at most MAX_DELETED."""

    is_full_wanted: bool = True
    periods: int = 0
    """Periods since the full table was sent."""

    wake: trio.Event = msgspec.field(default_factory=trio.Event)
    is_registered: bool = False
    error: str = ""
    has_tried: trio.Event = msgspec.field(default_factory=trio.Event)
    one_at_a_time: trio.Lock = msgspec.field(default_factory=trio.Lock)
    """Lock that is held while a registration waits for its answer."""

    scope: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)
    """Ends the registrations of a name server that is no longer used."""

    known_counter: int = -1
    """Counter of the newest version of the topics that the server has."""

    @property
    def is_waited_for(self) -> bool:
        """Whether the server answers, or has not been asked yet."""
        return self.is_registered or not self.has_tried.is_set()


class NameServers:
    """The name servers of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        role: GroupRole,
        topics: TopicTable,
        directory: Directory,
        mappings: QueueMappings,
        *,
        ha_address: str,
        inactive_timeout_ms: int,
    ) -> None:
        """`ha_address` is the address where slaves read the log.

        A member of a group with acting masters sends heartbeats; without one for
        `inactive_timeout_ms` a name server removes it.

        Topics in `mappings` are registered as static topics.
        """
        self.directory = directory
        self.send_request = directory.send_request
        self.address = directory.own_address
        self.ha_address = ha_address
        self._config = config
        self._role = role
        self._inactive_timeout_ms = inactive_timeout_ms if role.may_act else None
        self._topics = topics
        self._mappings = mappings
        self._servers: list[_ServerState] = []
        self._unpropagated: dict[str, int] = {}
        """Counters of the versions of changes that a name server lacks and gets soon,
        by topic, in ascending order.
        """

        self._progress = trio.Event()
        self._is_collecting = False

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Register now, on each change, and periodically."""
        assert not self._servers, "the registration runs already"
        async with trio.open_nursery() as nursery:
            self._use_servers(self.directory.name_servers, nursery)
            if self.directory.lookup is not None:
                nursery.start_soon(self._follow_lookup, self.directory.lookup, nursery)
            with trio.move_on_after(START_WAIT_S):
                for server in self._servers:
                    await server.has_tried.wait()
            task_status.started()

    def _use_servers(self, addresses: Collection[str], nursery: trio.Nursery) -> None:
        """Register at these name servers from now on.

        A server that is left out forgets the broker when its registration expires.
        """
        for server in [s for s in self._servers if s.address not in addresses]:
            server.scope.cancel()
            self._servers.remove(server)
        known = {server.address for server in self._servers}
        for address in addresses:
            if address not in known:
                server = _ServerState(address)
                self._servers.append(server)
                nursery.start_soon(self._keep_registered, server)

    async def _follow_lookup(
        self, lookup: AddressLookup, nursery: trio.Nursery
    ) -> None:
        """Use the name servers that the lookups find."""
        while True:
            await trio.sleep(lookup.pause_s)
            if await lookup.update():
                self.directory.name_servers = lookup.addresses
                self._use_servers(lookup.addresses, nursery)

    async def _keep_registered(self, server: _ServerState) -> None:
        with server.scope:
            await self._register_periodically(server)

    async def _register_periodically(self, server: _ServerState) -> None:
        while True:
            period_s = self._config.register_name_server_period_ms / 1000
            with trio.move_on_after(0 if server.is_full_wanted else period_s) as scope:
                await server.wake.wait()
            server.wake = trio.Event()
            is_periodic = scope.cancelled_caught
            is_flood = len(server.changed) > TOPICS_ONE_BY_ONE
            began = trio.current_time()
            await self._register_with(server, is_periodic=is_periodic)
            if server.is_registered and is_flood:
                took_s = trio.current_time() - began
                await trio.sleep(min(took_s * PAUSE_FACTOR, period_s))

    async def _register_with(
        self, server: _ServerState, *, is_periodic: bool = False
    ) -> None:
        async with server.one_at_a_time:
            await self._send_due(server, is_periodic=is_periodic)

    async def _send_due(self, server: _ServerState, *, is_periodic: bool) -> None:
        """Send a registration; log once if the server fails, once if it is back."""
        changed, server.changed = server.changed, {}
        is_full = server.is_full_wanted or not server.is_registered
        is_full = is_full or len(changed) > TOPICS_ONE_BY_ONE
        server.is_full_wanted = False
        counter = self._topics.data_version.counter
        try:
            done = not is_full and await self._register_changes(server.address, changed)
            if done and is_periodic:
                server.periods += 1
                is_due = server.periods >= FULL_EVERY
                done = not is_due and await self._renew_route(server.address)
            if not done:
                deleted = list(server.deleted)
                done = await self._register_all(server.address, deleted)
                server.periods = 0
                for name in deleted if done else ():
                    server.deleted.pop(name, None)
        except (PeerError, RequestRejected) as error:
            if not server.error:
                logger.warning("name server %s: %s", server.address, Foreign(error))
            server.is_registered, server.error = False, str(error)
        else:
            if server.error:
                logger.info("name server %s answers again", server.address)
            server.is_registered, server.error = done, ""
            if done:
                server.known_counter = counter
        server.has_tried.set()
        self._drop_propagated(self._propagated_counter())
        self._progress.set()
        self._progress = trio.Event()

    async def _register_changes(
        self, address: str, changed: dict[str, tuple[TopicConfig, DataVersion]]
    ) -> bool:
        """Send changed topics in the order of their versions."""
        for name, (topic, version) in changed.items():
            one, static = self._encode_topic(name, topic), self._static_topics([name])
            if not await self._register(address, one, version, static):
                return False
        return True

    async def _renew_route(self, address: str) -> bool:
        """Renew the route if the name server knows the version of the full table."""
        last = (len(self._topics) - 1) // self._part_size
        version = self._part_version(last + bool(self._static_topics()))
        if not await self._is_known(address, version):
            return False
        topic = self._topics.get(SELF_TEST_TOPIC)
        assert topic is not None, "every broker has the default topic"
        one = self._encode_topic(SELF_TEST_TOPIC, topic)
        return await self._register(address, one, version, {})

    async def _is_known(self, address: str, version: DataVersion) -> bool:
        """Ask for the version that a name server knows of this broker."""
        config = self._config
        header = QueryDataVersionRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.broker_cluster_name,
            broker_id=self._role.broker_id,
        )
        request = Command.request(
            RequestCode.QUERY_DATA_VERSION, header, version.encode()
        )
        timeout_ms = config.register_broker_timeout_ms
        answer = await self.send_request(address, request, timeout_ms)
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return False
        is_changed = answer.header(QueryDataVersionResponseHeader).changed
        return not is_changed and DataVersion.decode(answer.body) == version

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Send this topic soon; a deleted topic disappears with the next full table."""
        self._unpropagated.pop(name, None)
        if topic is None:
            self._topic_deleted(name)
            return
        if self._servers:
            self._unpropagated[name] = self._topics.data_version.counter
        for server in self._servers:
            server.deleted.pop(name, None)
            if len(server.changed) <= TOPICS_ONE_BY_ONE:
                server.changed.pop(name, None)
                server.changed[name] = topic, self._topics.data_version
            if not self._is_collecting:
                server.wake.set()

    @contextmanager
    def collect_changes(self) -> Iterator[None]:
        """Send the topics that change in this block together, when it ends."""
        self._is_collecting = True
        try:
            yield
        finally:
            self._is_collecting = False
            for server in self._servers:
                if server.changed:
                    server.wake.set()

    def _topic_deleted(self, name: str) -> None:
        is_soon = len(self._topics) <= PROPAGATED_AT_ONCE
        for server in self._servers:
            server.changed.pop(name, None)
            if len(server.deleted) < MAX_DELETED:
                server.deleted[name] = None
            if is_soon:
                server.is_full_wanted = True
                server.wake.set()
        if is_soon and self._servers:
            self._unpropagated[name] = self._topics.data_version.counter

    def is_propagated(self, name: str) -> bool:
        """Whether the name servers know the current version of the topic, or do not
        answer.
        """
        return name not in self._unpropagated

    async def wait_propagated(self, answer: T, topics: Iterable[str]) -> T:
        """Return the answer when the name servers know the latest change of each topic.

        It returns after PROPAGATION_WAIT_S anyway, and ignores servers that are down.
        Changes of other topics do not delay it: after many of them the next
        registration comes late, see PAUSE_FACTOR.
        """
        counter = max((self._unpropagated.get(name, -1) for name in topics), default=-1)
        with trio.move_on_after(PROPAGATION_WAIT_S):
            while self._propagated_counter() < counter:
                await self._progress.wait()
        self._drop_propagated(counter)
        return answer

    def _propagated_counter(self) -> int:
        """Return the counter of the version that all name servers have."""
        counters = (
            server.known_counter for server in self._servers if server.is_waited_for
        )
        return min(counters, default=self._topics.data_version.counter)

    def _drop_propagated(self, counter: int) -> None:
        """Remove the changes up to this version."""
        known = []
        for name, changed in self._unpropagated.items():
            if changed > counter:
                break
            known.append(name)
        for name in known:
            del self._unpropagated[name]

    def config_changed(self, keys: Collection[str]) -> None:
        """Register at once if the permission of the whole broker changed."""
        if "brokerPermission" in keys:
            self._topics.touch()  # name servers read a version once
            self.register_soon()

    def register_soon(self) -> None:
        """Send the full table to every name server soon, before the next period."""
        for server in self._servers:
            server.is_full_wanted = True
            server.wake.set()

    async def register_all(self) -> None:
        """Send the full table to every name server and wait for their answers."""
        async with trio.open_nursery() as nursery:
            for server in self._servers:
                server.is_full_wanted = True
                nursery.start_soon(self._register_with, server)

    async def unregister_all(self) -> None:
        """Unregister from every name server."""
        async with trio.open_nursery() as nursery:
            for server in self._servers:
                nursery.start_soon(self._unregister, server)

    def statistics(self) -> tuple[NameServerStatus, ...]:
        """Return the registration state of each name server."""
        return tuple(
            NameServerStatus(server.address, server.is_registered, server.error)
            for server in self._servers
        )

    async def _register_all(self, address: str, deleted: Sequence[str]) -> bool:
        """Send the full table, a large one in several frames; then the static topics.

        Name servers read the topics of a version once: each part has its own version.
        They remove deleted topics only after a registration without static topics.
        """
        parts = await self._encode_all()
        for part, texts in enumerate(parts):
            version, gone = self._part_version(part), () if part else deleted
            if not await self._register(address, texts, version, {}, gone):
                return False
        static = self._static_topics()
        if not static:
            return True
        members: EncodedMembers[TopicConfig] = EncodedMembers()
        for name in static:
            topic = self._topics.get(name)
            assert topic is not None, name
            members.put(name, self._limit_permission(topic))
        version = self._part_version(len(parts))
        return await self._register(address, members.joined_texts(), version, static)

    def _static_topics(
        self, names: Iterable[str] | None = None
    ) -> dict[str, TopicQueueMappingInfo]:
        """Return the mappings of static topics to register: all, or only the topics in
        `names`.
        """
        if not self._mappings:
            return {}
        found = {
            name: self._mappings.get(name)
            for name in (self._mappings.all() if names is None else names)
            if self._topics.get(name) is not None
        }
        return {name: each.info() for name, each in found.items() if each is not None}

    @property
    def _part_size(self) -> int:
        """Maximum number of topics of one registration."""
        config = self._config
        wanted = config.split_registration_size
        return wanted if config.splits_registration else TOPICS_AT_ONCE

    async def _encode_all(self) -> list[list[bytes]]:
        """Return all topics as members of one or more registrations."""
        if self._config.broker_permission & PERM_READ_WRITE == PERM_READ_WRITE:
            return await self._topics.encode_all(self._part_size)
        members: EncodedMembers[TopicConfig] = EncodedMembers()
        for name, topic in self._topics.all().items():
            members.put(name, self._limit_permission(topic))
        await encode_in_turns(members)
        return members.text_parts(self._part_size)

    def _encode_topic(self, name: str, topic: TopicConfig) -> list[bytes]:
        """Return one topic as the only member of a registration."""
        member: EncodedMembers[TopicConfig] = EncodedMembers()
        member.put(name, self._limit_permission(topic))
        return member.joined_texts()

    async def _register(
        self,
        address: str,
        members: list[bytes],
        version: DataVersion,
        static: Mapping[str, TopicQueueMappingInfo],
        deleted: Sequence[str] = (),
    ) -> bool:
        """Send topics; False if the name server refuses them.

        By default a name server keeps the topics that a registration lacks, as Java's
        does. A name server of rmq also reads a field with the topics that were
        `deleted`.
        """
        assert self.address, "register after the ports are bound"
        wrapper = TopicConfigAndMappingSerializeWrapper(
            data_version=version, topic_queue_mapping_info_map=dict(static)
        )
        empty = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
        body = b"".join(fill(empty, "topicConfigTable", members))
        config = self._config
        header = RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=self.ha_address,
            broker_id=self._role.broker_id,
            heartbeat_timeout_millis=self._inactive_timeout_ms,
            enable_acting_master=self._reported_acting(),
            compressed=False,
            body_crc32=body_crc(body),
        )
        request = Command.request(RequestCode.REGISTER_BROKER, header, body)
        if deleted:
            request.ext_fields[DELETED_TOPICS] = ",".join(deleted)
        timeout_ms = config.register_broker_timeout_ms
        answer = await self.send_request(address, request, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            logger.warning(
                "name server %s refused: %s", address, Foreign(answer.remark)
            )
            return False
        if self._role.is_master:
            self._take_order(KVTable.decode(answer.body).table if answer.body else {})
        else:
            found = answer.header(RegisterBrokerResponseHeader)
            self._role.set_master(found.master_addr or "", found.ha_server_addr or "")
        return True

    def _take_order(self, order: dict[str, str]) -> None:
        """Mark the topics that have an order configuration at the name server."""
        for name in order:
            topic = self._topics.get(name)
            if topic is not None and not topic.order:
                self._topics.update(msgspec.structs.replace(topic, order=True))

    def _reported_acting(self) -> bool | None:
        """Return the field `enableActingMaster`, which slaves always send."""
        if self._role.may_act:
            return True
        return None if self._role.is_master else False

    def _part_version(self, part: int) -> DataVersion:
        version = self._topics.data_version
        counter = version.counter + (part << 40)
        return msgspec.structs.replace(version, counter=counter) if part else version

    def _limit_permission(self, topic: TopicConfig) -> TopicConfig:
        """Return the topic without the permissions that the whole broker lacks."""
        permission = self._config.broker_permission
        if topic.perm & permission == topic.perm & PERM_READ_WRITE:
            return topic
        return msgspec.structs.replace(topic, perm=topic.perm & permission)

    async def _unregister(self, server: _ServerState) -> None:
        config = self._config
        header = UnRegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.broker_cluster_name,
            broker_id=self._role.broker_id,
        )
        request = Command.request(RequestCode.UNREGISTER_BROKER, header)
        try:
            timeout_ms = SILENT_TIMEOUT_MS if server.error else UNREGISTER_TIMEOUT_MS
            await self.send_request(server.address, request, timeout_ms)
        except PeerError as error:
            logger.info(
                "cannot unregister the broker from name server %s: %s",
                server.address,
                Foreign(error),
            )
