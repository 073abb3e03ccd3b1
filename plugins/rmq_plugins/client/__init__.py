"""Clients and their groups: heartbeats, members, offsets, assignment, queue locks.

Requests 14, 15, 34, 35, 38, 41, 42, 46 and 400, on both ports.
"""

from rmq.broker.context import BrokerContext, RegisterHandler
from rmq.hookspecs import hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.client.assignment import AssignmentHandler
from rmq_plugins.client.heartbeat import HeartbeatHandler
from rmq_plugins.client.locks import LockHandler
from rmq_plugins.client.offsets import OffsetHandler


@hookimpl
def rmq_handlers(broker: BrokerContext, register: RegisterHandler) -> None:
    """Take what every client sends besides messages."""
    heartbeat = HeartbeatHandler(broker)
    register(RequestCode.HEART_BEAT, heartbeat.heartbeat)
    register(RequestCode.UNREGISTER_CLIENT, heartbeat.unregister)
    register(RequestCode.CHECK_CLIENT_CONFIG, heartbeat.check_config)
    register(RequestCode.GET_CONSUMER_LIST_BY_GROUP, heartbeat.members)
    offsets = OffsetHandler(broker)
    register(RequestCode.QUERY_CONSUMER_OFFSET, offsets.query)
    register(RequestCode.UPDATE_CONSUMER_OFFSET, offsets.update)
    locks = LockHandler(broker)
    register(RequestCode.LOCK_BATCH_MQ, locks.lock)
    register(RequestCode.UNLOCK_BATCH_MQ, locks.unlock)
    register(RequestCode.QUERY_ASSIGNMENT, AssignmentHandler(broker).assign)
