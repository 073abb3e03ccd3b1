"""Live topics in Spark: a batch reader and a stream reader.

The driver asks brokers for bounds and plans bundles, tasks pull.  A stream continues at
the offset in its checkpoint.  Offsets that it reports to brokers are for display only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rmq_spark.live.client import LiveClient
from rmq_spark.live.plan import (
    Bounds,
    Bundle,
    MessageQueue,
    Offset,
    Place,
    Places,
    Positions,
    QueueRange,
    check_log_offset,
    check_position,
    limit_ends,
    next_places,
    offset_of,
    places_of,
    places_to_prove,
    plan_bundles,
    positions_of,
    starts_of,
)
from rmq_spark.live.settings import LiveReadSettings, end_positions, start_positions

if TYPE_CHECKING:
    import pyarrow as pa

    from rmq_spark.options import Options

ROWS_OF_A_BATCH: Final = 5_000_000
"""Default limit of a micro-batch: Spark repeats a failed batch as a whole."""

_log: Final = logging.getLogger(__name__)


@dataclass
class BundlePartition(InputPartition):
    """One task: ranges of queues of one broker."""

    bundle: Bundle


class LiveReader(DataSourceReader):
    """Reads topics once, up to their ends at the time of planning."""

    def __init__(self, options: Options, task: LiveReadSettings) -> None:
        self._options = options
        self._task = task

    def partitions(self) -> list[BundlePartition]:
        """Find the current bounds of the queues, and pack the ranges into bundles."""
        client = LiveClient(self._task.pulls.live)
        try:
            bounds = client.find_bounds(fails=True)
            client.require_queues(bounds)
            starts = start_positions(self._options, client, bounds, "earliest")
            ends = end_positions(self._options, client, bounds)
        finally:
            client.close()
        ranges = [QueueRange(queue, starts[queue], ends[queue]) for queue in bounds]
        return _partitions(self._options, ranges)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one bundle; Spark passes None for an empty plan."""
        return _read(self._task, partition)


class LiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as micro-batches.

    Spark asks for the latest offset after each batch, also after the last one of an
    AvailableNow run.  At that time the start that Spark passes is committed.
    """

    def __init__(self, options: Options, task: LiveReadSettings) -> None:
        self._options = options
        self._task = task
        self.client: LiveClient | None = None
        self._frozen_ends: Positions | None = None
        self._reported: Positions = {}
        self._bounds: dict[MessageQueue, Bounds] = {}

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the connections of the driver."""
        return self.__dict__ | {"client": None}

    def initialOffset(self) -> Offset:
        """Return the start of a new query: the ends of the queues by default."""
        bounds = self._refresh_bounds()
        client = self._get_client()
        client.require_queues(bounds)
        found = start_positions(self._options, client, bounds, "latest")
        return offset_of({queue: Place(position) for queue, position in found.items()})

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the ends of the queues: the stream ends there."""
        self._frozen_ends = {
            queue: each.end for queue, each in self._refresh_bounds().items()
        }

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch."""
        rows = self._options["maxOffsetsPerTrigger"]
        if rows is None:
            rows = ROWS_OF_A_BATCH
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:
        """Return the ends of the queues, for progress reports."""
        return offset_of({q: Place(each.end) for q, each in self._bounds.items()})

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next micro-batch, within the limit."""
        places = places_of(start)
        self._report(positions_of(places))
        bounds = self._refresh_bounds()
        self._warn_of_unreachable(places, bounds)
        starts, ends = self._next_ranges(places, bounds)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        stops = limit_ends(starts, ends, rows)
        grown = {queue: stop for queue, stop in stops.items() if stop > starts[queue]}
        return offset_of(
            next_places(places, starts, stops, self._find_log_offsets(grown))
        )

    def partitions(self, start: Offset, end: Offset) -> list[BundlePartition]:
        """Return the bundles of one micro-batch."""
        ends = places_of(end)
        starts = starts_of(places_of(start), ends)
        ranges = [
            QueueRange(queue, starts[queue], place.position)
            for queue, place in ends.items()
        ]
        return _partitions(self._options, ranges)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one bundle."""
        return _read(self._task, partition)

    def stop(self) -> None:
        """Close the connections of the driver."""
        if self.client is not None:
            self.client.close()
            self.client = None

    def _next_ranges(
        self, places: Places, bounds: dict[MessageQueue, Bounds]
    ) -> tuple[Positions, Positions]:
        """Return start and end of each reachable queue; LostData after a loss."""
        starts, ends = {}, {}
        fails = self._options["failOnDataLoss"]
        for queue, each in bounds.items():
            if self._frozen_ends is not None and queue not in self._frozen_ends:
                continue
            start = places[queue].position if queue in places else each.first
            if self._get_client().is_ahead_of_slave(queue, start, each):
                continue
            starts[queue], text = check_position(start, each, queue, fails=fails)
            if text:
                _log.warning("%s", text)
            ends[queue] = each.end
        self._prove_places(places, starts, bounds)
        for queue, start in starts.items():
            end = ends[queue]
            if self._frozen_ends is not None:
                end = min(end, self._frozen_ends[queue])
            ends[queue] = max(start, end)
        return starts, {queue: ends[queue] for queue in starts}

    def _prove_places(
        self, places: Places, starts: Positions, bounds: dict[MessageQueue, Bounds]
    ) -> None:
        """Correct the starts in queues of topics that were created again.

        Removes the starts in queues of brokers that do not answer.
        """
        wanted = places_to_prove(places, starts, bounds)
        found = self._find_log_offsets(wanted)
        fails = self._options["failOnDataLoss"]
        for queue in wanted:
            if queue not in found:
                del starts[queue]
            elif (log_offset := found[queue]) is not None:
                starts[queue], text = check_log_offset(
                    places[queue], log_offset, bounds[queue], queue, fails=fails
                )
                if text:
                    _log.warning("%s", text)

    def _find_log_offsets(self, positions: Positions) -> dict[MessageQueue, int | None]:
        group = self._task.pulls.group
        return self._get_client().find_log_offsets(positions, group)

    def _report(self, positions: Positions) -> None:
        """Report committed positions to brokers, if a group is named."""
        group = self._options["consumerGroup"]
        changed = dict(positions.items() - self._reported.items())
        if group is not None and changed:
            self._get_client().report(group, changed)
            self._reported = positions

    def _warn_of_unreachable(
        self, places: Places, bounds: dict[MessageQueue, Bounds]
    ) -> None:
        away = places.keys() - bounds.keys()
        if away:
            _log.warning(
                "%d queues are unreachable and keep their positions; one of them is %s",
                len(away),
                min(away),
            )

    def _refresh_bounds(self) -> dict[MessageQueue, Bounds]:
        self._bounds = self._get_client().find_bounds(fails=False)
        return self._bounds

    def _get_client(self) -> LiveClient:
        if self.client is None:
            self.client = LiveClient(self._task.pulls.live)
        return self.client


def _partitions(options: Options, ranges: list[QueueRange]) -> list[BundlePartition]:
    packed = plan_bundles(ranges, options["rowsPerPartition"], options["minPartitions"])
    return [BundlePartition(bundle) for bundle in packed]


def _read(
    task: LiveReadSettings, partition: InputPartition | None
) -> Iterator[pa.RecordBatch]:
    from rmq_spark.live.reader import read_bundle

    if isinstance(partition, BundlePartition):
        yield from read_bundle(task.pulls, task.read_settings, partition.bundle)
