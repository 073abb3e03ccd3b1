"""Plans live reads: positions, limits and bundles.  Pure: no module here does I/O.

A position is the offset of the next message of a queue.  The offset of a stream is
`{"topic": {"broker-a": {"0": [123, 4567]}}}`: for each queue its position, and the
offset in the broker's log of the message before it.  The log offset identifies this
message, if the topic is deleted and created again.  A third number is the first offset
that the batch reads, if it is not the end of the previous batch.  A single number is a
position without a log offset.  An entry is never removed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmq.core.errors import ConfigError
from rmq_spark.segments.commit_log import LostData

EARLIEST: Final = -2
LATEST: Final = -1

Offset = dict[str, dict[str, dict[str, int | list[int | None]]]]


class MessageQueue(NamedTuple):
    """A queue of a topic on a broker."""

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


class Place(NamedTuple):
    """The end of a batch in a queue."""

    position: int
    log_offset: int | None = None
    """Log offset of the message before the position; None if it is unknown."""
    begin: int | None = None
    """Start of the batch; None if this is the end of the previous batch."""


Places = dict[MessageQueue, Place]


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


def offset_of(places: Mapping[MessageQueue, Place]) -> Offset:
    """Return the offset of a stream, with sorted names."""
    offset: Offset = {}
    for queue, place in sorted(places.items()):
        numbers: list[int | None] = list(place)
        while numbers[-1] is None:
            numbers.pop()
        brokers = offset.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker, {})[str(queue.queue_id)] = (
            numbers if len(numbers) > 1 else place.position
        )
    return offset


def places_of(offset: Mapping[str, object]) -> Places:
    """Return the places in an offset; ConfigError if it is of another source."""
    try:
        return {
            MessageQueue(topic, broker, int(number)): _place_of(place)
            for topic, brokers in offset.items()
            for broker, queues in brokers.items()  # type: ignore[attr-defined] # a dict
            for number, place in queues.items()
        }
    except (AttributeError, ValueError, TypeError) as error:
        raise ConfigError(
            "the checkpoint does not belong to a stream of live topics: use another "
            "checkpointLocation"
        ) from error


def _place_of(place: int | list[int | None]) -> Place:
    position, *others = place if isinstance(place, list) else [place]
    if position is None:
        raise TypeError("a place without a position")
    return Place(int(position), *(n if n is None else int(n) for n in others))


def positions_of(places: Mapping[MessageQueue, Place]) -> Positions:
    """Return the position of each queue."""
    return {queue: place.position for queue, place in places.items()}


def next_places(
    places: Mapping[MessageQueue, Place],
    starts: Mapping[MessageQueue, int],
    stops: Mapping[MessageQueue, int],
    log_offsets: Mapping[MessageQueue, int | None],
) -> Places:
    """Return the places at the end of a batch of the ranges [start, stop).

    The places of all other queues stay, also of queues without a new message.
    """
    found = dict(places)
    for queue, stop in stops.items():
        last, start = places.get(queue), starts[queue]
        if last is None or last.position != start:
            found[queue] = Place(stop, log_offsets.get(queue), start)
        elif stop != start:
            found[queue] = Place(stop, log_offsets.get(queue))
    return found


def starts_of(starts: Mapping[MessageQueue, Place], ends: Places) -> Positions:
    """Return the first position of a batch in each queue.

    `starts` are where the batch before it ended, `ends` where this batch ends.
    """
    found = {}
    for queue, place in ends.items():
        last = starts.get(queue)
        if last == place:
            found[queue] = place.position
        elif place.begin is not None:
            found[queue] = place.begin
        else:
            found[queue] = 0 if last is None else last.position
    return found


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
            f"were read; the first message is at {bounds.first}"
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


def places_to_prove(
    places: Mapping[MessageQueue, Place],
    starts: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, Bounds],
) -> Positions:
    """Return the positions whose last message must be checked.

    These have new messages, and the broker still has the message before them.
    """
    return {
        queue: start
        for queue, start in starts.items()
        if (place := places.get(queue)) is not None
        and place.log_offset is not None
        and place.position == start
        and bounds[queue].first < start < bounds[queue].end
    }


def check_log_offset(
    place: Place, found: int, bounds: Bounds, queue: MessageQueue, *, fails: bool
) -> tuple[int, str]:
    """Return the position where reading continues, and a text about another topic.

    `found` is the log offset of the message before the position.
    """
    if found == place.log_offset:
        return place.position, ""
    text = (
        f"{queue}: the message before position {place.position} is another message, at "
        f"{found} in the log, not at {place.log_offset}; the topic was deleted and "
        "created again, or messages were lost"
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
