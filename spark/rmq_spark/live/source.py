"""Live topics in Spark: a batch reader and a stream reader.

The planner runs in the driver and asks brokers for bounds; tasks pull.  The stream's
checkpoint alone decides where it goes on; brokers only show the progress.
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
    Positions,
    QueueRange,
    bundles,
    checked,
    limited,
    offset_of,
    positions_of,
)
from rmq_spark.live.settings import LiveReadSettings, ends_of, starts_of

if TYPE_CHECKING:
    import pyarrow as pa

    from rmq_spark.options import Options

ROWS_OF_A_BATCH: Final = 5_000_000
"""A batch that fails is repeated whole, and a first start must show progress."""

_log: Final = logging.getLogger(__name__)


@dataclass
class BundlePartition(InputPartition):
    """One task: ranges of queues of one broker."""

    bundle: Bundle


class LiveReader(DataSourceReader):
    """Reads topics once, up to where they end when it is planned."""

    def __init__(self, options: Options, task: LiveReadSettings) -> None:
        self._options = options
        self._task = task

    def partitions(self) -> list[BundlePartition]:
        """Freeze the bounds and cut the queues between them."""
        client = LiveClient(self._task.pulls.live)
        try:
            bounds = client.bounds(fails=True)
            client.require(bounds)
            starts = starts_of(self._options, client, bounds, "earliest")
            ends = ends_of(self._options, client, bounds)
        finally:
            client.close()
        ranges = [QueueRange(queue, starts[queue], ends[queue]) for queue in bounds]
        return _partitions(self._options, ranges)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one bundle; None stands for an empty plan."""
        return _read(self._task, partition)


class LiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics.

    Spark asks for the latest offset again after each batch, also after the last one of
    an AvailableNow run: the start that it names then is what has been committed.
    """

    def __init__(self, options: Options, task: LiveReadSettings) -> None:
        self._options = options
        self._task = task
        self._client: LiveClient | None = None
        self._frozen: Positions | None = None
        self._reported: Positions = {}
        self._bounds: dict[MessageQueue, Bounds] = {}

    def __getstate__(self) -> dict[str, object]:
        """Connections stay in the driver."""
        return self.__dict__ | {"_client": None}

    def initialOffset(self) -> Offset:
        """Where a new query starts: at the ends by default."""
        bounds = self._ask()
        self._asker().require(bounds)
        return offset_of(starts_of(self._options, self._asker(), bounds, "latest"))

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on each queue ends where it ends now."""
        self._frozen = {queue: each.end for queue, each in self._ask().items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of a micro-batch."""
        rows = self._options["maxOffsetsPerTrigger"]
        if rows is None:
            rows = ROWS_OF_A_BATCH
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:
        """Where the queues end, for progress reports."""
        return offset_of({queue: each.end for queue, each in self._bounds.items()})

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch, within the limit."""
        positions = positions_of(start)
        self._report(positions)
        bounds = self._ask()
        self._warn_of_unreachable(positions, bounds)
        starts, ends = self._next_ranges(positions, bounds)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return offset_of(positions | limited(starts, ends, rows))

    def partitions(self, start: Offset, end: Offset) -> list[BundlePartition]:
        """The ranges of one micro-batch."""
        starts, ends = positions_of(start), positions_of(end)
        is_new = {q for q, stop in ends.items() if not starts.get(q, stop + 1) <= stop}
        if is_new:  # a new queue, or one that was made again, starts at its beginning
            bounds = self._bounds if is_new <= self._bounds.keys() else self._ask()
            for queue in is_new:
                starts[queue] = bounds[queue].first if queue in bounds else ends[queue]
        ranges = [QueueRange(queue, starts[queue], ends[queue]) for queue in ends]
        return _partitions(self._options, ranges)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one bundle."""
        return _read(self._task, partition)

    def stop(self) -> None:
        """End the connections of the driver."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _next_ranges(
        self, positions: Positions, bounds: dict[MessageQueue, Bounds]
    ) -> tuple[Positions, Positions]:
        """Where each reachable queue starts and ends; LostData if some is lost."""
        starts, ends = {}, {}
        fails = self._options["failOnDataLoss"]
        for queue, each in bounds.items():
            if self._frozen is not None and queue not in self._frozen:
                continue
            start = positions.get(queue, each.first)
            if self._asker().is_behind(queue, start, each):
                continue
            starts[queue], text = checked(start, each, queue, fails=fails)
            if text:
                _log.warning("%s", text)
            end = each.end if self._frozen is None else self._frozen[queue]
            ends[queue] = max(starts[queue], min(end, each.end))
        return starts, ends

    def _report(self, positions: Positions) -> None:
        """Show brokers what has been committed, if a group is named."""
        group = self._options["consumerGroup"]
        changed = dict(positions.items() - self._reported.items())
        if group is not None and changed:
            self._asker().report(group, changed)
            self._reported = positions

    def _warn_of_unreachable(
        self, positions: Positions, bounds: dict[MessageQueue, Bounds]
    ) -> None:
        away = positions.keys() - bounds.keys()
        if away:
            _log.warning(
                "%d queues cannot be reached and keep their positions, such as %s",
                len(away),
                min(away),
            )

    def _ask(self) -> dict[MessageQueue, Bounds]:
        self._bounds = self._asker().bounds(fails=False)
        return self._bounds

    def _asker(self) -> LiveClient:
        if self._client is None:
            self._client = LiveClient(self._task.pulls.live)
        return self._client


def _partitions(options: Options, ranges: list[QueueRange]) -> list[BundlePartition]:
    packed = bundles(ranges, options["rowsPerPartition"], options["minPartitions"])
    return [BundlePartition(bundle) for bundle in packed]


def _read(
    task: LiveReadSettings, partition: InputPartition | None
) -> Iterator[pa.RecordBatch]:
    from rmq_spark.live.reader import read_bundle

    if isinstance(partition, BundlePartition):
        yield from read_bundle(task.pulls, task.reading, partition.bundle)
