"""Administration: topics, groups, queue offsets, configuration, runtime facts.

Requests 17, 18, 21, 26, 28, 29, 30, 31, 200, 201, 202, 215, 351, 352 and 52002, on both
ports.
What no plugin takes is answered by the dispatcher (code 3).
"""

from collections.abc import Sequence

from rmq.broker.context import BrokerContext, RegisterHandler, Service
from rmq.hookspecs import hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.admin.config import ConfigHandler
from rmq_plugins.admin.groups import GroupHandler
from rmq_plugins.admin.offsets import OffsetHandler
from rmq_plugins.admin.plugins import PluginHandler
from rmq_plugins.admin.stats import runtime_of
from rmq_plugins.admin.topics import TopicHandler


@hookimpl
def rmq_handlers(broker: BrokerContext, register: RegisterHandler) -> None:
    """Take what tools, consoles and starting clients ask."""
    topics = TopicHandler(broker)
    register(RequestCode.UPDATE_AND_CREATE_TOPIC, topics.update)
    register(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topics.update_list)
    register(RequestCode.GET_ALL_TOPIC_CONFIG, topics.all)
    register(RequestCode.GET_TOPIC_CONFIG, topics.one)
    register(RequestCode.GET_TOPIC_STATS_INFO, topics.stats)
    register(RequestCode.DELETE_TOPIC_IN_BROKER, topics.delete)
    groups = GroupHandler(broker)
    register(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, groups.update)
    register(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groups.all)
    register(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, groups.one)
    offsets = OffsetHandler(broker)
    register(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, offsets.by_time)
    register(RequestCode.GET_MAX_OFFSET, offsets.largest)
    register(RequestCode.GET_MIN_OFFSET, offsets.smallest)
    register(RequestCode.GET_BROKER_CONFIG, ConfigHandler(broker).show)
    register(RequestCode.GET_LOADED_PLUGINS, PluginHandler(broker).show)
    register(RequestCode.GET_BROKER_RUNTIME_INFO, runtime_of(broker).show)


@hookimpl
def rmq_services(broker: BrokerContext) -> Sequence[Service]:
    """Sample the store's counters, from which rates are made."""
    return [runtime_of(broker).sample_every_second]
