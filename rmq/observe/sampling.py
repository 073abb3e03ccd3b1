"""A sample of a broker: its changes, the groups with a lag, and its problems."""

import heapq
from collections.abc import Iterator
from functools import partial
from typing import Final

from rmq._fastpath.reactor.rpc_times import RPC_BOUNDS_MS
from rmq.core.measure import MAX_SERIES
from rmq.observe.findings import Problem, find_problems, group_problems
from rmq.observe.monitor_state import MonitorState
from rmq.observe.monitored_broker import MonitoredBroker
from rmq.observe.reasons import BEHIND_MS, NOBODY_MS
from rmq.observe.snapshot import group_facts, take_snapshot
from rmq.protocol.bodies.statistics import TOPIC_PUT_NUMS
from rmq.protocol.codes import RequestCode
from rmq.protocol.topics import RETRY_PREFIX
from rmq.store.queues.consume_queues import QueueKey

MAX_GROUPS: Final = 300
"""Maximum number of groups for which a reason is computed, the longest wait first."""

SEEN_AT_ONCE: Final = 500
"""Number of queues with new messages that are handled between two reads of the clock.
"""

FAILING_MS: Final = 120_000
SENDS: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)


def sample(broker: MonitoredBroker, watch: MonitorState) -> Iterator[None]:
    """Update the measurements; the caller may pause at each step."""
    now_ms = broker.clock.now_ms()
    touched = watch.touched_queues
    for part in _touched_queues(broker):
        touched |= part
        yield
    watch.log_growth.sample(broker, now_ms)
    _sample_times(broker, watch, now_ms)
    watch.sender_clocks.sample(broker, touched)
    yield
    watch.dead_letters.sample(broker, touched, now_ms)
    yield
    watch.topic_arrivals.add_growth(
        partial(broker.statistics.total_of, TOPIC_PUT_NUMS), now_ms
    )
    yield
    topics = {topic for topic, _ in touched}
    yield
    _record_failing(watch, topics, now_ms)
    watch.progress.mark_touched(topics)
    yield from watch.progress.sample(broker)
    names: list[str] = []
    yield from _choose(broker, watch, names, now_ms)
    of_groups: list[Problem] = []
    for name in names:
        of_groups += group_problems((yield from group_facts(broker, watch, name)))
        yield
    watch.update_problems(
        find_problems(take_snapshot(broker, watch), of_groups), now_ms
    )
    watch.touched_queues = {}


def _touched_queues(broker: MonitoredBroker) -> Iterator[dict[QueueKey, int]]:
    """Yield the ends of queues that got messages since the last sample."""
    store = broker.store
    for queues in iter(partial(store.queues.tails.take_unseen, SEEN_AT_ONCE), []):
        yield {
            queue.key: store.reads.max_offset(*queue.key)
            for queue in queues
            if not queue.is_deleted
        }


def _sample_times(broker: MonitoredBroker, watch: MonitorState, now_ms: int) -> None:
    """Sample the durations of sends, of all request codes together, and of flushes."""
    sends = [0] * (len(RPC_BOUNDS_MS) + 1)
    for row in watch.rpc_times():
        if row.code in SENDS:
            sends = [a + b for a, b in zip(sends, row.counts, strict=True)]
    watch.send_times.sample(now_ms, sends)
    watch.flush_times.sample(now_ms, tuple(broker.store.statistics().flush_counts))


def _record_failing(watch: MonitorState, topics: set[str], now_ms: int) -> None:
    failing = watch.failing_groups
    for topic in topics:
        if topic.startswith(RETRY_PREFIX) and len(failing) < MAX_GROUPS:
            failing[topic.removeprefix(RETRY_PREFIX)] = now_ms
    for group in [g for g, at_ms in failing.items() if now_ms - at_ms > FAILING_MS]:
        del failing[group]


def _choose(
    broker: MonitoredBroker, watch: MonitorState, names: list[str], now_ms: int
) -> Iterator[None]:
    """Add the groups that need a reason to `names`, the longest wait first."""
    consumers = broker.consumers
    watch.has_uncertain_group = False
    waits = dict.fromkeys(consumers.mismatches.mismatched_groups(), BEHIND_MS)
    waits |= dict.fromkeys(watch.failing_groups, BEHIND_MS)
    lags = dict.fromkeys(waits, 0)
    for name, topics in list(watch.progress.groups.items()):
        queues = [queue for each in topics.values() for queue in each.values()]
        waited = max((queue.waits_ms(now_ms) for queue in queues), default=0)
        waits[name] = max(waited, waits.get(name, 0))
        lags[name] = sum(queue.lag for queue in queues)
        if lags[name] and waited < NOBODY_MS:
            watch.has_uncertain_group |= not consumers.client_ids(name)
        yield
    names += heapq.nlargest(MAX_GROUPS, waits, key=waits.__getitem__)
    yield
    kept = {name: lags[name] for name in names[:MAX_SERIES]}
    watch.group_lags.put_all(kept, now_ms)
