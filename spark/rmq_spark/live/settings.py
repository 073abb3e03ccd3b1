"""Settings of a live read, and its first and last positions, from the options.

Precedence as in Kafka's source: a time, then times of queues, then offsets.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from rmq.core.errors import ConfigError, RmqError
from rmq_spark.identity import identity_of
from rmq_spark.live.client import EVERYTHING, TOOLS_GROUP, ClientSettings, LiveClient
from rmq_spark.live.plan import (
    EARLIEST,
    LATEST,
    Bounds,
    MessageQueue,
    Positions,
    check_position,
)
from rmq_spark.live.puller import PullSettings
from rmq_spark.option_values import QueueNumbers
from rmq_spark.options import Options
from rmq_spark.segments.reader import ReadSettings, read_settings
from rmq_spark.segments.schema import Column
from rmq_spark.segments.selection import RowBounds, TopicSelection, selected_topics

_TAG: Final = re.compile(r"[^\s'\"()=<>|]+")


@dataclass(frozen=True)
class LiveReadSettings:
    """How to pull and decode; pickled for the workers."""

    pulls: PullSettings
    read_settings: ReadSettings


def live_read_settings(
    options: Options, columns: tuple[Column, ...]
) -> LiveReadSettings:
    """Return the settings that the options describe."""
    kind, expression, tags = parse_subscription(options["subExpression"])
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


def parse_subscription(text: str) -> tuple[str, str, frozenset[str] | None]:
    """Return filter type and expression for the broker, and the tags of a tag filter.

    Brokers compare hashes of tags, so the reader compares the tags again.
    """
    tags = [part.strip() for part in text.split("||")]
    if text.strip() in ("", EVERYTHING):
        return "TAG", EVERYTHING, None
    if all(_TAG.fullmatch(tag) for tag in tags):
        return "TAG", " || ".join(tags), frozenset(tags)
    return "SQL92", text, None


def start_positions(
    options: Options,
    client: LiveClient,
    bounds: Mapping[MessageQueue, Bounds],
    word: str,
) -> Positions:
    """Return the first positions; `word` is the default: earliest or latest."""
    found = _positions(options, client, bounds, "starting", word)
    fails = options["failOnDataLoss"]
    for queue, position in found.items():
        found[queue], _ = check_position(position, bounds[queue], queue, fails=fails)
    return found


def end_positions(
    options: Options, client: LiveClient, bounds: Mapping[MessageQueue, Bounds]
) -> Positions:
    """Return the last positions of a batch, not after the current ends."""
    found = _positions(options, client, bounds, "ending", "latest")
    return {queue: min(end, bounds[queue].end) for queue, end in found.items()}


def _positions(
    options: Options,
    client: LiveClient,
    bounds: Mapping[MessageQueue, Bounds],
    side: str,
    word: str,
) -> Positions:
    """Return the positions that the options of one side select."""
    time_ms = options[f"{side}Timestamp"]
    times = options[f"{side}OffsetsByTimestamp"]
    position = options[f"{side}Offsets"]
    if time_ms is not None:
        return _offsets_at_times(
            options, client, bounds, side, dict.fromkeys(bounds, time_ms)
        )
    if position is not None and position.word:
        word = position.word
    found = {
        queue: each.first if word == "earliest" else each.end
        for queue, each in bounds.items()
    }
    if times is not None:
        wanted = _check_known(times, bounds, f"{side}OffsetsByTimestamp")
        return found | _offsets_at_times(options, client, bounds, side, wanted)
    if position is not None and position.queues is not None:
        for queue, number in _check_known(
            position.queues, bounds, f"{side}Offsets"
        ).items():
            ends = {EARLIEST: bounds[queue].first, LATEST: bounds[queue].end}
            found[queue] = ends.get(number, number)
    return found


def _check_known(
    numbers: QueueNumbers, bounds: Mapping[MessageQueue, Bounds], option: str
) -> Positions:
    found = {MessageQueue(*key): number for key, number in numbers.items()}
    for queue in found:
        if queue not in bounds:
            raise ConfigError(
                f"option {option}: {queue} is not among the queues that are read"
            )
    return found


def _offsets_at_times(
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
                    "startingOffsetsByTimestampStrategy=latest the read starts at its "
                    "end"
                )
    return found
