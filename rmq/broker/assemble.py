"""assemble: put the parts of a broker together on an open store.

The start of a broker and the tests of plugins call `assemble`.
"""

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rmq.broker.arrivals import Arrivals
from rmq.broker.clients import ConsumerTable, ProducerTable
from rmq.broker.context import BrokerContext
from rmq.broker.nameservers import NameServers
from rmq.broker.put import PutPipeline
from rmq.broker.queue_locks import QueueLocks
from rmq.broker.tables.audit import AuditTable
from rmq.broker.tables.filters import FilterTable
from rmq.broker.tables.groups import GroupTable
from rmq.broker.tables.offsets import MAX_ENTRIES, OffsetTable
from rmq.broker.tables.queue_mappings import QueueMappings
from rmq.broker.tables.topics import TopicTable
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.directory import Directory
from rmq.cluster.group_role import GroupRole
from rmq.cluster.local_commits import LocalCommits
from rmq.cluster.replication import Replication
from rmq.cluster.slave_synchronize import adding_log_end
from rmq.config.broker import BrokerConfig
from rmq.config.json_table import JsonTable
from rmq.core.clock import Clock
from rmq.core.clock_steps import ClockSteps
from rmq.observe.monitor import Monitor
from rmq.observe.statistics import BrokerStatistics
from rmq.plugin.registrations import PORTS, Registrations
from rmq.plugin.registry import PluginSet
from rmq.protocol.bodies.queue_mapping import CopiedMappings
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import RequestCode
from rmq.remoting.server import RemotingServer
from rmq.store.message_store import MessageStore
from rmq.store.service import StoreService

if TYPE_CHECKING:
    from rmq.cluster.link_tls import LinkTls
    from rmq.cluster.membership import Membership

logger = logging.getLogger(__name__)

OFFSETS_PAUSE_S = 5.0
"""Minimum pause between two copies of committed offsets, which change all the time."""


class GroupAccess(NamedTuple):
    """How a broker and the other brokers of its group reach each other."""

    config: ReplicationConfig
    directory: Directory
    store_host: bytes
    """The address that this broker writes into its records."""

    ha_address: str
    """The address at which slaves read the log, "host:port"."""

    link_tls: "LinkTls | None" = None
    membership: "Membership | None" = None
    """The role from a controller; None without a controller."""


def assemble(  # tidy: long — one line for each part
    config: BrokerConfig,
    store: MessageStore,
    group: GroupAccess,
    *,
    clock: Clock,
    server: RemotingServer,
) -> BrokerContext:
    """Return the context of a broker; plugins are not set up yet."""
    folder = store.directory.config
    local_commits = LocalCommits(folder, clock)
    topics, groups, offsets = _make_tables(config, store, clock, local_commits)
    filters, audit = FilterTable(folder, clock, config), AuditTable(folder, clock)
    mappings = QueueMappings(folder, clock, config.broker_name)
    _load_tables(store, topics, offsets, groups, filters, audit, mappings)
    role = _choose_role(config, store, topics, group)
    context = BrokerContext(
        config=config,
        store_config=store.config,
        clock=clock,
        clock_steps=ClockSteps(clock, lambda: store.log.end_offset),
        store=store,
        store_service=StoreService(store),
        put=PutPipeline(store),
        arrivals=Arrivals(store),
        topics=topics,
        offsets=offsets,
        local_commits=local_commits,
        groups=groups,
        audit=audit,
        filters=filters,
        queue_mappings=mappings,
        producers=ProducerTable(),
        consumers=ConsumerTable(
            groups,
            notifies=config.notify_consumer_ids_changed_enable,
            on_gone=filters.unregister,
        ),
        queue_locks=QueueLocks(clock),
        name_servers=NameServers(
            config,
            role,
            topics,
            group.directory,
            mappings,
            ha_address=group.ha_address,
            inactive_timeout_ms=group.config.inactive_timeout_ms,
        ),
        role=role,
        replication=_make_replication(config, role, store, group, server),
        store_host=group.store_host,
        address=group.directory.own_address,
        boot_ms=clock.now_ms(),
        statistics=BrokerStatistics(
            store, clock, config.broker_cluster_name, topics.is_system
        ),
        monitor=Monitor(clock, server.connection_count, server.rpc_times),
        native_counts=server.native_counts,
        next_turn=server.next_turn,
        poll_soon=server.poll_soon,
        connection_of=server.connection_of,
        open_caller=server.open_caller,
    )
    _connect_parts(context)
    return context


