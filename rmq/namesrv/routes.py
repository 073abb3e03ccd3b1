"""RouteTable: the registered brokers, their names, and their expiry.

Three tables: broker name to addresses by id; cluster to broker names; live brokers by
(cluster, address). The queues are in `topic_queues.py`; `rules.py` decides which
registrations are accepted. Filter servers no longer exist; clients get an empty list.
An address that registers under another id, name or cluster loses its earlier entry. As
in Java, a first registration with a single topic is refused. Queues stay while their
broker name has an address, because a slave serves readers while its master is away.
Belongs to the trio thread; memory only.
"""

from collections.abc import Callable, Iterable, Iterator

from rmq.namesrv.registration import (
    MASTER_ID,
    BrokerGroup,
    Caller,
    LeastIdChange,
    LiveBroker,
    Registered,
    Registration,
)
from rmq.namesrv.rules import (
    TOPICS_OF_STEP,
    brings_topics,
    check_hosts,
    check_owner,
    check_plausible,
    is_outranked,
    rejection_of,
    speaks_for_group,
    timeout_of,
)
from rmq.namesrv.topic_queues import Shapes, TopicQueues, queue_data
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rmq.protocol.hosts import network_of
from rmq.remoting.connection import Connection

MAX_BROKERS = 10_000
MAX_BROKERS_OF_HOST = 2_000
"""Maximum number of brokers of one host that is not trusted, so that other hosts have
room, too.
"""

Key = tuple[str, str]
"""Cluster and address of a live broker."""


