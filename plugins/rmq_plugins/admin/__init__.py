"""Administration: topics, groups, offsets, statistics, connections, configuration.

The requests of mqadmin and consoles to a broker, on both ports; each module names its
requests. `unserved` refuses requests for missing features, with a hint.
"""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Final

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import OwnRequestCode, RequestCode
from rmq_plugins.admin.rates import StoreRates
from rmq_plugins.admin.request_modes import RequestModeHandler
from rmq_plugins.admin.unserved import ADVICE, refuse

MAX_FOLLOWERS: Final = 16
"""Requests that follow the log at the same time, and as many that wait."""

HANDLERS: Final[Mapping[tuple[str, str], Mapping[int, str]]] = {
    ("topics", "TopicHandler"): {
        RequestCode.UPDATE_AND_CREATE_TOPIC: "update",
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: "update_list",
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: "update_static",
        RequestCode.GET_ALL_TOPIC_CONFIG: "all",
        RequestCode.GET_TOPIC_CONFIG: "one",
        RequestCode.GET_TOPIC_STATS_INFO: "stats",
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: "system",
        RequestCode.DELETE_TOPIC_IN_BROKER: "delete",
    },
    ("groups", "GroupHandler"): {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: "update",
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: "update_list",
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "all",
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: "one",
        RequestCode.DELETE_SUBSCRIPTIONGROUP: "delete",
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: "forbid",
    },
    ("offsets", "OffsetHandler"): {
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "by_time",
        RequestCode.GET_MAX_OFFSET: "largest",
        RequestCode.GET_MIN_OFFSET: "smallest",
        RequestCode.GET_EARLIEST_MSG_STORETIME: "earliest_time",
        RequestCode.GET_ALL_CONSUMER_OFFSET: "of_consumers",
        RequestCode.GET_ALL_DELAY_OFFSET: "of_delays",
        RequestCode.QUERY_CORRECTION_OFFSET: "correction",
        RequestCode.CLONE_GROUP_OFFSET: "clone",
    },
    ("configuration", "ConfigurationHandler"): {
        RequestCode.UPDATE_BROKER_CONFIG: "update",
        RequestCode.GET_BROKER_CONFIG: "show",
    },
    ("connections", "ConnectionHandler"): {
        RequestCode.GET_CONSUMER_CONNECTION_LIST: "consumers",
        RequestCode.GET_PRODUCER_CONNECTION_LIST: "producers",
        RequestCode.GET_ALL_PRODUCER_INFO: "all_producers",
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: "groups_of_topic",
        RequestCode.QUERY_TOPICS_BY_CONSUMER: "topics_of_group",
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: "subscription",
    },
    ("statistics", "StatisticsHandler"): {
        RequestCode.GET_CONSUME_STATS: "group",
        RequestCode.VIEW_BROKER_STATS_DATA: "view",
        RequestCode.GET_BROKER_CONSUME_STATS: "broker",
    },
    ("queues", "QueueHandler"): {
        RequestCode.QUERY_CONSUME_TIME_SPAN: "time_span",
        RequestCode.QUERY_CONSUME_QUEUE: "entries",
    },
    ("cleaning", "CleaningHandler"): {
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: "queue_files",
        RequestCode.CLEAN_UNUSED_TOPIC: "unused_topics",
        RequestCode.DELETE_EXPIRED_COMMITLOG: "log_files",
    },
    ("cold_data", "ColdDataHandler"): {
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: "update",
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: "remove",
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: "show",
        RequestCode.SET_COMMITLOG_READ_MODE: "set_read_mode",
    },
    ("replication", "ReplicationHandler"): {
        RequestCode.EXCHANGE_BROKER_HA_INFO: "exchange",
        RequestCode.GET_BROKER_HA_STATUS: "status",
        RequestCode.RESET_MASTER_FLUSH_OFFSET: "reset",
        RequestCode.GET_BROKER_EPOCH_CACHE: "epochs",
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED: "role_changed",
    },
    ("dead_letters", "DeadLetterHandler"): {
        OwnRequestCode.RESEND_DEAD_LETTERS: "resend",
    },
    ("audit", "AuditHandler"): {OwnRequestCode.GET_AUDIT_LOG: "show"},
    ("plugins", "PluginHandler"): {OwnRequestCode.GET_LOADED_PLUGINS: "show"},
    ("views", "ViewHandler"): {OwnRequestCode.GET_VIEW: "show"},
}
"""Module and class, made at the first request: code and method."""


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers for tools, consoles and starting clients."""
    for (module, name), methods in HANDLERS.items():
        register.handlers(partial(_made, broker, module, name), methods)
    register.handlers(
        partial(_made, broker, "views", "ViewHandler"),
        {OwnRequestCode.FOLLOW_LOG: "follow"},
        max_running=MAX_FOLLOWERS,
        max_waiting=MAX_FOLLOWERS,
    )
    modes = RequestModeHandler(broker)
    register.table(modes.table)
    register.facts("requestModes", modes.table.facts)
    register.copied_table(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, modes.table.copy)
    register.handler(RequestCode.SET_MESSAGE_REQUEST_MODE, modes.set)
    register.handler(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, modes.all)
    rates = StoreRates(broker)
    register.service(rates.sample_every_second)

    def runtime() -> object:
        from rmq_plugins.admin.runtime import RuntimeInfo

        return RuntimeInfo(broker, rates)

    register.handlers(runtime, {RequestCode.GET_BROKER_RUNTIME_INFO: "show"})
    for code in ADVICE:
        register.handler(code, refuse)
    register.service(broker.statistics.sample_regularly)
    register.arrivals(broker.statistics.on_arrivals)
    register.service(broker.monitor.run, restart=True)


def _made(broker: BrokerContext, module: str, name: str) -> object:
    """Import a module of this package, and make its handler."""
    return getattr(import_module(f"rmq_plugins.admin.{module}"), name)(broker)
