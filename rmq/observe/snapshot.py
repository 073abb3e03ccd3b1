"""The facts about groups and about the broker that `rmq.observe.findings` judges."""

from collections.abc import Generator, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import Final

from rmq.observe.client_names import library_text
from rmq.observe.findings import BrokerSnapshot
from rmq.observe.group_progress import LEAST_RATE_MS, QueueProgress
from rmq.observe.monitor_state import MonitorState
from rmq.observe.monitored_broker import MonitoredBroker
from rmq.observe.reasons import ClientFacts, GroupFacts, QueueFacts
from rmq.observe.statistics import GROUP_AGAIN
from rmq.protocol.bodies.statistics import QUEUE_PUT_NUMS
from rmq.protocol.flags import PERM_READ
from rmq.protocol.topics import RETRY_PREFIX
from rmq.remoting.connection import Connection
from rmq.remoting.inner_caller import InnerCaller

MAX_FACTS: Final = 400
"""Maximum number of topics, queues and clients of a group that are examined for one
sentence.

Topics where messages wait are the first."""

QUEUES_AT_ONCE: Final = 16
"""Number of queues that are examined before the caller may pause: 0.1 ms."""

HOUR_MS: Final = 3_600_000


def group_facts(
    broker: MonitoredBroker, watch: MonitorState, group: str
) -> Generator[None, None, GroupFacts]:
    """Return the facts about a group at the last sample; the caller may pause."""
    now_ms = broker.clock.now_ms()
    waiting = watch.progress.groups.get(group, {})
    topics = topics_of(broker, group, waiting)
    yield
    queues: list[QueueFacts] = []
    found = islice(_queue_facts(broker, group, topics, waiting), MAX_FACTS)
    while part := list(islice(found, QUEUES_AT_ONCE)):
        queues += part
        yield
    minute, hour = broker.statistics.minute_and_hour_rate(GROUP_AGAIN, f"@{group}")
    behind = max((queue.waits_ms for queue in queues), default=0)
    return GroupFacts(
        name=group,
        now_ms=now_ms,
        clients=clients_of(broker, group, queues),
        queues=queues,
        last_departure=watch.departures.last_departure(group),
        pauses=tuple(_pause_reasons(broker, watch, group, topics)),
        sides=tuple(broker.consumers.mismatches.sides_of(group)),
        again_per_s=minute,
        again_before_per_s=hour,
        faults_per_s=watch.log_growth.faults_per_s,
        deleted_in_ms=max(0, broker.store_config.reserved_hours * HOUR_MS - behind),
    )


def topics_of(
    broker: MonitoredBroker, group: str, waiting: Mapping[str, object]
) -> list[str]:
    """Return topics that a group reads: topics with waiting messages first, its retry
    topic last.
    """
    online = broker.consumers.group(group)
    every = chain(
        waiting,
        broker.offsets.topics_of(group),
        online.subscriptions if online else (),
    )
    known = (name for name in every if broker.topics.get(name) is not None)
    names = dict.fromkeys(islice(known, MAX_FACTS + len(waiting)))
    return sorted(
        islice(names, MAX_FACTS),
        key=lambda name: (name not in waiting, name.startswith(RETRY_PREFIX), name),
    )


def _queue_facts(
    broker: MonitoredBroker,
    group: str,
    topics: list[str],
    waiting: Mapping[str, Mapping[int, QueueProgress]],
) -> Iterator[QueueFacts]:
    now_ms = broker.clock.now_ms()
    for topic in topics:
        config = broker.topics.get(topic)
        for queue_id in range(config.read_queue_nums if config else 0):
            known = waiting.get(topic, {}).get(queue_id)
            arriving = broker.statistics.minute_rate(
                QUEUE_PUT_NUMS, f"{topic}@{queue_id}"
            )
            given = broker.statistics.pulled_offset(group, topic, queue_id)
            committed = broker.offsets.query(group, topic, queue_id)
            owner = owner_of(broker, group, topic, queue_id)
            if known is None:
                yield QueueFacts(
                    topic=topic, queue_id=queue_id, lag=0, owner=owner,
                    end=int(broker.store.reads.max_offset(topic, queue_id)),
                    committed=committed if committed >= 0 else None,
                    arriving_per_s=arriving, done_per_s=arriving,
                )  # fmt: skip
                continue
            rate, done = known.arriving_per_s, known.done_per_s
            waits_ms = known.waits_ms(now_ms)
            if done is None and waits_ms < LEAST_RATE_MS:
                done = arriving  # nothing waited a moment ago
            yield QueueFacts(
                topic=topic,
                queue_id=queue_id,
                lag=known.lag,
                end=known.end,
                committed=committed if committed >= 0 else None,
                in_flight=max(0, min(given, known.end) - known.offset),
                owner=owner,
                arriving_per_s=arriving if rate is None else rate,
                done_per_s=done,
                still_ms=max(0, now_ms - known.still_since_ms) if known.lag else 0,
                waits_ms=waits_ms,
            )


