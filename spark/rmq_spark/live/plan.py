"""Planning of live reads: positions, limits, bundles; plain values, nobody is asked.

A position is the offset of the next message of a queue.  A stream's offset is
`{"topic": {"broker-a": {"0": 123}}}`; an entry is never removed.
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
    """What a broker has of a queue: [first, end)."""

    first: int
    end: int


Positions = dict[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A part of one queue: [start, end)."""

    queue: MessageQueue
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """The ranges of one task; all are of one broker."""

    broker: str
    ranges: tuple[QueueRange, ...]


def offset_of(positions: Mapping[MessageQueue, int]) -> Offset:
    """The offset of a stream, with its names in order."""
    offset: Offset = {}
    for queue, position in sorted(positions.items()):
        brokers = offset.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker, {})[str(queue.queue_id)] = position
    return offset


def positions_of(offset: Mapping[str, object]) -> Positions:
    """The positions of an offset; ConfigError if it is not of a live stream."""
    try:
        return {
            MessageQueue(topic, broker, int(number)): int(position)
            for topic, brokers in offset.items()
            for broker, queues in brokers.items()  # type: ignore[attr-defined]
            for number, position in queues.items()
        }
    except (AttributeError, ValueError, TypeError) as error:
        raise ConfigError(
            "the checkpoint does not belong to a stream of live topics: use another "
            "checkpointLocation"
        ) from error


def checked(
    position: int, bounds: Bounds, queue: MessageQueue, *, fails: bool
) -> tuple[int, str]:
    """The position where reading can go on, and what was lost, if anything was.

    LostData instead, if loss is to be an error.
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
            f"{queue}: position {position} is behind the end {bounds.end}; the topic "
            "was deleted and made again, or messages were lost"
        )
    if fails:
        raise LostData(
            text, f"with failOnDataLoss=false reading goes on at {bounds.first}"
        )
    return bounds.first, text


def limited(
    starts: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    max_rows: int | None,
) -> Positions:
    """Where a batch ends that reads at most `max_rows` rows, shared by lag.

    Each queue with lag gets at least one row, so that none waits for ever; a batch may
    have that many rows more.
    """
    lags = {queue: end - starts[queue] for queue, end in ends.items()}
    total = sum(lags.values())
    if max_rows is None or total <= max_rows:
        return dict(ends)
    return {
        queue: starts[queue] + (max(1, lag * max_rows // total) if lag else 0)
        for queue, lag in lags.items()
    }


def bundles(
    ranges: Iterable[QueueRange], rows_per_bundle: int, min_bundles: int | None = None
) -> list[Bundle]:
    """Pack ranges into tasks of about `rows_per_bundle`; large ranges are cut."""
    wanted = sorted(
        (each for each in ranges if each.start < each.end),
        key=lambda each: (each.queue.broker, each.queue),
    )
    total = sum(each.end - each.start for each in wanted)
    if min_bundles is not None:
        rows_per_bundle = min(rows_per_bundle, max(1, -(-total // min_bundles)))
    return list(_packed(wanted, rows_per_bundle))


def _packed(ranges: list[QueueRange], rows: int) -> Iterator[Bundle]:
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
