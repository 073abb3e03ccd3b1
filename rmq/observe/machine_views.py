"""Views of the machine: delays, open transactions, the brokers of the cluster."""

import resource
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
import trio

from rmq.core.errors import RemoteProtocolError, RequestRejected, RmqError
from rmq.core.offsets import QueueOffset
from rmq.observe.java_broker import JavaBroker
from rmq.observe.monitored_broker import MonitoredBroker
from rmq.observe.queries import (
    MAX_ROWS,
    MAX_TEXT,
    Query,
    Row,
    raise_unknown,
    view_head,
)
from rmq.observe.record_reader import record_at
from rmq.observe.replica_group import replica_group_of
from rmq.protocol import properties as names
from rmq.protocol.bodies.route import ClusterInfo
from rmq.protocol.codes import OwnRequestCode, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rmq.remoting.turns import TurnTaker

HALF_HOURS: Final = 48
HALF_HOUR_MS: Final = 1_800_000
MAX_BROKERS: Final = 20
ASK_TIMEOUT_MS: Final = 2_000
MAX_ANSWER_SIZE: Final = 80 * 1024
"""Maximum bytes of an answer that is read here: with 500 queues 4.5 ms.

A broker with a longer answer counts as silent; `rmq top` reads such answers.
"""

PAGE_SIZE: Final = resource.getpagesize()


async def delays_view(broker: MonitoredBroker, _query: Query) -> dict[str, Any]:
    """Return the delayed messages by level, and the timed messages by half hour."""
    now_ms, turns = broker.clock.now_ms(), TurnTaker(broker.next_turn)
    done_by_level = (broker.facts("delayOffset") or {"offsetTable": {}})["offsetTable"]
    levels: list[Row] = []
    for number, delay_ms in enumerate(broker.store_config.delay_table(), 1):
        end = int(broker.store.reads.max_offset(SCHEDULE_TOPIC, number - 1))
        done = min(end, int(done_by_level.get(str(number), 0)))
        place = SCHEDULE_TOPIC, number - 1, QueueOffset(done)
        stored_ms = broker.store.reads.store_time_at(*place) if done < end else -1
        due_ms = stored_ms + delay_ms if stored_ms >= 0 else None
        late_ms = None if due_ms is None else max(0, now_ms - due_ms)
        levels.append({
            "level": number, "delay_ms": delay_ms, "waiting": end - done,
            "next": due_ms, "late_ms": late_ms,
        })  # fmt: skip
        await turns()
    return {
        **view_head(broker),
        "levels": levels,
        "timer": await _timer_state(broker, turns),
    }


async def _timer_state(
    broker: MonitoredBroker, turns: TurnTaker
) -> dict[str, Any] | None:
    timer = broker.store.timer
    if not timer.is_open:
        return None
    now_ms, wheel = broker.clock.now_ms(), timer.wheel
    counts = [0] * HALF_HOURS
    later = waiting = 0
    for slot in wheel.slot_numbers():
        count = max(0, wheel.count_of(slot))
        at = max(0, slot * timer.precision_ms - now_ms) // HALF_HOUR_MS
        waiting += count
        if at < HALF_HOURS:
            counts[at] += count
        else:
            later += count
        await turns()
    first = wheel.first_slot()
    due_ms = None if first is None else (first + 1) * timer.precision_ms
    return {
        "waiting": waiting, "half_hours": counts, "later": later, "next": due_ms,
        "late_ms": 0 if due_ms is None else max(0, now_ms - due_ms),
        "precision_ms": timer.precision_ms,
    }  # fmt: skip


