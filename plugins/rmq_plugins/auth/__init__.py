"""Access control: signed requests, users and their policies. Off by default.

Serves requests 3001 to 3010 on both ports, also while access control is off. While
`authenticationEnabled` is true, a guard checks each request before its handler. Known
in Java as ACL 2.0. docs/reference/security.md explains the rules, and where rmq
requires more rights than Java.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from rmq.access.config import AuthConfig
from rmq.plugin import BrokerContext, Foreign, Register, hookimpl
from rmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from rmq.access.tables import AclTable, UserTable

logger = logging.getLogger(__name__)


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers for users and policies; if enabled, check every request.

    Without access control, the first request 3001 to 3010 imports the modules.
    """
    config = register.config(AuthConfig)
    is_on = config.authentication_enabled
    guarded = _register_guard(broker, register, config) if is_on else None

    def make_handler() -> object:
        from rmq_plugins.auth.handler import AuthHandler

        if guarded is not None:
            return AuthHandler(*guarded, None)
        from rmq_plugins.auth.unguarded import Unguarded

        tables = _create_tables(broker, config)
        for table in tables:
            table.load()
        admins = config.admin_networks()
        return AuthHandler(*tables, Unguarded(admins, _folder(broker, config)))

    register.handlers(
        make_handler,
        {
            RequestCode.AUTH_CREATE_USER: "create_user",
            RequestCode.AUTH_UPDATE_USER: "update_user",
            RequestCode.AUTH_DELETE_USER: "delete_user",
            RequestCode.AUTH_GET_USER: "get_user",
            RequestCode.AUTH_LIST_USER: "list_users",
            RequestCode.AUTH_CREATE_ACL: "change_acl",
            RequestCode.AUTH_UPDATE_ACL: "change_acl",
            RequestCode.AUTH_DELETE_ACL: "delete_acl",
            RequestCode.AUTH_GET_ACL: "get_acl",
            RequestCode.AUTH_LIST_ACL: "list_acls",
        },
    )


def _folder(broker: BrokerContext, config: AuthConfig) -> Path:
    """Return the folder of the files of users and policies."""
    if config.auth_config_path:
        return Path(config.auth_config_path)
    return broker.config_folder / "auth"


def _create_tables(
    broker: BrokerContext, config: AuthConfig
) -> "tuple[UserTable, AclTable]":
    from rmq.access.tables import AclTable, UserTable

    folder = _folder(broker, config)
    return UserTable(folder, broker.clock), AclTable(folder, broker.clock)


def _register_guard(
    broker: BrokerContext, register: Register, config: AuthConfig
) -> "tuple[UserTable, AclTable]":
    """Load users and policies; register the guard that checks every request."""
    from rmq.access.tables import SUPER, make_private
    from rmq_plugins.auth.guard import AuthGuard

    users, acls = _create_tables(broker, config)
    make_private(_folder(broker, config))
    register.table(users)
    register.table(acls)
    _create_initial_users(users, config)
    supers = [user.username for user in users.all_users() if user.user_type == SUPER]
    logger.info(
        "access control is on; %d users; super users: %s",
        len(users),
        Foreign(", ".join(map(str, supers))),
    )
    guard = AuthGuard(broker, config, users, acls)
    register.guard(guard.check_request, rights=guard, grants=guard.grants)
    return users, acls


def _create_initial_users(users: "UserTable", config: AuthConfig) -> None:
    """Create the users of the configuration that do not exist yet."""
    for name, password in config.initial_users():
        users.add_super_user(name, password)
    if users.is_dirty:
        users.write(users.snapshot())
