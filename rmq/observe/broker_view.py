"""BrokerView: the parts of a broker that this room reads.

Protocols in place of the classes of `rmq.broker` and `rmq.cluster`, which are layers
above.  `BrokerContext` has all of them, and so could the fake broker of a test.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from rmq.core.clock import Clock
from rmq.observe.statistics import BrokerStatistics
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.command import Command
from rmq.remoting.changes import Change
from rmq.remoting.connection import Connection
from rmq.store.config import BrokerRole, StoreConfig
from rmq.store.message_store import MessageStore

Facts = Mapping[str, Any]
"""Facts that a plugin publishes, by Java's or its own names."""

JoinCallback = Callable[[str, str, Connection], None]
LeaveCallback = Callable[[str, str, Connection, bool], None]
"""Group, client id, connection; whether it left in order."""


# -- configuration


class SettingsView(Protocol):
    """The keys of the broker's configuration."""

    @property
    def broker_name(self) -> str:
        """The name of the broker, which its slaves share."""
        ...

    @property
    def broker_cluster_name(self) -> str:
        """The name of the cluster."""
        ...

    @property
    def broker_permission(self) -> int:
        """4: clients may read, 2: they may write."""
        ...

    @property
    def max_connections(self) -> int:
        """Connections that may be open at once."""
        ...

    @property
    def transaction_check_max(self) -> int:
        """How often a sender is asked for the end of a transaction."""
        ...

    def metric_labels(self) -> dict[str, str]:
        """Return the labels that each metric of Java has."""
        ...


# -- clients


class MemberView(Protocol):
    """One client in a group."""

    client_id: str
    language: int | str | None
    version: int
    last_heartbeat_ms: int


class ConsumerGroupView(Protocol):
    """A group with connected consumers."""

    consume_type: str | None
    message_model: str | None
    subscriptions: dict[str, SubscriptionData]

    @property
    def members(self) -> Mapping[Connection, MemberView]:
        """The clients of the group."""
        ...


class MismatchCounts(Protocol):
    """Counts of groups whose members differ."""

    @property
    def groups(self) -> int:
        """Groups whose members have different subscriptions now."""
        ...


class MismatchView(Protocol):
    """Groups whose members have different subscriptions."""

    def mismatched_groups(self) -> list[str]:
        """Return the groups whose members differ now."""
        ...

    def sides_of(self, group: str) -> list[tuple[int, str]]:
        """Return how many members have which subscriptions, the most first."""
        ...

    def statistics(self) -> MismatchCounts:
        """Return the counts."""
        ...


class ProducersView(Protocol):
    """Producers that are connected."""

    def group_names(self) -> list[str]:
        """Return the groups that have a producer."""
        ...

    def members(self, group: str, /) -> Mapping[Connection, MemberView]:
        """Return the clients of a group."""
        ...

    def all(self) -> Iterator[tuple[str, Connection, MemberView]]:
        """Yield group, connection and client."""
        ...


