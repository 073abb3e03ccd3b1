"""The table of limits in docs/reference/compatibility.md has the figures of the
code.
"""

import re
from pathlib import Path

import pytest

from rmq.broker import clients, queue_locks, quota
from rmq.broker.tables import groups, offsets, topics
from rmq.config.broker import BrokerConfig
from rmq.namesrv import kv_config, routes, topic_queues
from rmq.protocol import (
    batch,
    binary_header,
    bodies,
    fastjson,
    frames,
    json_dialect,
    json_header,
)
from rmq.protocol.bodies import register
from rmq.remoting import overload, sniffer
from rmq_plugins.client import heartbeat
from rmq_plugins.consume.pull import held_pulls

TEXT = (
    Path(__file__).resolve().parents[2] / "docs/reference/compatibility.md"
).read_text()
SECTION = TEXT.partition("## Limits that Java does not have")[2].partition("\n## ")[0]
ROWS = {
    cells[1].strip(): cells[2]
    for cells in (line.split("|") for line in SECTION.splitlines() if "|" in line)
}
MIB, KIB = 1 << 20, 1 << 10
BROKER = BrokerConfig()
LIMITS = {
    "frame": [(frames.MAX_FRAME_SIZE, MIB)],
    "fields of a header": [(binary_header.MAX_FIELDS, 1), (json_header.MAX_QUOTES, 1)],
    "buffers of all connections": [(BROKER.max_buffer_bytes, MIB)],
    "PROXY header": [(sniffer.HEADER_LIMIT_S, 1)],
    "JSON with nulls, references, objects as names or other types than Java's": [
        (fastjson.MAX_STRANGE_SIZE, KIB), (json_dialect.MAX_DEPTH, 1),
    ],
    "a JSON header with other types than Java's": [
        (json_header.MAX_LENIENT_SIZE, KIB), (json_header.MAX_DIALECT_SIZE, KIB),
    ],
    "a compressed registration": [
        (register.MAX_INFLATED_SIZE, MIB), (register.MAX_TEXT_TOPICS, 1),
    ],
    "bytes of an uncompressed registration over 256 KiB that are not topics in the "
    "format of brokers": [(register.MAX_REST_SIZE, MIB)],
    "objects in a body": [(bodies.MAX_OBJECTS, 1)],
    "messages of a batch": [(batch.MAX_ITEMS, 1)],
    "requests that wait in the broker (relayed, replies)": [
        (overload.MAX_WAITING, 1), (overload.MAX_WAITING_BYTES, MIB),
    ],
    "held pulls": [
        (BROKER.max_held_pulls_per_connection, 1), (BROKER.max_held_pulls, 1),
        (BROKER.max_held_pulls_per_group, 1), (BROKER.max_held_pulls_per_queue, 1),
        (held_pulls.MAX_SIZE, MIB), (held_pulls.MAX_SUSPEND_MS, 60_000),
    ],
    "topics, groups of a broker": [(topics.MAX_TOPICS, 1), (groups.MAX_GROUPS, 1)],
    "topics, and groups, that one address creates by sends and heartbeats": [
        (quota.ADDED_AT_ONCE, 1), (quota.ADDED_PER_S, 1),
    ],
    "memberships of clients in groups": [
        (clients.MAX_MEMBERS, 1),
        (clients.MAX_GROUPS, 1),
    ],
    "groups, subscriptions of one client": [
        (heartbeat.MAX_GROUPS, 1), (heartbeat.MAX_SUBSCRIPTIONS_IN_ALL, 1),
    ],
    "client ids on one connection": [(clients.MAX_CLIENT_IDS, 1)],
    "subscriptions of all groups": [(clients.MAX_SUBSCRIPTION_SIZE, MIB)],
    "committed offsets": [(offsets.MAX_ENTRIES, 1), (offsets.MAX_OFFSETS, 1)],
    "queue locks": [(queue_locks.MAX_LOCKS, 1)],
    "brokers, topics, topics of brokers at a name server": [
        (routes.MAX_BROKERS, 1), (topic_queues.MAX_TOPICS, 1),
        (topic_queues.MAX_QUEUE_DATAS, 1),
    ],
    "key-value entries of a name server": [
        (kv_config.MAX_ENTRIES, 1), (kv_config.MAX_TABLE_SIZE, MIB),
    ],
}  # fmt: skip


@pytest.mark.parametrize("row", LIMITS)
def test_a_limit_stands_there_with_its_figure(row):
    shown = re.findall(r"\d[\d,]*\b", ROWS[row].replace(", ", " "))
    for limit, unit in LIMITS[row]:
        assert f"{limit // unit:,}" in shown, (limit, ROWS[row])
