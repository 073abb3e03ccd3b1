"""LiveSource: exports live topics of one broker; positions count messages.

Plan and manifest have the offset of each queue.  A plan has the ranges of queues of
each task, so that a batch has the same rows when it runs again after a kill.  Messages
that were removed before a batch count as the first positions of the batch.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from rmq.core.errors import ConnectFailed, PeerError, RmqError
from rmq_spark.export.manifest import (
    ExportPlan,
    Manifest,
    Plan,
    QueueCut,
    Settings,
    TopicsRange,
)
from rmq_spark.export.source import ExportLimits
from rmq_spark.live.client import TOOLS_GROUP, ClientSettings, LiveClient
from rmq_spark.live.plan import (
    Bounds,
    Bundle,
    MessageQueue,
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
)
from rmq_spark.live.puller import PullSettings
from rmq_spark.live.reader import read_bundle
from rmq_spark.segments.commit_log import LostData
from rmq_spark.segments.reader import ReadSettings
from rmq_spark.segments.selection import TopicSelection

PART_ROWS: Final = 250_000
"""Limit of a task, whose queues share one connection."""
PART_QUEUES: Final = 256
"""Limit of a task: each topic has a file that is open while the task runs."""
ADVICE: Final = "--allow-loss continues without them"

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class QueueSplit:
    """A bundle of ranges of queues."""

    start: int
    end: int
    bundle: Bundle
    pulls: PullSettings

    def read_batches(self, reading: ReadSettings, _: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows; rows of one queue in the order of their offsets."""
        wanted = replace(
            reading, topics=TopicSelection(with_system=True), with_unqueued=True
        )
        try:
            yield from read_bundle(self.pulls, wanted, self.bundle)
        except LostData as error:
            raise LostData(error.what, ADVICE) from error

    def count_left_out(self, _: ReadSettings) -> dict[str, int]:
        """Return nothing: other topics are not pulled."""
        return {}

    def readable_part(self) -> "QueueSplit":
        """Return a split that skips missing messages."""
        return replace(self, pulls=self.pulls._replace(fails_on_loss=False))


