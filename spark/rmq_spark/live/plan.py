"""Plans live reads: positions, limits and bundles.  Pure: no module here does I/O.

A position is the offset of the next message of a queue.  The offset of a stream is
`{"topic": {"broker-a": {"0": 123}}}`.  An entry is never removed from it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmq.core.errors import ConfigError
from rmq_spark.segments.commit_log import LostData

EARLIEST: Final = -2
LATEST: Final = -1

Offset = dict[str, dict[str, dict[str, int]]]


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of topic {self.topic} on {self.broker}"


class Bounds(NamedTuple):
    """The offsets of a queue that a broker has: [first, end)."""

    first: int
    end: int


Positions = dict[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A range of offsets of one queue: [start, end)."""

    queue: MessageQueue
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """The ranges of one task, all on one broker."""

    broker: str
    ranges: tuple[QueueRange, ...]


def offset_of(positions: Mapping[MessageQueue, int]) -> Offset:
    """Return the offset of a stream, with sorted names."""
    offset: Offset = {}
    for queue, position in sorted(positions.items()):
        brokers = offset.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker, {})[str(queue.queue_id)] = position
    return offset


def positions_of(offset: Mapping[str, object]) -> Positions:
    """Return the positions in an offset; ConfigError if it is of another source."""
    try:
        return {
            MessageQueue(topic, broker, int(number)): int(position)
            for topic, brokers in offset.items()
            for broker, queues in brokers.items()  # type: ignore[attr-defined] # a dict
            for number, position in queues.items()
        }
    except (AttributeError, ValueError, TypeError) as error:
        raise ConfigError(
            "the checkpoint does not belong to a stream of live topics: use another "
            "checkpointLocation"
        ) from error


def check_position(
    position: int, bounds: Bounds, queue: MessageQueue, *, fails: bool
) -> tuple[int, str]:
    """Return the position where reading continues, and a text about lost messages.

    The text is empty if nothing was lost.  With `fails` a loss raises LostData.
    """
    if bounds.first <= position <= bounds.end:
        return position, ""
    if position < bounds.first:
        text = (
            f"{queue}: offsets {position} to {bounds.first} were removed before they "
            f"were read; the first one is {bounds.first}"
        )
    else:
        text = (
            f"{queue}: position {position} is after the end {bounds.end}; the topic "
            "was deleted and created again, or messages were lost"
        )
    if fails:
        raise LostData(
            text, f"with failOnDataLoss=false reading continues at {bounds.first}"
        )
    return bounds.first, text


def limit_ends(
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    max_rows: int | None,
) -> Positions:
    """Return the ends of a batch of at most `max_rows` rows, shared by lag.

    Each queue with lag gets at least one row, so that no queue starves.  So a batch may
    have more rows than the limit, one per queue at most.
    """
    lags = {queue: end - starts[queue] for queue, end in ends.items()}
    total = sum(lags.values())
    if max_rows is None or total <= max_rows:
        return dict(ends)
    return {
        queue: starts[queue] + (max(1, lag * max_rows // total) if lag else 0)
        for queue, lag in lags.items()
    }


def plan_bundles(
    ranges: Iterable[QueueRange], rows_per_bundle: int, min_bundles: int | None = None
) -> list[Bundle]:
    """Pack ranges into bundles of about `rows_per_bundle` rows; splits large ranges."""
    wanted = sorted(
        (each for each in ranges if each.start < each.end),
        key=lambda each: (each.queue.broker, each.queue),
    )
    total = sum(each.end - each.start for each in wanted)
    if min_bundles is not None:
        rows_per_bundle = min(rows_per_bundle, max(1, -(-total // min_bundles)))
    return list(_pack_ranges(wanted, rows_per_bundle))


def _pack_ranges(ranges: list[QueueRange], rows: int) -> Iterator[Bundle]:
    part: list[QueueRange] = []
    left = rows
    for each in ranges:
        if part and part[0].queue.broker != each.queue.broker:
            yield Bundle(part[0].queue.broker, tuple(part))
            part, left = [], rows
        at = each.start
        while at < each.end:
            stop = min(each.end, at + left)
            part.append(QueueRange(each.queue, at, stop))
            left -= stop - at
            at = stop
            if left == 0:
                yield Bundle(part[0].queue.broker, tuple(part))
                part, left = [], rows
    if part:
        yield Bundle(part[0].queue.broker, tuple(part))
