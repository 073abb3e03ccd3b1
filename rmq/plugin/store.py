"""The message store as plugins see it: messages, queues, the log and its guarantees.

`StoreConfig`, results, `TimerUnit` and `ConsumeQueue` are the store's own classes.
Every other name here is a Protocol; only the broker creates such objects.  Methods run
on the trio thread and do not wait.  A method whose work blocks returns a `Step`, for a
worker thread.
"""

from array import array
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
)
from typing import Protocol

from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.handlers.once_table import OnceTable
from rmq._fastpath.handlers.pull_table import PullTable
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail, TailSet
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.protocol.records import StoredMessage
from rmq.store.disk import DiskUsage
from rmq.store.queues.consume_queue import ConsumeQueue
from rmq.store.queues.consume_queues import Step
from rmq.store.results import Boundary, GetResult
from rmq.store.stats import StoreStatistics
from rmq.store.timer.log import TimerUnit


class Messages(Protocol):
    """Reads messages, by queue offset, by physical offset, by time and by key."""

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: QueueOffset,
        max_messages: int,
        *,
        max_bytes: int | None = None,
        tag_codes: tuple[int, ...] | None = None,
        may_wait: bool = True,
        is_own: bool = False,
    ) -> GetResult:
        """Read visible messages of a queue from `offset` on, with one of the tags.

        `tag_codes=None` selects all. With `may_wait=False`, records that only the disk
        has raise `NotInMemory`. `is_own=True` marks a read of the broker for itself;
        such messages have their own counter.
        """

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the first offset of a queue; 0 if it never had a message."""

    def reported_min_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the first offset as Java reports it.

        It is -1 for a queue of batches that never had a message.
        """

    def max_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the offset after the last visible message; 0 if there was none."""

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary
    ) -> int:
        """Return the offset of the first message stored at or after a time.

        With `Boundary.UPPER`: of the last message before the time.
        """

    def store_time_at(self, topic: str, queue_id: int, offset: QueueOffset) -> int:
        """Return the store time of a message in ms; -1 if the store has no such
        message.
        """

    def is_compacted(self, topic: str) -> bool:
        """Return whether only the last message of each key stays in a topic."""

    def physical_at(self, topic: str, queue_id: int, offset: QueueOffset) -> int:
        """Return the physical offset of a message; -1 if the store has no such
        message.
        """

    def is_in_memory(self, topic: str, queue_id: int, offset: QueueOffset) -> bool:
        """Return whether the page cache probably has the message."""

    def record_at(self, physical_offset: PhysicalOffset) -> bytes | None:
        """Return the record at an offset of the broker itself; None without one.

        A client may send a body that looks like a record: use `verified_message_at` for
        offsets from clients.
        """

    def message_at(self, physical_offset: PhysicalOffset) -> StoredMessage | None:
        """Return the decoded record of `record_at`."""

    def verified_message_at(
        self, physical_offset: PhysicalOffset
    ) -> StoredMessage | None:
        """Return the record at an offset from a client; None if there is none.

        A queue entry, which only the store writes, must have this offset.
        """

    def appended_message_at(
        self, physical_offset: PhysicalOffset
    ) -> StoredMessage | None:
        """Return a record as `verified_message_at`, also before it is visible."""

    def query(
        self,
        topic: str,
        key: str,
        max_messages: int,
        begin_ms: int,
        end_ms: int,
        *,
        is_tags: bool = False,
    ) -> Generator[Step, None, list[PhysicalOffset]]:
        """Return the offsets of the newest messages with a key or tags, in log order.

        The messages were stored in [begin_ms, end_ms].  The generator yields steps.
        """

    def tag_codes(
        self, topic: str, queue_id: int, first: QueueOffset, end: QueueOffset
    ) -> set[int]:
        """Return the tags codes of the entries in [first, end), each once."""

    def entries_at(
        self, topic: str, queue_id: int, offset: QueueOffset
    ) -> tuple[QueueTail, MappedFile | None] | None:
        """Return a queue and the file of its entry at `offset`, for compiled code.

        None if there is no entry, and for queues of batches; the file is None if the
        entry is in memory.
        """

    def load_keys(
        self,
        table: OnceTable,
        topics: Collection[str],
        diverted_to: Iterable[str],
        since_ms: int,
    ) -> None:
        """Add the messages of topics since a time to an empty table of keys.

        They are in the queues of `topics`; delayed and half messages are in those of
        `diverted_to`.
        """

    def pull_table(
        self, version: int, commits: CommitTable, on_work: Callable[[], object]
    ) -> PullTable:
        """Return a table with which compiled handlers read like `get`."""


class Queues(Protocol):
    """The consume queues of the store."""

    @property
    def lmq_count(self) -> int:
        """Number of light message queues."""

    @property
    def tails(self) -> TailSet:
        """The ends of all queues, for compiled code."""

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue; None if it never had a message."""

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """Return the queues of a topic."""

    def topics(self) -> list[str]:
        """Return the names of all topics that have queues."""


