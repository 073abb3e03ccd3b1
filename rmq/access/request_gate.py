"""RequestGate: checks the sender of each request to a name server or a controller.

Java's servers accept every request from every host. Here each request has a kind:

    kind     without access control              with it (authenticationEnabled)
    ROUTE    every host                          every host: clients need their routes
    READ     every host                          Get on the cluster
    BROKER   every host, each for its own        Update on the cluster, or an address
             brokers                             of `brokers`
    CHANGE   loopback, and `admins`              Update on the cluster

Connections from the same process come from its broker, and may send every request.
Both the source in a PROXY header and the real peer must have allowed addresses, because
any client can write a header. `cluster_users.py` reads the users and their policies.
"""

import logging
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rmq.access.actions import Action
from rmq.access.config import AuthConfig
from rmq.access.networks import Network, are_within
from rmq.core.clock import Clock
from rmq.core.errors import RequestRejected
from rmq.core.logs import Foreign, SparseLog, caused_by
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command

if TYPE_CHECKING:
    from rmq.access.cluster_users import ClusterUsers

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())


class Sender(Protocol):
    """The connection that a request comes from."""

    remote_address: str
    source_host: str
    peer: tuple[str, int]

    @property
    def peer_host(self) -> str:
        """The host of the real peer, also if a PROXY header names another one."""


class Kind(Enum):
    """Kind of a request, which decides the right that it needs."""

    ROUTE = "route"
    READ = "read"
    BROKER = "broker"
    CHANGE = "change"


class GateRules(NamedTuple):
    """The differences between the servers that have a gate."""

    server: str
    """The kind of server, for remarks."""

    kind_of: Callable[[Command], Kind]
    cluster: str
    admins: tuple[Network, ...]
    brokers: tuple[Network, ...]
    admins_key: str
    """The key of `admins`, for remarks."""


class RequestGate:
    """The guard that checks every request to a server."""

    def __init__(
        self,
        rules: GateRules,
        auth: AuthConfig,
        folder: Path,
        clock: Clock,
        is_own: Callable[[Sender], bool],
    ) -> None:
        """`folder` has the files of users and policies."""
        self._rules = rules
        self._users = _users(auth, rules.cluster, folder, clock)
        self._is_own = is_own

    def check_request(self, request: Command, connection: Sender) -> None:
        """Raise `RequestRejected` unless the sender may send the request."""
        kind = self._rules.kind_of(request)
        if kind is Kind.ROUTE or self._is_own(connection):
            return
        try:
            if self._users is not None:
                self._check_user(self._users, kind, request, connection)
            elif kind is Kind.CHANGE and not is_from(connection, self._rules.admins):
                raise self._not_from_there(request, connection)
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
        self, users: "ClusterUsers", kind: Kind, request: Command, connection: Sender
    ) -> None:
        if kind is not Kind.CHANGE and is_from(connection, self._rules.brokers):
            return
        action = Action.GET if kind is Kind.READ else Action.UPDATE
        users.check_request(request, action, connection.source_host)

    def is_trusted(self, connection: Sender) -> bool:
        """Whether an allowed caller may send requests for brokers of other hosts, too.

        With access control the caller is a user with a right on the cluster.
        """
        return (
            self._users is not None
            or self._is_own(connection)
            or is_from(connection, self._rules.brokers)
        )

    def _not_from_there(self, request: Command, connection: Sender) -> RequestRejected:
        server = self._rules.server
        return RequestRejected(
            ResponseCode.NO_PERMISSION,
            f"the {server} accepts request {request.code} from its own host only, not "
            f"from {connection.source_host}: add this address to "
            f"{self._rules.admins_key} of the {server}, or enable access control",
        )


def _users(
    auth: AuthConfig, cluster_name: str, folder: Path, clock: Clock
) -> "ClusterUsers | None":
    """Return the users, with access control; ConfigError if keys cannot be read."""
    auth.initial_users()
    if not auth.authentication_enabled:
        return None
    # imported on use: most servers know no users
    from rmq.access.cluster_users import ClusterUsers

    return ClusterUsers(auth, cluster_name, folder, clock)


def hosts_of(connection: Sender) -> list[str]:
    """Return the source, and the real peer if it differs."""
    return list(dict.fromkeys((connection.source_host, connection.peer_host)))


def is_from(connection: Sender, networks: tuple[Network, ...]) -> bool:
    """Return whether source and peer are in one of the networks."""
    return bool(networks) and are_within(hosts_of(connection), networks)
