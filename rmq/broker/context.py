"""BrokerContext: the parts of one broker.

Plugins see it as the Protocol `rmq.plugin.BrokerContext`, which has its own nouns for
parts of the store.
"""

import itertools
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from rmq.broker.arrivals import Arrivals
from rmq.broker.clients import ConsumerTable, ProducerTable
from rmq.broker.nameservers import NameServers
from rmq.broker.no_access_control import AllRights
from rmq.broker.put import PutPipeline
from rmq.broker.queue_locks import QueueLocks
from rmq.broker.replicas import Replicas
from rmq.broker.tables.audit import AuditTable
from rmq.broker.tables.filters import FilterTable
from rmq.broker.tables.groups import GroupTable
from rmq.broker.tables.offsets import OffsetTable
from rmq.broker.tables.queue_mappings import QueueMappings
from rmq.broker.tables.topics import TopicTable
from rmq.cluster.group_role import GroupRole
from rmq.cluster.local_commits import LocalCommits
from rmq.cluster.replication import Replication
from rmq.config.broker import BrokerConfig
from rmq.config.json_table import JsonTable
from rmq.core.clock import Clock
from rmq.core.clock_steps import ClockSteps
from rmq.core.errors import RequestRejected
from rmq.observe.monitor import Monitor
from rmq.observe.statistics import BrokerStatistics
from rmq.plugin.broker import Facts, PluginInfo
from rmq.plugin.registrations import Registrations
from rmq.plugin.rights import RequestRights
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PERM_WRITE
from rmq.protocol.message import Message
from rmq.protocol.properties import KEYS, TAGS
from rmq.remoting.connection import Connection
from rmq.remoting.inner_caller import InnerCaller
from rmq.remoting.server import NativeCounts
from rmq.store.cleanup import Cleaner
from rmq.store.commit_log import CommitLog
from rmq.store.config import StoreConfig
from rmq.store.disk import Disk
from rmq.store.durability import Durability
from rmq.store.index import MessageIndex
from rmq.store.message_store import MessageStore
from rmq.store.positions import LogPositions
from rmq.store.queues.consume_queues import ConsumeQueues
from rmq.store.reader import StoreReader
from rmq.store.results import PutResult
from rmq.store.service import StoreService
from rmq.store.timer.timer_store import TimerStore
from rmq.store.writer import StoreWriter