class Log(Protocol):
    """The commit log."""

    @property
    def min_offset(self) -> int:
        """Physical offset of the first record."""

    @property
    def end_offset(self) -> int:
        """Physical offset after the last record."""

    def set_read_ahead(self, *, enabled: bool) -> None:
        """Set whether the kernel reads ahead in full files."""


class Mark(Protocol):
    """An offset that only grows."""

    @property
    def value(self) -> int:
        """The offset now."""


class Positions(Protocol):
    """Positions in the log: all bytes before a position have its guarantee."""

    @property
    def stable(self) -> Mark:
        """Offset before which all bytes survive a restart and a failover."""

    @property
    def visible(self) -> int:
        """Offset before which clients may read."""


class Durability(Protocol):
    """Whether the store accepts messages, and makes them durable."""

    @property
    def is_writable(self) -> bool:
        """Whether the store accepts messages."""

    @property
    def refuse_reason(self) -> str:
        """Reason why the store refuses messages, for people; empty if it accepts."""

    @property
    def put_error(self) -> str:
        """Reason why the last message found no room; empty after a later message was
        stored.
        """

    @property
    def senders_wait(self) -> bool:
        """Whether the answer to a send waits for the disk or for slaves."""

    @property
    def ack_timeout_ms(self) -> int:
        """Time limit in milliseconds of an answer that waits."""

    def flush(self) -> None:
        """Make the log durable up to its end; LogFailed ends all writing."""


class Store(Protocol):
    """The store as a whole."""

    def statistics(self) -> StoreStatistics:
        """Return counters and offsets."""

    def unused_topics(self, retained: Collection[str]) -> set[str]:
        """Return topics with queues, without `retained` and without system topics."""

    def was_deleted(self, topic: str, offset: PhysicalOffset) -> bool:
        """Whether a topic was deleted after the record at an offset was stored."""

    def record_deletion(self, topics: set[str]) -> Step:
        """Begin to delete topics; later starts do not rebuild their queues."""

    def delete_topic(self, topic: str) -> Step:
        """Remove the queues of a topic; the step removes their files.

        The records stay in the log until they expire.  The call itself blocks unless
        the step of `record_deletion` ran before.
        """

    def open_timer(self) -> list[str]:
        """Open the files of timed messages; return sentences about anomalies."""


class Cleaner(Protocol):
    """Deletes expired files."""

    def request(self) -> None:
        """Delete expired files of the log at the next cleaning, at any hour."""

    def request_queues(self) -> None:
        """Clean all queues next time, even if the start of the log has not moved."""

    def clean_queues(self) -> Iterator[Step]:
        """Raise the minimum of queues; yield steps that remove their unused files."""


class Disk(Protocol):
    """The file systems of the log; the least used one counts."""

    def used_ratio(self) -> int:
        """Return the used percentage, rounded up; 0 if the system reports no size."""

    def measure_disks(self) -> dict[str, DiskUsage]:
        """Return the usage of the disk of each folder of the log."""


class MessageIndex(Protocol):
    """The index of keys."""

    @property
    def last_update(self) -> tuple[int, int]:
        """Store time and physical offset of the newest entry; zeros without any."""


class Copies(Protocol):
    """Stores records of the log again without decoding them.

    `queues`, a dictionary of the plugin, has the queues that compiled code may write.
    """

    def learn_target(
        self, queues: dict[bytes, QueueTail], topic: str, queue_id: int
    ) -> None:
        """Add a queue to `queues`, after a message was stored there."""

    def put_again(
        self,
        queues: dict[bytes, QueueTail],
        records: bytes,
        position: int,
        stored_until_ms: int,
    ) -> tuple[int, int] | None:
        """Append delayed records that were stored until a time.

        `position` is the position of the first record in `records`.
        """

    def put_timed(
        self,
        queues: dict[bytes, QueueTail],
        records: list[bytes],
        added: list[bytes],
        first: int,
        times: tuple[int, int],
    ) -> int:
        """Append timed records from index `first` on; return their number.

        Their due times are at or after the first of `times`, and before the second.
        """


