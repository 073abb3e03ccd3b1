"""Clients and their groups: heartbeats, members, offsets, assignment, queue locks.

Requests 14, 15, 34, 35, 38, 41, 42, 46 and 400, on both ports.
"""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.client.heartbeat import HeartbeatHandler
from rmq_plugins.client.offsets import OffsetHandler


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers for requests of every client except messages."""
    heartbeat = HeartbeatHandler(broker)
    register.handler(RequestCode.HEART_BEAT, heartbeat.heartbeat)
    register.native(RequestCode.HEART_BEAT, heartbeat.compiled)
    register.on_close(heartbeat.forget)
    register.handler(RequestCode.UNREGISTER_CLIENT, heartbeat.unregister)
    register.handler(RequestCode.CHECK_CLIENT_CONFIG, heartbeat.check_config)
    register.handler(RequestCode.GET_CONSUMER_LIST_BY_GROUP, heartbeat.members)
    offsets = OffsetHandler(broker)
    register.handler(RequestCode.QUERY_CONSUMER_OFFSET, offsets.query)
    register.handler(RequestCode.UPDATE_CONSUMER_OFFSET, offsets.update)
    register.native(RequestCode.UPDATE_CONSUMER_OFFSET, offsets.compiled)

    def locks() -> object:
        from rmq_plugins.client.locks import LockHandler

        return LockHandler(broker)

    def assignments() -> object:
        from rmq_plugins.client.assignment import AssignmentHandler

        return AssignmentHandler(broker)

    register.handlers(
        locks,
        {RequestCode.LOCK_BATCH_MQ: "lock", RequestCode.UNLOCK_BATCH_MQ: "unlock"},
    )
    register.handlers(assignments, {RequestCode.QUERY_ASSIGNMENT: "assign"})
