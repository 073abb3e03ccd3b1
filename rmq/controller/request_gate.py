"""ControllerGate: checks the senders of requests; see `RequestGate`.

Java's controllers accept every request from every host. Here no other host may send
requests as a broker while the heartbeats of this broker come from one host.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rmq.access.config import AuthConfig
from rmq.access.request_gate import GateRules, Kind, RequestGate, Sender, hosts_of
from rmq.controller.config import ControllerConfig
from rmq.core.clock import Clock
from rmq.core.errors import RequestRejected
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.remoting.connection import Connection

KINDS: Final[Mapping[int, Kind]] = {
    Code.CONTROLLER_GET_METADATA_INFO: Kind.ROUTE,
    Code.CONTROLLER_GET_REPLICA_INFO: Kind.READ,
    Code.CONTROLLER_GET_SYNC_STATE_DATA: Kind.READ,
    Code.CONTROLLER_GET_NEXT_BROKER_ID: Kind.READ,
    Code.GET_CONTROLLER_CONFIG: Kind.READ,
    Code.BROKER_HEARTBEAT: Kind.BROKER,
    Code.CONTROLLER_ALTER_SYNC_STATE_SET: Kind.BROKER,
    Code.CONTROLLER_ELECT_MASTER: Kind.BROKER,
    Code.CONTROLLER_REGISTER_BROKER: Kind.BROKER,
    Code.CONTROLLER_APPLY_BROKER_ID: Kind.BROKER,
    Code.UPDATE_CONTROLLER_CONFIG: Kind.CHANGE,
    Code.CLEAN_BROKER_DATA: Kind.CHANGE,
}
"""A code without a kind is refused; a test compares this table with the handlers."""


class ControllerGate(RequestGate):
    """The guard that checks every request to a controller."""

    def __init__(
        self,
        config: ControllerConfig,
        auth: AuthConfig,
        folder: Path,
        clock: Clock,
        is_own: Callable[[Sender], bool],
    ) -> None:
        """`folder` has the files of users and policies."""
        rules = GateRules(
            "controller",
            _kind_of,
            config.cluster,
            config.admin_networks(),
            config.broker_networks(),
            "rmq.controller.adminFrom",
        )
        super().__init__(rules, auth, folder, clock, is_own)

    def check_speaker(
        self, broker: str, host: str | None, connection: Connection
    ) -> None:
        """Refuse a request in the name of a broker that is alive on another host."""
        caller = host_of(connection)
        if host not in (None, caller) and not self.is_trusted(connection):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the heartbeats of broker {broker} come from {host}; to let {caller} "
                f"send requests in its name, add {caller} to "
                "rmq.controller.brokersFrom of the controller",
            )


def host_of(connection: Connection) -> str:
    """Return the hosts of a caller as text: the source, and the real peer if it
    differs.
    """
    return "/".join(hosts_of(connection))


def _kind_of(request: Command) -> Kind:
    """Return the kind of a request; a request that names the new master is a change of
    the group.
    """
    if request.code == Code.CONTROLLER_ELECT_MASTER:
        named = request.ext_fields.get("designateElect", "false").lower() != "false"
        return Kind.CHANGE if named else Kind.BROKER
    return KINDS.get(request.code, Kind.CHANGE)
