"""Views: what the console and `rmq top` show, as values of JSON.

Each view is an async function of the broker and a query (texts by name).  It looks at
one topic or group, or goes through all of them in turns of a millisecond and answers at
most `MAX_ROWS` rows.  Unknown is null, never 0.  RequestRejected names what is wrong
with a query.
"""

import heapq
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import trio

from rmq.observe.broker_view import MemberView
from rmq.observe.client_names import language_name, library_text
from rmq.observe.findings import level_counts
from rmq.observe.group_view import group_of
from rmq.observe.machine_views import (
    brokers,
    delays,
    other_broker,
    transactions,
)
from rmq.observe.measure import STEP_MS
from rmq.observe.message_views import MESSAGE_VIEWS
from rmq.observe.monitor_state import MonitoredBroker
from rmq.observe.queries import (
    DEFAULT_ROWS,
    MAX_ROWS,
    Busiest,
    Query,
    Require,
    Row,
    Turns,
    Wanted,
    bad,
    head,
    name_of,
    number_of,
    unknown,
)
from rmq.observe.reasons import QueueFacts, why
from rmq.observe.snapshot import group_facts, work_of
from rmq.observe.statistics import GROUP_AGAIN, GROUP_OUT, TOPIC_OUT
from rmq.protocol.bodies.statistics import QUEUE_PUT_NUMS, TOPIC_PUT_NUMS
from rmq.protocol.topics import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from rmq.remoting.connection import Connection

NAMES_AT_ONCE: Final = 64
"""Names of a list that are looked at between two looks at the clock."""

MAX_VERSIONS: Final = 12
ORDER_MS: Final = 10_000
"""How long the overview keeps the order of topics, and of groups that keep up."""

SYSTEM_GROUPS: Final = "CID_RMQ_SYS_"

View = Callable[[MonitoredBroker, Query], Awaitable[dict[str, Any]]]


def view_names() -> list[str]:
    """Return the names of all views."""
    return [*VIEWS, *MESSAGE_VIEWS]


async def show_view(
    broker: MonitoredBroker, name: str, query: Query, require: Require
) -> dict[str, Any]:
    """Return a view; `require` is asked for the right to topics with its messages."""
    if name in MESSAGE_VIEWS:
        return await MESSAGE_VIEWS[name](broker, query, require)
    if name not in VIEWS:
        raise bad(f"view={name[:20]} is none of {', '.join(view_names())}")
    return await VIEWS[name](broker, query)


async def problems(broker: MonitoredBroker, _query: Query) -> dict[str, Any]:
    """Return what is wrong, the worst first."""
    watch = broker.monitor
    watch.look()
    await trio.lowlevel.checkpoint()
    return {
        **head(broker),
        "sampled": watch.sampled_ms or None,
        "levels": level_counts(watch.problems),
        "rows": [msgspec.to_builtins(each) for each in watch.problems],
    }