def _make_replication(
    config: BrokerConfig,
    role: GroupRole,
    store: MessageStore,
    group: GroupAccess,
    server: RemotingServer,
) -> Replication:
    """Return the replication of the log; it does not run yet."""
    return Replication(
        group.config,
        config,
        role,
        store,
        group.directory,
        group.link_tls,
        group.membership,
        server.leave_to_replicas,
    )


def _connect_parts(context: BrokerContext) -> None:
    """Register the callbacks of parts for changes of topics and steps of the clock."""
    context.store_service.heal_blocks = context.replication.heal_blocks
    _follow_master(context)
    context.topics.on_change += (
        partial(_set_queue_form, context.store),
        context.name_servers.topic_changed,
    )
    context.monitor.attach(context)
    context.clock_steps.callbacks += (
        context.producers.shift_times,
        context.consumers.shift_times,
        context.queue_locks.shift_times,
        context.monitor.shift_times,
    )


def _make_tables(
    config: BrokerConfig,
    store: MessageStore,
    clock: Clock,
    local_commits: LocalCommits,
) -> tuple[TopicTable, GroupTable, OffsetTable]:
    """Return the tables that have entries for light message queues."""
    of_slave = local_commits if store.config.is_replica else None
    folder, has_lmq = store.directory.config, store.config.lmq_enabled
    step = config.consumer_offset_update_version_step
    return (
        TopicTable(folder, clock, config, has_lmq=has_lmq),
        GroupTable(folder, clock, config, has_lmq=has_lmq),
        OffsetTable(folder, clock, step, has_lmq=has_lmq, local_commits=of_slave),
    )


def _load_tables(
    store: MessageStore, topics: TopicTable, offsets: OffsetTable, *tables: JsonTable
) -> None:
    for table in (offsets, topics, *tables):
        table.load()
    for name, topic in topics.all().items():
        _set_queue_form(store, name, topic)
    if not store.recovery.was_clean:
        _clip_offsets(offsets, store)


def _clip_offsets(offsets: OffsetTable, store: MessageStore) -> None:
    """Lower committed offsets to the ends of queues that lost messages."""

    def end_of(topic: str, queue_id: int) -> int | None:
        queue = store.queues.get(topic, queue_id)
        return None if queue is None else int(queue.next_offset)

    count = offsets.clip(end_of)
    if count:
        logger.warning(
            "%d committed offsets were beyond the ends of queues that lost messages: "
            "the broker lowered these offsets",
            count,
        )


def _choose_role(
    config: BrokerConfig,
    store: MessageStore,
    topics: TopicTable,
    group: GroupAccess,
) -> GroupRole:
    """Return the role that the configuration defines or a controller assigned."""
    membership = group.membership
    if membership is None:
        may_act = group.config.acting_master_enable
        return GroupRole(config, store.config, may_act=may_act)
    role = GroupRole(config, store.config, membership.running_term.master_address)
    if role.is_master:
        _begin_term(membership.running_term.epoch, topics, store)
    return role


def _begin_term(epoch: int, topics: TopicTable, store: MessageStore) -> None:
    """Let name servers prefer this master, and add the topics that only the log has.

    The last master may have created a topic shortly before it ended. Then this broker
    has queues of the topic, and its table lacks the topic.
    """
    topics.adopt_version(
        msgspec.structs.replace(topics.data_version, state_version=epoch)
    )
    topics.touch()
    for name in store.queues.topics():
        if topics.get(name) is None:
            queues = store.queues.of_topic(name)
            topics.restore(name, max(queue.queue_id for queue in queues))


def _forget_lost(offsets: OffsetTable, store: MessageStore) -> None:
    """Lower or remove the committed offsets of messages that a slave has discarded."""
    if not store.log.is_empty:
        _clip_offsets(offsets, store)
        return
    for topic in {topic for topic, _ in offsets.pairs(MAX_ENTRIES)}:
        offsets.remove_topic(topic)


