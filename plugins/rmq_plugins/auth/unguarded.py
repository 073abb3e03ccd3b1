"""Requests about users and rules while access control is off.

An operator creates users before access control is switched on. Until then the broker
checks no signature, so it accepts these requests only from its own host and from
`rmq.auth.adminFrom`. If it accepted them from everywhere, any client could create a
super user for later. Answers have no passwords.
"""

import logging
from pathlib import Path

from rmq.access.networks import Network, are_within
from rmq.access.tables import make_private
from rmq.plugin import Connection, Foreign, RequestRejected
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command

logger = logging.getLogger(__name__)


class Unguarded:
    """Checks the source of these requests, and logs changes."""

    def __init__(self, admins: tuple[Network, ...], folder: Path) -> None:
        self._admins = admins
        self._folder = folder

    def check_source(self, request: Command, connection: Connection) -> None:
        """Raise `RequestRejected` unless the source and the peer are listed."""
        source = connection.source_host
        if not are_within((source, connection.peer_host), self._admins):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                "while access control is off, the broker accepts request "
                f"{request.code} from its own host only, not from {source}: add this "
                "address to rmq.auth.adminFrom; or set authenticationEnabled=true and "
                "initAuthenticationUser, restart the broker and sign as that user",
            )

    def prepare_save(self, request: Command, connection: Connection) -> None:
        """Make the folder of the files private; log that changes have no effect yet."""
        make_private(self._folder)
        logger.warning(
            "%s of %s changes users or rules; access control is off, so they have no "
            "effect before a start with authenticationEnabled=true and "
            "authorizationEnabled=true",
            RequestCode(request.code).name,
            Foreign(connection.remote_address),
        )
