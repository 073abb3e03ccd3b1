"""The metrics of timed messages and of POP, with Java's names and labels.

The facts are those of the plugins `timer` and `pop`; without these, or, for the timer,
on a slave, there are none.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rmq.observe.metrics.exposition import Family, Sample


def pop_families(facts: Mapping[str, Any]) -> Iterator[Family]:
    """Yield the families of `BrokerContext.facts("pop")`."""
    for name, text, value in (
        ("checkpoint_buffer_size", "POPs that are not acked", "checkpoints"),
        ("offset_buffer_size", "queues that groups pop", "queues"),
    ):
        family = f"rocketmq_pop_{name}"
        yield Family(family, "gauge", text, [Sample(facts[value], {})])
    yield Family(
        "rmq_pop_revived_total",
        "counter",
        "messages that nobody acked in time",
        [Sample(facts["revived"], {})],
    )


def timer_families(facts: Mapping[str, Any]) -> Iterator[Family]:
    """Yield the families of `BrokerContext.facts("timer")`."""
    storage = {"storage_type": "local", "storage_medium": "disk"}
    late_ms = facts["lateMs"]
    topics = facts["enqueued"] | facts["dequeued"]
    for name, text, value in (
        ("enqueue_lag", "records that have no slot yet", facts["behind"]),
        ("enqueue_latency_milliseconds", "0: records are taken as they come", 0),
        ("dequeue_lag", "messages that are due", facts["due"]),
        ("dequeue_latency_milliseconds", "how late the first one is", late_ms),
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
        "timed messages that wait",
        (Sample(count, {"topic": topic}) for topic, count in facts["waiting"].items()),
    )
    yield Family(
        "rocketmq_timer_message_snapshot",
        "gauge",
        "timed messages by the seconds that they still wait",
        (
            Sample(count, {"timer_bound_s": bound, **storage})
            for bound, count in facts["snapshot"].items()
        ),
    )
    yield Family(
        "rmq_recalls_late_total",
        "counter",
        "recalls that came after their message",
        [Sample(facts["lateRecalls"], {})],
    )