async def transactions_view(broker: MonitoredBroker, _query: Query) -> dict[str, Any]:
    """Return transactions that are neither committed nor rolled back, the oldest first.

    `checks`: how often the broker has asked the sender for the state; `client`: a
    sender that the broker can ask.
    """
    now_ms, turns = broker.clock.now_ms(), TurnTaker(broker.next_turn)
    rows = list[Row]()
    facts = broker.facts("openTransactions") or {"offsets": []}
    for offset in facts["offsets"][:MAX_ROWS]:
        place = TRANS_HALF_TOPIC, 0, QueueOffset(offset)
        physical = broker.store.reads.physical_at(*place)
        record = await record_at(broker, physical) if physical >= 0 else None
        if record is not None:
            properties = record.properties
            root = properties.get(names.TRAN_PREPARED_QUEUE_OFFSET, "")
            first = int(root) if root.isdecimal() and len(root) < 19 else offset
            place = TRANS_HALF_TOPIC, 0, QueueOffset(first)
            stored_ms = broker.store.reads.store_time_at(*place)
            stored_ms = stored_ms if stored_ms > 0 else record.store_timestamp
            rows.append({
                "topic": properties.get(names.REAL_TOPIC, ""),
                "group": properties.get(names.PRODUCER_GROUP, ""),
                "key": properties.get(names.KEYS, ""),
                "id": properties.get(names.UNIQ_KEY) or record.offset_msg_id,
                "since": stored_ms, "age_ms": max(0, now_ms - stored_ms),
                "checks": properties.get(names.TRANSACTION_CHECK_TIMES, "0"),
                "client": _sender_of(broker, properties.get(names.PRODUCER_GROUP, "")),
                "size": len(record.body),
            })  # fmt: skip
        await turns()
    by_topic = dict(broker.statistics.open_transactions)
    return {
        **view_head(broker), "total": sum(by_topic.values()), "rows": rows,
        "limit": MAX_ROWS, "check_max": broker.config.transaction_check_max,
    }  # fmt: skip


def _sender_of(broker: MonitoredBroker, group: str) -> str | None:
    """Return a client that can be asked; None if its group has no connected client."""
    members = iter(broker.producers.members(group).values())
    first = next(members, None)
    return None if first is None else first.client_id


async def brokers_view(broker: MonitoredBroker, _query: Query) -> dict[str, Any]:
    """Return this broker, its slaves, its name servers, and its cluster."""
    stats, usage = broker.store.statistics(), resource.getrusage(resource.RUSAGE_SELF)
    replica = broker.replication.fetcher
    servers = broker.name_servers.statistics()
    disk = broker.monitor.log_growth.disk_usage(broker, broker.clock.now_ms())
    return {
        **view_head(broker),
        "own": {
            "name": broker.config.broker_name, "id": broker.role.broker_id,
            "role": broker.role.kind.value, "address": broker.address,
            "connections": broker.monitor.connection_count(),
            "memory": _resident_bytes(),
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
            "faults": usage.ru_majflt, "log_size": stats.end_offset
            - max(0, stats.min_physical_offset),
            "out": broker.statistics.messages_out(),
            "own_reads": stats.own_read_messages,
            "not_durable": stats.end_offset - stats.durable_offset,
            "kept_ms": disk.kept_ms, "disk_used": disk.used, "disk_total": disk.total,
            "disk_hours": disk.hours_left, "disk_growth": disk.growth_per_hour,
            "disk_early": disk.early_ratio, "disk_refuse": disk.refuse_ratio,
            "flush_p99_ms": broker.monitor.flush_times.p99_ms(),
        },
        "replicas": [
            {"address": each.address, "behind": each.lag_bytes,
             "in_sync": each.is_in_sync, "rate": each.bytes_per_second}
            for each in broker.replication.log_server.session_statuses()
        ],
        "following": None if replica is None else {
            "master": broker.role.master_ha_address, "is": replica.is_following,
            "state": replica.state,
        },
        "group": replica_group_of(broker),
        "name_servers": [
            {"address": each.address, "registered": each.is_registered,
             "error": each.error}
            for each in servers
        ],
        "cluster_rows": await _cluster_rows(broker, [s.address for s in servers]),
    }  # fmt: skip


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_SIZE


