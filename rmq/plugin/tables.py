"""The tables of a broker as plugins see them: topics, groups, offsets, filters.

`on_change` of a table is a list of functions that the table calls after a change.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from rmq._fastpath.handlers.commit_table import CommitTable
from rmq.protocol.bodies import Body
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.bodies.queue_mapping import TopicQueueMappingDetail
from rmq.protocol.bodies.topics import TopicConfig
from rmq.remoting.changes import Change

T = TypeVar("T")


class SavedTable(Protocol):
    """A table that the broker saves after changes."""

    @property
    def data_version(self) -> DataVersion:
        """The version, which every change raises."""

    async def fill_document(self, document: Body) -> bytes:
        """Return the encoded document with the table; other tasks run while it is
        encoded.
        """

    async def wait_saved(self, answer: T) -> T:
        """Return the answer when the last change is on the disk."""

    async def save(self) -> float:
        """Save the table now."""


class Topics(SavedTable, Protocol):
    """The topics.  Known in Java as `TopicConfigManager`."""

    on_change: list[Callable[[str, TopicConfig | None], None]]

    @property
    def get(self) -> Callable[[str], TopicConfig | None]:
        """Return a topic by its name; None without one."""

    def all(self) -> dict[str, TopicConfig]:
        """Return every topic by name."""

    def is_system(self, name: str) -> bool:
        """Return whether users may neither create nor delete the topic."""

    def is_unsaved(self, name: str) -> bool:
        """Return whether a power cut now may lose the topic, or its last change."""

    def ensure(
        self, name: str, *, queues: int, perm: int, sys_flag: int = 0, client: str = ""
    ) -> TopicConfig:
        """Return a topic that the broker needs; create it if it does not exist.

        `client` is the address of the client that causes this, see `update`.
        """

    def create_for_send(
        self, name: str, default_topic: str, default_queue_nums: int, client: str
    ) -> TopicConfig | None:
        """Create a copy of the default topic; None if PERM_INHERIT forbids this."""

    def update(
        self, topic: TopicConfig, client: str = "", *, always: bool = False
    ) -> bool:
        """Add or replace a topic; False if it is the same already, unless `always`.

        RequestRejected if there are too many topics, or too many that the client's host
        created. `client` is the client's address, empty for this broker and its tools.
        """

    def add_queues(self, name: str, queues: int) -> None:
        """Raise the number of queues of an existing topic to at least `queues`."""

    def restore(self, name: str, queue_id: int) -> None:
        """Create a topic for which the log has messages, if it does not exist.

        The previous master may have created the topic shortly before it ended.
        """

    def delete(self, name: str) -> bool:
        """Remove a topic; False if it does not exist."""


class Groups(SavedTable, Protocol):
    """The consumer groups.  Known in Java as `SubscriptionGroupManager`."""

    on_change: list[Callable[[str], None]]

    @property
    def forbidden_topics(self) -> dict[str, dict[str, int]]:
        """Topics that groups may not read, by group."""

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the group if it exists."""

    def find(self, name: str, client: str = "") -> SubscriptionGroupConfig | None:
        """Return the group, and create it first if that is allowed.

        RequestRejected if there are too many groups, or too many that the client's host
        created.  `client` is its address, empty for this broker and its tools.
        """

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """Return every group by name."""

    def update(self, group: SubscriptionGroupConfig) -> bool:
        """Add or replace a group; False if it is the same already."""

    def delete(self, name: str) -> bool:
        """Remove a group and its forbidden topics; False if it does not exist."""

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Return whether the group may not read the topic."""

    def set_readable(self, group: str, topic: str, *, is_readable: bool) -> None:
        """Forbid a group to read a topic, or allow it again."""


class Offsets(SavedTable, Protocol):
    """The committed offsets.  Known in Java as `ConsumerOffsetManager`."""

    on_reset: list[Callable[[str], None]]
    """Functions that get the group whose offset was reset."""

    @property
    def has_lmq(self) -> bool:
        """Whether the table has offsets of light message queues."""

    @property
    def pair_count(self) -> int:
        """Number of pairs of topic and group."""

    @property
    def commit_table(self) -> CommitTable:
        """The table of offsets that compiled handlers commit."""

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset, -1 without one."""

    def live_queues(self, group: str, topic: str) -> dict[int, int] | None:
        """Return the table's own offsets by queue id, for compiled code.

        None without an offset, and for a group with only one offset in the topic.
        """

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offsets by queue id."""

    def next_offset_of(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset of the next message that the group gets, -1 without one.

        For a group that pops, this is more than the committed offset.
        """

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets in a topic."""

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets."""

    def topics_by_group(self) -> dict[str, list[str]]:
        """Return the topics in which each group has offsets."""

    def commit(
        self, client: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Set an offset, which may be lower than before; `client` is for the log."""

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset that the group's consumers must use.

        Commits of these consumers have no effect until one of them has received this
        offset.
        """

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a reset waits for a pull."""

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return and remove the offset of a reset, to send it to a consumer."""

    def clone(self, source: str, target: str, topic: str) -> bool:
        """Copy the offsets of one group to another; False if there are none."""

    def remove_group(self, group: str) -> None:
        """Remove the offsets of a group."""

    def remove_topic(self, topic: str) -> None:
        """Remove the offsets of a topic."""


class Filter(Protocol):
    """The selector of one group for one topic."""

    @property
    def expression(self) -> str:
        """The selector's text."""

    @property
    def client_version(self) -> int:
        """The version of the subscription."""

    @property
    def is_dead(self) -> bool:
        """Whether the group is offline, or has another subscription now."""


class Filters(Protocol):
    """Selectors of consumers.  Known in Java as `ConsumerFilterManager`."""

    on_change: list[Callable[[str], None]]
    """Called with a group after one of its selectors has changed."""

    def get(self, topic: str, group: str) -> Filter | None:
        """Return the selector of a group, also of a group that is offline."""

    def register(
        self, group: str, subscriptions: Iterable[SubscriptionData], client: str = ""
    ) -> None:
        """Apply a heartbeat; the group's selectors for other topics become invalid.

        Without room in the table, or for the host of `client`, a new selector is not
        added.
        """


class QueueMappings(SavedTable, Protocol):
    """Static topics.  Known in Java as `TopicQueueMappingManager`."""

    @property
    def get(self) -> Callable[[str], TopicQueueMappingDetail | None]:
        """Return the mapping of a topic by its name; None without one."""

    def __contains__(self, name: object) -> bool:
        """Return whether a topic is static here."""

    def all(self) -> dict[str, TopicQueueMappingDetail]:
        """Return the mappings by topic."""

    def put(self, mapping: TopicQueueMappingDetail, *, force: bool = False) -> None:
        """Add or replace a mapping; a queue that the new mapping lacks keeps its parts.

        RequestRejected if there are too many parts, or if the mapping belongs to
        another broker. RequestRejected if it contradicts the current mapping, unless
        `force` is set.
        """

    def drop(self, name: str, queue_ids: set[int], *, first_part: bool) -> None:
        """Remove the first part of logical queues, or the queues."""

    def delete(self, name: str) -> None:
        """Remove the mapping of a topic, if there is one."""


class Audit(Protocol):
    """The last changes that people and tools have made."""

    def all(self) -> Iterator[Change]:
        """Yield the changes of the last week, the oldest first."""
