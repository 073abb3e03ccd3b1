"""Views of topics: all topics, or one topic with its queues and readers."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rmq.core.measure import STEP_MS
from rmq.observe.group_views import group_row
from rmq.observe.monitored_broker import MonitoredBroker
from rmq.observe.queries import (
    MAX_ROWS,
    ListQuery,
    Query,
    Row,
    list_names,
    name_of,
    raise_unknown,
    round_rate,
    view_head,
)
from rmq.observe.statistics import TOPIC_OUT
from rmq.protocol.bodies.statistics import QUEUE_PUT_NUMS, TOPIC_PUT_NUMS
from rmq.protocol.topics import DLQ_PREFIX, RETRY_PREFIX
from rmq.remoting.turns import TurnTaker

MAX_QUEUES: Final = 1_024
Lags = Mapping[str, int]
"""For each topic, the largest lag of a group."""


async def topics_view(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return `n` of the topics that match `q`, in the order `sort`, from number `from`
    on.

    `due`, by `sort=in` only: messages per second to all groups if every group kept up.
    """
    wanted = ListQuery(query, tuple(TOPIC_SORTS))
    turns, lags = TurnTaker(broker.next_turn), await lag_by_topic(broker)
    due, sort_key = 0.0, TOPIC_SORTS[wanted.sort]

    def key_of(name: str) -> float | str:
        nonlocal due
        key = sort_key(broker, name, lags)
        if wanted.sort == "in" and key:
            due += float(key) * broker.offsets.group_count(name)
        return key

    listed = await list_names(
        wanted,
        broker.topics.all(),
        lambda name: _is_internal(broker, name),
        key_of,
        turns,
    )
    rows = []
    for name in listed.names:
        rows.append(topic_row(broker, name, lags))
        await turns()
    return {
        **view_head(broker), "total": listed.total, "found": listed.found,
        "start": wanted.start,
        "due": round_rate(due) if wanted.sort == "in" else None,
        "rows": [row for row in rows if row is not None],
    }  # fmt: skip


async def topic_view(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return one topic: its queues, and the groups that read it."""
    name = name_of(query)
    config = broker.topics.get(name)
    if config is None:
        raise_unknown("topic", name, broker.topics.all())
    broker.monitor.mark_viewed()
    turns, lags = TurnTaker(broker.next_turn), await lag_by_topic(broker)
    queues = []
    for queue_id in range(
        min(MAX_QUEUES, max(config.read_queue_nums, config.write_queue_nums))
    ):
        rate = broker.statistics.minute_rate(QUEUE_PUT_NUMS, f"{name}@{queue_id}")
        low = int(broker.store.reads.min_offset(name, queue_id))
        end = int(broker.store.reads.max_offset(name, queue_id))
        queues.append({"queue": queue_id, "first": str(low), "end": str(end),
                       "kept": end - low, "in": round_rate(rate)})  # fmt: skip
        await turns()
    readers = broker.offsets.groups_of(name)[:MAX_ROWS]
    now_ms = broker.clock.now_ms()
    return {
        **view_head(broker),
        "row": topic_row(broker, name, lags),
        "attributes": dict(config.attributes),
        "stored_once": (broker.facts("storeOnce") or {})
        .get("storedOnce", {})
        .get(name, 0),
        "settings": {
            "readQueueNums": config.read_queue_nums,
            "writeQueueNums": config.write_queue_nums,
        },
        "hour": broker.monitor.topic_arrivals.get_or_add(name, now_ms).values(now_ms),
        "step_ms": STEP_MS,
        "queues": queues,
        "groups": [group_row(broker, group) for group in readers],
    }


def topic_row(broker: MonitoredBroker, name: str, lags: Lags) -> Row | None:
    """Return a topic as a line of a list; None if it was deleted."""
    config = broker.topics.get(name)
    if config is None:
        return None
    reads = broker.store.reads
    queues = range(min(MAX_QUEUES, config.read_queue_nums))
    kept = sum(
        int(reads.max_offset(name, q) - reads.min_offset(name, q)) for q in queues
    )
    return {
        "name": name,
        "queues": max(config.read_queue_nums, config.write_queue_nums),
        "perm": config.perm,
        "in": round_rate(_in_rate(broker, name, lags)),
        "out": round_rate(_out_rate(broker, name, lags)),
        "lag": _lag_of(broker, name, lags),
        "groups": _reader_count(broker, name, lags),
        "kept": kept,
    }


async def lag_by_topic(broker: MonitoredBroker) -> dict[str, int]:
    """Return for each topic the lag of the group that is furthest behind."""
    turns, lags = TurnTaker(broker.next_turn), dict[str, int]()
    for of_group in list(broker.monitor.progress.groups.values()):
        for name, queues in of_group.items():
            lag = sum(queue.lag for queue in queues.values())
            lags[name] = max(lag, lags.get(name, 0))
        await turns()
    return lags


def _is_internal(broker: MonitoredBroker, name: str) -> bool:
    own = name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    return own or broker.topics.is_system(name)


def _in_rate(broker: MonitoredBroker, name: str, _lags: Lags) -> float:
    return broker.statistics.minute_rate(TOPIC_PUT_NUMS, name)


def _out_rate(broker: MonitoredBroker, name: str, _lags: Lags) -> float:
    return broker.statistics.minute_rate(TOPIC_OUT, name)


def _lag_of(_broker: MonitoredBroker, name: str, lags: Lags) -> int:
    return lags.get(name, 0)


def _reader_count(broker: MonitoredBroker, name: str, _lags: Lags) -> int:
    return broker.offsets.group_count(name)


def _queue_count(broker: MonitoredBroker, name: str, _lags: Lags) -> int:
    config = broker.topics.get(name)
    return config.write_queue_nums if config else 0


TOPIC_SORTS: Final[
    Mapping[str, Callable[[MonitoredBroker, str, Lags], float | str]]
] = {
    "in": _in_rate,
    "out": _out_rate,
    "lag": _lag_of,
    "groups": _reader_count,
    "queues": _queue_count,
    "name": lambda _broker, name, _lags: name,
}
"""The sort key of each `sort`; the first is the default."""