class BrokerContext(Struct, eq=False, kw_only=True):
    """The parts of one broker."""

    config: BrokerConfig
    store_config: StoreConfig
    clock: Clock
    clock_steps: ClockSteps
    store: MessageStore
    store_service: StoreService
    put: PutPipeline
    arrivals: Arrivals
    topics: TopicTable
    offsets: OffsetTable
    local_commits: LocalCommits
    groups: GroupTable
    audit: AuditTable
    filters: FilterTable
    queue_mappings: QueueMappings
    producers: ProducerTable
    consumers: ConsumerTable
    queue_locks: QueueLocks
    name_servers: NameServers
    role: GroupRole
    replication: Replication
    store_host: bytes
    address: str
    boot_ms: int
    statistics: BrokerStatistics
    monitor: Monitor
    native_counts: Callable[[], NativeCounts]
    """Requests that compiled handlers served and declined, by port and code."""
    next_turn: Callable[[], Awaitable[None]]
    """Returns in the next turn: a long task awaits it now and then, so that other tasks
    can run.
    """
    poll_soon: Callable[[], None]
    """Wake the reactor, so that compiled handlers read the caller's results at once."""
    connection_of: Callable[[int], Connection | None]
    """Return an open connection by the token that compiled handlers know."""
    open_caller: Callable[[Connection, Callable[[Command], None]], InnerCaller]
    """Return the caller for a client of another protocol, which uses a connection."""
    rights: RequestRights = field(default_factory=AllRights)
    """The rights of users, for handlers; a plugin registers them."""
    registered: Registrations = field(default_factory=Registrations)
    """The registrations of all plugins; complete after the start."""
    _turns: Iterator[int] = field(default_factory=itertools.count)

    @property
    def config_folder(self) -> Path:
        """The folder of tables, in the data directory."""
        return self.store.directory.config

    @property
    def log_losses(self) -> list[str]:
        """Damage of the log that the start found, and that lost messages."""
        return self.store.recovery.losses

    @property
    def log_healed(self) -> list[str]:
        """Damage of the log that the start replaced by the bytes of another broker."""
        return self.store.recovery.healed

    @property
    def table_losses(self) -> list[str]:
        """Changes that were lost at the start, because a table's file was damaged."""
        own: list[JsonTable] = [self.topics, self.offsets, self.local_commits]
        own += [self.groups, self.audit, self.filters, self.queue_mappings]
        own += [table for table, _ in self.registered.tables]
        return [table.loss for table in own if table.loss]

    @property
    def messages(self) -> StoreReader:
        """Reads messages."""
        return self.store.reads

    @property
    def copies(self) -> StoreWriter:
        """Stores records again."""
        return self.store.writes

    @property
    def queues(self) -> ConsumeQueues:
        """The consume queues."""
        return self.store.queues

    @property
    def log(self) -> CommitLog:
        """The commit log."""
        return self.store.log

    @property
    def positions(self) -> LogPositions:
        """The positions in the log."""
        return self.store.positions

    @property
    def durability(self) -> Durability:
        """Whether the store accepts messages, and makes them durable."""
        return self.store.durability

    @property
    def timer(self) -> TimerStore:
        """The files of timed messages."""
        return self.store.timer

    @property
    def cleaner(self) -> Cleaner:
        """Deletes expired files."""
        return self.store.cleaner

    @property
    def disk(self) -> Disk:
        """The file system of the log."""
        return self.store.disk

    @property
    def index(self) -> MessageIndex:
        """The index of keys."""
        return self.store.index

    @property
    def replicas(self) -> Replicas:
        """The replication, as plugins see it."""
        return Replicas(self.replication, self.store)

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        queue_id: int | None = None,
        properties: Mapping[str, str] | None = None,
        tags: str = "",
        keys: str = "",
    ) -> PutResult:
        """Store a message of the broker itself and wake consumers that wait for it.

        Without `queue_id` the queues of the topic take turns.
        The result has the status: a full disk raises no error.
        RequestRejected if there is no such topic or queue, if the topic may not be
        written to, or if an interceptor refuses the message.
        Call it from the trio thread.
        """
        config = self.topics.get(topic)
        if config is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist; create it with broker.topics.ensure",
            )
        if not config.perm & PERM_WRITE:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic}] sending message is forbidden",
            )
        if queue_id is None:
            queue_id = next(self._turns) % max(config.write_queue_nums, 1)
        if not 0 <= queue_id < config.write_queue_nums:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic[{topic}] has "
                f"{config.write_queue_nums} queues",
            )
        texts = {TAGS: tags, KEYS: keys, **(properties or {})}
        message = Message(
            topic,
            queue_id,
            body,
            0,
            0,
            self.clock.now_ms(),
            self.store_host,
            properties={name: text for name, text in texts.items() if text},
        )
        result = self.put.put(message)
        self.arrivals.flush()
        return result

    def facts(self, name: str) -> Facts | None:
        """Return the facts that a plugin publishes under this name, or None."""
        found = self.registered.facts.get(name)
        return None if found is None else found[1]()

    def configs(self) -> tuple[object, ...]:
        """Return the configurations in effect: of broker, store and plugins."""
        own = self.config, self.store_config, self.replication.config
        return *own, *self.registered.configs.values()

    def config_changed(self, keys: Collection[str]) -> None:
        """Notify the callbacks of keys with new values; call from the trio thread."""
        self.name_servers.config_changed(keys)
        for listener in self.registered.on_config:
            listener(keys)

    def plugins(self) -> list[PluginInfo]:
        """Return the loaded plugins."""
        return self.registered.plugins()
