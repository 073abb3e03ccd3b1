"""The metrics that Java's broker has, with its names and labels.

Names are those of a scrape of 5.5.0, where the exporter adds units (`_milliseconds`,
`_bytes`).  Everything is read from what the broker keeps anyway; nothing is counted for
it.  What would need a measurement on the way of a message is not served:
processor_watermark (there are no queues), message_size, rpc_latency, the execution
times, inflight and ready messages.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from rmq.broker.context import BrokerContext
from rmq.broker.statistics import (
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
)
from rmq.http.exposition import MAX_SAMPLES, Family, Sample
from rmq.protocol.codes import LanguageCode
from rmq.protocol.message import decode_stored
from rmq.protocol.topics import is_retry_topic

SCOPE = {"otel_scope_name": "broker-meter"}
STORAGE = {"storage_type": "local", "storage_medium": "disk"}
MAX_LATENCIES = 2_000
"""Pairs of group and topic for which the age of the next message is looked up."""

FIRST_NAMED = 212
"""Of 4.0.0-SNAPSHOT; the numbers before follow no rule."""

_MESSAGE_TYPE = "message.type"
_MODES = {
    "CONSUME_ACTIVELY": "pull",
    "CONSUME_PASSIVELY": "push",
    "CONSUME_POP": "pop",
}


def base_labels(broker: BrokerContext) -> dict[str, str]:
    """Return the labels of every metric: cluster, node, and those of `metricsLabel`."""
    config = broker.config
    return {
        "cluster": config.broker_cluster_name,
        "node_type": "broker",
        "node_id": config.broker_name,
        **config.metric_labels(),
    }


def families(broker: BrokerContext) -> Iterator[Family]:
    """Yield every family of Java's that rmq can tell."""
    yield from _table_families(broker)
    yield from _traffic_families(broker)
    yield from _client_families(broker)
    yield from _storage_families(broker)
    yield Family(
        "rocketmq_consumer_lag_messages",
        "gauge",
        "messages behind the end of their queues",
        _lag(broker),
    )
    yield Family(
        "rocketmq_consumer_lag_latency_milliseconds",
        "gauge",
        "age of the first message that a group has not consumed",
        _lag_latency(broker),
    )


def _gauge(name: str, text: str, value: float, **labels: str) -> Family:
    return Family(name, "gauge", text, [Sample(value, labels)])


def _table_families(broker: BrokerContext) -> Iterator[Family]:
    permission = broker.config.broker_permission
    yield _gauge("rocketmq_broker_permission", "4 read + 2 write", permission)
    topics, groups = len(broker.topics.all()), len(broker.groups.all())
    yield _gauge("rocketmq_topic_number", "topics of this broker", topics)
    yield _gauge("rocketmq_consumer_group_number", "groups of this broker", groups)


def _traffic_families(broker: BrokerContext) -> Iterator[Family]:
    for name, text, item in (
        ("rocketmq_messages_in_total", "messages stored", TOPIC_PUT_NUMS),
        ("rocketmq_throughput_in_total", "bytes stored", TOPIC_PUT_SIZE),
    ):
        yield Family(name, "counter", text, _puts(broker, item))
    for name, text, item in (
        ("rocketmq_messages_out_total", "messages pulled", GROUP_GET_NUMS),
        ("rocketmq_throughput_out_total", "bytes pulled", GROUP_GET_SIZE),
    ):
        yield Family(name, "counter", text, _gets(broker, item))


def _puts(broker: BrokerContext, item: str) -> Iterator[Sample]:
    for topic, value in broker.statistics.totals(item):
        config = broker.topics.get(topic)
        kind = config.attributes.get(_MESSAGE_TYPE, "") if config else ""
        labels = {"topic": topic, "message_type": kind.lower() or "normal"}
        yield Sample(value, labels | _is_system(broker, topic))


def _gets(broker: BrokerContext, item: str) -> Iterator[Sample]:
    for key, value in broker.statistics.totals(item):
        topic, _, group = key.partition("@")
        labels = {"topic": topic, "consumer_group": group}
        yield Sample(value, labels | _is_system(broker, topic))


def _is_system(broker: BrokerContext, topic: str) -> dict[str, str]:
    return {"is_system": "true" if broker.topics.is_system(topic) else "false"}


