"""The metrics of timed messages and of POP, with Java's names and labels.

The facts come from the plugins `timer` and `pop`. Without a plugin, and for the timer
on a slave, there are no metrics.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rmq.observe.metrics.exposition import Family, Sample


def pop_families(facts: Mapping[str, Any]) -> Iterator[Family]:
    """Yield the families of `BrokerContext.facts("pop")`."""
    for name, text, value in (
        (
            "checkpoint_buffer_size",
            "POP checkpoints in memory that are not acked yet",
            "checkpoints",
        ),
        ("offset_buffer_size", "queues from which groups pop", "queues"),
    ):
        family = f"rocketmq_pop_{name}"
        yield Family(family, "gauge", text, [Sample(facts[value], {})])
    yield Family(
        "rmq_pop_revived_total",
        "counter",
        "popped messages that are delivered again, because their invisible time ended "
        "without ack",
        [Sample(facts["revived"], {})],
    )


def timer_families(facts: Mapping[str, Any]) -> Iterator[Family]:
    """Yield the families of `BrokerContext.facts("timer")`."""
    storage = {"storage_type": "local", "storage_medium": "disk"}
    late_ms = facts["lateMs"]
    topics = facts["enqueued"] | facts["dequeued"]
    for name, text, value in (
        (
            "enqueue_lag",
            "timed messages that are not in the timer wheel yet",
            facts["behind"],
        ),
        (
            "enqueue_latency_milliseconds",
            "always 0: the timer takes messages on arrival",
            0,
        ),
        (
            "dequeue_lag",
            "timed messages that are due and not delivered yet",
            facts["due"],
        ),
        (
            "dequeue_latency_milliseconds",
            "delay of the first due message that is not delivered yet",
            late_ms,
        ),
    ):
        family = f"rocketmq_timer_{name}"
        yield Family(family, "gauge", text, [Sample(value, storage)])
    for name, value in (("enqueue", "enqueued"), ("dequeue", "dequeued")):
        yield Family(
            f"rocketmq_timer_{name}_total",
            "counter",
            f"timed messages {value}",
            (Sample(facts[value].get(each, 0), {"topic": each}) for each in topics),
        )
    yield Family(
        "rocketmq_timing_messages",
        "gauge",
        "timed messages that wait for their time",
        (Sample(count, {"topic": topic}) for topic, count in facts["waiting"].items()),
    )
    yield Family(
        "rocketmq_timer_message_snapshot",
        "gauge",
        "waiting timed messages by their remaining seconds",
        (
            Sample(count, {"timer_bound_s": bound, **storage})
            for bound, count in facts["snapshot"].items()
        ),
    )
    yield Family(
        "rmq_recalls_late_total",
        "counter",
        "recalls that came after the delivery of their message",
        [Sample(facts["lateRecalls"], {})],
    )