async def other_broker_view(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return the overview of another broker of the cluster, of rmq or of Java.

    This broker sends the request only if the other broker is registered at a name
    server.
    """
    address = query.get("address", "")
    servers = [each.address for each in broker.name_servers.statistics()]
    places = await _other_brokers(broker, servers) or []
    names = [name for name, _, known in places if known == address]
    if not names:
        raise_unknown(
            "other broker", address[:MAX_TEXT], [place[2] for place in places]
        )
    java_broker = broker.monitor.other_brokers.get(address)
    if java_broker is None:
        view = {"view": "overview", "n": str(MAX_ROWS)}
        body = await _call(broker, address, OwnRequestCode.GET_VIEW, view)
        if body is not None:
            found: dict[str, Any] = msgspec.json.decode(body)
            return found
        java_broker = JavaBroker(
            names[0], broker.config.broker_cluster_name, broker.clock.now_ms
        )
        if len(broker.monitor.other_brokers) >= MAX_BROKERS:
            broker.monitor.other_brokers.clear()
        broker.monitor.other_brokers[address] = java_broker
    try:
        await _call_all(broker, address, java_broker)
    except RemoteProtocolError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
    return java_broker.overview()


async def _call_all(
    broker: MonitoredBroker, address: str, java_broker: JavaBroker
) -> None:
    questions = java_broker.poll_requests()
    code, fields = next(questions)
    body = await _call(broker, address, code, fields)
    if body is None:
        del broker.monitor.other_brokers[address]
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"{address} does not answer")
    with suppress(StopIteration):
        while True:
            code, fields = questions.send(body)
            body = await _call(broker, address, code, fields)


async def _cluster_rows(
    broker: MonitoredBroker, servers: list[str]
) -> list[Row] | None:
    """Return a row for each other broker; None if no name server answers."""
    places = await _other_brokers(broker, servers)
    if places is None:
        return None
    rows: list[Row] = []
    async with trio.open_nursery() as nursery:
        for place in places:
            nursery.start_soon(_add_broker_row, broker, place, rows)
    return sorted(rows, key=lambda row: (row["name"], row["id"]))


async def _other_brokers(
    broker: MonitoredBroker, servers: list[str]
) -> list[tuple[str, int, str]] | None:
    """Return names, ids and addresses of the other brokers, from a name server."""
    for address in servers:
        body = await _call(broker, address, RequestCode.GET_BROKER_CLUSTER_INFO)
        if body is not None:
            table = ClusterInfo.decode(body).broker_addr_table
            return [
                (name, int(number), address)
                for name, data in sorted(table.items())
                for number, address in sorted(data.broker_addrs.items())
                if address != broker.address
            ][:MAX_BROKERS]
    return None


async def _add_broker_row(
    broker: MonitoredBroker, place: tuple[str, int, str], rows: list[Row]
) -> None:
    """Add the row of a broker, from request 28, which Java's brokers serve too."""
    name, number, address = place
    body = await _call(broker, address, RequestCode.GET_BROKER_RUNTIME_INFO)
    table = msgspec.json.decode(body)["table"] if body else {}
    rates = (
        str(table.get("putTps", "")).split(),
        str(table.get("getTotalTps", "")).split(),
    )
    rows.append({
        "name": name, "id": int(number), "address": address,
        "answers": body is not None,
        "version": table.get("brokerVersionDesc"),
        "in": float(rates[0][0]) if rates[0] else None,
        "out": float(rates[1][0]) if rates[1] else None,
        "disk": table.get("commitLogDiskRatio"), "up": table.get("runtime"),
    })  # fmt: skip


async def _call(
    broker: MonitoredBroker,
    address: str,
    code: int,
    fields: Mapping[str, str] | None = None,
) -> bytes | None:
    """Return the body of an answer; None if it is refused, too long, or never comes."""
    request = Command.request(code)
    request.ext_fields.update(fields or {})
    try:
        answer = await broker.name_servers.send_request(
            address, request, ASK_TIMEOUT_MS
        )
    except (RmqError, OSError):
        return None
    is_usable = (
        answer.code == ResponseCode.SUCCESS and len(answer.body) <= MAX_ANSWER_SIZE
    )
    return bytes(answer.body) if is_usable else None
