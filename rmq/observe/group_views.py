"""Views of consumer groups: all groups, or one group with the reason of its lag."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
import trio

from rmq.core.measure import STEP_MS
from rmq.observe.group_progress import QueueProgress
from rmq.observe.monitored_broker import MonitoredBroker
from rmq.observe.queries import (
    ListQuery,
    Query,
    Row,
    list_names,
    name_of,
    raise_unknown,
    round_rate,
    view_head,
)
from rmq.observe.reasons import QueueFacts, why_behind
from rmq.observe.snapshot import group_facts
from rmq.observe.statistics import GROUP_AGAIN, GROUP_OUT
from rmq.protocol.topics import is_system_group
from rmq.remoting.turns import TurnTaker


async def groups_view(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return `n` of the groups that match `q`, in the order `sort`, from number `from`
    on.
    """
    wanted = ListQuery(query, tuple(GROUP_SORTS))
    broker.monitor.mark_viewed()
    turns, sort_key = TurnTaker(broker.next_turn), GROUP_SORTS[wanted.sort]
    names = dict.fromkeys(broker.offsets.group_names())
    names |= dict.fromkeys(broker.consumers.group_names())
    listed = await list_names(
        wanted, names, is_system_group, lambda name: sort_key(broker, name), turns
    )
    rows = []
    for name in listed.names:
        rows.append(group_row(broker, name))
        await turns()
    return {
        **view_head(broker), "total": listed.total, "found": listed.found,
        "start": wanted.start, "rows": rows,
    }  # fmt: skip


async def group_details_view(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return one group: why it is behind, its queues and clients."""
    name = name_of(query)
    is_known = broker.offsets.topics_of(name) or broker.consumers.group(name)
    if not is_known and broker.groups.get(name) is None:
        raise_unknown("group", name, broker.offsets.group_names())
    broker.monitor.mark_viewed()
    await trio.lowlevel.checkpoint()
    facts = await TurnTaker(broker.next_turn).run_all(
        group_facts(broker, broker.monitor, name)
    )
    online = broker.consumers.group(name)
    settings = broker.groups.get(name)
    return {
        **view_head(broker),
        "row": group_row(broker, name),
        "hour": broker.monitor.group_lags.values(name, facts.now_ms),
        "step_ms": STEP_MS,
        "kind": online.consume_type if online else None,
        "settings": None
        if settings is None
        else {
            "consumeEnable": settings.consume_enable,
            "retryMaxTimes": settings.retry_max_times,
        },
        "model": online.message_model if online else None,
        "why": msgspec.to_builtins(why_behind(facts)),
        "arriving": round_rate(facts.arriving_per_s),
        "done": None if facts.done_per_s is None else round_rate(facts.done_per_s),
        "again": round_rate(facts.again_per_s),
        "dead": broker.monitor.dead_letters_of(name),
        "left": None
        if facts.last_departure is None
        else msgspec.to_builtins(facts.last_departure),
        "clients": [msgspec.to_builtins(each) for each in facts.clients],
        "queues": [_queue_row(each) for each in facts.queues],
        "sides": [{"clients": number, "wants": text} for number, text in facts.sides],
    }


def group_row(broker: MonitoredBroker, name: str) -> Row:
    """Return a group as a line of a list."""
    problem = broker.monitor.problem_by_group.get(name)
    return {
        "name": name,
        "topics": broker.offsets.topic_count(name),
        "clients": _client_count(broker, name),
        "lag": group_lag(broker, name),
        "waits_ms": _waits_ms(broker, name),
        "out": round_rate(_out_rate(broker, name)),
        "again": round_rate(_retry_rate(broker, name)),
        "dead": broker.monitor.dead_letters_of(name),
        "level": "ok" if problem is None else problem.level,
        "message": "" if problem is None else problem.message,
        "summary": "" if problem is None else problem.summary or problem.message,
    }


def _queue_row(queue: QueueFacts) -> Row:
    """Return the row of a queue.

    Offsets are texts, because a browser's numbers end at 2^53.
    """
    row: Row = msgspec.to_builtins(queue)
    row["end"] = str(queue.end)
    row["committed"] = None if queue.committed is None else str(queue.committed)
    return row


def group_lag(broker: MonitoredBroker, name: str) -> int:
    """Return the number of messages that wait for a group."""
    return sum(queue.lag for queue in _waiting_queues(broker, name))


def _waits_ms(broker: MonitoredBroker, name: str) -> int:
    now_ms = broker.clock.now_ms()
    waits = (queue.waits_ms(now_ms) for queue in _waiting_queues(broker, name))
    return max(waits, default=0)


def _waiting_queues(broker: MonitoredBroker, group: str) -> Iterator[QueueProgress]:
    for queues in broker.monitor.progress.groups.get(group, {}).values():
        yield from queues.values()


def _out_rate(broker: MonitoredBroker, name: str) -> float:
    return broker.statistics.minute_rate(GROUP_OUT, f"@{name}")


def _retry_rate(broker: MonitoredBroker, name: str) -> float:
    return broker.statistics.minute_rate(GROUP_AGAIN, f"@{name}")


def _client_count(broker: MonitoredBroker, name: str) -> int:
    return len(broker.consumers.client_ids(name))


GROUP_SORTS: Final[Mapping[str, Callable[[MonitoredBroker, str], float | str]]] = {
    "lag": group_lag,
    "waits": _waits_ms,
    "out": _out_rate,
    "clients": _client_count,
    "name": lambda _broker, name: name,
}
"""The sort key of each `sort`; the first is the default."""