def owner_of(
    broker: MonitoredBroker, group: str, topic: str, queue_id: int
) -> str | None:
    """Return the client that got messages of a queue last, if it is still there."""
    token = broker.statistics.puller_token(group, topic, queue_id)
    connection = broker.connection_of(token) if token else None
    online = broker.consumers.group(group)
    member = online.members.get(connection) if online and connection else None
    return None if member is None else member.client_id


def clients_of(
    broker: MonitoredBroker, group: str, queues: list[QueueFacts]
) -> tuple[ClientFacts, ...]:
    """Return the members of a group, and the rate of each."""
    done: dict[str, float] = {}
    for queue in queues:
        if queue.owner is not None and queue.done_per_s is not None:
            done[queue.owner] = done.get(queue.owner, 0.0) + queue.done_per_s
    online = broker.consumers.group(group)
    members = islice(online.members.items(), MAX_FACTS) if online else ()
    return tuple(
        ClientFacts(
            member.client_id,
            connection.remote_address,
            library_text(member, connection),
            connection.received_per_s()
            if isinstance(connection, InnerCaller)
            else done.get(member.client_id),
        )
        for connection, member in members
    )


def work_of(
    broker: MonitoredBroker, group: str, connection: Connection
) -> tuple[float | None, int | None]:
    """Return a member's rate in messages per second, and its messages in flight.

    None if the queues from which it last got messages have no waiting message. A client
    of gRPC shares its queues with others: its rate counts the messages that it gets.
    """
    if isinstance(connection, InnerCaller):
        return connection.received_per_s(), None
    done: float | None = None
    in_flight: int | None = None
    places = (
        (topic, queue_id, queue)
        for topic, queues in broker.monitor.progress.groups.get(group, {}).items()
        for queue_id, queue in queues.items()
    )
    for topic, queue_id, queue in islice(places, MAX_FACTS):
        token = broker.statistics.puller_token(group, topic, queue_id)
        if not token or broker.connection_of(token) is not connection:
            continue
        given = broker.statistics.pulled_offset(group, topic, queue_id)
        in_flight = (in_flight or 0) + max(0, min(given, queue.end) - queue.offset)
        if queue.done_per_s is not None:
            done = (done or 0.0) + queue.done_per_s
    return done, in_flight


def _pause_reasons(
    broker: MonitoredBroker, watch: MonitorState, group: str, topics: list[str]
) -> Iterator[str]:
    set_by = partial(watch.changed_by, broker.audit)
    settings = broker.groups.get(group)
    if settings is not None and not settings.consume_enable:
        yield f"consumeEnable is false{set_by(f'group {group}')}"
    if not broker.config.broker_permission & PERM_READ:
        yield f"brokerPermission forbids reading{set_by('configuration')}"
    for topic in topics:
        config = broker.topics.get(topic)
        if config is not None and not config.perm & PERM_READ:
            yield f"topic {topic} may not be read{set_by(f'topic {topic}')}"
        if broker.groups.is_forbidden(group, topic):
            yield f"the group has no permission to read {topic}"


def take_snapshot(broker: MonitoredBroker, watch: MonitorState) -> BrokerSnapshot:
    """Return the facts about the broker, without its groups."""
    now_ms = broker.clock.now_ms()
    servers = broker.name_servers.statistics()
    replica = broker.replication.fetcher
    durability = broker.store.durability
    refusal = durability.refusal
    transactions = broker.facts("transactions") or {}
    asked, oldest_ms = transactions.get("asked", (0, -1))
    once = broker.facts("storeOnce") or {}
    return BrokerSnapshot(
        broker=broker.config.broker_name,
        now_ms=now_ms,
        refusal="" if refusal is None else refusal.text,
        put_error=durability.put_error,
        disk=watch.log_growth.disk_usage(broker, now_ms),
        skews=watch.sender_clocks.clock_skews(now_ms),
        open_transactions=asked,
        silent_senders=transactions.get("silent", ()),
        oldest_transaction_ms=max(0, now_ms - oldest_ms) if oldest_ms > 0 else None,
        dead_letters=watch.dead_letters.of_hour(now_ms),
        repeated_keys=sorted(
            (group, number, topic)
            for group, (number, topic) in once.get("repeatedKeys", {}).items()
        ),
        once_window=(once.get("windowMs", 0), once.get("askedMs", 0)),
        lost_name_servers=[
            (each.address, each.error) for each in servers if not each.is_registered
        ],
        name_servers=len(servers),
        replicas=[
            (each.address, each.lag_bytes, each.is_in_sync)
            for each in broker.replication.log_server.session_statuses()
        ],
        not_following=""
        if replica is None or replica.is_following
        else replica.state or "the slave has no connection to its master",
        log_losses=broker.log_losses,
        log_healed=broker.log_healed,
        log_holes=[  # copies: other threads add to both tables
            *map(str, list(broker.store.digests.bad.values())),
            *list(broker.store.digests.damaged_records.values()),
            *broker.store.wrong_entries.problems(),
        ],
        late_scrub=(broker.store.scrub.late_days, broker.store_config.scrub_days),
        table_losses=broker.table_losses,
        connections=(watch.connection_count(), broker.config.max_connections),
        failures=watch.failures.all(),
    )
