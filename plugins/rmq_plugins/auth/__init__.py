"""Access control: signed requests, users and their policies. Off by default.

Requests 3001 to 3010 on both ports, and a guard before every handler while
`authenticationEnabled` is true. Known in Java as ACL 2.0. What the rules mean, and
where rmq asks for more than Java does, stands in docs/security.md.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from rmq.access.config import AuthConfig
from rmq.access.rights import ENABLED, SUPER
from rmq.access.tables import AclTable, UserTable, make_private
from rmq.broker.context import BrokerContext, Guard, RegisterHandler
from rmq.hookspecs import hookimpl
from rmq.protocol.bodies.auth import UserInfo
from rmq.protocol.codes import RequestCode
from rmq_plugins.auth.guard import AuthGuard
from rmq_plugins.auth.handler import AuthHandler


class Access:
    """Users and policies of one broker; its hooks share them."""

    def __init__(self, broker: BrokerContext) -> None:
        self.config = broker.plugin_configs.get("AuthConfig") or AuthConfig()
        configured = self.config.auth_config_path
        folder = broker.store.directory.config / "auth"
        if configured:
            folder = Path(configured)
        self.users = UserTable(folder, broker.clock)
        self.acls = AclTable(folder, broker.clock)
        if self.config.authentication_enabled:
            self._open(folder)
            broker.tables += [self.users, self.acls]

    def _open(self, folder: Path) -> None:
        """Read the files; make the users that the configuration names."""
        make_private(folder)
        self.users.load()
        self.acls.load()
        for name, password in self.config.initial_users():
            if self.users.get(name) is None:
                self.users.put(
                    UserInfo(
                        username=name,
                        password=password,
                        user_type=SUPER,
                        user_status=ENABLED,
                    )
                )
        if self.users.is_dirty:
            self.users.write(self.users.snapshot())


_accesses: "WeakKeyDictionary[BrokerContext, Access]" = WeakKeyDictionary()


def access_of(broker: BrokerContext) -> Access:
    """Return the users and policies of a broker."""
    access = _accesses.get(broker)
    if access is None:
        access = _accesses[broker] = Access(broker)
    return access


@hookimpl
def rmq_config(register: Callable[[type[Any]], None]) -> None:
    """Register the keys of access control."""
    register(AuthConfig)


@hookimpl
def rmq_handlers(broker: BrokerContext, register: RegisterHandler) -> None:
    """Take what administers users and policies."""
    access = access_of(broker)
    handler = AuthHandler(
        access.users, access.acls, is_on=access.config.authentication_enabled
    )
    register(RequestCode.AUTH_CREATE_USER, handler.create_user)
    register(RequestCode.AUTH_UPDATE_USER, handler.update_user)
    register(RequestCode.AUTH_DELETE_USER, handler.delete_user)
    register(RequestCode.AUTH_GET_USER, handler.get_user)
    register(RequestCode.AUTH_LIST_USER, handler.list_users)
    register(RequestCode.AUTH_CREATE_ACL, handler.create_acl)
    register(RequestCode.AUTH_UPDATE_ACL, handler.update_acl)
    register(RequestCode.AUTH_DELETE_ACL, handler.delete_acl)
    register(RequestCode.AUTH_GET_ACL, handler.get_acl)
    register(RequestCode.AUTH_LIST_ACL, handler.list_acls)


@hookimpl
def rmq_request_guards(broker: BrokerContext) -> Sequence[Guard]:
    """Check every request while authentication is on; cost nothing while it is off."""
    access = access_of(broker)
    if not access.config.authentication_enabled:
        return ()
    broker.rights = guard = AuthGuard(broker, access.config, access.users, access.acls)
    return (guard.check,)
