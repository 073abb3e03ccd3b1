"""The metrics of Java's broker, with its names and labels.

The names come from a scrape of 5.5.0, where the exporter adds units (`_milliseconds`,
`_bytes`), and from the registrations in its classes. All figures come from data that
the broker has anyway: sizes come from the queues' entries, and compiled code counts
latencies once for each batch.  The page docs/operate/operations.md lists the metrics
that are missing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

from rmq._fastpath.log.queue_tail import SIZE_BOUNDS
from rmq._fastpath.reactor.rpc_times import RPC_BOUNDS_MS, RpcTime
from rmq.core.errors import RecordDamaged
from rmq.core.measure import HistogramTable
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.observe.broker_view import BrokerView
from rmq.observe.client_names import language_name, protocol_name
from rmq.observe.metrics.exposition import (
    MAX_SAMPLES,
    Family,
    Sample,
    gauge_family,
    histogram_samples,
)
from rmq.observe.metrics.timer import pop_families, timer_families
from rmq.plugin.clients import Member
from rmq.protocol.bodies.statistics import (
    COMMIT_NUMS,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    ROLLBACK_NUMS,
    SNDBCK2DLQ_TIMES,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
)
from rmq.protocol.client_versions import version_text
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import decode_stored
from rmq.protocol.topics import is_retry_topic
from rmq.remoting.connection import Connection

Labels = tuple[str, str, str]
"""Language, version and protocol of a client."""

METER = "broker-meter"
SCOPE = {"otel_scope_name": METER}
STORAGE = {"storage_type": "local", "storage_medium": "disk"}
MAX_LATENCIES = 2_000
"""Maximum number of pairs of group and topic for which the age of the next message is
read.
"""

_MESSAGE_TYPE = "message.type"
_MODES = {
    "CONSUME_ACTIVELY": "pull",
    "CONSUME_PASSIVELY": "push",
    "CONSUME_POP": "pop",
}


_PROCESSORS = {
    "send": (10, 310, 320, 36, 370),
    "pull": (11,),
    "lite_pull": (361,),
    "query_message": (12, 33),
    "client_manager": (35, 46),
    "heartbeat": (34,),
    "transaction": (37,),
    "consumer_manager": (14, 15, 38),
    "reply": (324, 325),
}
"""Request codes of Java's queues; other codes belong to `admin`."""


class Requests(NamedTuple):
    """The data about requests: latencies, waiting requests, held replies."""

    times: list[RpcTime]
    waiting: Mapping[int, int]
    held: int


def base_labels(broker: BrokerView) -> dict[str, str]:
    """Return the labels of every metric: cluster, node, and `metricsLabel`."""
    config = broker.config
    return {
        "cluster": config.broker_cluster_name,
        "node_type": "broker",
        "node_id": config.broker_name,
        **config.metric_labels(),
    }


def families(broker: BrokerView, requests: Requests) -> Iterator[Family | None]:
    """Yield every family of Java that rmq serves."""
    yield from broker.statistics.count_parts()
    yield from _table_families(broker)
    yield from _creation_families(broker)
    yield Family(
        "rocketmq_processor_watermark",
        "gauge",
        "requests that wait because too many of the same kind are running",
        _watermark_samples(requests),
    )
    yield from _traffic_families(broker)
    yield from _transaction_families(broker)
    yield Family(
        "rocketmq_rpc_latency_milliseconds",
        "histogram",
        "time from the arrival of a request to its answer",
        _latency_samples(requests.times),
    )
    yield from _client_families(broker)
    yield from _storage_families(broker)
    yield Family(
        "rocketmq_consumer_lag_messages",
        "gauge",
        "messages between the committed or popped offset and the end of the queue",
        _lag_samples(broker),
    )
    yield Family(
        "rocketmq_consumer_lag_latency_milliseconds",
        "gauge",
        "age of the first message that a group has not consumed yet",
        _lag_latency_samples(broker),
    )
    yield from _delivery_families(broker)
    timer = broker.facts("timer")
    if timer:
        yield from timer_families(timer)
    pop = broker.facts("pop")
    if pop:
        yield from pop_families(pop)


