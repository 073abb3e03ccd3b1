"""Commands for static topics: create logical queues and move them to other brokers.

A move has three steps. All brokers get the new parts without a start offset, and new
messages go to the new parts. The ends of the old parts determine the start offsets. The
new leaders get these offsets, and consumers continue in the new parts.
"""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

import click
import msgspec

from rmq.cli.admin.base import (
    Output,
    Table,
    bool_option,
    register_command,
    topic_option,
)
from rmq.client.admin import AdminClient
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.queue_mapping import (
    UNDECIDED,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
)
from rmq.protocol.bodies.topics import TopicConfigAndQueueMapping, TopicStatsTable
from rmq.protocol.codes import RequestCode, ResponseCode

BLOCK: Final = 10_000
"""Unit of start offsets: a new part starts at a multiple of this number, and at least
half a unit after the old part.

The old part gets messages until its broker knows the new part."""

EPOCH_STEP: Final = 1_000

Configs = dict[str, TopicConfigAndQueueMapping]
"""Configuration and queue mapping of a topic by broker name."""

_brokers_option = click.option(
    "-b", "--brokers", metavar="NAMES", help="Brokers, separated by commas."
)
_clusters_option = click.option("-c", "--clusters", metavar="NAME,…", help="Clusters.")


@register_command("updateStaticTopic")
@_brokers_option
@_clusters_option
@topic_option
@click.option("-qn", "--totalQueueNum", "count", type=int, required=True)
@bool_option("-fr", "--forceReplace", "force", default=False)
def update_static_topic(
    admin: AdminClient,
    brokers: str | None,
    clusters: str | None,
    topic: str,
    count: int,
    *,
    force: bool,
) -> Output:
    configs = _fetch_configs(admin, topic)
    names = _broker_names(admin, brokers, clusters)
    add_queues(topic, configs, names, count, _now_ms())
    _add_other_brokers(admin, topic, configs)
    for name in configs:
        _put_config(admin, name, configs, force=force)
    return _queue_table(configs)


@register_command("remappingStaticTopic")
@_brokers_option
@_clusters_option
@topic_option
@bool_option("-fr", "--forceReplace", "force", default=False)
def remapping_static_topic(
    admin: AdminClient,
    brokers: str | None,
    clusters: str | None,
    topic: str,
    *,
    force: bool,
) -> Output:
    configs = _fetch_configs(admin, topic)
    if not configs:
        raise click.UsageError(f"no broker has a topic {topic}")
    names = _broker_names(admin, brokers, clusters)
    moved = move_queues(topic, configs, names, _now_ms())
    _add_other_brokers(admin, topic, configs)
    new = sorted({name for name, _ in moved.values()})
    old = sorted({name for _, name in moved.values()} - {*new})
    for name in (*new, *old):
        _put_config(admin, name, configs, force=force)
    _set_start_offsets(admin, topic, configs, moved)
    for name in (*new, *(configs.keys() - {*new})):
        _put_config(admin, name, configs, force=force)
    return _queue_table(configs)


def queue_leaders(configs: Configs) -> dict[int, str]:
    """Return the leader of each logical queue."""
    return {
        queue_id: name
        for name, config in configs.items()
        for queue_id in _mapping_of(config).hosted_queues
        if _mapping_of(config).leader_of(queue_id) is not None
    }


def add_queues(
    topic: str, configs: Configs, names: Iterable[str], count: int, now_ms: int
) -> None:
    """Add logical queues up to `count`, each on the broker with the fewest queues."""
    led = queue_leaders(configs)
    if count <= len(led):
        raise click.UsageError(f"topic {topic} already has {len(led)} queues")
    load = Counter(led.values())
    for queue_id in range(len(led), count):
        name = min(sorted(names), key=load.__getitem__)
        load[name] += 1
        part = LogicQueueMappingItem(
            queue_id=_add_physical_queue(topic, configs, name), bname=name
        )
        _mapping_of(configs[name]).hosted_queues[queue_id] = [part]
    _begin_epoch(configs, count, now_ms)


def move_queues(
    topic: str, configs: Configs, names: Iterable[str], now_ms: int
) -> dict[int, tuple[str, str]]:
    """Spread the logical queues over brokers; return new and old leaders of the moved
    queues.
    """
    led, names = queue_leaders(configs), sorted(names)
    now = Counter(led.values())
    least, more = divmod(len(led), len(names))
    busiest = sorted(names, key=lambda name: -now[name])
    free = Counter({name: least + (i < more) for i, name in enumerate(busiest)})
    waiting = []
    for queue_id, name in sorted(led.items()):
        if free[name] > 0:
            free[name] -= 1
        else:
            waiting.append(queue_id)
    moved = dict(zip(waiting, free.elements(), strict=True))
    for queue_id, name in moved.items():
        old = _mapping_of(configs[led[queue_id]]).hosted_queues[queue_id]
        part = LogicQueueMappingItem(
            gen=old[-1].gen + 1,
            queue_id=_add_physical_queue(topic, configs, name),
            bname=name,
            logic_offset=UNDECIDED,
        )
        for each in (name, led[queue_id]):
            _mapping_of(configs[each]).hosted_queues[queue_id] = [*old, part]
    _begin_epoch(configs, len(led), now_ms)
    return {queue_id: (name, led[queue_id]) for queue_id, name in moved.items()}


