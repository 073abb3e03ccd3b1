"""Pruner: which parts of a log a filter excludes, as pyarrow itself finds it.

A fragment has an expression that holds for all its rows; a filter that contradicts it
leaves the fragment out.  No fragment is ever opened.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from rmq_spark.live.plan import QueueRange
from rmq_spark.segments.schema import BROKER_NAME
from rmq_spark.sql.splits import Split

_TIME: Final = pa.timestamp("us", tz="UTC")
_MOST_MS: Final = ((1 << 63) - 1) // 1000
"""The decoder brings later store times down to this one."""


class Pruner:
    """Leaves out what contradicts one filter; without a filter, nothing."""

    def __init__(self, rows: pc.Expression | None, schema: pa.Schema) -> None:
        self._rows = rows
        self._schema = schema
        self._format = ds.IpcFileFormat()
        self._files = LocalFileSystem()

    def keeps_topic(self, topic: str) -> bool:
        """Whether rows of a topic may pass the filter."""
        return bool(self._kept([pc.field("topic") == topic]))

    def kept_topics(self, topics: Sequence[str]) -> list[str]:
        """The topics whose rows may pass the filter."""
        kept = self._kept([pc.field("topic") == topic for topic in topics])
        return [topics[index] for index in kept]

    def queues(self, ranges: Sequence[QueueRange]) -> list[QueueRange]:
        """The ranges of queues in which rows may pass the filter."""
        kept = self._kept([_is_within(each) for each in ranges])
        return [ranges[index] for index in kept]

    def splits(
        self, splits: Sequence[Split] | Iterator[Split], broker_name: str
    ) -> Iterator[Split]:
        """The splits in which rows may pass the filter."""
        if self._rows is None:
            yield from splits
        elif isinstance(splits, Sequence):
            if splits and self._kept([_holds(_hull(splits), broker_name)]):
                kept = self._kept([_holds(split, broker_name) for split in splits])
                yield from (splits[index] for index in kept)
        else:
            for split in splits:
                if self._kept([_holds(split, broker_name)]):
                    yield split

    def _kept(self, holding: Sequence[pc.Expression]) -> list[int]:
        """Which of the expressions the filter does not contradict."""
        if self._rows is None:
            return list(range(len(holding)))
        fragments = [
            self._format.make_fragment(
                str(index), filesystem=self._files, partition_expression=expression
            )
            for index, expression in enumerate(holding)
        ]
        dataset = ds.FileSystemDataset(
            fragments, self._schema, self._format, self._files
        )
        found: Iterable[ds.Fragment] = dataset.get_fragments(filter=self._rows)
        return sorted(int(fragment.path) for fragment in found)


def _holds(split: Split, broker_name: str) -> pc.Expression:
    """What is true for all rows of a split."""
    place, time = pc.field("physicalOffset"), pc.field("storeTimestamp")
    return (
        (pc.field(BROKER_NAME) == broker_name)
        & (place >= split.start)
        & (place < split.end)
        & (time >= _moment(split.least_ms))
        & (time <= _moment(split.greatest_ms))
    )


def _is_within(part: QueueRange) -> pc.Expression:
    """What is true for all rows of a range of a queue."""
    offset = pc.field("queueOffset")
    return (
        (pc.field("topic") == part.queue.topic)
        & (pc.field(BROKER_NAME) == part.queue.broker)
        & (pc.field("queueId") == part.queue.queue_id)
        & (offset >= part.start)
        & (offset < part.end)
    )


def _hull(splits: Sequence[Split]) -> Split:
    return Split(
        splits[0].start,
        splits[-1].end,
        min(split.least_ms for split in splits),
        max(split.greatest_ms for split in splits),
    )


def _moment(at_ms: int) -> pa.Scalar:
    return pa.scalar(min(max(at_ms, -_MOST_MS), _MOST_MS) * 1000, _TIME)