def _table_families(broker: BrokerView) -> Iterator[Family]:
    permission = broker.config.broker_permission
    yield gauge_family("rocketmq_broker_permission", "4 read + 2 write", permission)
    topics, groups = len(broker.topics.all()), len(broker.groups.all())
    yield gauge_family("rocketmq_topic_number", "topics of this broker", topics)
    yield gauge_family(
        "rocketmq_consumer_group_number", "groups of this broker", groups
    )


def _creation_families(broker: BrokerView) -> Iterator[Family]:
    statistics = broker.statistics
    for name, text, timings in (
        ("topic_create_execution_time", "topics", statistics.topic_creations),
        ("consumer_group_create_execution_time", "groups", statistics.group_creations),
    ):
        yield Family(
            f"rocketmq_{name}_milliseconds",
            "histogram",
            f"time to create or change {text} in memory",
            _histogram_samples(timings),
        )
    yield Family(
        "rocketmq_finish_message_latency_milliseconds",
        "histogram",
        "time from the birth of a half message to its commit, in seconds as in Java",
        _histogram_samples(statistics.commit_ages),
    )


def _histogram_samples(table: HistogramTable) -> Iterator[Sample]:
    for one in table.all():
        yield from histogram_samples(table.bounds, one.counts, one.total, one.labels)


def _watermark_samples(requests: Requests) -> Iterator[Sample]:
    waiting = Counter(requests.waiting)
    for processor, codes in _PROCESSORS.items():
        yield Sample(sum(waiting.pop(c, 0) for c in codes), {"processor": processor})
    yield Sample(waiting.total(), {"processor": "admin"})
    yield Sample(requests.held, {"processor": "async_put"})


def _traffic_families(broker: BrokerView) -> Iterator[Family]:
    for name, text, item in (
        ("rocketmq_messages_in_total", "messages stored", TOPIC_PUT_NUMS),
        ("rocketmq_throughput_in_total", "bytes stored", TOPIC_PUT_SIZE),
    ):
        yield Family(name, "counter", text, _put_samples(broker, item))
    for name, text, item in (
        ("rocketmq_messages_out_total", "messages pulled", GROUP_GET_NUMS),
        ("rocketmq_throughput_out_total", "bytes pulled", GROUP_GET_SIZE),
    ):
        yield Family(name, "counter", text, _get_samples(broker, item))
    yield Family(
        "rocketmq_message_size",
        "histogram",
        "size of a stored message in bytes",
        _size_samples(broker),
    )
    yield Family(
        "rocketmq_send_to_dlq_messages_total",
        "counter",
        "messages that were moved to a dead-letter queue",
        _get_samples(broker, SNDBCK2DLQ_TIMES),
    )


def _put_samples(broker: BrokerView, item: str) -> Iterator[Sample | None]:
    for each in broker.statistics.totals_of(item):
        if each is None:
            yield None
        else:
            topic, value = each
            yield Sample(value, _of_topic(broker, topic))


def _of_topic(broker: BrokerView, topic: str) -> dict[str, str]:
    config = broker.topics.get(topic)
    kind = config.attributes.get(_MESSAGE_TYPE, "") if config else ""
    labels = {"topic": topic, "message_type": kind.lower() or "normal"}
    return labels | _is_system(broker, topic)


def _size_samples(broker: BrokerView) -> Iterator[Sample]:
    statistics = broker.statistics
    for topic, counts in statistics.message_sizes():
        total = statistics.total_of(TOPIC_PUT_SIZE, topic)
        labels = _of_topic(broker, topic)
        yield from histogram_samples(SIZE_BOUNDS, counts, total, labels)


def _get_samples(broker: BrokerView, item: str) -> Iterator[Sample | None]:
    for each in broker.statistics.totals_of(item):
        if each is None:
            yield None
        else:
            key, value = each
            topic, _, group = key.partition("@")
            labels = {"topic": topic, "consumer_group": group}
            yield Sample(value, labels | _is_system(broker, topic))


