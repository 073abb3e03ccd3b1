"""Statistics and problems of a broker as plugins see them."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rmq.protocol.bodies.statistics import BrokerStatsData
from rmq.protocol.records import StoredMessage
from rmq.store.queues.consume_queues import QueueKey


class Timings(Protocol):
    """Histograms of one name, by labels."""

    def add(self, value: int, times: int = 1, **labels: str) -> None:
        """Count a value, once or several times."""

    def time_block(self, **labels: str) -> AbstractContextManager[None]:
        """Count the ms of a block; an exception counts as a failure."""


class Statistics(Protocol):
    """Counters.  Known in Java as `BrokerStatsManager`."""

    sources: list[Callable[[], Iterator[None]]]
    """Functions that add the counts of compiled code, some at each step."""

    uncounted: list[Callable[[], int]]
    """Functions that return the number of delivered messages that no source has counted
    yet.
    """

    @property
    def commit_ages(self) -> Timings:
        """Ages of half messages at their commit, in ms."""

    @property
    def group_creations(self) -> Timings:
        """Times to create groups, in ms."""

    @property
    def topic_creations(self) -> Timings:
        """Times to create topics, in ms."""

    @property
    def open_transactions(self) -> Counter[str]:
        """Number of open half messages, by topic."""

    def count(self, name: str, key: str, times: int = 1) -> None:
        """Add one, or `times`, to the counter of an item."""

    def count_get(
        self,
        group: str,
        topic: str,
        queue_id: int,
        pulls: int,
        messages: int,
        size: int,
        next_offset: int,
        token: int = 0,
    ) -> None:
        """Count the messages that pulls returned; the last one is before `next_offset`.

        `token` names the connection of the last of these pulls.
        """

    def count_send_back(
        self, group: str, topic: str, *, is_dead: bool = False, times: int = 1
    ) -> None:
        """Count messages that consumers sent back; `is_dead` for dead letters."""

    def pulled_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset after the last message that a group has pulled, or -1."""

    def pulled_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield group, topic, queue and the offset after the last pulled message."""

    def messages_out(self) -> int:
        """Return the messages that consumers got since the start, of all topics."""

    def user_totals(self) -> tuple[int, int]:
        """Return the counted messages in and out, without messages of system topics."""

    def count_parts(self) -> Iterator[None]:
        """Count the messages in and out since the last call, some at each step."""

    def minute_rate(self, name: str, key: str) -> float:
        """Return the additions a second over the last minute, as counted."""

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """Return the three windows of an item; None if it was never counted."""

    def remove_group(self, group: str) -> Iterator[None]:
        """Remove the items of a group, some at each step."""

    def remove_topic(self, topic: str) -> Iterator[None]:
        """Remove the items of a topic, some at each step."""

    def on_arrivals(self, touched: Mapping[QueueKey, int], /) -> None:
        """Wake the task that counts: a listener of arrivals."""

    async def sample_regularly(self) -> None:
        """Take samples until cancelled: a service."""


class DeadLetters(Protocol):
    """New dead letters of the last hour."""

    def exclude_resent(self, group: str, resent: set[int]) -> None:
        """Leave out the offsets that were sent again."""


class Failures(Protocol):
    """Records that services could not handle."""

    def skip_on_error(
        self, service: str, record: StoredMessage | str
    ) -> AbstractContextManager[None, bool]:
        """Skip a record, or an offset, if the block fails; errors of a busy store pass
        through.
        """

    def add_record(
        self, service: str, record: StoredMessage | str, error: Exception
    ) -> None:
        """Log and count a record, or an offset, that a service skips."""


class Monitor(Protocol):
    """The problems of a broker, and views for the console."""

    @property
    def failures(self) -> Failures:
        """Records that services could not handle, which make a problem."""

    @property
    def dead_letters(self) -> DeadLetters:
        """New dead letters."""

    async def show_view(
        self,
        name: str,
        query: Mapping[str, str],
        require: Callable[[str], object],
    ) -> dict[str, Any]:
        """Return a view; `require(topic)` raises an error if the user has no right to
        the topic.
        """

    async def follow_log(
        self, query: Mapping[str, str], may_read: Callable[[str], bool]
    ) -> dict[str, Any]:
        """Return new messages and events."""

    async def run(self) -> None:
        """Take samples until cancelled: a service."""