def _client_families(broker: BrokerContext) -> Iterator[Family]:
    producers = Counter(
        _client(member.language, member.version)
        for _, _, member in broker.producers.all()
    )
    consumers: Counter[tuple[str, tuple[str, str]]] = Counter(
        (group, _client(member.language, member.version))
        for group, _, member in broker.consumers.all()
    )
    yield Family(
        "rocketmq_producer_connections",
        "gauge",
        "producers online",
        (Sample(n, _of_client(client)) for client, n in producers.items()),
    )
    yield Family(
        "rocketmq_consumer_connections",
        "gauge",
        "consumers online",
        (
            Sample(n, _of_client(client) | _of_group(broker, group))
            for (group, client), n in consumers.items()
        ),
    )


def _client(language: int | str | None, version: int) -> tuple[str, str]:
    """Return language and version as Java writes them, in small letters."""
    if isinstance(language, int):
        known = language in LanguageCode.__members__.values()
        language = LanguageCode(language).name if known else "OTHER"
    return (language or "OTHER").lower(), version_name(version)


def version_name(number: int) -> str:
    """Return Java's name of a version: from 4.0.0 on ten patches make a minor version.

    Each patch has two numbers, of its snapshot and of its release.
    """
    if number < FIRST_NAMED:
        return f"ordinal_{number}"
    patches, is_release = divmod(number - FIRST_NAMED, 2)
    major, minor, patch = 4 + patches // 100, patches // 10 % 10, patches % 10
    return f"v{major}_{minor}_{patch}" + ("" if is_release else "_snapshot")


def _of_client(client: tuple[str, str]) -> dict[str, str]:
    language, version = client
    return {"language": language, "version": version, "protocol_type": "remoting"}


def _of_group(broker: BrokerContext, name: str) -> dict[str, str]:
    group = broker.consumers.group(name)
    mode = _MODES.get(group.consume_type or "", "unknown") if group else "unknown"
    return {"consumer_group": name, "consume_mode": mode, "is_system": "false"}


def _storage_families(broker: BrokerContext) -> Iterator[Family]:
    stats = broker.store.statistics()
    size = stats.end_offset - stats.min_physical_offset
    yield _gauge("rocketmq_storage_size_bytes", "bytes of the log", size, **STORAGE)
    yield _gauge(
        "rocketmq_storage_flush_behind_bytes",
        "bytes of the log that are not on the disk yet",
        stats.end_offset - stats.durable_offset,
        **STORAGE,
    )
    yield _gauge(
        "rocketmq_storage_dispatch_behind_bytes",
        "bytes of the log that no queue has yet: a put fills both",
        0,
        **STORAGE,
    )
    first = broker.store.record_at(stats.min_physical_offset)
    if first is not None:
        yield _gauge(
            "rocketmq_storage_message_reserve_time_milliseconds",
            "age of the oldest message",
            broker.clock.now_ms() - decode_stored(first)[0].store_timestamp,
            **STORAGE,
        )


def _pairs(broker: BrokerContext) -> Iterator[tuple[str, str]]:
    """Yield topic and group of everybody who has committed offsets of a live topic."""
    for topic, group in broker.offsets.pairs(MAX_SAMPLES):
        if broker.topics.get(topic) is not None:
            yield topic, group


def _of_pair(broker: BrokerContext, topic: str, group: str) -> dict[str, str]:
    is_retry = "true" if is_retry_topic(topic) else "false"
    labels = {"topic": topic, "consumer_group": group, "is_retry": is_retry}
    return labels | _is_system(broker, topic)


def _lag(broker: BrokerContext) -> Iterator[Sample]:
    max_offset = broker.store.max_offset
    for topic, group in _pairs(broker):
        queues = broker.offsets.queues(group, topic)
        lag = sum(max(0, max_offset(topic, q) - n) for q, n in queues.items())
        yield Sample(lag, _of_pair(broker, topic, group))


def _lag_latency(broker: BrokerContext) -> Iterator[Sample]:
    now_ms = broker.clock.now_ms()
    for topic, group in islice(_pairs(broker), MAX_LATENCIES):
        queues = broker.offsets.queues(group, topic)
        times = (broker.store.store_time_at(topic, q, n) for q, n in queues.items())
        first_ms = min((ms for ms in times if ms >= 0), default=now_ms)
        yield Sample(max(0, now_ms - first_ms), _of_pair(broker, topic, group))
