"""Requests 906 and 907: progress of replicas. This is a master without replicas."""

from rmq.errors import RequestRejected
from rmq.plugin import BrokerContext, Connection
from rmq.protocol.bodies.statistics import HARuntimeInfo
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.cluster import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
)


class ReplicationHandler:
    """The replication part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._store = broker.store
        self._name_servers = broker.name_servers
        self._end_at_start = broker.store.log.end_offset

    def exchange(self, request: Command, connection: Connection) -> Command:
        """Answer a replica with the address of the log; refuse a change of master."""
        header = request.header(ExchangeHAInfoRequestHeader)
        if header.master_ha_address is not None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"this broker is a master and does not follow {header.master_address}",
            )
        answer = ExchangeHAInfoResponseHeader(
            master_ha_address=self._name_servers.ha_address,
            master_flush_offset=self._end_at_start,
            master_address=self._name_servers.address,
        )
        return request.reply(header=answer)

    def status(self, request: Command, connection: Connection) -> Command:
        """Answer the end of the log and the replicas that follow it."""
        body = HARuntimeInfo(master_commit_log_max_offset=self._store.log.end_offset)
        return request.reply(body=body.encode())