class ConsumersView(ProducersView, Protocol):
    """Consumers that are connected."""

    on_join: list[JoinCallback]
    on_leave: list[LeaveCallback]

    @property
    def mismatches(self) -> MismatchView:
        """Groups whose members differ."""
        ...

    def group(self, name: str) -> ConsumerGroupView | None:
        """Return a group; None without connected members."""
        ...

    def client_ids(self, group: str) -> list[str]:
        """Return the ids of the clients of a group."""
        ...

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return what a group wants of a topic."""
        ...


# -- tables


class TopicsView(Protocol):
    """The topics of the broker."""

    @property
    def get(self) -> Callable[[str], TopicConfig | None]:
        """Return the topic of a name."""
        ...

    def all(self) -> dict[str, TopicConfig]:
        """Return all topics by name."""
        ...

    def is_system(self, name: str) -> bool:
        """Whether the broker made the topic for itself."""
        ...


class GroupsView(Protocol):
    """The settings of consumer groups."""

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a group."""
        ...

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """Return all settings by group."""
        ...

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Whether the group may not read the topic."""
        ...


class OffsetsView(Protocol):
    """Committed offsets of groups."""

    on_reset: list[Callable[[str], None]]

    def group_names(self) -> list[str]:
        """Return the groups that have committed."""
        ...

    def topics_of(self, group: str) -> list[str]:
        """Return the topics of which a group has committed offsets."""
        ...

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have committed offsets of a topic."""
        ...

    def topic_count(self, group: str) -> int:
        """Count the topics of a group."""
        ...

    def group_count(self, topic: str) -> int:
        """Count the groups of a topic."""
        ...

    def has_offset(self, group: str, topic: str) -> bool:
        """Whether a group has committed an offset of a topic."""
        ...

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return a committed offset, or -1."""
        ...

    def next_offset_of(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed or popped offset, or -1."""
        ...

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offsets of a topic by queue."""
        ...

    def pairs(self, limit: int) -> list[tuple[str, str]]:
        """Return topics and groups with committed offsets, at most `limit`."""
        ...


class AuditView(Protocol):
    """Changes by administration."""

    on_add: list[Callable[[Change], None]]

    def all(self) -> Iterator[Change]:
        """Yield the changes, the oldest first."""
        ...


# -- other nodes


class NameServerState(Protocol):
    """The registration at one name server."""

    @property
    def address(self) -> str:
        """Where the name server is."""
        ...

    @property
    def is_registered(self) -> bool:
        """Whether it accepted the last registration."""
        ...

    @property
    def error(self) -> str:
        """Why it did not; empty if unknown."""
        ...


class NameServersView(Protocol):
    """The name servers of the broker."""

    def statistics(self) -> Sequence[NameServerState]:
        """Return the state of each."""
        ...

    def send_request(
        self, address: str, request: Command, timeout_ms: int, /
    ) -> Awaitable[Command]:
        """Send a request as this broker."""
        ...


class RoleView(Protocol):
    """The role of the broker among those of its name."""

    is_master: bool
    broker_id: int
    kind: BrokerRole
    master_ha_address: str


class SlaveState(Protocol):
    """A connected slave, as its master sees it."""

    @property
    def address(self) -> str:
        """Where the slave is."""
        ...

    @property
    def lag_bytes(self) -> int:
        """Bytes of the log that it lacks."""
        ...

    @property
    def is_in_sync(self) -> bool:
        """Whether it lacks little."""
        ...

    @property
    def bytes_per_second(self) -> int:
        """Bytes that were sent to it in the last second."""
        ...


class LogServerView(Protocol):
    """The master's end of replication."""

    def session_statuses(self) -> Sequence[SlaveState]:
        """Return the connected slaves."""
        ...


class FetcherView(Protocol):
    """The slave's end of replication."""

    is_copy: bool
    is_following: bool
    state: str


class SyncSetView(Protocol):
    """The sync state set; only the master has it."""

    own_id: int
    members: frozenset[int]

    @property
    def required_acks(self) -> Collection[int]:
        """Members whose acknowledgements a message needs."""
        ...

    @property
    def offline_brokers(self) -> Collection[int]:
        """Members that are not connected."""
        ...

    @property
    def ack_offsets(self) -> Mapping[int, int]:
        """The log offset that each broker has."""
        ...


class TermView(Protocol):
    """The state of this broker in its group with a controller."""

    epoch: int

    @property
    def sync_set(self) -> SyncSetView | None:
        """The sync state set; None on a slave."""
        ...


class ReplicationView(Protocol):
    """Replication of the log."""

    @property
    def log_server(self) -> LogServerView:
        """The end that sends the log."""
        ...

    @property
    def fetcher(self) -> FetcherView | None:
        """The end that receives the log; None on a master."""
        ...

    @property
    def term_state(self) -> TermView | None:
        """The state of the term; None without a controller."""
        ...


# -- the broker


class BrokerView(Protocol):
    """A broker."""

    address: str
    boot_ms: int
    clock: Clock
    store: MessageStore
    store_config: StoreConfig
    statistics: BrokerStatistics

    @property
    def next_turn(self) -> Callable[[], Awaitable[None]]:
        """A long task awaits it now and then, so that other tasks can run."""
        ...

    @property
    def connection_of(self) -> Callable[[int], Connection | None]:
        """Return an open connection by its token."""
        ...

    @property
    def config(self) -> SettingsView:
        """The keys of its configuration."""
        ...

    @property
    def topics(self) -> TopicsView:
        """Its topics."""
        ...

    @property
    def groups(self) -> GroupsView:
        """The settings of consumer groups."""
        ...

    @property
    def offsets(self) -> OffsetsView:
        """The committed offsets."""
        ...

    @property
    def audit(self) -> AuditView:
        """The changes by administration."""
        ...

    @property
    def producers(self) -> ProducersView:
        """The connected producers."""
        ...

    @property
    def consumers(self) -> ConsumersView:
        """The connected consumers."""
        ...

    @property
    def name_servers(self) -> NameServersView:
        """Its name servers."""
        ...

    @property
    def role(self) -> RoleView:
        """Master or slave."""
        ...

    @property
    def replication(self) -> ReplicationView:
        """Replication of its log."""
        ...

    def facts(self, name: str) -> Facts | None:
        """Return the facts that a plugin publishes under this name, or None."""
        ...