class TimerLog(Protocol):
    """The units of timed messages, in the order of their arrival."""

    def unit_at(self, position: int) -> TimerUnit | None:
        """Return the unit at a position; None if there is none."""


class TimerWheel(Protocol):
    """The slots with messages that wait."""

    def first_slot(self) -> int | None:
        """Return the number of the earliest slot with units."""

    def last_of(self, number: int) -> int:
        """Return the position of the last unit of a slot."""

    def count_of(self, number: int) -> int:
        """Return the number of waiting messages of a slot."""

    def counts_between(self, bounds: list[int]) -> list[int]:
        """Return the number of waiting messages between each bound and the bound before
        it.
        """

    def has_recalls(self, number: int) -> bool:
        """Return whether a unit of a slot recalls another message."""

    def remove_first(self) -> None:
        """Remove the earliest slot, because its messages are delivered."""


class ActedRecords(Protocol):
    """The timed messages that acting masters have delivered."""

    def leave_topic(self, topic: str) -> None:
        """Let the records of a topic wait for the master."""


class Timer(Protocol):
    """The files of timed messages."""

    @property
    def acted_records(self) -> ActedRecords:
        """The messages that acting masters have delivered."""

    @property
    def is_open(self) -> bool:
        """Whether this broker delivers timed messages."""

    @property
    def precision_ms(self) -> int:
        """The length of a slot."""

    @property
    def queue_offset(self) -> QueueOffset:
        """Offset of the first record in the timer's queue that has no slot yet."""

    @property
    def read_slot(self) -> int:
        """The first slot that is not delivered."""

    @property
    def waiting_counts(self) -> dict[int, int]:
        """Messages that wait, by the hash of their topic."""

    @property
    def wheel(self) -> TimerWheel:
        """The slots."""

    @property
    def log(self) -> TimerLog:
        """The units."""

    def has_delivered(self, at_ms: int, queue_end: int) -> bool:
        """Whether all messages up to a time are delivered; the queue of the timer ends
        at `queue_end`.
        """

    def add(self, unit_bits: int, record: tuple[int, int, int], slot: int) -> None:
        """Add a record (offset, size, hash of its topic) to a slot.

        StoreError if the disk has no room; nothing is changed then.
        """

    def add_plain(
        self, records: bytes, position: int, end_slot: int
    ) -> tuple[int, list[tuple[str, int]]] | None:
        """Add the plain records from `position` on to existing slots before `end_slot`.

        Returns the next position, and (topic, records) for each run of one topic.  None
        if the first record is not plain.
        """

    def mark(self, record: tuple[int, int, int]) -> None:
        """Record for a Java broker that this record without a unit has been read."""

    def is_taken(
        self,
        offset: PhysicalOffset,
        queue_offset: QueueOffset,
        slot: int,
        topic_hash: int,
    ) -> bool:
        """Return whether an earlier run has read this record of the queue."""

    def move(
        self, *, queue_offset: QueueOffset | None = None, slot: int | None = None
    ) -> None:
        """Set the first record without a slot, or the first slot to deliver."""

    def follow_clock(self, slot: int) -> None:
        """Set the current slot: no message waits for an earlier slot."""

    def read_chain(self, slot: int, after: int) -> Generator["array[int]"]:
        """Yield the positions of a slot's units after a position, newest first, in
        parts.
        """

    def due_records(
        self, positions: "array[int]"
    ) -> tuple[list[bytes], list[bytes], list[int]]:
        """Return the records of plain units, added properties, and topic hashes."""

    def count_delivered(self, topic_hash: int, messages: int = 1) -> None:
        """Count messages that left their slot."""

    def load_checkpoint(self) -> None:
        """On a slave, read the checkpoint from its file."""

    def is_delivered(
        self, offset: PhysicalOffset, queue_offset: QueueOffset, slot: int
    ) -> bool:
        """On a slave, return whether the checkpoint covers a record of the queue."""

    def save_acting_progress(
        self, queue_offset: QueueOffset, slot: int, whole_slot: int
    ) -> None:
        """On a slave that acts as the master, record which messages it has delivered.

        All records before `queue_offset` with slots before `whole_slot` are delivered.
        Records before `slot` are delivered, too, except records that roll and records
        of topics that wait for the master.
        """

    def encode_progress(self) -> bytes:
        """Return the checkpoint, for slaves and for a master that comes back."""

    def take_back(self, data: bytes) -> bool:
        """Copy the progress of a slave that acted as the master; False if it is not
        valid.
        """

    def save_master_checkpoint(self, data: bytes) -> bool:
        """On a slave, save the checkpoint of the master; False if it is not valid."""
