"""Requests 905 to 908, 1007 and 1008: the master, its slaves and their progress."""

from rmq.plugin import BrokerContext, Connection, MasterLink, RequestRejected
from rmq.protocol.bodies.controller import (
    LAST_EPOCH_END_OFFSET,
    EpochEntry,
    EpochEntryCache,
)
from rmq.protocol.bodies.statistics import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.cluster import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    ResetMasterFlushOffsetHeader,
)


class ReplicationHandler:
    """The replication part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._config = broker.config
        self._log = broker.log
        self._role = broker.role
        self._replicas = broker.replicas
        self._name_servers = broker.name_servers
        self._end_at_start = broker.log.end_offset

    def exchange_ha_info(self, request: Command, connection: Connection) -> Command:
        """Answer a master's HA address; refuse a request that names another master.

        A Java master that comes back sends its own addresses to its slaves, and waits
        until they follow. A Java slave asks before it follows, and registers later.
        """
        header = request.header(ExchangeHAInfoRequestHeader)
        ha_address, address = header.master_ha_address, header.master_address or ""
        if ha_address is not None and not self._role.accept_master(address, ha_address):
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                "this broker copies only the log of the master that is registered at "
                f"the name servers, not of {header.master_address}",
            )
        answer = ExchangeHAInfoResponseHeader()
        if self._role.is_master:
            if ha_address is None:
                self._replicas.expect_slave(connection.peer_host)
            answer = ExchangeHAInfoResponseHeader(
                master_ha_address=self._name_servers.ha_address,
                master_flush_offset=self._end_at_start,
                master_address=self._name_servers.address,
            )
        return request.reply(header=answer)

    def notify_smallest_id(self, request: Command, connection: Connection) -> Command:
        """Ask soon for the master, because the smallest id of the group has changed.

        Any peer may send this request, so the broker does not use its content.
        """
        self._replicas.check_role()
        return request.reply()

    def get_ha_status(self, request: Command, connection: Connection) -> Command:
        """Answer the end of the log, the slaves, and the link to the master."""
        body = HARuntimeInfo(
            master=self._role.is_master,
            master_commit_log_max_offset=self._log.end_offset,
            refusals=self._replicas.recent_refusals(),
        )
        for each in self._replicas.slave_statuses():
            body.ha_connection_info.append(
                HAConnectionRuntimeInfo(
                    addr=each.address,
                    diff=each.lag_bytes,
                    in_sync=each.is_in_sync,
                    slave_ack_offset=each.acknowledged_offset,
                    transfer_from_where=each.next_offset,
                    transferred_byte_in_second=each.bytes_per_second,
                )
            )
            body.in_sync_slave_nums += each.is_in_sync
        link = self._replicas.link()
        if link is not None:
            body.ha_client_runtime_info = self._describe_link(link)
        return request.reply(body=body.encode())

    def _describe_link(self, link: MasterLink) -> HAClientRuntimeInfo:
        """Return a slave's link to the master, and the reason if it does not copy the
        log.
        """
        return HAClientRuntimeInfo(
            last_read_timestamp=link.last_read_ms,
            last_write_timestamp=link.last_write_ms,
            master_addr=link.master,
            master_flush_offset=self._replicas.master_flushed_offset,
            max_offset=link.end_offset,
            not_following="" if link.is_following else link.state,
            transferred_byte_in_second=link.bytes_per_second,
        )

    def list_epochs(self, request: Command, connection: Connection) -> Command:
        """Answer the epochs of the log, in a group with a controller."""
        epochs = self._replicas.epoch_starts()
        if epochs is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "this request only for controllerMode "
            )
        ends = [*(epoch.start for epoch in epochs[1:]), LAST_EPOCH_END_OFFSET]
        body = EpochEntryCache(
            cluster_name=self._config.broker_cluster_name,
            broker_name=self._config.broker_name,
            broker_id=self._role.broker_id,
            epoch_list=[
                EpochEntry(epoch=each.number, start_offset=each.start, end_offset=end)
                for each, end in zip(epochs, ends, strict=False)
            ],
            max_offset=self._log.end_offset,
        )
        return request.reply(body=body.encode())

    def check_role(self, request: Command, connection: Connection) -> Command:
        """Ask the controller for the master; any client may send this request."""
        self._replicas.check_role()
        return request.reply()

    def reset_master_flush_offset(
        self, request: Command, connection: Connection
    ) -> Command:
        """Store the offset up to which the master has flushed; only 907 shows it."""
        offset = request.header(ResetMasterFlushOffsetHeader).master_flush_offset
        if not self._role.is_master and offset >= 0:
            self._replicas.master_flushed_offset = offset
        return request.reply()