def _is_system(broker: BrokerView, topic: str) -> dict[str, str]:
    return {"is_system": "true" if broker.topics.is_system(topic) else "false"}


def _latency_samples(times: list[RpcTime]) -> Iterator[Sample]:
    for time in times:
        labels = {
            "protocol_type": "remoting",
            "request_code": _code_name(RequestCode, time.code),
            "response_code": _code_name(ResponseCode, time.response),
            "is_long_polling": "false",
            "result": "success",
        }
        yield from histogram_samples(RPC_BOUNDS_MS, time.counts, time.sum_ms, labels)


def _code_name(codes: type[IntEnum], code: int) -> str:
    known = code in codes.__members__.values()
    return codes(code).name.lower() if known else str(code)


def _transaction_families(broker: BrokerView) -> Iterator[Family]:
    for name, text, item in (
        ("rocketmq_commit_messages_total", "transactions committed", COMMIT_NUMS),
        ("rocketmq_rollback_messages_total", "and rolled back", ROLLBACK_NUMS),
    ):
        totals = broker.statistics.totals_of(item)
        samples = (each and Sample(each[1], {"topic": each[0]}) for each in totals)
        yield Family(name, "counter", text, samples)
    yield Family(
        "rocketmq_half_messages",
        "gauge",
        "open transactions",
        (
            Sample(count, {"topic": topic})
            for topic, count in broker.statistics.open_transactions.items()
        ),
    )


def _client_families(broker: BrokerView) -> Iterator[Family]:
    producers = Counter(
        _client_labels(member, connection)
        for _, connection, member in broker.producers.all()
    )
    consumers: Counter[tuple[str, Labels]] = Counter(
        (group, _client_labels(member, connection))
        for group, connection, member in broker.consumers.all()
    )
    yield Family(
        "rocketmq_producer_connections",
        "gauge",
        "connected producers",
        (Sample(n, _of_client(client)) for client, n in producers.items()),
    )
    yield Family(
        "rocketmq_consumer_connections",
        "gauge",
        "connected consumers",
        (
            Sample(n, _of_client(client) | _of_group(broker, group))
            for (group, client), n in consumers.items()
        ),
    )


def _client_labels(member: Member, connection: Connection) -> Labels:
    """Return language, version and protocol as Java writes them, in small letters."""
    language = language_name(member.language).lower()
    return language, version_name(member.version), protocol_name(connection)


def version_name(number: int) -> str:
    """Return the exporter's name of a version: v5_5_0, v5_5_0_snapshot."""
    text = version_text(number).lower().replace("-", "_").replace(".", "_")
    return f"v{text}" if text else f"ordinal_{number}"


def _of_client(client: Labels) -> dict[str, str]:
    return dict(zip(("language", "version", "protocol_type"), client, strict=True))


def _of_group(broker: BrokerView, name: str) -> dict[str, str]:
    group = broker.consumers.group(name)
    mode = _MODES.get(group.consume_type or "", "unknown") if group else "unknown"
    return {"consumer_group": name, "consume_mode": mode, "is_system": "false"}


def _storage_families(broker: BrokerView) -> Iterator[Family]:
    stats = broker.store.statistics()
    size = stats.end_offset - stats.min_physical_offset
    yield gauge_family(
        "rocketmq_storage_size_bytes", "bytes of the log", size, **STORAGE
    )
    yield gauge_family(
        "rocketmq_storage_flush_behind_bytes",
        "bytes of the log that are not on the disk yet",
        stats.end_offset - stats.durable_offset,
        **STORAGE,
    )
    yield gauge_family(
        "rocketmq_storage_dispatch_behind_bytes",
        "bytes of the log without queue entries: always 0, a put writes both",
        0,
        **STORAGE,
    )
    first = None
    with suppress(RecordDamaged):
        first = broker.store.reads.record_at(PhysicalOffset(stats.min_physical_offset))
    if first is not None:
        yield gauge_family(
            "rocketmq_storage_message_reserve_time_milliseconds",
            "age of the oldest stored message",
            broker.clock.now_ms() - decode_stored(first)[0].store_timestamp,
            **STORAGE,
        )


