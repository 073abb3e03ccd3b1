"""Views: the data of the console and of `rmq top`, as values of JSON.

Each view is an async function of the broker and a query (texts by name). A view reads
one topic or group, or iterates over all in turns of a millisecond, and returns at most
`MAX_ROWS` rows. Unknown is null, never 0. RequestRejected names the error in a query.
"""

import heapq
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec
import trio

from rmq.observe.client_views import clients_view
from rmq.observe.findings import level_counts
from rmq.observe.group_views import (
    group_details_view,
    group_lag,
    group_row,
    groups_view,
)
from rmq.observe.machine_views import (
    brokers_view,
    delays_view,
    other_broker_view,
    transactions_view,
)
from rmq.observe.message_views import MESSAGE_VIEWS
from rmq.observe.monitored_broker import MonitoredBroker
from rmq.observe.queries import (
    DEFAULT_ROWS,
    MAX_ROWS,
    ListOrder,
    Query,
    Require,
    Row,
    bad_query,
    number_of,
    view_head,
)
from rmq.observe.replica_group import replica_group_of
from rmq.observe.topic_views import lag_by_topic, topic_row, topic_view, topics_view
from rmq.protocol.topics import is_system_group
from rmq.remoting.turns import TurnTaker

ORDER_MS: Final = 10_000
"""Time for which the overview keeps the order of topics, and of groups that keep up."""

View = Callable[[MonitoredBroker, Query], Awaitable[dict[str, Any]]]
RowsOf = Callable[[MonitoredBroker, list[str], int], Awaitable[list[Row]]]


def view_names() -> list[str]:
    """Return the names of all views."""
    return [*VIEWS, *MESSAGE_VIEWS]


async def show_view(
    broker: MonitoredBroker, name: str, query: Query, require: Require
) -> dict[str, Any]:
    """Return a view; `require` checks the right to topics whose messages it shows."""
    if name in MESSAGE_VIEWS:
        return await MESSAGE_VIEWS[name](broker, query, require)
    if name not in VIEWS:
        raise bad_query(f"view={name[:20]} is not one of {', '.join(view_names())}")
    return await VIEWS[name](broker, query)


async def problems_view(broker: MonitoredBroker, _query: Query) -> dict[str, Any]:
    """Return the problems, the worst first."""
    monitor = broker.monitor
    monitor.mark_viewed()
    await trio.lowlevel.checkpoint()
    return {
        **view_head(broker),
        "sampled": monitor.sampled_ms or None,
        "levels": level_counts(monitor.problems),
        "rows": [msgspec.to_builtins(each) for each in monitor.problems],
    }


async def overview_view(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return the first page: traffic, problems, the groups that are furthest behind."""
    broker.monitor.mark_viewed()
    rows = {"n": query.get("n", "8")}
    of_groups = await _with_kept_order(
        broker, {**rows, "sort": "lag"}, groups_view, _group_rows
    )
    of_topics = await _with_kept_order(
        broker, {**rows, "sort": "in"}, topics_view, _topic_rows
    )
    stats = broker.store.statistics()
    return {
        **view_head(broker),
        "problems": [msgspec.to_builtins(each) for each in broker.monitor.problems],
        "put": stats.put_messages,
        "got": broker.statistics.messages_out(),
        "refused": stats.put_failed,
        "writable": broker.store.durability.is_writable,
        "connections": broker.monitor.connection_count(),
        "send_p99_ms": broker.monitor.send_times.p99_ms(),
        "dead": sum(
            n for _, n in broker.monitor.dead_letters.of_hour(broker.clock.now_ms())
        ),
        "disk": _disk_state(broker),
        "groups": of_groups["rows"],
        "groups_total": of_groups["total"],
        "topics": of_topics["rows"],
        "topics_total": of_topics["total"],
        "due": of_topics["due"],
        "group": replica_group_of(broker),
    }


async def _with_kept_order(
    broker: MonitoredBroker, query: Query, view: View, rows_of: RowsOf
) -> dict[str, Any]:
    """Return the first rows of a list, which is sorted only once in `ORDER_MS`.

    Meanwhile `rows_of` updates the rows in the kept order.
    """
    count = number_of(query, "n", DEFAULT_ROWS, MAX_ROWS)
    orders, now_ms = broker.monitor.orders, broker.clock.steady_ms()
    kept = orders.get(query["sort"])
    if kept is None or now_ms - kept.at_ms >= ORDER_MS or kept.wanted < count:
        found = await view(broker, query)
        names = [row["name"] for row in found["rows"]]
        orders[query["sort"]] = ListOrder(
            now_ms, count, names, found["total"], found.get("due")
        )
        return found
    rows = await rows_of(broker, kept.names, count)
    return {"total": kept.total, "due": kept.due, "rows": rows}


async def _group_rows(
    broker: MonitoredBroker, known: list[str], count: int
) -> list[Row]:
    """Return groups by lag, the largest first; groups of `known` without a lag are
    last.
    """
    turns, lags = TurnTaker(broker.next_turn), dict[str, int]()
    for name in list(broker.monitor.progress.groups):
        if not is_system_group(name):
            lags[name] = group_lag(broker, name)
        await turns()
    names = heapq.nlargest(count, (n for n in lags if lags[n]), key=lags.__getitem__)
    idle = (name for name in known if not lags.get(name))
    rows = []
    for name in (*names, *islice(idle, count - len(names))):
        rows.append(group_row(broker, name))
        await turns()
    return rows


async def _topic_rows(
    broker: MonitoredBroker, known: list[str], count: int
) -> list[Row]:
    """Return the first of the `known` topics, by their current rates."""
    turns, lags = TurnTaker(broker.next_turn), await lag_by_topic(broker)
    rows = list[Row]()
    for name in known[:count]:
        row = topic_row(broker, name, lags)
        if row is not None:
            rows.append(row)
        await turns()
    rows.sort(key=lambda row: -float(row["in"]))
    return rows


VIEWS: Final[Mapping[str, View]] = {
    "problems": problems_view,
    "overview": overview_view,
    "topics": topics_view,
    "topic": topic_view,
    "groups": groups_view,
    "group": group_details_view,
    "clients": clients_view,
    "delays": delays_view,
    "transactions": transactions_view,
    "brokers": brokers_view,
    "broker": other_broker_view,
}
"""Views without messages."""


def _disk_state(broker: MonitoredBroker) -> dict[str, Any]:
    disk = broker.monitor.log_growth.disk_usage(broker, broker.clock.now_ms())
    growth = disk.growth_per_hour
    return {
        "used": disk.used, "total": disk.total, "early": disk.early_ratio,
        "refuse": disk.refuse_ratio, "hours_left": disk.hours_left,
        "growth_per_hour": None if growth is None else round(growth),
    }  # fmt: skip
