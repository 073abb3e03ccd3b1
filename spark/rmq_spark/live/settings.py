"""Live reads without Spark: options to settings, positions of a start and of an end.

Precedence as in Kafka's source: a time, times of queues, offsets.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from rmq.core.errors import ConfigError, RmqError
from rmq_spark.identity import identity_of
from rmq_spark.live.client import ClientSettings, LiveClient
from rmq_spark.live.plan import (
    EARLIEST,
    LATEST,
    Bounds,
    MessageQueue,
    Positions,
    checked,
)
from rmq_spark.live.puller import EVERYTHING, PullSettings
from rmq_spark.option_values import QueueNumbers
from rmq_spark.options import Options
from rmq_spark.segments.reader import ReadSettings, read_settings
from rmq_spark.segments.schema import Column
from rmq_spark.segments.selection import RowBounds, TopicSelection, selected_topics

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group of pulls unless one is named: every broker has it."""

_TAG: Final = re.compile(r"[^\s'\"()=<>|]+")


@dataclass(frozen=True)
class LiveReadSettings:
    """What the options ask for; pickled for the workers."""

    pulls: PullSettings
    reading: ReadSettings


def live_read_settings(
    options: Options, columns: tuple[Column, ...]
) -> LiveReadSettings:
    """Read the options of live topics."""
    kind, expression, tags = subscription(options["subExpression"])
    assigned = options["assign"]
    live = ClientSettings(
        options["nameServer"],
        identity_of(options),
        selected_topics(options),
        None
        if assigned is None
        else frozenset(MessageQueue(*each) for each in assigned),
        frozenset(options["includeBrokers"]),
        options["readFromSlave"],
        options["pullTimeoutMs"],
        options["fetchOffset.numRetries"],
        options["fetchOffset.retryIntervalMs"],
    )
    pulls = PullSettings(
        live,
        options["consumerGroup"] or TOOLS_GROUP,
        expression,
        kind,
        options["pullBatchSize"],
        options["pullsInFlight"],
        options["failOnDataLoss"],
    )
    reading = replace(
        read_settings(options, columns),
        topics=TopicSelection(with_system=True),
        rows=RowBounds(tags=tags),
        with_unqueued=True,
    )
    return LiveReadSettings(pulls, reading)


def subscription(text: str) -> tuple[str, str, frozenset[str] | None]:
    """Return kind and expression as brokers take them, and the tags, if it names some.

    Brokers compare hashes of tags; the text is compared here.
    """
    tags = [part.strip() for part in text.split("||")]
    if text.strip() in ("", EVERYTHING):
        return "TAG", EVERYTHING, None
    if all(_TAG.fullmatch(tag) for tag in tags):
        return "TAG", " || ".join(tags), frozenset(tags)
    return "SQL92", text, None


def starts_of(
    options: Options,
    client: LiveClient,
    bounds: Mapping[MessageQueue, Bounds],
    word: str,
) -> Positions:
    """Where to begin; `word` is the default: earliest or latest."""
    found = _positions(options, client, bounds, "starting", word)
    fails = options["failOnDataLoss"]
    for queue, position in found.items():
        found[queue], _ = checked(position, bounds[queue], queue, fails=fails)
    return found


def ends_of(
    options: Options, client: LiveClient, bounds: Mapping[MessageQueue, Bounds]
) -> Positions:
    """Where a batch ends: not after what there is now."""
    found = _positions(options, client, bounds, "ending", "latest")
    return {queue: min(end, bounds[queue].end) for queue, end in found.items()}


def _positions(
    options: Options,
    client: LiveClient,
    bounds: Mapping[MessageQueue, Bounds],
    side: str,
    word: str,
) -> Positions:
    """The positions that a side's options name, among the queues of `bounds`."""
    time_ms = options[f"{side}Timestamp"]
    times = options[f"{side}OffsetsByTimestamp"]
    position = options[f"{side}Offsets"]
    if time_ms is not None:
        return _at_times(options, client, bounds, side, dict.fromkeys(bounds, time_ms))
    if position is not None and position.word:
        word = position.word
    found = {
        queue: each.first if word == "earliest" else each.end
        for queue, each in bounds.items()
    }
    if times is not None:
        wanted = _known(times, bounds, f"{side}OffsetsByTimestamp")
        return found | _at_times(options, client, bounds, side, wanted)
    if position is not None and position.queues is not None:
        for queue, number in _known(position.queues, bounds, f"{side}Offsets").items():
            ends = {EARLIEST: bounds[queue].first, LATEST: bounds[queue].end}
            found[queue] = ends.get(number, number)
    return found


def _known(
    numbers: QueueNumbers, bounds: Mapping[MessageQueue, Bounds], option: str
) -> Positions:
    found = {MessageQueue(*key): number for key, number in numbers.items()}
    for queue in found:
        if queue not in bounds:
            raise ConfigError(f"option {option}: there is no {queue} among those read")
    return found


def _at_times(
    options: Options,
    client: LiveClient,
    bounds: Mapping[MessageQueue, Bounds],
    side: str,
    times_ms: Positions,
) -> Positions:
    found = client.offsets_at(times_ms)
    if side == "starting" and options["startingOffsetsByTimestampStrategy"] == "error":
        for queue, position in found.items():
            if bounds[queue].first < bounds[queue].end <= position:
                raise RmqError(
                    f"{queue} has no message of {times_ms[queue]} or later; with "
                    "startingOffsetsByTimestampStrategy=latest its end is the start"
                )
    return found
