"""RouteTable: which broker has which topic, and where it is.

Five tables: topic to queues by broker name; broker name to addresses by id; cluster to
broker names; live brokers by (cluster, address); mappings of static topics, kept as
they came.  Filter servers no longer exist; clients are told an empty list.
Rules of registration are those of Java's `RouteInfoManager`: topics come from the
master, or from the slave with the least id if it says whether it may act as master; the
same address under another id, name or cluster moves; a holder with a larger state
version wins; a first registration of one single topic is refused.  Queues stay as long
as their broker name has an address: a slave serves readers while its master is away.
A `QueueData` in the table is shared by all topics of one layout and is replaced, never
changed: 1,000 brokers with 2,000 topics each take 55 MB.
Belongs to the trio thread; memory only.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from rmq.errors import RequestRejected
from rmq.namesrv.registration import (
    MASTER_ID,
    BrokerGroup,
    LeastIdChange,
    LiveBroker,
    Registered,
    Registration,
)
from rmq.protocol.bodies.common import DataVersion
from rmq.protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.flags import PERM_READ, PERM_WRITE
from rmq.remoting.connection import Connection

MAX_BROKERS = 10_000
MAX_TOPICS = 1_000_000
MAX_QUEUE_DATAS = 2_500_000
"""Pairs of topic and broker name, up to 150 bytes each: room for 1,000 brokers of 2,000
topics and those that every broker has."""

MAX_TOPIC_LENGTH = 255


class RouteTable:
    """Known in Java as `RouteInfoManager`."""

    def __init__(
        self, now_ms: Callable[[], int], *, keeps_unregistered_topics: bool = True
    ) -> None:
        self.keeps_unregistered_topics = keeps_unregistered_topics
        self.on_change: list[Callable[[str | None], None]] = []
        """Told the topic whose route is another one now; None: any may be."""
        self.on_least_id: list[Callable[[LeastIdChange], None]] = []
        self._now_ms = now_ms
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, Any]] = {}
        self._brokers: dict[str, BrokerGroup] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[tuple[str, str], LiveBroker] = {}
        self._live_over: dict[Connection, set[tuple[str, str]]] = {}
        self._count = 0

    # -- registration

    def register(
        self, wanted: Registration, connection: Connection | None
    ) -> Registered:
        """Take over a registration; RequestRejected if it must come again in full.

        What is refused leaves no trace in the tables.
        """
        self._check_room(wanted)
        group = self._brokers.get(wanted.broker_name) or BrokerGroup(wanted.cluster)
        key = wanted.cluster, wanted.address
        if self._is_outranked(group, wanted):
            self._forget_live(key)
            self._remove_address(group, wanted.address)
            self._changed(None)
            return Registered()
        if wanted.broker_id not in group.addresses and len(wanted.topics) == 1:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "register broker failed")
        self._leave_former_name(wanted)
        is_first = self._place(group, wanted)
        before = self._live.get(key)
        is_new_version = before is None or before.data_version != wanted.data_version
        if self._brings_topics(group, wanted):
            self._take_topics(group, wanted, is_all=is_new_version or is_first)
        self._forget_live(key)
        if connection is not None:
            self._live_over.setdefault(connection, set()).add(key)
        self._live[key] = LiveBroker(
            wanted.broker_name,
            self._now_ms(),
            wanted.timeout_ms,
            wanted.data_version,
            connection,
            wanted.ha_address,
        )
        return self._master_for(group, wanted)

    @staticmethod
    def _brings_topics(group: BrokerGroup, wanted: Registration) -> bool:
        if wanted.broker_id == MASTER_ID:
            return True
        return (
            wanted.enable_acting_master is not None
            and wanted.broker_id == group.least_id
        )

    def _leave_former_name(self, wanted: Registration) -> None:
        """Take an address out of the group in which it was under another name."""
        live = self._live.get((wanted.cluster, wanted.address))
        if live is not None and live.broker_name != wanted.broker_name:
            self.unregister(
                wanted.cluster, wanted.address, live.broker_name, wanted.broker_id
            )

    def _check_room(self, wanted: Registration) -> None:
        """Refuse what would make a table larger than its limit."""
        key = wanted.cluster, wanted.address
        if key not in self._live and len(self._live) >= MAX_BROKERS:
            raise _full(f"{MAX_BROKERS} brokers are registered")
        if wanted.cluster not in self._clusters and len(self._clusters) >= MAX_BROKERS:
            raise _full(f"{MAX_BROKERS} clusters are registered")
        self._check_room_for_topics(wanted.topics.keys(), wanted.broker_name)

    def _check_room_for_topics(
        self, topics: AbstractSet[str], broker_name: str
    ) -> None:
        if len(self._topics) + len(topics - self._topics.keys()) > MAX_TOPICS:
            raise _full(f"more than {MAX_TOPICS} topics would be registered")
        if self._count + len(topics) > MAX_QUEUE_DATAS:
            known = sum(broker_name in self._topics.get(topic, ()) for topic in topics)
            if self._count + len(topics) - known > MAX_QUEUE_DATAS:
                raise _full(
                    f"more than {MAX_QUEUE_DATAS} topics of brokers would be registered"
                )
        for topic in topics:
            if len(topic) > MAX_TOPIC_LENGTH:
                raise _full(f"a topic of {len(topic)} characters is too long")

    def _is_outranked(self, group: BrokerGroup, wanted: Registration) -> bool:
        """Return whether the id is held by another address with a newer state."""
        holder = group.addresses.get(wanted.broker_id)
        if holder is None or holder == wanted.address:
            return False
        live = self._live.get((wanted.cluster, holder))
        if live is None:
            return False
        return live.data_version.state_version > wanted.data_version.state_version

    def _place(self, group: BrokerGroup, wanted: Registration) -> bool:
        """Put the address under its id only; True if the id was free."""
        least = group.least_id if group.addresses else wanted.broker_id
        is_first = wanted.broker_id not in group.addresses
        if group.addresses.get(wanted.broker_id) != wanted.address:
            self._remove_address(group, wanted.address)
            group.addresses[wanted.broker_id] = wanted.address
            self._changed(None)
        self._join(group, wanted)
        if wanted.broker_id < least:
            self._tell_least_id(group, wanted.broker_name, None, wanted.ha_address)
        assert group.addresses[wanted.broker_id] == wanted.address
        return is_first

    def _join(self, group: BrokerGroup, wanted: Registration) -> None:
        """Note what the broker says of its group; the only member may move it."""
        name = wanted.broker_name
        if group.cluster != wanted.cluster and len(group.addresses) == 1:
            self._leave_clusters(name)
            group.cluster = wanted.cluster
        self._brokers[name] = group
        self._clusters.setdefault(wanted.cluster, set()).add(name)
        said = bool(wanted.enable_acting_master), wanted.zone_name
        if said != (group.enable_acting_master, group.zone_name):
            group.enable_acting_master, group.zone_name = said
            self._changed(None)

    @staticmethod
    def _remove_address(group: BrokerGroup, address: str) -> bool:
        ids = [i for i, a in group.addresses.items() if a == address]
        for broker_id in ids:
            del group.addresses[broker_id]
        return bool(ids)

    def _take_topics(
        self, group: BrokerGroup, wanted: Registration, *, is_all: bool
    ) -> None:
        """Take over all topics, or those that were deleted here but live there."""
        name = wanted.broker_name
        mappings = wanted.mappings or {}
        is_whole = len(wanted.topics) > 1  # one topic alone is a change of that topic
        if is_whole and not (self.keeps_unregistered_topics or mappings):
            self._forget_unregistered(wanted)
        is_acting = wanted.broker_id != MASTER_ID and group.enable_acting_master
        shapes: dict[tuple[int, int, int, int], QueueData] = {}
        for topic, config in wanted.topics.items():
            if not is_all and name in self._topics.get(topic, ()):
                continue
            data = _queue_data(name, config, shapes, is_acting=is_acting)
            self._set_queues(topic, data)
        if is_all:
            for topic, mapping in mappings.items():
                self._mappings.setdefault(topic, {})[name] = mapping
                self._changed(topic)

    def _set_queues(self, topic: str, data: QueueData) -> None:
        assert data.broker_name is not None, topic
        queues = self._topics.setdefault(topic, {})
        self._count += data.broker_name not in queues
        if queues.get(data.broker_name) != data:
            self._changed(topic)
        queues[data.broker_name] = data

    def _forget_unregistered(self, wanted: Registration) -> None:
        name = wanted.broker_name
        for topic in [t for t, queues in self._topics.items() if name in queues]:
            if topic not in wanted.topics:
                self._remove_queues(topic, name)

    def _master_for(self, group: BrokerGroup, wanted: Registration) -> Registered:
        master = group.addresses.get(MASTER_ID)
        if wanted.broker_id == MASTER_ID or master is None:
            return Registered()
        live = self._live.get((wanted.cluster, master))
        return Registered(master, live.ha_address if live else None)

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Add queues of a topic on brokers that are known."""
        for data in queues:
            if data.broker_name in self._brokers:
                self._check_room_for_topics({topic}, data.broker_name)
                self._set_queues(topic, data)

    def touch(self, cluster: str, address: str) -> None:
        """Note that a broker lives."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.last_update_ms = self._now_ms()

    def shift(self, jump_ms: int) -> None:
        """Take a jump of the clock out of the time since each broker was heard of."""
        for live in self._live.values():
            live.last_update_ms += jump_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """Return the version that a broker registered last."""
        live = self._live.get((cluster, address))
        return live.data_version if live else None

    # -- departure

    def unregister(
        self, cluster: str, address: str, broker_name: str, broker_id: int
    ) -> None:
        """Remove a broker; its queues go with the last address of its name."""
        live = self._forget_live((cluster, address))
        group = self._brokers.get(broker_name)
        if group is None:
            return
        assert group.addresses, f"{broker_name} is kept without an address"
        had_least = broker_id == group.least_id
        self._remove_address(group, address)
        assert address not in group.addresses.values(), address
        self._changed(None)
        if not group.addresses:
            del self._brokers[broker_name]
            self._leave_clusters(broker_name)
            self._last_left(broker_name)
            return
        if group.enable_acting_master and MASTER_ID not in group.addresses:
            self.set_writable(broker_name, writable=False)
        if had_least and group.enable_acting_master:
            ha_address = live.ha_address if live else None
            self._tell_least_id(group, broker_name, address, ha_address)

    def _tell_least_id(
        self, group: BrokerGroup, name: str, offline: str | None, ha: str | None
    ) -> None:
        for listener in self.on_least_id:
            listener(LeastIdChange(group, name, offline, ha))

    def _leave_clusters(self, broker_name: str) -> None:
        """Take the name out of every cluster that it ever called its own."""
        for cluster, names in list(self._clusters.items()):
            names.discard(broker_name)
            if not names:
                del self._clusters[cluster]

    def _last_left(self, broker_name: str) -> None:
        """Remove the queues and mappings of a name that nobody has any more."""
        for topic in [t for t, q in self._topics.items() if broker_name in q]:
            self._remove_queues(topic, broker_name)
        for topic in [t for t, m in self._mappings.items() if broker_name in m]:
            del self._mappings[topic][broker_name]
            if not self._mappings[topic]:
                del self._mappings[topic]

    def _remove_queues(self, topic: str, broker_name: str) -> None:
        queues = self._topics[topic]
        del queues[broker_name]
        self._count -= 1
        assert self._count >= 0, topic
        if not queues:
            del self._topics[topic]
        self._changed(topic)

    def _changed(self, topic: str | None) -> None:
        for listener in self.on_change:
            listener(topic)

    def on_close(self, connection: Connection) -> None:
        """Remove the brokers that registered over a connection that is gone."""
        self._drop(list(self._live_over.get(connection, ())))

    def _forget_live(self, key: tuple[str, str]) -> LiveBroker | None:
        live = self._live.pop(key, None)
        if live is not None and live.connection is not None:
            keys = self._live_over[live.connection]
            keys.discard(key)
            if not keys:
                del self._live_over[live.connection]
        return live

    def expire(self) -> list[str]:
        """Remove the brokers that were silent too long; their addresses."""
        now_ms = self._now_ms()
        return self._drop(
            [
                key
                for key, live in self._live.items()
                if live.last_update_ms + live.timeout_ms < now_ms
            ]
        )

    def _drop(self, gone: list[tuple[str, str]]) -> list[str]:
        for cluster, address in gone:
            live = self._live[cluster, address]
            group = self._brokers.get(live.broker_name)
            ids = (
                [i for i, a in group.addresses.items() if a == address] if group else []
            )
            for broker_id in ids or [MASTER_ID]:
                self.unregister(cluster, address, live.broker_name, broker_id)
        return [address for _, address in gone]

    # -- questions

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the brokers of a topic; None if nobody has it."""
        queues = self._topics.get(topic)
        if not queues:
            return None
        brokers = [self.broker_data(name) for name in queues if name in self._brokers]
        if not brokers:
            return None
        return TopicRouteData(
            broker_datas=brokers,
            queue_datas=list(queues.values()),
            topic_queue_mapping_by_broker=self._mappings.get(topic),
        )

    def broker_data(self, name: str) -> BrokerData:
        """Return the addresses of a broker name."""
        group = self._brokers[name]
        return BrokerData(
            cluster=group.cluster,
            broker_name=name,
            broker_addrs=dict(group.addresses),
            zone_name=group.zone_name,
            enable_acting_master=group.enable_acting_master,
        )

    def group(self, name: str) -> BrokerGroup | None:
        """Return a broker name's group."""
        return self._brokers.get(name)

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers and clusters."""
        return ClusterInfo(
            broker_addr_table={name: self.broker_data(name) for name in self._brokers},
            cluster_addr_table={c: sorted(n) for c, n in self._clusters.items()},
        )

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics that a cluster's brokers have."""
        names = self._clusters.get(cluster, set())
        return [t for t, queues in self._topics.items() if names & queues.keys()]

    def topics_where(self, is_meant: Callable[[int], bool]) -> list[str]:
        """Return the topics whose system flag is meant."""
        return [
            topic
            for topic, queues in self._topics.items()
            if is_meant(next(iter(queues.values())).topic_sys_flag)
        ]

    def system_topics(self) -> list[str]:
        """Return the names that clusters and brokers give to topics."""
        names = [*self._clusters]
        for cluster in self._clusters.values():
            names += sorted(cluster)
        return names

    def any_address(self) -> str | None:
        """Return the address of some broker."""
        for group in self._brokers.values():
            for address in group.addresses.values():
                return address
        return None

    # -- administration

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic, everywhere or in one cluster, until it is registered."""
        queues = self._topics.get(topic, {})
        names = self._clusters.get(cluster, set()) if cluster else set(queues)
        for name in names & queues.keys():
            self._remove_queues(topic, name)

    def set_writable(self, broker_name: str, *, writable: bool) -> int:
        """Give or take the write permission of all topics of a broker; how many."""
        count = 0
        replaced: dict[int, tuple[QueueData, QueueData]] = {}
        for queues in self._topics.values():
            data = queues.get(broker_name)
            if data is None:
                continue
            if id(data) not in replaced:
                perm = PERM_READ | PERM_WRITE if writable else data.perm & ~PERM_WRITE
                replaced[id(data)] = data, msgspec.structs.replace(data, perm=perm)
            queues[broker_name] = replaced[id(data)][1]
            count += 1
        self._changed(None)
        return count


def _queue_data(
    name: str,
    config: TopicConfig,
    shapes: dict[tuple[int, int, int, int], QueueData],
    *,
    is_acting: bool,
) -> QueueData:
    """Return the queues of a topic; one object for each layout in `shapes`."""
    perm = config.perm & ~PERM_WRITE if is_acting else config.perm
    shape = (
        config.read_queue_nums,
        config.write_queue_nums,
        perm,
        config.topic_sys_flag,
    )
    data = shapes.get(shape)
    if data is None:
        data = shapes[shape] = QueueData(
            broker_name=name,
            read_queue_nums=shape[0],
            write_queue_nums=shape[1],
            perm=perm,
            topic_sys_flag=shape[3],
        )
    return data


def _full(reason: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, reason)