def first_offset(end: int) -> int:
    """Return the start offset of a part whose previous part ends at `end`.

    >>> first_offset(4_999), first_offset(5_000)
    (10000, 20000)
    """
    blocks, rest = divmod(end, BLOCK)
    return (blocks + 1 + (rest >= BLOCK // 2)) * BLOCK


def _set_start_offsets(
    admin: AdminClient, topic: str, configs: Configs, moved: dict[int, tuple[str, str]]
) -> None:
    """Set the start offsets of new parts, after the ends of the old parts."""
    stats: dict[str, TopicStatsTable] = {}
    for queue_id, (new, old) in moved.items():
        if old not in stats:
            code, where = RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}
            answer = admin.request(admin.address_of(old), code, where)
            stats[old] = TopicStatsTable.decode(answer.body)
        *_, before, last = _mapping_of(configs[new]).hosted_queues[queue_id]
        queue = MessageQueue(topic=topic, broker_name=old, queue_id=before.queue_id)
        end = stats[old].offset_table[queue].max_offset
        begin = first_offset(before.logical_offset(end))
        decided = msgspec.structs.replace(last, logic_offset=begin)
        for name in (new, old):
            _mapping_of(configs[name]).hosted_queues[queue_id][-1] = decided


def _fetch_configs(admin: AdminClient, topic: str) -> Configs:
    """Return the topic from all masters; UsageError if it is not static."""
    found = {}
    for broker in admin.masters():
        where = {"topic": topic, "lo": "true"}
        try:
            answer = admin.request(broker.address, RequestCode.GET_TOPIC_CONFIG, where)
        except AnswerRefused as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            continue
        config = TopicConfigAndQueueMapping.decode(answer.body)
        if config.mapping_detail is None:
            raise click.UsageError(f"topic {topic} of {broker.name} is not static")
        found[broker.name] = config
    return found


def _broker_names(
    admin: AdminClient, brokers: str | None, clusters: str | None
) -> list[str]:
    """Return the names of the brokers that the options select."""
    if brokers:
        names = [each.strip() for each in brokers.split(",")]
        for name in names:
            admin.address_of(name)
        return names
    wanted = [each.strip() for each in (clusters or "").split(",") if each.strip()]
    names = [each.name for cluster in wanted for each in admin.masters(cluster)]
    if not names:
        raise click.UsageError("give brokers with -b, or clusters with -c")
    return names


def _add_other_brokers(admin: AdminClient, topic: str, configs: Configs) -> None:
    """Add the other brokers of the clusters without a queue."""
    masters = admin.masters()
    clusters = {each.cluster for each in masters if each.name in configs}
    total, epoch = next(
        (mapping.total_queues, mapping.epoch)
        for mapping in map(_mapping_of, configs.values())
    )
    for each in masters:
        if each.cluster in clusters and each.name not in configs:
            mapping = _mapping_of(_ensure_broker(topic, configs, each.name))
            mapping.total_queues, mapping.epoch = total, epoch


def _ensure_broker(
    topic: str, configs: Configs, name: str
) -> TopicConfigAndQueueMapping:
    if name not in configs:
        configs[name] = TopicConfigAndQueueMapping(
            topic_name=topic,
            read_queue_nums=0,
            write_queue_nums=0,
            mapping_detail=TopicQueueMappingDetail(topic=topic, bname=name),
        )
    return configs[name]


def _add_physical_queue(topic: str, configs: Configs, name: str) -> int:
    """Add a physical queue on a broker; return its id."""
    config = _ensure_broker(topic, configs, name)
    config.write_queue_nums += 1
    config.read_queue_nums = max(config.read_queue_nums + 1, config.write_queue_nums)
    return config.write_queue_nums - 1


def _begin_epoch(configs: Configs, count: int, now_ms: int) -> None:
    latest = max(_mapping_of(config).epoch for config in configs.values())
    for config in configs.values():
        mapping = _mapping_of(config)
        mapping.epoch, mapping.total_queues = max(now_ms, latest + EPOCH_STEP), count


def _put_config(
    admin: AdminClient, name: str, configs: Configs, *, force: bool
) -> None:
    config = configs[name]
    fields = {
        "topic": config.topic_name,
        "defaultTopic": "TBW102",
        "readQueueNums": config.read_queue_nums,
        "writeQueueNums": config.write_queue_nums,
        "perm": config.perm,
        "topicFilterType": config.topic_filter_type,
        "topicSysFlag": config.topic_sys_flag,
        "order": config.order,
        "force": force,
    }
    code, body = (
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        _mapping_of(config).encode(),
    )
    admin.request(admin.address_of(name), code, fields, body)


def _mapping_of(config: TopicConfigAndQueueMapping) -> TopicQueueMappingDetail:
    assert config.mapping_detail is not None, config.topic_name
    return config.mapping_detail


def _queue_table(configs: Configs) -> Table:
    rows = [
        (queue_id, part.gen, part.bname, part.queue_id, part.logic_offset)
        for queue_id, name in sorted(queue_leaders(configs).items())
        for part in _mapping_of(configs[name]).hosted_queues[queue_id]
    ]
    return Table(("queue", "part", "broker", "queue there", "first offset"), rows)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
