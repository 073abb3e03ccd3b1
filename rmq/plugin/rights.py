"""Rights: checks of a handler about the user of a request.

The guard of access control checks the topics and groups that a request names. A handler
that finds a record by its physical offset learns the topic only from the record, and
then checks the right to this topic. A held pull is checked when it arrives, and again
before it returns a message. Without access control every request is allowed, and users
have no name.
"""

from collections.abc import Callable
from typing import Protocol

from rmq.access.actions import Action
from rmq.protocol.command import Command
from rmq.remoting.connection import Connection


class RequestRights(Protocol):
    """The rights of users; `register.guard` accepts the rights of access control."""

    on_change: list[Callable[[], object]]
    """Called after each change of users or rules."""

    needs_users: bool
    """Whether clients have to sign."""

    def authenticate(self, user: str, content: bytes, mac: bytes) -> None:
        """Raise `RequestRejected` unless the user has signed `content` by HMAC-SHA1."""

    def check_request(self, request: Command, connection: Connection) -> None:
        """Raise `RequestRejected` unless the user may send this request now."""

    def authorize(self, user: str, request: Command, connection: Connection) -> None:
        """Raise `RequestRejected` unless a known user may send this request.

        It does not check the signature, because it is for requests of the broker
        itself.
        """

    def user_of(self, request: Command) -> str:
        """Return the user who signed the request; empty without access control."""

    def require(
        self, request: Command, connection: Connection, topic: str, *actions: Action
    ) -> None:
        """Raise `RequestRejected` unless the user may do one of the actions."""

    def is_allowed(
        self, user: str, connection: Connection, topic: str, *actions: Action
    ) -> bool:
        """Whether a user at this connection may do one of the actions."""
