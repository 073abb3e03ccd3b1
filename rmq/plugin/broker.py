"""BrokerContext: one broker as plugins see it, the first argument of `rmq_setup`.

The context and its parts are Protocols, which only type checkers read, so calls do not
get slower. The broker's own objects have more members, which may change without notice.
"""

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from rmq.core.clock import Clock
from rmq.core.clock_steps import ClockSteps
from rmq.plugin.rights import RequestRights
from rmq.protocol.command import Command
from rmq.protocol.message import Message
from rmq.remoting.connection import Connection
from rmq.remoting.inner_caller import InnerCaller

if TYPE_CHECKING:
    from rmq._fastpath.bytes.unique_keys import UniqueKeys
    from rmq._fastpath.handlers.diversion import HalfSends
    from rmq._fastpath.handlers.end_path import EndPath
    from rmq._fastpath.handlers.send_back_path import SendBackPath
    from rmq._fastpath.handlers.send_table import SendTable
    from rmq.config.broker import BrokerConfig
    from rmq.plugin.clients import Consumers, Producers, QueueLocks
    from rmq.plugin.observe import Monitor, Statistics
    from rmq.plugin.replicas import Replicas, Role
    from rmq.plugin.store import (
        Cleaner,
        Copies,
        Disk,
        Durability,
        Log,
        MessageIndex,
        Messages,
        Positions,
        Queues,
        Store,
        Timer,
    )
    from rmq.plugin.tables import Audit, Filters, Groups, Offsets, QueueMappings, Topics
    from rmq.protocol.batch import BatchItem
    from rmq.protocol.bodies.route import TopicRouteData
    from rmq.remoting.server import NativeCounts
    from rmq.store.config import StoreConfig
    from rmq.store.results import BatchPutResult, PutResult

T = TypeVar("T")

Facts = Mapping[str, Any]
"""Facts that a plugin publishes to other plugins, as values of JSON."""


class PluginInfo(NamedTuple):
    """A loaded plugin, its registrations by the name of the call, and its request
    codes.
    """

    name: str
    version: str
    registered: tuple[str, ...]
    codes: tuple[int, ...]


class Publisher(Protocol):
    """The steps that every new message passes before it is stored."""

    @property
    def triggers(self) -> set[str]:
        """Properties with an interceptor; the set object never changes, only its
        content.
        """

    @property
    def send_fields(self) -> Mapping[str, Callable[[Message], Mapping[str, str]]]:
        """Functions that add fields to answers, by stored topic; always the same
        object.
        """

    def put(self, message: Message, *, without: str = "") -> "PutResult":
        """Store one message; skip the interceptors of the property `without`."""

    def append(self, message: Message) -> "PutResult":
        """Store a message that has already passed the interceptors."""

    def put_batch(
        self, message: Message, items: "Sequence[BatchItem]"
    ) -> "BatchPutResult":
        """Store the items of a client batch one after the other."""

    def send_table(
        self,
        *,
        now_ms: Callable[[], int],
        store_host: bytes,
        facts: dict[str, str],
        added: bytes,
        keys: "UniqueKeys",
        declined_properties: AbstractSet[str],
        declined_text: bytes,
        version: int,
    ) -> "SendTable":
        """Return a table with which compiled handlers store like `put`.

        Python serves messages with a property of an interceptor that is not compiled,
        and messages with one of the `declined_properties`.
        """

    def end_path(
        self,
        halves: "HalfSends",
        *,
        on_begin: Callable[[int], bool],
        on_end: Callable[[list[int], list[tuple[str, int]], bool], object],
        declined: AbstractSet[str],
        version: int,
    ) -> "EndPath":
        """Return the compiled handler of commits, which stores like compiled sends.

        Python serves half messages with an interceptor's property, except TRAN_MSG, or
        with one of the `declined` properties.
        """

    def send_back_path(
        self,
        *,
        choose_queue: Callable[[int], int],
        on_stored: Callable[[list[tuple[str, str, bool]]], object],
        version: int,
    ) -> "SendBackPath":
        """Return the compiled handler of messages that consumers give back.

        Python serves all requests if no compiled interceptor serves DELAY. It also
        serves messages with another interceptor's property, except TRAN_MSG.
        `send_table` comes first.
        """


class Arrivals(Protocol):
    """Reports the queues that have new messages."""

    def flush(self) -> None:
        """Report the queues whose new messages are visible; a service calls this after
        it has stored messages.
        """


class RecentRoutes(Protocol):
    """Routes of topics, as name servers reported them a short time ago."""

    async def get(self, topic: str, age_s: float) -> "TopicRouteData | None":
        """Return a route that is not older than `age_s` if name servers answer.

        None if no route is known.
        """


class Directory(Protocol):
    """Other brokers, as the name servers know them."""

    @property
    def recent_routes(self) -> RecentRoutes:
        """Cached routes."""

    async def route(self, topic: str) -> "TopicRouteData":
        """Return a topic's route; PeerError if no name server knows it."""

    async def master_of(self, broker_name: str) -> str:
        """Return the address of the master of another group; PeerError if it is
        unknown.
        """


