"""Clients and their groups: heartbeats, members, offsets, assignment, queue locks.

Requests 14, 15, 34, 35, 38, 41, 42, 46 and 400, on both ports.
"""

from functools import cache
from typing import TYPE_CHECKING

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.client.heartbeat import HeartbeatHandler
from rmq_plugins.client.native_locks import create_lock_path
from rmq_plugins.client.offsets import OffsetHandler

if TYPE_CHECKING:
    from rmq_plugins.client.locks import LockHandler


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers for requests of clients, except those with messages."""
    heartbeat = HeartbeatHandler(broker)
    register.handler(RequestCode.HEART_BEAT, heartbeat.handle_heartbeat)
    register.native(RequestCode.HEART_BEAT, heartbeat.enable_compiled)
    register.on_close(heartbeat.forget_connection)
    register.handler(RequestCode.UNREGISTER_CLIENT, heartbeat.unregister_client)
    register.handler(RequestCode.CHECK_CLIENT_CONFIG, heartbeat.check_config)
    register.handler(RequestCode.GET_CONSUMER_LIST_BY_GROUP, heartbeat.list_members)
    register.native(RequestCode.GET_CONSUMER_LIST_BY_GROUP, heartbeat.members_path)
    offsets = OffsetHandler(broker)
    register.handler(RequestCode.QUERY_CONSUMER_OFFSET, offsets.query_offset)
    register.handler(RequestCode.UPDATE_CONSUMER_OFFSET, offsets.commit_offset)
    register.native(RequestCode.QUERY_CONSUMER_OFFSET, offsets.query_path)
    register.native(RequestCode.UPDATE_CONSUMER_OFFSET, offsets.enable_compiled)

    def make_assignments() -> object:
        from rmq_plugins.client.assignment import AssignmentHandler

        return AssignmentHandler(broker)

    _register_locks(broker, register)
    register.handlers(make_assignments, {RequestCode.QUERY_ASSIGNMENT: "assign_queues"})


def _register_locks(broker: BrokerContext, register: Register) -> None:
    """Let orderly consumers lock queues, here or at all brokers of the group."""

    @cache
    def make_locks() -> "LockHandler":
        from rmq_plugins.client.locks import LockHandler

        return LockHandler(broker)

    def make_strict_locks() -> object:
        from rmq_plugins.client.strict_locks import StrictLockHandler

        return StrictLockHandler(broker)

    is_strict = broker.replicas.lock_quorum > 1
    register.handlers(
        make_strict_locks if is_strict else make_locks,
        {
            RequestCode.LOCK_BATCH_MQ: "lock_queues",
            RequestCode.UNLOCK_BATCH_MQ: "unlock_queues",
        },
    )
    if not is_strict:
        register.native(
            RequestCode.LOCK_BATCH_MQ,
            lambda: create_lock_path(lambda *lock: make_locks().find_locked(*lock)),
        )
        register.native(
            RequestCode.UNLOCK_BATCH_MQ,
            lambda: create_lock_path(lambda *lock: make_locks().find_unlocked(*lock)),
        )
