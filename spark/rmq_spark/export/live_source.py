"""Live topics of one broker as the feed of an export: places count messages.

Position of each queue: in plan and manifest.  A plan names the ranges of queues of each
task, so that a killed batch has the same rows when it is run again.  Messages that were
removed before a batch take the first places of it.
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
from rmq_spark.live.client import ClientSettings, LiveClient
from rmq_spark.live.plan import (
    Bounds,
    Bundle,
    MessageQueue,
    Positions,
    QueueRange,
    bundles,
    checked,
    limited,
    offset_of,
    positions_of,
)
from rmq_spark.live.puller import EVERYTHING, PullSettings
from rmq_spark.live.reader import read_bundle
from rmq_spark.live.settings import TOOLS_GROUP
from rmq_spark.segments.commit_log import LostData
from rmq_spark.segments.reader import ReadSettings
from rmq_spark.segments.selection import TopicSelection

PART_ROWS: Final = 250_000
"""Of a task: one connection serves its queues."""
PART_QUEUES: Final = 256
"""Of a task: each topic has a file, which is open while the task runs."""
PULL_MESSAGES: Final = 1_024
"""Of one pull; brokers give what their limits allow."""
IN_FLIGHT: Final = 64
ADVICE: Final = "--allow-loss goes on without them"

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class QueueSplit:
    """Ranges of queues."""

    start: int
    end: int
    bundle: Bundle
    pulls: PullSettings

    def batches(self, reading: ReadSettings, _: int) -> Iterator[pa.RecordBatch]:
        """The rows; those of a queue in the order of their offsets."""
        wanted = replace(
            reading, topics=TopicSelection(with_system=True), with_unqueued=True
        )
        try:
            yield from read_bundle(self.pulls, wanted, self.bundle)
        except LostData as error:
            raise LostData(error.what, ADVICE) from error

    def left_out(self, _: ReadSettings) -> dict[str, int]:
        """Other topics are not pulled."""
        return {}

    def rest(self) -> "QueueSplit":
        """The messages that are there."""
        return replace(self, pulls=self.pulls._replace(fails_on_loss=False))


class LiveSource:
    """The topics of a broker that name servers know."""

    unit = "messages"

    def __init__(
        self, asked: ClientSettings, broker: str, limits: ExportLimits
    ) -> None:
        """`asked` says whom to ask, as whom, and about which topics."""
        self._settings = asked._replace(brokers=frozenset([broker]))
        self._broker = broker
        self._limits = limits
        self._client = LiveClient(self._settings)

    @property
    def name(self) -> str:
        """The broker, and who knows it."""
        return f"{self._broker} at {';'.join(self._settings.name_servers)}"

    def first(self) -> int:
        """Nothing is counted yet."""
        return 0

    def end(self, last: Manifest | None) -> int:
        """The place of the last batch, and what queues have after it."""
        return self._look(last).end

    def plan(
        self, last: Manifest | None, settings: Settings, _: str
    ) -> ExportPlan | None:
        """The ranges of the next batch, shared by lag."""
        seen = self._look(last)
        if seen.problem and not self._limits.allow_loss:
            raise LostData(seen.problem, ADVICE)
        if seen.problem:
            _log.warning("%s", seen.problem)
        stops = limited(seen.starts, seen.stops, self._limits.batch_rows)
        ranges = [QueueRange(q, seen.starts[q], stop) for q, stop in stops.items()]
        parts = list(self._cut(ranges, seen.start + seen.lost))
        if not parts and not seen.lost:
            return None
        return ExportPlan(
            seq=0 if last is None else last.seq + 1,
            settings=settings,
            store=self.name,
            start=seen.start,
            end=parts[-1].end if parts else seen.start + seen.lost,
            last=None,
            positions=offset_of(_positions(last) | stops),
            ranges=[],
            bundles=parts,
        )

    def check(self, made: Plan | Manifest, table: str) -> None:
        """The positions of queues say it, when the next batch is planned."""

    def parts(self, plan: ExportPlan) -> list[QueueSplit]:
        """All of them: a broker that is away is found by the task."""
        pulls = PullSettings(
            self._settings, TOOLS_GROUP, EVERYTHING, "TAG", PULL_MESSAGES, IN_FLIGHT,
            True,
        )  # fmt: skip
        return [
            QueueSplit(part.start, part.end, self._bundle(part), pulls)
            for part in plan.bundles
        ]

    def lag(self, position: int, end: int, _: int | None) -> dict[str, Any]:
        """Messages; their times are in them."""
        return {"lag_messages": end - position}

    def close(self) -> None:
        """End connections."""
        self._client.close()

    def _look(self, last: Manifest | None) -> "_QueuePositions":
        """Ask the broker what it has of each queue."""
        seen = _QueuePositions(0 if last is None else last.end)
        known = _positions(last)
        for queue, bounds in self._bounds(is_begun=last is not None).items():
            position = known.get(queue, bounds.first)
            if self._client.is_behind(queue, position, bounds):
                continue  # a slave, while its master is away
            start, problem = checked(position, bounds, queue, fails=False)
            seen.starts[queue], seen.stops[queue] = start, bounds.end
            seen.problem = seen.problem or problem
            seen.lost += max(0, start - position)
        return seen

    def _bounds(self, *, is_begun: bool) -> dict[MessageQueue, Bounds]:
        try:
            found = self._client.bounds(fails=True)
        except PeerError:
            self._client.forget_routes()
            raise
        if found:
            return found
        self._client.forget_routes()
        text = f"name servers know no queue of these topics on broker {self._broker}"
        # what was there once is away; else a name is wrong
        raise ConnectFailed(text) if is_begun else RmqError(text)

    def _cut(self, ranges: list[QueueRange], start: int) -> Iterator[TopicsRange]:
        """The tasks of a batch, in the order of topics and queues."""
        rows = min(PART_ROWS, self._limits.batch_rows)
        for bundle in bundles(ranges, rows):
            for cuts in _batched(bundle.ranges, PART_QUEUES):
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

    def _bundle(self, part: TopicsRange) -> Bundle:
        return Bundle(
            self._broker,
            tuple(
                QueueRange(MessageQueue(topic, self._broker, number), start, end)
                for topic, number, start, end in part.cuts
            ),
        )


@dataclass
class _QueuePositions:
    """Where queues go on, and where they end now."""

    start: int
    starts: Positions = field(default_factory=dict)
    stops: Positions = field(default_factory=dict)
    lost: int = 0
    """Messages that were removed before they were exported."""
    problem: str = ""
    """Why positions of the last batch are not there any more."""

    @property
    def end(self) -> int:
        """The place where the messages end."""
        left = sum(self.stops.values()) - sum(self.starts.values())
        return self.start + self.lost + left


def _positions(last: Manifest | None) -> Positions:
    return {} if last is None else positions_of(last.positions)


def _batched(
    ranges: tuple[QueueRange, ...], count: int
) -> Iterator[tuple[QueueRange, ...]]:
    """Groups of so many, in order."""
    for at in range(0, len(ranges), count):
        yield ranges[at : at + count]
