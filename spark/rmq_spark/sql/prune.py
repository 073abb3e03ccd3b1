"""Pruner: finds the splits, queues and topics that a filter excludes.

pyarrow compares the filter with expressions that are true for all rows of a fragment.
The pruner never opens a fragment.
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
"""Maximum store time, to which the decoder clamps later times."""


class Pruner:
    """Removes the parts that a filter excludes; without a filter it keeps all parts."""

    def __init__(self, rows: pc.Expression | None, schema: pa.Schema) -> None:
        self._rows = rows
        self._schema = schema
        self._format = ds.IpcFileFormat()
        self._files = LocalFileSystem()

    def matches_topic(self, topic: str) -> bool:
        """Return whether rows of a topic may pass the filter."""
        return bool(self._matching_indices([pc.field("topic") == topic]))

    def matching_topics(self, topics: Sequence[str]) -> list[str]:
        """Return the topics whose rows may pass the filter."""
        kept = self._matching_indices([pc.field("topic") == topic for topic in topics])
        return [topics[index] for index in kept]

    def matching_queues(self, ranges: Sequence[QueueRange]) -> list[QueueRange]:
        """Return the ranges of queues whose rows may pass the filter."""
        kept = self._matching_indices([_range_filter(each) for each in ranges])
        return [ranges[index] for index in kept]

    def matching_splits(
        self, splits: Sequence[Split] | Iterator[Split], broker_name: str
    ) -> Iterator[Split]:
        """Yield the splits whose rows may pass the filter."""
        if self._rows is None:
            yield from splits
        elif isinstance(splits, Sequence):
            if splits and self._matching_indices(
                [_split_filter(_enclosing_split(splits), broker_name)]
            ):
                kept = self._matching_indices(
                    [_split_filter(split, broker_name) for split in splits]
                )
                yield from (splits[index] for index in kept)
        else:
            for split in splits:
                if self._matching_indices([_split_filter(split, broker_name)]):
                    yield split

    def _matching_indices(self, holding: Sequence[pc.Expression]) -> list[int]:
        """Return the indices of the expressions that the filter does not contradict."""
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


def _split_filter(split: Split, broker_name: str) -> pc.Expression:
    """Return an expression that is true for all rows of a split."""
    place, time = pc.field("physicalOffset"), pc.field("storeTimestamp")
    return (
        (pc.field(BROKER_NAME) == broker_name)
        & (place >= split.start)
        & (place < split.end)
        & (time >= _to_timestamp(split.least_ms))
        & (time <= _to_timestamp(split.greatest_ms))
    )


def _range_filter(part: QueueRange) -> pc.Expression:
    """Return an expression that is true for all rows of a range."""
    offset = pc.field("queueOffset")
    return (
        (pc.field("topic") == part.queue.topic)
        & (pc.field(BROKER_NAME) == part.queue.broker)
        & (pc.field("queueId") == part.queue.queue_id)
        & (offset >= part.start)
        & (offset < part.end)
    )


def _enclosing_split(splits: Sequence[Split]) -> Split:
    return Split(
        splits[0].start,
        splits[-1].end,
        min(split.least_ms for split in splits),
        max(split.greatest_ms for split in splits),
    )


def _to_timestamp(at_ms: int) -> pa.Scalar:
    return pa.scalar(min(max(at_ms, -_MOST_MS), _MOST_MS) * 1000, _TIME)
