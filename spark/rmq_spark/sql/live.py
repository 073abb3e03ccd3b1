"""LiveTopics: topics of running brokers as tables, read by pulls.

A statement sees each queue up to its end when the statement first read its topic.  The
messages of a queue come in the order of their offsets.  A filter of topics, brokers,
queues or offsets reduces the pulls. A filter of store times does not reduce the pulls,
because only the records have store times.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rmq.client.admin import AdminClient
from rmq_spark.live.client import ClientSettings, LiveClient
from rmq_spark.live.plan import Bounds, MessageQueue, QueueRange, plan_bundles
from rmq_spark.live.puller import PullSettings
from rmq_spark.live.reader import read_bundle
from rmq_spark.segments.reader import read_settings
from rmq_spark.segments.schema import columns_of
from rmq_spark.segments.selection import TopicSelection
from rmq_spark.sql.archive import ArchiveSnapshot
from rmq_spark.sql.dataset import (
    SOME_TOPIC,
    Batches,
    MessageDataset,
    filter_batches,
    options_of,
    read_ahead,
)
from rmq_spark.sql.origin import segments_table
from rmq_spark.sql.prune import Pruner

ROWS: Final = 100_000
"""Number of rows of a bundle, which has its own connection."""
_QUEUES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("minOffset", pa.int64()),
        ("maxOffset", pa.int64()),
        ("messages", pa.int64()),
    ]
)


class LiveTopics:
    """The topics that are registered with name servers."""

    after_archive = None

    def __init__(
        self, settings: ClientSettings, *, threads: int = 1, skip_corrupt: bool = False
    ) -> None:
        self.settings = settings
        self.threads = threads
        self.skip_corrupt = skip_corrupt
        self.messages = LiveDataset(self, with_system=False)
        self.all_messages = LiveDataset(self, with_system=True)
        self.queues = LiveQueues(self)
        self._admin = AdminClient(settings.name_servers, settings.identity)
        self._lock = Lock()
        self._names: list[str] | None = None
        self._bounds: dict[str, dict[MessageQueue, Bounds]] = {}

    def freeze(self, _: ArchiveSnapshot | None) -> None:
        """Discard the topics and bounds of the previous statement."""
        with self._lock:
            self._names = None
            self._bounds.clear()

    def list_segments(self) -> pa.Table:
        """Return an empty table: brokers do not show their segments."""
        return segments_table([])

    def topics(self) -> set[str]:
        """Return all topics."""
        return set(self.names())

    def recent_topics(self) -> set[str]:
        """Return all topics: name servers have new topics at once."""
        return self.topics()

    def finish(self) -> None:
        """Do nothing: there is no cache to save."""

    def close(self) -> None:
        """Close the connection."""
        self._admin.close()

    def names(self) -> list[str]:
        """Return all topics, sorted; requested once per statement."""
        with self._lock:
            if self._names is None:
                self._names = sorted(self._admin.topics())
            return self._names

    def queue_ranges(self, topics: Iterable[str]) -> list[QueueRange]:
        """Return the ranges of these topics; requested once per statement."""
        wanted = sorted(set(topics))
        with self._lock:
            missing = [topic for topic in wanted if topic not in self._bounds]
            if missing:
                self._request_bounds(missing)
            return [
                QueueRange(queue, bounds.first, bounds.end)
                for topic in wanted
                for queue, bounds in sorted(self._bounds[topic].items())
            ]

    def _request_bounds(self, topics: list[str]) -> None:
        named = self.settings._replace(topics=TopicSelection(frozenset(topics)))
        client = LiveClient(named)
        try:
            found = client.find_bounds(fails=True)
        finally:
            client.close()
        self._bounds.update((topic, {}) for topic in topics)
        for queue, bounds in found.items():
            self._bounds[queue.topic][queue] = bounds


class LiveDataset(MessageDataset):
    """The messages of live topics."""

    def __init__(self, live: LiveTopics, *, with_system: bool) -> None:
        super().__init__()
        self._live = live
        self._topics = TopicSelection(with_system=with_system)

    def _scan_batches(self, wanted: list[str], rows: pc.Expression | None) -> Batches:
        pruner = Pruner(rows, self._schema)
        options = options_of(self._needed_columns(wanted, rows))
        reading = replace(
            read_settings(options, columns_of(options)),
            topics=TopicSelection(with_system=True),
            with_unqueued=True,
            skip_corrupt=self._live.skip_corrupt,
        )
        pulls = PullSettings(self._live.settings)
        ranges = pruner.matching_queues(
            self._live.queue_ranges(self._selected_topics(pruner))
        )
        parts = (
            filter_batches(read_bundle(pulls, reading, bundle), rows, wanted)
            for bundle in plan_bundles(ranges, ROWS)
        )
        yield from read_ahead(parts, self._live.threads)

    def _selected_topics(self, pruner: Pruner) -> Iterator[str]:
        """Yield the selected topics; records named system topics in `left_out`."""
        names_topics = not pruner.matches_topic(SOME_TOPIC)
        for topic in pruner.matching_topics(self._live.names()):
            if self._topics.wants_topic(topic):
                yield topic
            elif names_topics:
                self.left_out.add(topic)


class LiveQueues(ds.Dataset):  # type: ignore[misc] # pyarrow has no types
    """The table of queues; requested when a statement reads it."""

    def __init__(self, live: LiveTopics) -> None:
        self._live = live

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return _QUEUES

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_: Any,  # noqa: ANN401 - hints for speed
    ) -> ds.Scanner:
        """Return an object from which DuckDB reads the rows."""
        topics = Pruner(filter, _QUEUES).matching_topics(self._live.names())
        rows = [
            (*each.queue, each.start, each.end, each.end - each.start)
            for each in self._live.queue_ranges(topics)
        ]
        columns_in = zip(*rows, strict=True) if rows else [[]] * len(_QUEUES)
        arrays = [
            pa.array(values, kind)
            for values, kind in zip(columns_in, _QUEUES.types, strict=True)
        ]
        table = pa.Table.from_arrays(arrays, schema=_QUEUES)
        return ds.dataset(table).scanner(columns=columns, filter=filter)
