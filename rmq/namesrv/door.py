"""Door: who may send which request to a name server.

Java's name server allows everything to everybody.  Here each code has a kind:

    kind     without access control              with it (authenticationEnabled)
    ROUTE    everybody                           everybody: clients need their routes
    READ     everybody                           Get on the cluster
    BROKER   everybody, each for its own         Update on the cluster, or an address
             brokers (see `rules.py`)            of rmq.namesrv.brokersFrom
    CHANGE   loopback, and the addresses of      Update on the cluster
             rmq.namesrv.adminFrom

Connections of this process itself are those of its broker and may do everything.  Both
the source in a PROXY header and the real peer must be allowed addresses: anybody can
write a header.  `users.py` knows the users and their policies.
"""

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.access.actions import Action
from rmq.access.config import AuthConfig
from rmq.access.networks import Network, are_within
from rmq.clock import Clock
from rmq.errors import RequestRejected
from rmq.logs import Foreign, SparseLog, caused_by
from rmq.namesrv.config import NamesrvConfig
from rmq.namesrv.registration import Caller
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.remoting.connection import Connection

if TYPE_CHECKING:
    from rmq.namesrv.users import ClusterUsers

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())


class Kind(Enum):
    """Kind of a request, which decides the right that it needs."""

    ROUTE = "route"
    READ = "read"
    BROKER = "broker"
    CHANGE = "change"


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


class Door:
    """The guard that checks every request to a name server."""

    def __init__(
        self,
        config: NamesrvConfig,
        auth: AuthConfig,
        folder: Path,
        clock: Clock,
        is_own: Callable[[Connection], bool],
    ) -> None:
        """`folder` has the files of users and policies."""
        self._users = _users(auth, config.cluster, folder, clock)
        self._is_own = is_own
        self._admins = config.admin_networks()
        self._brokers = config.broker_networks()

    def check(self, request: Command, connection: Connection) -> None:
        """Raise `RequestRejected` unless the sender may send the request."""
        kind = KINDS.get(request.code, Kind.CHANGE)
        if kind is Kind.ROUTE or self._is_own(connection):
            return
        try:
            if self._users is not None:
                self._check_user(self._users, kind, request, connection)
            elif kind is Kind.CHANGE and not _is_from(connection, self._admins):
                raise _not_from_there(request, connection)
        except RequestRejected as refusal:
            logger.info(
                "request %d of %s is refused: %s",
                request.code,
                connection.remote_address,
                Foreign(refusal.remark),
                extra=caused_by(connection.remote_address),
            )
            raise

    def _check_user(
        self,
        users: "ClusterUsers",
        kind: Kind,
        request: Command,
        connection: Connection,
    ) -> None:
        if kind is not Kind.CHANGE and _is_from(connection, self._brokers):
            return
        action = Action.GET if kind is Kind.READ else Action.UPDATE
        users.check(request, action, _host(connection))

    def caller_of(self, connection: Connection) -> Caller:
        """Return for which brokers an allowed caller may send requests.

        With access control the caller is a user with a right on the cluster.
        """
        is_trusted = (
            self._users is not None
            or self._is_own(connection)
            or (self._brokers and _is_from(connection, self._brokers))
        )
        return Caller("/".join(_hosts(connection)), bool(is_trusted))


def _users(
    auth: AuthConfig, cluster_name: str, folder: Path, clock: Clock
) -> "ClusterUsers | None":
    """Return the users, with access control; ConfigError if keys cannot be read."""
    auth.initial_users()
    if not auth.authentication_enabled:
        return None
    # imported on use: most name servers know no users
    from rmq.namesrv.users import ClusterUsers

    return ClusterUsers(auth, cluster_name, folder, clock)


def _not_from_there(request: Command, connection: Connection) -> RequestRejected:
    return RequestRejected(
        ResponseCode.NO_PERMISSION,
        f"the name server accepts request {request.code} from its own host only, not "
        f"from {_host(connection)}: add that address to rmq.namesrv.adminFrom of the "
        "name server, or enable access control",
    )


def _hosts(connection: Connection) -> list[str]:
    """Return the source, and the real peer if it differs."""
    hosts = [_host(connection)]
    if connection.peer_host != hosts[0]:
        hosts.append(connection.peer_host)
    return hosts


def _host(connection: Connection) -> str:
    return connection.remote_address.rpartition(":")[0]


def _is_from(connection: Connection, networks: tuple[Network, ...]) -> bool:
    """Return whether source and peer are in one of the networks."""
    return are_within(_hosts(connection), networks)
