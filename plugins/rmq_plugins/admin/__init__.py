"""Administration: topics, groups, offsets, statistics, connections, configuration.

Serves requests of mqadmin and consoles on both ports; the head of each module names
its requests. Known in Java as `AdminBrokerProcessor`. `unserved` refuses requests for
missing features, with a hint.
"""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Final

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import OwnRequestCode, RequestCode
from rmq_plugins.admin.lookups import OffsetLookups
from rmq_plugins.admin.rates import StoreRates
from rmq_plugins.admin.request_modes import RequestModeHandler
from rmq_plugins.admin.unserved import ADVICE, refuse

MAX_FOLLOWERS: Final = 16
"""Maximum number of requests 20004 that run at the same time; the same number may wait.
"""

HANDLERS: Final[Mapping[tuple[str, str], Mapping[int, str]]] = {
    ("topics", "TopicHandler"): {
        RequestCode.UPDATE_AND_CREATE_TOPIC: "update_topic",
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: "update_topics",
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: "update_static_topic",
        RequestCode.GET_ALL_TOPIC_CONFIG: "list_topics",
        RequestCode.GET_TOPIC_CONFIG: "get_topic",
        RequestCode.GET_TOPIC_STATS_INFO: "get_topic_stats",
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: "list_system_topics",
        RequestCode.DELETE_TOPIC_IN_BROKER: "delete_topic",
    },
    ("groups", "GroupHandler"): {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: "update_group",
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: "update_groups",
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "list_groups",
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: "get_group",
        RequestCode.DELETE_SUBSCRIPTIONGROUP: "delete_group",
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: "forbid_topic",
    },
    ("offsets", "OffsetHandler"): {
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "search_offset",
        RequestCode.GET_MAX_OFFSET: "get_max_offset",
        RequestCode.GET_MIN_OFFSET: "get_min_offset",
        RequestCode.GET_EARLIEST_MSG_STORETIME: "get_earliest_time",
        RequestCode.GET_ALL_CONSUMER_OFFSET: "get_consumer_offsets",
        RequestCode.GET_ALL_DELAY_OFFSET: "get_delay_offsets",
        RequestCode.QUERY_CORRECTION_OFFSET: "query_correction_offset",
        RequestCode.CLONE_GROUP_OFFSET: "clone_offsets",
    },
    ("configuration", "ConfigurationHandler"): {
        RequestCode.UPDATE_BROKER_CONFIG: "update_config",
        RequestCode.GET_BROKER_CONFIG: "get_config",
    },
    ("connections", "ConnectionHandler"): {
        RequestCode.GET_CONSUMER_CONNECTION_LIST: "list_consumers",
        RequestCode.GET_PRODUCER_CONNECTION_LIST: "list_producers",
        RequestCode.GET_ALL_PRODUCER_INFO: "list_all_producers",
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: "list_groups_of_topic",
        RequestCode.QUERY_TOPICS_BY_CONSUMER: "list_topics_of_group",
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: "get_subscription",
    },
    ("statistics", "StatisticsHandler"): {
        RequestCode.GET_CONSUME_STATS: "get_consume_stats",
        RequestCode.VIEW_BROKER_STATS_DATA: "view_broker_stats",
        RequestCode.GET_BROKER_CONSUME_STATS: "list_consume_stats",
    },
    ("queues", "QueueHandler"): {
        RequestCode.QUERY_CONSUME_TIME_SPAN: "query_time_spans",
        RequestCode.QUERY_CONSUME_QUEUE: "query_entries",
    },
    ("cleaning", "CleaningHandler"): {
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: "clean_queue_files",
        RequestCode.CLEAN_UNUSED_TOPIC: "clean_unused_topics",
        RequestCode.DELETE_EXPIRED_COMMITLOG: "clean_log_files",
    },
    ("read_ahead", "ReadAheadHandler"): {
        RequestCode.SET_COMMITLOG_READ_MODE: "set_read_mode",
    },
    ("replication", "ReplicationHandler"): {
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: "notify_smallest_id",
        RequestCode.EXCHANGE_BROKER_HA_INFO: "exchange_ha_info",
        RequestCode.GET_BROKER_HA_STATUS: "get_ha_status",
        RequestCode.RESET_MASTER_FLUSH_OFFSET: "reset_master_flush_offset",
        RequestCode.GET_BROKER_EPOCH_CACHE: "list_epochs",
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED: "check_role",
    },
    ("dead_letters", "DeadLetterHandler"): {
        OwnRequestCode.RESEND_DEAD_LETTERS: "resend_dead_letters",
    },
    ("audit", "AuditHandler"): {OwnRequestCode.GET_AUDIT_LOG: "list_changes"},
    ("plugins", "PluginHandler"): {OwnRequestCode.GET_LOADED_PLUGINS: "list_plugins"},
    ("views", "ViewHandler"): {OwnRequestCode.GET_VIEW: "show_view"},
}
"""(module, class): {code: method}; the first request creates the object."""


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers for tools, for consoles, and for clients that start."""
    for (module, name), methods in HANDLERS.items():
        register.handlers(partial(_make_handler, broker, module, name), methods)
    register.handlers(
        partial(_make_handler, broker, "views", "ViewHandler"),
        {OwnRequestCode.FOLLOW_LOG: "follow_log"},
        max_running=MAX_FOLLOWERS,
        max_waiting=MAX_FOLLOWERS,
    )
    lookups = OffsetLookups(broker)
    register.native(RequestCode.GET_MAX_OFFSET, lookups.max_offset_path)
    register.native(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, lookups.offset_by_time_path)
    modes = RequestModeHandler(broker)
    register.table(modes.table)
    register.facts("requestModes", modes.table.get_modes)
    register.copied_table(
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, modes.table.replace_modes
    )
    register.handler(RequestCode.SET_MESSAGE_REQUEST_MODE, modes.set_mode)
    register.handler(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, modes.list_modes)
    rates = StoreRates(broker)
    register.service(rates.sample_every_second)
    register.handlers(
        partial(_make_handler, broker, "runtime", "RuntimeHandler", rates),
        {RequestCode.GET_BROKER_RUNTIME_INFO: "get_runtime_info"},
    )
    for code in ADVICE:
        register.handler(code, refuse)
    register.service(broker.statistics.sample_regularly)
    register.arrivals(broker.statistics.on_arrivals)
    register.service(broker.monitor.run, restart=True)


def _make_handler(
    broker: BrokerContext, module: str, name: str, *parts: object
) -> object:
    return getattr(import_module(f"rmq_plugins.admin.{module}"), name)(broker, *parts)
