"""Access control: signed requests, users and their policies. Off by default.

Requests 3001 to 3010 on both ports, and a guard before every handler while
`authenticationEnabled` is true. Known in Java as ACL 2.0. docs/security.md explains the
rules, and where rmq requires more rights than Java.
"""

from pathlib import Path

from rmq.access.config import AuthConfig
from rmq.access.tables import AclTable, UserTable, make_private
from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.auth.guard import AuthGuard
from rmq_plugins.auth.handler import AuthHandler


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers for users and policies; if enabled, check every request."""
    config = register.config(AuthConfig)
    folder = broker.store.directory.config / "auth"
    if config.auth_config_path:
        folder = Path(config.auth_config_path)
    users, acls = UserTable(folder, broker.clock), AclTable(folder, broker.clock)
    if config.authentication_enabled:
        make_private(folder)
        register.table(users)
        register.table(acls)
        _make_users(users, config)
        guard = AuthGuard(broker, config, users, acls)
        register.guard(guard.check, rights=guard, grants=guard.grants)
    handler = AuthHandler(users, acls, is_on=config.authentication_enabled)
    register.handler(RequestCode.AUTH_CREATE_USER, handler.create_user)
    register.handler(RequestCode.AUTH_UPDATE_USER, handler.update_user)
    register.handler(RequestCode.AUTH_DELETE_USER, handler.delete_user)
    register.handler(RequestCode.AUTH_GET_USER, handler.get_user)
    register.handler(RequestCode.AUTH_LIST_USER, handler.list_users)
    register.handler(RequestCode.AUTH_CREATE_ACL, handler.create_acl)
    register.handler(RequestCode.AUTH_UPDATE_ACL, handler.update_acl)
    register.handler(RequestCode.AUTH_DELETE_ACL, handler.delete_acl)
    register.handler(RequestCode.AUTH_GET_ACL, handler.get_acl)
    register.handler(RequestCode.AUTH_LIST_ACL, handler.list_acls)


def _make_users(users: UserTable, config: AuthConfig) -> None:
    """Create the users of the configuration that do not exist yet."""
    for name, password in config.initial_users():
        users.add_super_user(name, password)
    if users.is_dirty:
        users.write(users.snapshot())
