"""UserTable and AclTable: users and policies in memory and in separate files.

`users.json` holds `{"users": {name: UserInfo}}`, `acls.json` `{"acls": {subject:
AclInfo}}`, both in a directory that only the broker's user may enter: the check of a
signature needs the password itself. Java has the same data in two RocksDB stores.
"""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import field

from rmq.access.policies import Policies
from rmq.config.json_table import JsonTable
from rmq.core.clock import Clock
from rmq.protocol.bodies import Body
from rmq.protocol.bodies.auth import AclInfo, UserInfo

ENABLED, DISABLED = "enable", "disable"
SUPER = "Super"

MAX_USERS = 10_000
MAX_RULES = 10_000
"""Maximum number of rules of one subject."""


class AccessTable(JsonTable):
    """Notifies listeners of every change, before a request can use the old content."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, clock)
        self.on_change: list[Callable[[], object]] = []

    def touch(self) -> None:
        """Mark the file as older than the table."""
        super().touch()
        for listener in self.on_change:
            listener()


class UserFile(Body, kw_only=True):
    """Content of `users.json`."""

    users: dict[str, UserInfo] = field(default_factory=dict)


class AclFile(Body, kw_only=True):
    """Content of `acls.json`."""

    acls: dict[str, AclInfo] = field(default_factory=dict)


class UserTable(AccessTable):
    """The users who may sign requests."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder / "users.json", clock)
        self._users: dict[str, UserInfo] = {}

    def __len__(self) -> int:
        """Return the number of users."""
        return len(self._users)

    def get(self, name: str) -> UserInfo | None:
        """Return a user."""
        return self._users.get(name)

    def all_users(self) -> Iterator[UserInfo]:
        """Yield the users in the order of their names."""
        for _, user in sorted(self._users.items()):
            yield user

    def put(self, user: UserInfo) -> None:
        """Create a user or change one."""
        assert user.username, "a user has a name"
        assert user.password, f"{user.username} has no password"
        self._users[user.username] = user
        self.touch()

    def add_super_user(self, name: str, password: str) -> None:
        """Create a super user, unless there is a user of this name."""
        if name not in self._users:
            user = UserInfo(username=name, password=password)
            user.user_type, user.user_status = SUPER, ENABLED
            self.put(user)

    def remove(self, name: str) -> None:
        """Remove a user if the user exists."""
        if self._users.pop(name, None) is not None:
            self.touch()

    def _read(self, value: dict[str, Any]) -> None:
        self._users = UserFile.from_value(value).users

    def _content(self) -> UserFile:
        return UserFile(users=dict(sorted(self._users.items())))


class AclTable(AccessTable):
    """The rules of each subject."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder / "acls.json", clock)
        self._acls: dict[str, AclInfo] = {}
        self._policies: dict[str, Policies] = {}

    def get(self, subject: str) -> AclInfo | None:
        """Return the rules of a subject as answers contain them."""
        return self._acls.get(subject)

    def policies_of(self, subject: str) -> Policies | None:
        """Return the rules of a subject, ready to decide."""
        return self._policies.get(subject)

    def all_rules(self) -> Iterator[tuple[str, AclInfo]]:
        """Yield subjects and their rules in the order of subjects."""
        yield from sorted(self._acls.items())

    def put(self, subject: str, acl: AclInfo) -> None:
        """Set the rules of a subject."""
        self._acls[subject] = acl
        self._policies[subject] = Policies(acl)
        self.touch()

    def remove(self, subject: str) -> None:
        """Remove the rules of a subject, if it has any."""
        if self._acls.pop(subject, None) is not None:
            del self._policies[subject]
            self.touch()

    def _read(self, value: dict[str, Any]) -> None:
        self._acls = AclFile.from_value(value).acls
        self._policies = {name: Policies(acl) for name, acl in self._acls.items()}

    def _content(self) -> AclFile:
        return AclFile(acls=dict(sorted(self._acls.items())))


def make_private(folder: Path) -> None:
    """Create the directory, and let only its owner enter it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        os.chmod(folder, mode & 0o700)
