"""AllRights: the rights on a broker without access control."""

from collections.abc import Callable

from rmq.access.actions import Action
from rmq.protocol.command import Command
from rmq.remoting.connection import Connection


class AllRights:
    """A broker without access control."""

    def __init__(self) -> None:
        self.on_change: list[Callable[[], object]] = []

    def check_request(self, _request: Command, _connection: Connection) -> None:
        """Everything is allowed."""

    def authorize(self, _user: str, _request: Command, _connection: Connection) -> None:
        """Everything is allowed."""

    needs_users = False

    def authenticate(self, _user: str, _content: bytes, _mac: bytes) -> None:
        """Everybody is known."""

    def user_of(self, _request: Command) -> str:
        """Return an empty name: without access control users have no name."""
        return ""

    def require(
        self, _request: Command, _connection: Connection, _topic: str, *_actions: Action
    ) -> None:
        """Everything is allowed."""

    def is_allowed(
        self, _user: str, _connection: Connection, _topic: str, *_actions: Action
    ) -> bool:
        """Everything is allowed."""
        return True
