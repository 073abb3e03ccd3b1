"""The clients of a broker as plugins see them: consumers, producers, locks."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol

from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.heartbeat import ConsumerData, SubscriptionData
from rmq.remoting.connection import Connection


class Member(Protocol):
    """A client in a group."""

    @property
    def client_id(self) -> str:
        """The id that the client has chosen."""

    @property
    def language(self) -> int | str | None:
        """The language of the client, by number or name."""

    @property
    def version(self) -> int:
        """The version of the client, by Java's numbers."""

    @property
    def user(self) -> str:
        """The user who registered the client; empty without access control."""

    @property
    def last_heartbeat_ms(self) -> int:
        """Time of the client's last heartbeat."""


Members = Mapping[Connection, Member]
"""Members by connection."""


class ConsumerGroup(Protocol):
    """The members of a group that is online, and their subscriptions."""

    @property
    def members(self) -> Members:
        """The members by connection."""

    @property
    def subscriptions(self) -> Mapping[str, SubscriptionData]:
        """The subscriptions by topic."""

    @property
    def consume_type(self) -> str | None:
        """Java's `ConsumeType`."""

    @property
    def consume_from_where(self) -> str | None:
        """Java's `ConsumeFromWhere`."""

    @property
    def message_model(self) -> str | None:
        """CLUSTERING or BROADCASTING."""


class Consumers(Protocol):
    """The consumers that are online.  Known in Java as `ConsumerManager`."""

    on_change: list[Callable[[str], None]]
    """Functions that get the group whose members or subscriptions changed."""

    def all(self) -> Iterator[tuple[str, Connection, Member]]:
        """Yield every consumer with its group."""

    def group(self, name: str) -> ConsumerGroup | None:
        """Return the group if it is online."""

    def client_ids(self, group: str) -> list[str]:
        """Return the ids of a group's members."""

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the subscription of a group to a topic."""

    def register(
        self,
        data: ConsumerData,
        client_id: str,
        connection: Connection,
        language: int | str | None,
        version: int,
        now_ms: int,
    ) -> bool:
        """Add or renew a consumer; return whether that changed the group.

        RequestRejected if the tables have no room for it.
        """

    def refresh(
        self, group: str, client_id: str, connection: Connection, now_ms: int
    ) -> bool:
        """Renew a member's time limit; False if its subscriptions are not known."""

    def renew(
        self, group: str, client_id: str, connection: Connection, now_ms: int
    ) -> bool:
        """Renew a member's time limit; False if it is not a member."""

    def unregister(self, group: str, client_id: str, connection: Connection) -> None:
        """Remove a consumer that unregisters."""


class Producers(Protocol):
    """The producers that are online.  Known in Java as `ProducerManager`."""

    def all(self) -> Iterator[tuple[str, Connection, Member]]:
        """Yield every producer with its group."""

    def members(self, group: str, /) -> Members:
        """Return the producers of a group."""

    def connection(self, client_id: str) -> Connection | None:
        """Return the connection over which a producer registered last."""

    def register(
        self,
        group: str,
        client_id: str,
        connection: Connection,
        language: int | str | None,
        version: int,
        now_ms: int,
        user: str = "",
    ) -> None:
        """Add a producer, or renew its time limit."""

    def unregister(self, group: str, client_id: str, connection: Connection) -> None:
        """Remove a producer that unregisters."""

    def check_group(self, user: str, group: str) -> None:
        """Raise `RequestRejected` if the group belongs to another user."""

    def check_user(self, user: str, client_id: str, groups: Collection[str]) -> None:
        """Raise `RequestRejected` if the id or a group belongs to another user."""


class QueueLocks(Protocol):
    """Queues of ordered consumers.  Known in Java as `RebalanceLockManager`."""

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        client: str = "",
    ) -> list[MessageQueue]:
        """Lock the queues that are free; return the queues that the client holds now.

        `client` is the client's address; the share of its host is limited.
        """

    def unlock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> None:
        """Unlock the queues that the client holds."""

    def is_orderly(self, group: str) -> bool:
        """Return whether a client of the group holds a queue now."""