async def overview(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return what is said first: traffic, problems, the groups furthest behind."""
    broker.monitor.look()
    rows = {"n": query.get("n", "8")}
    of_groups = await _furthest(broker, rows)
    of_topics = await _busiest(broker, rows)
    stats = broker.store.statistics()
    return {
        **head(broker),
        "problems": [msgspec.to_builtins(each) for each in broker.monitor.problems],
        "put": stats.put_messages,
        "got": stats.transferred_messages,
        "refused": stats.put_failed,
        "writable": broker.store.durability.is_writable,
        "connections": broker.monitor.connection_count(),
        "send_p99_ms": broker.monitor.sends.p99_ms(),
        "dead": sum(n for _, n in broker.monitor.dead.of_hour(broker.clock.now_ms())),
        "disk": _disk(broker),
        "groups": of_groups["rows"],
        "groups_total": of_groups["total"],
        "topics": of_topics["rows"],
        "topics_total": of_topics["total"],
        "due": of_topics["due"],
        "group": group_of(broker),
    }


async def _furthest(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return groups by what waits; those that keep up are chosen each `ORDER_MS`."""
    count = number_of(query, "n", DEFAULT_ROWS, MAX_ROWS)
    now_ms, kept = broker.clock.steady_ms(), broker.monitor.furthest
    if kept is None or now_ms - kept.at_ms >= ORDER_MS or kept.wanted < count:
        found = await groups(broker, {**query, "sort": "lag"})
        names = [row["name"] for row in found["rows"]]
        broker.monitor.furthest = Busiest(now_ms, count, names, found["total"])
        return found
    turns, lags = Turns(broker), dict[str, int]()
    for name in list(broker.monitor.progress.groups):
        if not name.startswith(SYSTEM_GROUPS):
            lags[name] = _lag(broker, name)
        await turns()
    names = heapq.nlargest(count, (n for n in lags if lags[n]), key=lags.__getitem__)
    idle = (name for name in kept.names if not lags.get(name))
    rows = []
    for name in (*names, *islice(idle, count - len(names))):
        rows.append(_group_row(broker, name))
        await turns()
    return {"total": kept.total, "rows": rows}


async def _busiest(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return topics by what comes in; all are gone through each `ORDER_MS` only."""
    count = number_of(query, "n", DEFAULT_ROWS, MAX_ROWS)
    now_ms, kept = broker.clock.steady_ms(), broker.monitor.busiest
    if kept is None or now_ms - kept.at_ms >= ORDER_MS or kept.wanted < count:
        found = await topics(broker, {**query, "sort": "in"})
        names = [row["name"] for row in found["rows"]]
        broker.monitor.busiest = Busiest(
            now_ms, count, names, found["total"], found["due"]
        )
        return found
    turns, lags, rows = Turns(broker), await _lag_by_topic(broker), list[Row]()
    for name in kept.names[:count]:
        row = _topic_row(broker, name, lags)
        if row is not None:
            rows.append(row)
        await turns()
    rows.sort(key=lambda row: -float(row["in"]))
    return {"total": kept.total, "due": kept.due, "rows": rows}


async def topics(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return topics: those that match `q`, by `sort`, from `from` on, `n` of them.

    `due`, by `sort=in` only: what would leave each second if every group kept up.
    """
    wanted = Wanted(query, ("in", "out", "lag", "groups", "queues", "name"))
    turns, lags = Turns(broker), await _lag_by_topic(broker)
    found: list[tuple[Any, str]] = []
    total, due = 0, 0.0
    for number, (name, config) in enumerate(broker.topics.all().items()):
        if number % NAMES_AT_ONCE == 0:
            await turns()
        if not wanted.system and _is_internal(broker, name):
            continue
        total += 1
        if not wanted.matches(name):
            continue
        key: Any = name
        if wanted.sort == "in":
            key = broker.statistics.minute_rate(TOPIC_PUT_NUMS, name)
            due += key and key * broker.offsets.group_count(name)
        elif wanted.sort == "out":
            key = _topic_out(broker, name)
        elif wanted.sort == "lag":
            key = lags.get(name, 0)
        elif wanted.sort == "groups":
            key = broker.offsets.group_count(name)
        elif wanted.sort == "queues":
            key = config.write_queue_nums
        found.append((key, name))
    rows = []
    for name in await wanted.cut(found, turns):
        rows.append(_topic_row(broker, name, lags))
        await turns()
    return {
        **head(broker), "total": total, "found": len(found), "start": wanted.start,
        "due": _rounded(due) if wanted.sort == "in" else None,
        "rows": [row for row in rows if row is not None],
    }  # fmt: skip


async def topic(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return one topic: its queues, and the groups that read it."""
    name = name_of(query)
    config = broker.topics.get(name)
    if config is None:
        unknown("topic", name, broker.topics.all())
    broker.monitor.look()
    turns, lags = Turns(broker), await _lag_by_topic(broker)
    queues = []
    for queue_id in range(
        min(1_024, max(config.read_queue_nums, config.write_queue_nums))
    ):
        rate = broker.statistics.minute_rate(QUEUE_PUT_NUMS, f"{name}@{queue_id}")
        low = int(broker.store.reads.min_offset(name, queue_id))
        end = int(broker.store.reads.max_offset(name, queue_id))
        queues.append({"queue": queue_id, "first": str(low), "end": str(end),
                       "kept": end - low, "in": _rounded(rate)})  # fmt: skip
        await turns()
    readers = broker.offsets.groups_of(name)[:MAX_ROWS]
    now_ms = broker.clock.now_ms()
    return {
        **head(broker),
        "row": _topic_row(broker, name, lags),
        "attributes": dict(config.attributes),
        "settings": {
            "readQueueNums": config.read_queue_nums,
            "writeQueueNums": config.write_queue_nums,
        },
        "hour": broker.monitor.of_topics.get_or_add(name, now_ms).values(now_ms),
        "step_ms": STEP_MS,
        "queues": queues,
        "groups": [_group_row(broker, group) for group in readers],
    }


async def groups(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return groups: those that match `q`, by `sort`, from `from` on, `n` of them."""
    wanted = Wanted(query, ("lag", "waits", "out", "clients", "name"))
    broker.monitor.look()
    turns = Turns(broker)
    names = dict.fromkeys(broker.offsets.group_names())
    names |= dict.fromkeys(broker.consumers.group_names())
    found: list[tuple[Any, str]] = []
    total = 0
    for number, name in enumerate(names):
        if number % NAMES_AT_ONCE == 0:
            await turns()
        if not wanted.system and name.startswith(SYSTEM_GROUPS):
            continue
        total += 1
        if not wanted.matches(name):
            continue
        key: Any = name
        if wanted.sort in ("lag", "waits"):
            is_late = name in broker.monitor.progress.groups
            amount = _lag if wanted.sort == "lag" else _waits_ms
            key = amount(broker, name) if is_late else 0
        elif wanted.sort == "out":
            key = _group_out(broker, name)
        elif wanted.sort == "clients":
            key = len(broker.consumers.client_ids(name))
        found.append((key, name))
    rows = []
    for name in await wanted.cut(found, turns):
        rows.append(_group_row(broker, name))
        await turns()
    return {
        **head(broker), "total": total, "found": len(found), "start": wanted.start,
        "rows": rows,
    }  # fmt: skip


async def group(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return one group: why it is behind, its queues and clients."""
    name = name_of(query)
    is_known = broker.offsets.topics_of(name) or broker.consumers.group(name)
    if not is_known and broker.groups.get(name) is None:
        unknown("group", name, broker.offsets.group_names())
    broker.monitor.look()
    await trio.lowlevel.checkpoint()
    facts = await Turns(broker).all(group_facts(broker, broker.monitor, name))
    online = broker.consumers.group(name)
    settings = broker.groups.get(name)
    return {
        **head(broker),
        "row": _group_row(broker, name),
        "hour": broker.monitor.of_groups.values(name, facts.now_ms),
        "step_ms": STEP_MS,
        "kind": online.consume_type if online else None,
        "settings": None
        if settings is None
        else {
            "consumeEnable": settings.consume_enable,
            "retryMaxTimes": settings.retry_max_times,
        },
        "model": online.message_model if online else None,
        "why": msgspec.to_builtins(why(facts)),
        "arriving": _rounded(facts.arriving_per_s),
        "done": None if facts.done_per_s is None else _rounded(facts.done_per_s),
        "again": _rounded(facts.again_per_s),
        "dead": broker.monitor.dead_of(name),
        "left": None if facts.left is None else msgspec.to_builtins(facts.left),
        "clients": [msgspec.to_builtins(each) for each in facts.clients],
        "queues": [_queue_row(each) for each in facts.queues],
        "sides": [{"clients": number, "wants": text} for number, text in facts.sides],
    }


class ClientPlace(NamedTuple):
    """A client in a group."""

    kind: str
    group: str
    connection: "Connection"
    member: MemberView
    library: str


async def clients(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return consumers and producers that are online, one row a group and client.

    `versions`: the libraries of those that match, and how many have each.
    """
    wanted = Wanted(query, ("group", "client"))
    turns = Turns(broker)
    found: list[tuple[Any, ClientPlace]] = []
    versions: Counter[str] = Counter()
    total = 0
    for kind, table in (("consumer", broker.consumers), ("producer", broker.producers)):
        for name in table.group_names():
            for connection, member in table.members(name).items():
                total += 1
                library = library_text(member)
                if wanted.matches(f"{name} {member.client_id} {library}"):
                    place = ClientPlace(kind, name, connection, member, library)
                    key = name if wanted.sort == "group" else member.client_id
                    found.append(((key, id(place)), place))
                    versions[library] += 1
            await turns()
    rows = []
    for place in await wanted.cut(found, turns):
        rows.append(_client_row(broker, place))
        await turns()
    return {
        **head(broker), "total": total, "found": len(found), "start": wanted.start,
        "versions": versions.most_common(MAX_VERSIONS), "rows": rows,
    }  # fmt: skip


VIEWS: Final[Mapping[str, View]] = {
    "problems": problems,
    "overview": overview,
    "topics": topics,
    "topic": topic,
    "groups": groups,
    "group": group,
    "clients": clients,
    "delays": delays,
    "transactions": transactions,
    "brokers": brokers,
    "broker": other_broker,
}
"""Views without messages."""


# -- rows


def _disk(broker: MonitoredBroker) -> dict[str, Any]:
    disk = broker.monitor.growth.disk(broker, broker.clock.now_ms())
    growth = disk.growth_per_hour
    return {
        "used": disk.used, "total": disk.total, "early": disk.early_ratio,
        "refuse": disk.refuse_ratio, "hours_left": disk.hours_left,
        "growth_per_hour": None if growth is None else round(growth),
    }  # fmt: skip


def _is_internal(broker: MonitoredBroker, name: str) -> bool:
    own = name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    return own or broker.topics.is_system(name)


def _topic_row(
    broker: MonitoredBroker, name: str, lags: Mapping[str, int]
) -> Row | None:
    config = broker.topics.get(name)
    if config is None:
        return None
    reads = broker.store.reads
    queues = range(min(1_024, config.read_queue_nums))
    kept = sum(
        int(reads.max_offset(name, q) - reads.min_offset(name, q)) for q in queues
    )
    return {
        "name": name,
        "queues": max(config.read_queue_nums, config.write_queue_nums),
        "perm": config.perm,
        "in": _rounded(broker.statistics.minute_rate(TOPIC_PUT_NUMS, name)),
        "out": _rounded(_topic_out(broker, name)),
        "lag": lags.get(name, 0),
        "groups": broker.offsets.group_count(name),
        "kept": kept,
    }


def _group_row(broker: MonitoredBroker, name: str) -> Row:
    problem = broker.monitor.by_group.get(name)
    return {
        "name": name,
        "topics": broker.offsets.topic_count(name),
        "clients": len(broker.consumers.client_ids(name)),
        "lag": _lag(broker, name),
        "waits_ms": _waits_ms(broker, name),
        "out": _rounded(_group_out(broker, name)),
        "again": _rounded(_again(broker, name)),
        "dead": broker.monitor.dead_of(name),
        "level": "ok" if problem is None else problem.level,
        "say": "" if problem is None else problem.say,
        "brief": "" if problem is None else problem.brief or problem.say,
    }


def _client_row(broker: MonitoredBroker, place: ClientPlace) -> Row:
    """`done` and `ms` are known while messages wait for the client."""
    member, connection = place.member, place.connection
    done = in_hand = None
    if place.kind == "consumer":
        done, in_hand = work_of(broker, place.group, connection)
    return {
        "kind": place.kind, "group": place.group, "client": member.client_id,
        "address": connection.remote_address,
        "language": language_name(member.language),
        "version": member.version, "library": place.library,
        "done": None if done is None else _rounded(done),
        "ms": round(1_000 / done, 1) if done and in_hand else None,
        "in_hand": in_hand,
        "heard_ms": max(0, broker.clock.now_ms() - member.last_heartbeat_ms),
    }  # fmt: skip


def _queue_row(queue: QueueFacts) -> Row:
    """Offsets are texts: a browser's numbers end at 2^53."""
    row: Row = msgspec.to_builtins(queue)
    row["end"] = str(queue.end)
    row["committed"] = None if queue.committed is None else str(queue.committed)
    return row


async def _lag_by_topic(broker: MonitoredBroker) -> dict[str, int]:
    """Return what waits in each topic for the group that is furthest behind."""
    turns, lags = Turns(broker), dict[str, int]()
    for of_group in list(broker.monitor.progress.groups.values()):
        for name, queues in of_group.items():
            lag = sum(queue.lag for queue in queues.values())
            lags[name] = max(lag, lags.get(name, 0))
        await turns()
    return lags


def _waiting(broker: MonitoredBroker, group: str) -> Iterator[Any]:
    for queues in broker.monitor.progress.groups.get(group, {}).values():
        yield from queues.values()


def _lag(broker: MonitoredBroker, group: str) -> int:
    return sum(queue.lag for queue in _waiting(broker, group))


def _waits_ms(broker: MonitoredBroker, group: str) -> int:
    now_ms = broker.clock.now_ms()
    return max((queue.waits_ms(now_ms) for queue in _waiting(broker, group)), default=0)


def _topic_out(broker: MonitoredBroker, name: str) -> float:
    return broker.statistics.minute_rate(TOPIC_OUT, name)


def _group_out(broker: MonitoredBroker, name: str) -> float:
    return broker.statistics.minute_rate(GROUP_OUT, f"@{name}")


def _again(broker: MonitoredBroker, name: str) -> float:
    return broker.statistics.minute_rate(GROUP_AGAIN, f"@{name}")


def _rounded(rate: float) -> float:
    return round(rate, 1)