class RouteTable:
    """Known in Java as `RouteInfoManager`."""

    def __init__(
        self, now_ms: Callable[[], int], *, keeps_unregistered_topics: bool = True
    ) -> None:
        self.keeps_unregistered_topics = keeps_unregistered_topics
        self.topics = TopicQueues()
        self.on_broker_change: list[Callable[[], None]] = []
        """Callbacks after a change of addresses or permissions that routes contain."""

        self.on_least_id: list[Callable[[LeastIdChange], None]] = []
        self._now_ms = now_ms
        self._brokers: dict[str, BrokerGroup] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[Key, LiveBroker] = {}
        self._live_over: dict[Connection, set[Key]] = {}
        self._live_of_host: dict[str, int] = {}

    # -- registration

    def register(
        self, wanted: Registration, connection: Connection | None
    ) -> Registered:
        """Apply a registration at once, see `register_in_steps`."""
        return next(filter(None, self.register_in_steps(wanted, connection)))

    def register_in_steps(
        self, wanted: Registration, connection: Connection | None
    ) -> Iterator[Registered | None]:
        """Apply a registration; yield None after each step, and finally the answer.

        RequestRejected if the full table is needed first. A refused registration
        changes nothing in the tables. If the broker unregisters between two steps, its
        remaining topics are not added.
        """
        yield from check_plausible(wanted)
        key = wanted.cluster, wanted.address
        group = self._brokers.get(wanted.broker_name) or BrokerGroup(wanted.cluster)
        before = self._live.get(key)
        check_owner(group, before, wanted)
        self._check_room(wanted)
        holder = group.addresses.get(wanted.broker_id, wanted.address)
        if holder != wanted.address and is_outranked(
            self._live.get((wanted.cluster, holder)), wanted
        ):
            self._forget_live(key)
            group.remove(wanted.address)
            self._notify_changed()
            yield Registered()
            return
        is_first = wanted.broker_id not in group.addresses
        if is_first and len(wanted.topics) == 1:
            raise rejection_of("register broker failed")
        if before is not None and before.broker_name != wanted.broker_name:
            self.unregister(*key, before.broker_name, wanted.broker_id)
        self._set_address(group, wanted)
        is_new = before is None or before.data_version != wanted.data_version
        self._record_live(key, wanted, connection)
        if brings_topics(group, wanted):
            yield from self._take_topics(group, wanted, is_all=is_new or is_first)
        yield self._master_for(group, wanted)

    def _check_room(self, wanted: Registration) -> None:
        """Refuse a registration that would make a table larger than its limit."""
        host, is_trusted = wanted.caller
        if (wanted.cluster, wanted.address) not in self._live:
            if len(self._live) >= MAX_BROKERS:
                raise rejection_of(f"{MAX_BROKERS} brokers are registered")
            count = self._live_of_host.get(network_of(host), 0)
            if count >= MAX_BROKERS_OF_HOST and not is_trusted:
                raise rejection_of(f"{host} has registered {count} brokers")
        if wanted.cluster not in self._clusters and len(self._clusters) >= MAX_BROKERS:
            raise rejection_of(f"{MAX_BROKERS} clusters are registered")
        self.topics.check_room(wanted.topics.keys(), wanted.broker_name)

    def _set_address(self, group: BrokerGroup, wanted: Registration) -> None:
        """Store the address under its id only, and the name under its cluster."""
        least = group.least_id if group.addresses else wanted.broker_id
        if group.addresses.get(wanted.broker_id) != wanted.address:
            group.set_address(wanted.broker_id, wanted.address, wanted.caller.host)
            self._notify_changed()
        group.hosts[wanted.address] = wanted.caller.host
        self._join(group, wanted)
        if wanted.broker_id < least:
            self._report_least_id(group, wanted.broker_name, None, wanted.ha_address)
        assert group.addresses[wanted.broker_id] == wanted.address

    def _join(self, group: BrokerGroup, wanted: Registration) -> None:
        """Store the data of the group that the broker reports; the only member may
        change the cluster of the group.
        """
        name = wanted.broker_name
        self._brokers[name] = group
        if group.cluster != wanted.cluster and len(group.addresses) == 1:
            self._leave_clusters(name)
            group.cluster = wanted.cluster
        self._clusters.setdefault(wanted.cluster, set()).add(name)
        reported = bool(wanted.enable_acting_master), wanted.zone_name
        if not speaks_for_group(group, wanted):
            return
        if reported != (group.enable_acting_master, group.zone_name):
            group.enable_acting_master, group.zone_name = reported
            self._notify_changed()

    def _take_topics(
        self, group: BrokerGroup, wanted: Registration, *, is_all: bool
    ) -> Iterator[None]:
        """Store all topics, or only topics that were deleted here but exist at the
        broker.
        """
        name = wanted.broker_name
        yield from self.topics.complete_change(name)
        for topic in wanted.deleted_topics:
            if topic not in wanted.topics:
                self.topics.remove(topic, name)
        mappings = wanted.mappings or {}
        is_whole = len(wanted.topics) > 1  # one topic alone is a change of that topic
        if is_whole and not (self.keeps_unregistered_topics or mappings):
            yield from self.topics.keep_only(name, wanted.topics.keys())
        if self._brokers.get(name) is not group:
            return
        is_acting = wanted.broker_id != MASTER_ID and group.enable_acting_master
        shapes: Shapes = {}
        for number, (topic, config) in enumerate(wanted.topics.items(), 1):
            if number % TOPICS_OF_STEP == 0:
                yield
                if self._brokers.get(name) is not group:
                    return
            if is_all or name not in self.topics.queues(topic):
                data = queue_data(name, config, shapes, is_acting=is_acting)
                self.topics.put(topic, data)
        if is_all:
            for topic, mapping in mappings.items():
                self.topics.put_mapping(topic, name, mapping)

    def _record_live(
        self, key: Key, wanted: Registration, connection: Connection | None
    ) -> None:
        self._forget_live(key)
        if connection is not None:
            self._live_over.setdefault(connection, set()).add(key)
        network = network_of(wanted.caller.host)
        self._live_of_host[network] = self._live_of_host.get(network, 0) + 1
        self._live[key] = LiveBroker(
            wanted.broker_name,
            self._now_ms(),
            timeout_of(wanted),
            wanted.data_version,
            connection,
            wanted.ha_address,
            wanted.caller.host,
        )

    def _master_for(self, group: BrokerGroup, wanted: Registration) -> Registered:
        master = group.addresses.get(MASTER_ID)
        if wanted.broker_id == MASTER_ID or master is None:
            return Registered()
        live = self._live.get((wanted.cluster, master))
        return Registered(master, live.ha_address if live else None)

    def register_topic(
        self, topic: str, queues: Iterable[QueueData], caller: Caller
    ) -> None:
        """Add queues of a topic on brokers that are known."""
        known = [data for data in queues if data.broker_name in self._brokers]
        for data in known:
            assert data.broker_name is not None, topic
            hosts = self._brokers[data.broker_name].hosts.values()
            if caller.host not in hosts:
                check_hosts(list(hosts), caller, data.broker_name)
            self.topics.check_room({topic}, data.broker_name)
        for data in known:
            self.topics.put(topic, data)

    def check_speaker(self, cluster: str, address: str, caller: Caller) -> None:
        """Refuse a caller who sends for a live broker of another host."""
        live = self._live.get((cluster, address))
        if live is not None:
            check_hosts([live.host], caller, live.broker_name)

    def touch(self, cluster: str, address: str) -> None:
        """Renew the time limit of a broker."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.last_update_ms = self._now_ms()

    def shift_times(self, jump_ms: int) -> None:
        """Correct the time of each broker's last request after a jump of the clock."""
        for live in self._live.values():
            live.last_update_ms += jump_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """Return the version that a broker has registered."""
        live = self._live.get((cluster, address))
        return live.data_version if live else None

    # -- departure

    def is_registered(self, address: str, broker_name: str, broker_id: int) -> bool:
        """Whether a broker has this address under this name and id."""
        group = self._brokers.get(broker_name)
        return group is not None and group.addresses.get(broker_id) == address

    def unregister(
        self, cluster: str, address: str, broker_name: str, broker_id: int
    ) -> None:
        """Remove a broker; if its name has no other address, remove its queues, too."""
        live = self._forget_live((cluster, address))
        group = self._brokers.get(broker_name)
        if group is None:
            return
        assert group.addresses, f"{broker_name} is kept without an address"
        had_least = broker_id == group.least_id
        group.remove(address)
        self._notify_changed()
        if not group.addresses:
            del self._brokers[broker_name]
            self._leave_clusters(broker_name)
            self.topics.remove_broker(broker_name)
            return
        if group.enable_acting_master and MASTER_ID not in group.addresses:
            change = self.set_writable(broker_name, writable=False)
            self.topics.begin_change(broker_name, change)
        if had_least and group.enable_acting_master:
            ha_address = live.ha_address if live else None
            self._report_least_id(group, broker_name, address, ha_address)

    def _report_least_id(
        self, group: BrokerGroup, name: str, offline: str | None, ha: str | None
    ) -> None:
        for listener in self.on_least_id:
            listener(LeastIdChange(group, name, offline, ha))

    def _leave_clusters(self, broker_name: str) -> None:
        """Remove the name from every cluster that it has registered under."""
        for cluster, names in list(self._clusters.items()):
            names.discard(broker_name)
            if not names:
                del self._clusters[cluster]

    def _notify_changed(self) -> None:
        for listener in self.on_broker_change:
            listener()

    def on_close(self, connection: Connection) -> None:
        """Remove the brokers that registered over a closed connection."""
        self._drop(list(self._live_over.get(connection, ())))

    def _forget_live(self, key: Key) -> LiveBroker | None:
        live = self._live.pop(key, None)
        if live is None:
            return None
        network = network_of(live.host)
        self._live_of_host[network] -= 1
        if not self._live_of_host[network]:
            del self._live_of_host[network]
        if live.connection is not None:
            keys = self._live_over[live.connection]
            keys.discard(key)
            if not keys:
                del self._live_over[live.connection]
        return live

    def expire(self) -> list[str]:
        """Remove the brokers that were silent for too long; return their addresses."""
        now_ms = self._now_ms()
        return self._drop(
            [
                key
                for key, live in self._live.items()
                if live.last_update_ms + live.timeout_ms < now_ms
            ]
        )

    def _drop(self, gone: list[Key]) -> list[str]:
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
        """Return the brokers of a topic; None if no broker has it."""
        queues = self.topics.queues(topic)
        names = [name for name in queues if name in self._brokers]
        if not names:
            return None
        return TopicRouteData(
            broker_datas=[self.broker_data(name) for name in names],
            queue_datas=[queues[name] for name in names],
            topic_queue_mapping_by_broker=self.topics.mappings_of(topic),
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
        """Return the group with a broker name."""
        return self._brokers.get(name)

    def cluster_info(self) -> ClusterInfo:
        """Return all brokers and clusters."""
        return ClusterInfo(
            broker_addr_table={name: self.broker_data(name) for name in self._brokers},
            cluster_addr_table={c: sorted(n) for c, n in self._clusters.items()},
        )

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics that a cluster's brokers have."""
        return self.topics.of_brokers(self._clusters.get(cluster, set()))

    def system_topics(self) -> list[str]:
        """Return the topics that have the name of a cluster or a broker."""
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
        """Remove a topic, everywhere or in one cluster, until its next registration."""
        names = set(self.topics.queues(topic))
        if cluster:
            names &= self._clusters.get(cluster, set())
        for name in names:
            self.topics.remove(topic, name)

    def set_writable(self, broker_name: str, *, writable: bool) -> Iterator[int | None]:
        """Allow or forbid writes to a broker's topics.

        Yield None after each step, and finally the number of topics.
        """
        for count in self.topics.set_writable(broker_name, writable=writable):
            if count is not None:
                self._notify_changed()
            yield count