class LiveSource:
    """The topics of one broker that is registered with name servers."""

    position_unit = "messages"

    def __init__(
        self, settings: ClientSettings, broker: str, limits: ExportLimits
    ) -> None:
        self._settings = settings._replace(brokers=frozenset([broker]))
        self._broker = broker
        self._limits = limits
        self.client = LiveClient(self._settings)

    @property
    def name(self) -> str:
        """The broker and its name servers."""
        return f"{self._broker} at {';'.join(self._settings.name_servers)}"

    def first_position(self) -> int:
        """Return 0: positions count exported messages."""
        return 0

    def end(self, last: Manifest | None) -> int:
        """Return the end of the last batch plus the messages after it."""
        return self._read_positions(last).end

    def plan(
        self, last: Manifest | None, settings: Settings, _: str
    ) -> ExportPlan | None:
        """Return the ranges of the next batch, shared by lag."""
        places = _end_places(last)
        seen = self._read_positions(last)
        self._prove_places(places, seen)
        if seen.problem and not self._limits.allow_loss:
            raise LostData(seen.problem, ADVICE)
        if seen.problem:
            _log.warning("%s", seen.problem)
        stops = limit_ends(seen.starts, seen.stops, self._limits.batch_rows)
        ranges = [QueueRange(q, seen.starts[q], stop) for q, stop in stops.items()]
        parts = list(self._plan_splits(ranges, seen.start + seen.lost))
        if not parts and not seen.lost:
            return None
        return ExportPlan(
            seq=0 if last is None else last.seq + 1,
            settings=settings,
            store=self.name,
            start=seen.start,
            end=parts[-1].end if parts else seen.start + seen.lost,
            last=None,
            positions=offset_of(
                next_places(
                    places, seen.starts, stops, self._find_log_offsets(seen, stops)
                )
            ),
            ranges=[],
            bundles=parts,
        )

    def check_continuity(self, exported: Plan | Manifest, table: str) -> None:
        """Do nothing: `plan` compares the offsets of queues."""

    def list_splits(self, plan: ExportPlan) -> list[QueueSplit]:
        """Return all splits; a task detects an unavailable broker."""
        pulls = PullSettings(self._settings)
        return [
            QueueSplit(part.start, part.end, self._to_bundle(part), pulls)
            for part in plan.bundles
        ]

    def measure_lag(self, position: int, end: int, _: int | None) -> dict[str, Any]:
        """Return the lag in messages; store times are in the messages only."""
        return {"lag_messages": end - position}

    def close(self) -> None:
        """Close connections."""
        self.client.close()

    def _read_positions(self, last: Manifest | None) -> "_QueuePositions":
        """Request the bounds of each queue, and compare them with the last batch."""
        seen = _QueuePositions(0 if last is None else last.end)
        known = _end_places(last)
        seen.bounds = self._read_bounds(is_begun=last is not None)
        for queue, bounds in seen.bounds.items():
            position = known[queue].position if queue in known else bounds.first
            if self.client.is_ahead_of_slave(queue, position, bounds):
                continue  # the queue is read from a slave that lags
            start, problem = check_position(position, bounds, queue, fails=False)
            seen.starts[queue], seen.stops[queue] = start, bounds.end
            seen.problem = seen.problem or problem
            seen.lost += max(0, start - position)
        return seen

    def _prove_places(self, places: Places, seen: "_QueuePositions") -> None:
        """Correct the starts in queues of topics that were created again."""
        wanted = places_to_prove(places, seen.starts, seen.bounds)
        found = self.client.find_log_offsets(wanted, TOOLS_GROUP)
        for queue in wanted:
            log_offset = found.get(queue)
            if queue not in found:
                seen.stops[queue] = seen.starts[queue]  # for the next round
            elif log_offset is not None:
                seen.starts[queue], problem = check_log_offset(
                    places[queue], log_offset, seen.bounds[queue], queue, fails=False
                )
                seen.problem = seen.problem or problem

    def _find_log_offsets(
        self, seen: "_QueuePositions", stops: Positions
    ) -> dict[MessageQueue, int | None]:
        grown = {q: stop for q, stop in stops.items() if stop > seen.starts[q]}
        return self.client.find_log_offsets(grown, TOOLS_GROUP)

    def _read_bounds(self, *, is_begun: bool) -> dict[MessageQueue, Bounds]:
        try:
            found = self.client.find_bounds(fails=True)
        except PeerError:
            self.client.forget_routes()
            raise
        if found:
            return found
        self.client.forget_routes()
        text = f"broker {self._broker} has no registered queue of these topics"
        # after the first batch the broker is unavailable; before it a name is wrong
        raise ConnectFailed(text) if is_begun else RmqError(text)

    def _plan_splits(
        self, ranges: list[QueueRange], start: int
    ) -> Iterator[TopicsRange]:
        """Yield the splits of a batch, sorted by topic and queue."""
        rows = min(PART_ROWS, self._limits.batch_rows)
        for bundle in plan_bundles(ranges, rows):
            for cuts in _chunk_ranges(bundle.ranges, PART_QUEUES):
                end = start + sum(each.end - each.start for each in cuts)
                yield TopicsRange(
                    start,
                    end,
                    [
                        QueueCut(
                            cut.queue.topic, cut.queue.queue_id, cut.start, cut.end
                        )
                        for cut in cuts
                    ],
                )
                start = end

    def _to_bundle(self, part: TopicsRange) -> Bundle:
        return Bundle(
            self._broker,
            tuple(
                QueueRange(MessageQueue(topic, self._broker, number), start, end)
                for topic, number, start, end in part.cuts
            ),
        )


@dataclass
class _QueuePositions:
    """First and last offsets of the next batch, by queue."""

    start: int
    starts: Positions = field(default_factory=dict)
    stops: Positions = field(default_factory=dict)
    bounds: dict[MessageQueue, Bounds] = field(default_factory=dict)
    lost: int = 0
    """Number of messages that were removed before they were exported."""
    problem: str = ""
    """Why an offset of the last batch does not exist any more."""

    @property
    def end(self) -> int:
        """The position where the messages end."""
        left = sum(self.stops.values()) - sum(self.starts.values())
        return self.start + self.lost + left


def _end_places(last: Manifest | None) -> Places:
    return {} if last is None else places_of(last.positions)


def _chunk_ranges(
    ranges: tuple[QueueRange, ...], count: int
) -> Iterator[tuple[QueueRange, ...]]:
    """Yield groups of at most `count` ranges."""
    for at in range(0, len(ranges), count):
        yield ranges[at : at + count]