def _pairs(broker: BrokerView) -> Iterator[tuple[str, str]]:
    """Yield topic and group of all committed offsets of existing topics.

    With `useStaticSubscription`, yield topic and group of the subscriptions in the
    settings of groups.
    """
    is_static = broker.config.use_static_subscription
    pairs = _static_pairs(broker) if is_static else broker.offsets.pairs(MAX_SAMPLES)
    for topic, group in islice(pairs, MAX_SAMPLES):
        if broker.topics.get(topic) is not None:
            yield topic, group


def _static_pairs(broker: BrokerView) -> Iterator[tuple[str, str]]:
    for group, settings in broker.groups.all().items():
        for subscription in settings.subscription_data_set or ():
            yield subscription.topic or "", group


def _of_pair(broker: BrokerView, topic: str, group: str) -> dict[str, str]:
    is_retry = "true" if is_retry_topic(topic) else "false"
    labels = {"topic": topic, "consumer_group": group, "is_retry": is_retry}
    return labels | _is_system(broker, topic)


def _lag_samples(broker: BrokerView) -> Iterator[Sample]:
    max_offset, reached = broker.store.reads.max_offset, broker.offsets.next_offset_of
    for topic, group in _pairs(broker):
        queues = broker.offsets.queues(group, topic)
        lag = sum(
            max(0, max_offset(topic, q) - reached(group, topic, q)) for q in queues
        )
        yield Sample(lag, _of_pair(broker, topic, group))


def _lag_latency_samples(broker: BrokerView) -> Iterator[Sample]:
    now_ms = broker.clock.now_ms()
    for topic, group in islice(_pairs(broker), MAX_LATENCIES):
        queues = broker.offsets.queues(group, topic)
        times = (
            broker.store.reads.store_time_at(
                topic, q, QueueOffset(broker.offsets.next_offset_of(group, topic, q))
            )
            for q in queues
        )
        first_ms = min((ms for ms in times if ms >= 0), default=now_ms)
        yield Sample(max(0, now_ms - first_ms), _of_pair(broker, topic, group))


def _delivery_families(broker: BrokerView) -> Iterator[Family]:
    """Yield messages that groups have pulled but not committed, or can pull."""
    names = (
        (
            "rocketmq_consumer_inflight_messages",
            "messages that a group has fetched and not committed yet",
        ),
        (
            "rocketmq_consumer_ready_messages",
            "messages that a group has not fetched yet",
        ),
    )
    for place, (name, text) in enumerate(names):
        yield Family(name, "gauge", text, _delivery_samples(broker, place))
    yield Family(
        "rocketmq_consumer_queueing_latency_milliseconds",
        "gauge",
        "age of the first message that a group has not fetched yet",
        _queueing_samples(broker),
    )


def _delivery_samples(broker: BrokerView, place: int) -> Iterator[Sample]:
    """Yield inflight (0) or ready (1) messages of each pair."""
    assert place in (0, 1), place
    max_offset = broker.store.reads.max_offset
    for topic, group in _pairs(broker):
        total = 0
        for queue_id, committed in broker.offsets.queues(group, topic).items():
            given = max(
                committed, broker.statistics.pulled_offset(group, topic, queue_id)
            )
            end = max_offset(topic, queue_id)
            total += max(0, end - given) if place else min(given, end) - committed
        yield Sample(max(0, total), _of_pair(broker, topic, group))


def _queueing_samples(broker: BrokerView) -> Iterator[Sample]:
    now_ms = broker.clock.now_ms()
    for topic, group in islice(_pairs(broker), MAX_LATENCIES):
        times = []
        for queue_id, committed in broker.offsets.queues(group, topic).items():
            given = max(
                committed, broker.statistics.pulled_offset(group, topic, queue_id)
            )
            place = topic, queue_id, QueueOffset(given)
            times.append(broker.store.reads.store_time_at(*place))
        first_ms = min((ms for ms in times if ms >= 0), default=now_ms)
        yield Sample(max(0, now_ms - first_ms), _of_pair(broker, topic, group))