def copy_last_offsets(context: BrokerContext, body: bytes) -> None:
    """Copy the offsets of the last master to the table of the new master.

    A larger offset that a consumer committed here, at the slave, stays.
    """
    context.local_commits.load()
    context.offsets.copy(body, context.local_commits)
    _clip_offsets(context.offsets, context.store)


def raise_offsets(context: BrokerContext, body: bytes) -> None:
    """Raise the offsets of a master that comes back to those of its acting master."""
    context.offsets.raise_to(body)
    _clip_offsets(context.offsets, context.store)


def _follow_master(context: BrokerContext) -> None:
    """Let a slave copy log and tables from its master, and forward commits to it."""
    if context.role.is_master:
        return
    context.local_commits.load()
    context.replication.become_slave(
        context.store_service,
        context.name_servers.register_soon,
        context.arrivals.flush,
        partial(_forget_lost, context.offsets, context.store),
    )

    def copy_topics(body: bytes) -> None:
        _copy_mappings(context, body)
        for name in context.topics.copy(body):
            queues = context.store.queues.of_topic(name)
            newer = [each for each in queues if each.end_physical > table.asked_end]
            if newer:  # the master created the topic after the request
                context.topics.restore(name, max(each.queue_id for each in newer))
                continue
            context.offsets.remove_topic(name)
            context.store.delete_topic(name)()
            for _ in context.statistics.remove_topic(name):
                pass  # a slave has no counts of senders

    copied = context.replication.synchronizer
    table = copied.add(
        "topics", RequestCode.GET_ALL_TOPIC_CONFIG, copy_topics, follows_log=False
    )
    groups = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    copied.add("groups", groups, context.groups.copy, follows_log=False)
    offsets = RequestCode.GET_ALL_CONSUMER_OFFSET
    copied.add(
        "offsets",
        offsets,
        context.offsets.copy,
        OFFSETS_PAUSE_S,
        context.local_commits.forward_commits,
    )


def _copy_mappings(context: BrokerContext, body: bytes) -> None:
    """Copy the mappings of static topics from the master. Compiled code then drops its
    copies of changed mappings.
    """
    theirs = CopiedMappings.decode(body)
    detail = theirs.topic_queue_mapping_detail_map
    for name in context.queue_mappings.copy(theirs.mapping_data_version, detail):
        for listener in context.topics.on_change:
            listener(name, context.topics.get(name))


def _set_queue_form(store: MessageStore, name: str, topic: TopicConfig | None) -> None:
    """Set in the store whether a topic has batch queues, and whether it is
    compacted.
    """
    is_batch = topic is not None and topic.has_batch_queues
    store.queues.set_form(name, is_batch=is_batch)
    is_compacted = topic is not None and topic.is_compacted
    store.compaction.set_topic(name, is_compacted=is_compacted)


def set_up_plugins(
    context: BrokerContext, plugins: PluginSet, values: Mapping[str, str]
) -> Registrations:
    """Set up the plugins, and connect their registrations with the broker's parts.

    `values` are texts by configuration key.  The caller, who has a server and a
    nursery, connects handlers, guards, compiled handlers and services.
    """
    registered = context.registered = Registrations(values)
    plugins.set_up(context, registered)
    add_end = adding_log_end(context.store.log)
    codes = [code for _, code, _ in registered.copied]
    for code in (RequestCode.GET_ALL_CONSUMER_OFFSET, *codes):
        registered.around += [("the broker", port, code, add_end) for port in PORTS]
    for copied in registered.copied:
        context.replication.synchronizer.add(*copied)
    context.put.set_interceptors(registered.interceptors)
    if registered.rights is not None:
        _, context.rights = registered.rights
    if registered.pop_progress is not None:
        _, context.offsets.pop_progress = registered.pop_progress
    for topic, (_, fields) in registered.send_fields.items():
        context.put.send_fields[topic] = fields
    context.arrivals.listen(tuple(registered.listeners))
    if registered.holds:
        context.store.cleaner.needed_from = registered.needed_from
    return registered
