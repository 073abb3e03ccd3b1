"""Administration: topics, groups, offsets, statistics, connections, configuration.

The requests of mqadmin and consoles to a broker, on both ports; each module names its
requests. `unserved` refuses requests for missing features, with a hint.
"""

from rmq.plugin import MAX_FOLLOWERS, BrokerContext, Register, hookimpl
from rmq.protocol.codes import OwnRequestCode, RequestCode
from rmq_plugins.admin.audit import AuditHandler
from rmq_plugins.admin.cleaning import CleaningHandler
from rmq_plugins.admin.configuration import ConfigurationHandler
from rmq_plugins.admin.connections import ConnectionHandler
from rmq_plugins.admin.groups import GroupHandler
from rmq_plugins.admin.offsets import OffsetHandler
from rmq_plugins.admin.plugins import PluginHandler
from rmq_plugins.admin.queues import QueueHandler
from rmq_plugins.admin.replication import ReplicationHandler
from rmq_plugins.admin.request_modes import RequestModeHandler
from rmq_plugins.admin.runtime import RuntimeInfo
from rmq_plugins.admin.statistics import StatisticsHandler
from rmq_plugins.admin.topics import TopicHandler
from rmq_plugins.admin.unserved import ADVICE, refuse
from rmq_plugins.admin.views import ViewHandler


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers for tools, consoles and starting clients."""
    _register_tables(broker, register)
    _register_views(broker, register)
    for code in ADVICE:
        register.handler(code, refuse)
    register.service(broker.statistics.sample_regularly)
    register.arrivals(broker.statistics.on_arrivals)
    register.service(broker.watch.run, restart=True)
    register.arrivals(broker.watch.on_arrivals)


def _register_tables(broker: BrokerContext, register: Register) -> None:
    """Register handlers that change and show topics, groups, offsets, configuration."""
    topics = TopicHandler(broker)
    register.handler(RequestCode.UPDATE_AND_CREATE_TOPIC, topics.update)
    register.handler(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topics.update_list)
    register.handler(RequestCode.GET_ALL_TOPIC_CONFIG, topics.all)
    register.handler(RequestCode.GET_TOPIC_CONFIG, topics.one)
    register.handler(RequestCode.GET_TOPIC_STATS_INFO, topics.stats)
    register.handler(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, topics.system)
    register.handler(RequestCode.DELETE_TOPIC_IN_BROKER, topics.delete)
    groups = GroupHandler(broker)
    register.handler(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, groups.update)
    register.handler(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups.update_list
    )
    register.handler(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groups.all)
    register.handler(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, groups.one)
    register.handler(RequestCode.DELETE_SUBSCRIPTIONGROUP, groups.delete)
    register.handler(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, groups.forbid)
    offsets = OffsetHandler(broker)
    register.handler(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, offsets.by_time)
    register.handler(RequestCode.GET_MAX_OFFSET, offsets.largest)
    register.handler(RequestCode.GET_MIN_OFFSET, offsets.smallest)
    register.handler(RequestCode.GET_EARLIEST_MSG_STORETIME, offsets.earliest_time)
    register.handler(RequestCode.GET_ALL_CONSUMER_OFFSET, offsets.of_consumers)
    register.handler(RequestCode.GET_ALL_DELAY_OFFSET, offsets.of_delays)
    register.handler(RequestCode.QUERY_CORRECTION_OFFSET, offsets.correction)
    register.handler(RequestCode.CLONE_GROUP_OFFSET, offsets.clone)
    modes = RequestModeHandler(broker)
    register.table(modes.table)
    register.facts("requestModes", modes.table.facts)
    register.copied(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, modes.table.copy)
    register.handler(RequestCode.SET_MESSAGE_REQUEST_MODE, modes.set)
    register.handler(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, modes.all)
    configuration = ConfigurationHandler(broker)
    register.handler(RequestCode.UPDATE_BROKER_CONFIG, configuration.update)
    register.handler(RequestCode.GET_BROKER_CONFIG, configuration.show)
    register.handler(OwnRequestCode.GET_AUDIT_LOG, AuditHandler(broker).show)
    register.handler(OwnRequestCode.GET_LOADED_PLUGINS, PluginHandler(broker).show)


def _register_views(broker: BrokerContext, register: Register) -> None:
    """Register handlers that show clients, queues and counters, and that clean up."""
    views = ViewHandler(broker)
    register.handler(OwnRequestCode.GET_VIEW, views.show)
    register.handler(
        OwnRequestCode.FOLLOW_LOG,
        views.follow,
        max_running=MAX_FOLLOWERS,
        max_waiting=MAX_FOLLOWERS,
    )
    runtime = RuntimeInfo(broker)
    register.handler(RequestCode.GET_BROKER_RUNTIME_INFO, runtime.show)
    register.service(runtime.sample_every_second)
    connections = ConnectionHandler(broker)
    register.handler(RequestCode.GET_CONSUMER_CONNECTION_LIST, connections.consumers)
    register.handler(RequestCode.GET_PRODUCER_CONNECTION_LIST, connections.producers)
    register.handler(RequestCode.GET_ALL_PRODUCER_INFO, connections.all_producers)
    register.handler(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, connections.groups_of_topic
    )
    register.handler(RequestCode.QUERY_TOPICS_BY_CONSUMER, connections.topics_of_group)
    register.handler(
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, connections.subscription
    )
    statistics = StatisticsHandler(broker)
    register.handler(RequestCode.GET_CONSUME_STATS, statistics.group)
    register.handler(RequestCode.VIEW_BROKER_STATS_DATA, statistics.view)
    register.handler(RequestCode.GET_BROKER_CONSUME_STATS, statistics.broker)
    queues = QueueHandler(broker)
    register.handler(RequestCode.QUERY_CONSUME_TIME_SPAN, queues.time_span)
    register.handler(RequestCode.QUERY_CONSUME_QUEUE, queues.entries)
    cleaning = CleaningHandler(broker)
    register.handler(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, cleaning.queue_files)
    register.handler(RequestCode.CLEAN_UNUSED_TOPIC, cleaning.unused_topics)
    register.handler(RequestCode.DELETE_EXPIRED_COMMITLOG, cleaning.log_files)
    replication = ReplicationHandler(broker)
    register.handler(RequestCode.EXCHANGE_BROKER_HA_INFO, replication.exchange)
    register.handler(RequestCode.GET_BROKER_HA_STATUS, replication.status)
    register.handler(RequestCode.RESET_MASTER_FLUSH_OFFSET, replication.reset)
