"""BrokerView: the parts of a broker that this room reads.

Protocols for the parts of a broker whose classes are in `rmq.broker`, a layer above.
The Protocols of `rmq.plugin` are their bases; the further members are only for
`rmq.observe`.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from rmq.cluster.directory import NameServerStatus
from rmq.cluster.group_role import GroupRole
from rmq.cluster.replication import Replication
from rmq.config.broker import BrokerConfig
from rmq.core.clock import Clock
from rmq.observe.statistics import BrokerStatistics
from rmq.plugin import broker, clients, tables
from rmq.remoting.changes import Change
from rmq.remoting.connection import Connection
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore


class Mismatches(Protocol):
    """Groups whose members have different subscriptions."""

    def mismatched_groups(self) -> list[str]:
        """Return the groups whose members differ now."""

    def sides_of(self, group: str) -> list[tuple[int, str]]:
        """Return (number of members, subscriptions), the most frequent subscriptions
        first.
        """


class Producers(clients.Producers, Protocol):
    """Producers that are connected."""

    def group_names(self) -> list[str]:
        """Return the groups that have a producer."""


class Consumers(clients.Consumers, Protocol):
    """Consumers that are connected."""

    on_join: list[Callable[[str, str, Connection], None]]
    """Functions that get group, client id and connection of a new member."""

    on_leave: list[Callable[[str, str, Connection, bool], None]]
    """Functions that get group, client id and connection of a member that left, and
    whether the member shut down cleanly.
    """

    @property
    def mismatches(self) -> Mismatches:
        """Groups whose members differ."""

    def group_names(self) -> list[str]:
        """Return the groups that have a consumer."""

    def members(self, group: str, /) -> clients.Members:
        """Return the clients of a group."""


class Offsets(tables.Offsets, Protocol):
    """Committed offsets of groups."""

    def group_names(self) -> list[str]:
        """Return the groups that have committed offsets."""

    def topic_count(self, group: str) -> int:
        """Count the topics of a group."""

    def group_count(self, topic: str) -> int:
        """Count the groups of a topic."""

    def has_offset(self, group: str, topic: str) -> bool:
        """Whether a group has committed an offset of a topic."""

    def pairs(self, limit: int) -> list[tuple[str, str]]:
        """Return topics and groups with committed offsets, at most `limit`."""


class Audit(tables.Audit, Protocol):
    """Changes by administration."""

    on_add: list[Callable[[Change], None]]


class NameServers(broker.NameServers, Protocol):
    """The name servers of the broker."""

    def statistics(self) -> Sequence[NameServerStatus]:
        """Return the state of each name server."""


class BrokerView(Protocol):
    """A broker."""

    config: BrokerConfig
    address: str
    boot_ms: int
    clock: Clock
    store: MessageStore
    store_config: StoreConfig
    statistics: BrokerStatistics
    role: GroupRole
    replication: Replication

    @property
    def log_losses(self) -> Sequence[str]:
        """Damage of the log that the start found, and by which messages were lost."""

    @property
    def log_healed(self) -> Sequence[str]:
        """Damage of the log that the start replaced with bytes of another broker."""

    @property
    def table_losses(self) -> Sequence[str]:
        """Changes that were lost at the start, because a table's file was damaged."""

    @property
    def next_turn(self) -> Callable[[], Awaitable[None]]:
        """Return in the next turn of the event loop. A long task awaits this function
        again and again, so that other tasks can run.
        """

    @property
    def connection_of(self) -> Callable[[int], Connection | None]:
        """Return an open connection by its token."""

    @property
    def topics(self) -> tables.Topics:
        """Its topics."""

    @property
    def groups(self) -> tables.Groups:
        """The settings of consumer groups."""

    @property
    def offsets(self) -> Offsets:
        """The committed offsets."""

    @property
    def audit(self) -> Audit:
        """The changes by administration."""

    @property
    def producers(self) -> Producers:
        """The connected producers."""

    @property
    def consumers(self) -> Consumers:
        """The connected consumers."""

    @property
    def name_servers(self) -> NameServers:
        """Its name servers."""

    def facts(self, name: str) -> broker.Facts | None:
        """Return the facts that a plugin publishes under this name, or None."""
