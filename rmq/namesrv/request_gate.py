"""NameServerGate: checks the senders of requests; see `RequestGate`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rmq.access.config import AuthConfig
from rmq.access.request_gate import GateRules, Kind, RequestGate, Sender, hosts_of
from rmq.core.clock import Clock
from rmq.namesrv.config import NamesrvConfig
from rmq.namesrv.registration import Caller
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.command import Command
from rmq.remoting.connection import Connection

KINDS: Final[Mapping[int, Kind]] = {
    Code.GET_ROUTEINFO_BY_TOPIC: Kind.ROUTE,
    Code.GET_KV_CONFIG: Kind.READ,
    Code.GET_KVLIST_BY_NAMESPACE: Kind.READ,
    Code.GET_BROKER_CLUSTER_INFO: Kind.READ,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Kind.READ,
    Code.GET_TOPICS_BY_CLUSTER: Kind.READ,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: Kind.READ,
    Code.GET_UNIT_TOPIC_LIST: Kind.READ,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: Kind.READ,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Kind.READ,
    Code.GET_NAMESRV_CONFIG: Kind.READ,
    Code.GET_BROKER_MEMBER_GROUP: Kind.READ,
    Code.REGISTER_BROKER: Kind.BROKER,
    Code.UNREGISTER_BROKER: Kind.BROKER,
    Code.QUERY_DATA_VERSION: Kind.BROKER,
    Code.BROKER_HEARTBEAT: Kind.BROKER,
    Code.REGISTER_TOPIC_IN_NAMESRV: Kind.BROKER,
    Code.PUT_KV_CONFIG: Kind.CHANGE,
    Code.DELETE_KV_CONFIG: Kind.CHANGE,
    Code.WIPE_WRITE_PERM_OF_BROKER: Kind.CHANGE,
    Code.ADD_WRITE_PERM_OF_BROKER: Kind.CHANGE,
    Code.DELETE_TOPIC_IN_NAMESRV: Kind.CHANGE,
    Code.UPDATE_NAMESRV_CONFIG: Kind.CHANGE,
}
"""A code without a kind is refused; a test compares this table with the handlers."""


class NameServerGate(RequestGate):
    """The guard that checks every request to a name server."""

    def __init__(
        self,
        config: NamesrvConfig,
        auth: AuthConfig,
        folder: Path,
        clock: Clock,
        is_own: Callable[[Sender], bool],
    ) -> None:
        """`folder` has the files of users and policies."""
        rules = GateRules(
            "name server",
            _kind_of,
            config.cluster,
            config.admin_networks(),
            config.broker_networks(),
            "rmq.namesrv.adminFrom",
        )
        super().__init__(rules, auth, folder, clock, is_own)

    def caller_of(self, connection: Connection) -> Caller:
        """Return the brokers for which an allowed caller may send requests."""
        return Caller("/".join(hosts_of(connection)), self.is_trusted(connection))


def _kind_of(request: Command) -> Kind:
    return KINDS.get(request.code, Kind.CHANGE)