class NameServers(Protocol):
    """The name servers of this broker, and its registrations there."""

    @property
    def address(self) -> str:
        """The registered address of the broker."""

    @property
    def ha_address(self) -> str:
        """The registered address at which slaves read the log."""

    @property
    def directory(self) -> Directory:
        """Other brokers, as the name servers know them."""

    def send_request(
        self, address: str, request: Command, timeout_ms: int, /
    ) -> Awaitable[Command]:
        """Send a request to another broker, signed if this broker has credentials."""

    def collect_changes(self) -> AbstractContextManager[None]:
        """Send the topics that change in a block together, when it ends."""

    def is_propagated(self, name: str) -> bool:
        """Return whether the name servers know the topic, or do not answer."""

    async def wait_propagated(self, answer: T, topics: Iterable[str]) -> T:
        """Return the answer when the name servers know the latest change of each topic.

        A name server that is down delays the answer by at most a second.
        """


class BrokerContext(Protocol):
    """The parts of one broker."""

    # -- the broker itself

    @property
    def config(self) -> "BrokerConfig":
        """The broker's configuration."""

    @property
    def store_config(self) -> "StoreConfig":
        """The store's configuration."""

    @property
    def config_folder(self) -> Path:
        """The folder of tables, in the data directory."""

    @property
    def address(self) -> str:
        """The address of the broker, "host:port"."""

    @property
    def store_host(self) -> bytes:
        """The address of the broker in the form of records."""

    @property
    def boot_ms(self) -> int:
        """Time when the broker started."""

    @property
    def clock(self) -> Clock:
        """The clock; tests set it."""

    @property
    def clock_steps(self) -> ClockSteps:
        """Detects that the wall clock was set; a plugin appends functions to its
        `callbacks`.
        """

    @property
    def rights(self) -> RequestRights:
        """The rights of users; complete when all plugins are set up."""

    # -- messages

    @property
    def messages(self) -> "Messages":
        """Reads messages."""

    @property
    def queues(self) -> "Queues":
        """The consume queues."""

    @property
    def put(self) -> Publisher:
        """Stores messages of clients; `publish` stores messages of plugins."""

    @property
    def copies(self) -> "Copies":
        """Stores records again."""

    @property
    def arrivals(self) -> Arrivals:
        """Wakes consumers that wait for messages."""

    # -- tables and clients

    @property
    def topics(self) -> "Topics":
        """The topics."""

    @property
    def groups(self) -> "Groups":
        """The consumer groups."""

    @property
    def offsets(self) -> "Offsets":
        """The committed offsets."""

    @property
    def filters(self) -> "Filters":
        """The selectors of consumers."""

    @property
    def queue_mappings(self) -> "QueueMappings":
        """The static topics."""

    @property
    def audit(self) -> "Audit":
        """The last changes."""

    @property
    def consumers(self) -> "Consumers":
        """The consumers that are online."""

    @property
    def producers(self) -> "Producers":
        """The producers that are online."""

    @property
    def queue_locks(self) -> "QueueLocks":
        """The locks of ordered consumers."""

    # -- the store

    @property
    def store(self) -> "Store":
        """The store as a whole."""

    @property
    def log(self) -> "Log":
        """The commit log."""

    @property
    def positions(self) -> "Positions":
        """The stable and the visible end of the log."""

    @property
    def durability(self) -> "Durability":
        """Whether the store accepts messages, and makes them durable."""

    @property
    def timer(self) -> "Timer":
        """The files of timed messages."""

    @property
    def cleaner(self) -> "Cleaner":
        """Deletes expired files."""

    @property
    def disk(self) -> "Disk":
        """The file system of the log."""

    @property
    def index(self) -> "MessageIndex":
        """The index of keys."""

    # -- the group of the broker, and other groups

    @property
    def role(self) -> "Role":
        """The role of the broker in its group."""

    @property
    def replicas(self) -> "Replicas":
        """The replication."""

    @property
    def name_servers(self) -> NameServers:
        """The name servers."""

    # -- statistics

    @property
    def statistics(self) -> "Statistics":
        """The counters."""

    @property
    def monitor(self) -> "Monitor":
        """The problems."""

    @property
    def native_counts(self) -> "Callable[[], NativeCounts]":
        """Return the numbers of frames that compiled handlers served and declined, by
        port and code.
        """

    # -- requests of a plugin to the broker

    @property
    def next_turn(self) -> Callable[[], Awaitable[None]]:
        """Return in the next turn; a long task awaits it now and then, so that other
        tasks run.
        """

    @property
    def poll_soon(self) -> Callable[[], None]:
        """Wake the reactor, so that compiled handlers read the caller's results at
        once.
        """

    @property
    def connection_of(self) -> Callable[[int], Connection | None]:
        """Return an open connection by the token that compiled handlers know."""

    @property
    def open_caller(
        self,
    ) -> Callable[[Connection, Callable[[Command], None]], InnerCaller]:
        """Return the caller for a client of another protocol on an open connection.
        Requests of this caller pass the same checks and handlers as requests of
        remoting clients. The function gets the requests of the broker to this client.
        """

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        queue_id: int | None = None,
        properties: Mapping[str, str] | None = None,
        tags: str = "",
        keys: str = "",
    ) -> "PutResult":
        """Store a message of a plugin and wake consumers that wait for it.

        Without `queue_id` the queues of the topic take turns. The result has the
        status: a full disk raises no error. RequestRejected if the topic or queue does
        not exist or is not writable, or if an interceptor refuses the message.
        """

    def facts(self, name: str) -> Facts | None:
        """Return the facts that a plugin publishes under this name, or None."""

    def configs(self) -> tuple[object, ...]:
        """Return the configurations in effect: of broker, store and plugins."""

    def config_changed(self, keys: Collection[str]) -> None:
        """Notify the callbacks of keys with new values; call from the trio thread."""

    def plugins(self) -> list[PluginInfo]:
        """Return the loaded plugins."""
