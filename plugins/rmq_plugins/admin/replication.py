"""Request 907: how replication is. This broker is a master without replicas."""

from rmq.broker.context import BrokerContext, Connection
from rmq.protocol.bodies.statistics import HARuntimeInfo
from rmq.protocol.command import Command


class ReplicationHandler:
    """The replication part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._store = broker.store

    def status(self, request: Command, connection: Connection) -> Command:
        """Answer the end of the log and the replicas that follow it."""
        body = HARuntimeInfo(master_commit_log_max_offset=self._store.end_offset)
        return request.reply(body=body.encode())
