"""Guard: checks the user of each request, and the user's rights.

It first checks the signature, then the rights that the request needs. The log names
user, request and source of every refusal, never a password or a signature.
"""

import logging
from collections.abc import Callable, Iterable

from rmq.access import resources
from rmq.access.actions import Action
from rmq.access.authorization import RequiredPermission, Rights
from rmq.access.config import AuthConfig, codes_of
from rmq.access.signature import ACCESS_KEY
from rmq.access.tables import DISABLED, AclTable, UserTable
from rmq.plugin import (
    BadValue,
    BrokerContext,
    Connection,
    Foreign,
    InnerCaller,
    RequestCode,
    RequestRejected,
    SparseLog,
    caused_by,
)
from rmq.plugin.native import Grants
from rmq.protocol.command import Command
from rmq_plugins.auth.permissions import is_administrative, needs_of, resource_fields

PORT_BYTES = 4
"""Number of bytes of the port at the end of an address in a record."""

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())


class AuthGuard:
    """Known in Java as `AuthenticationPipeline` and `AuthorizationPipeline`.

    A code that needs no signature has no user: its access key is not proven.
    """

    needs_users = True

    def __init__(
        self,
        broker: BrokerContext,
        config: AuthConfig,
        users: UserTable,
        acls: AclTable,
    ) -> None:
        self._cluster = broker.config.broker_cluster_name
        self._rights = Rights(users, acls)
        self._authorizes = config.authorization_enabled
        self._users = users
        self._rules: dict[int, tuple[str, ...]] = {
            code: fields
            for code in RequestCode
            if (fields := resource_fields(code)) is not None
        }
        self.grants = Grants(self._rules)
        self.on_change: list[Callable[[], object]] = [self.grants.unregister_all]
        users.on_change.append(self._notify_change)
        acls.on_change.append(self._notify_change)
        self._unsigned_codes = _parse_whitelist(
            "authenticationWhitelist", config.authentication_whitelist
        )
        self._unauthorized_codes = _parse_whitelist(
            "authorizationWhitelist", config.authorization_whitelist
        )

    def _notify_change(self) -> None:
        for listener in self.on_change:
            listener()

    def check_request(self, request: Command, connection: Connection) -> None:
        """Raise `RequestRejected` unless the user may send the request."""
        # the console's callers have no `is_inner`; the user has signed the call
        if isinstance(connection, InnerCaller):
            self.authorize(self.user_of(request), request, connection)
            return
        try:
            if request.code not in self._unsigned_codes:
                self._rights.authenticate(request)
            if self._authorizes and request.code not in self._unauthorized_codes:
                needs = needs_of(request, self._cluster)
                if needs:
                    self._authorize(self.user_of(request), needs, connection)
        except RequestRejected as refusal:
            _log_refusal(request, connection, refusal)
            raise
        self._register_grant(request, connection)

    def authenticate(self, user: str, content: bytes, mac: bytes) -> None:
        """Raise `RequestRejected` unless this user has signed `content`."""
        self._rights.authenticate_text(user, content, mac)

    def _register_grant(self, request: Command, connection: Connection) -> None:
        """Let compiled handlers serve further requests like this allowed one."""
        if request.code not in self._rules or request.code in self._unsigned_codes:
            return
        fields = request.ext_fields
        name = fields[ACCESS_KEY]
        user = self._users.get(name)
        if user is None or user.user_status == DISABLED:
            return  # the user has changed since the gRPC call was signed
        self.grants.register(
            request.code,
            connection.remote_host[:-PORT_BYTES],
            name,
            user.password or "",
            tuple(map(fields.get, self._rules[request.code])),
        )

    def authorize(self, user: str, request: Command, connection: Connection) -> None:
        """Raise `RequestRejected` unless a known user may send the request."""
        if self._authorizes and request.code not in self._unauthorized_codes:
            try:
                self._authorize(user, needs_of(request, self._cluster), connection)
            except RequestRejected as refusal:
                _log_refusal(request, connection, refusal)
                raise
        if isinstance(connection, InnerCaller):
            self._register_grant(request, connection)

    def user_of(self, request: Command) -> str:
        """Return the user who signed; empty for a code that needs no signature."""
        if request.code in self._unsigned_codes:
            return ""
        return request.ext_fields.get(ACCESS_KEY, "")

    def require(
        self, request: Command, connection: Connection, topic: str, *actions: Action
    ) -> None:
        """Raise `RequestRejected` unless the user may do one of the actions."""
        if not self._authorizes or request.code in self._unauthorized_codes:
            return
        need = RequiredPermission(resources.topic_resource(topic), actions)
        try:
            self._authorize(self.user_of(request), [need], connection)
        except RequestRejected as refusal:
            _log_refusal(request, connection, refusal)
            raise

    def is_allowed(
        self, user: str, connection: Connection, topic: str, *actions: Action
    ) -> bool:
        """Return whether a user at this connection may do one of the actions."""
        if not self._authorizes:
            return True
        try:
            self._authorize(
                user,
                [RequiredPermission(resources.topic_resource(topic), actions)],
                connection,
            )
        except RequestRejected:
            return False
        return True

    def _authorize(
        self, user: str, needs: Iterable[RequiredPermission], connection: Connection
    ) -> None:
        self._rights.authorize_user(user, needs, connection.source_host)


def _parse_whitelist(key: str, text: str) -> frozenset[int]:
    """Return the codes of a whitelist; BadValue if a code administers the broker."""
    codes = codes_of(key, text)
    for code in sorted(codes):
        if is_administrative(code):
            raise BadValue(
                key,
                text,
                f"request {code} administers the broker, and needs a check always: "
                "remove it from the list",
            )
    return codes


def _log_refusal(
    request: Command, connection: Connection, refusal: RequestRejected
) -> None:
    logger.info(
        "request %d of %s is refused: %s",
        request.code,
        connection.remote_address,
        Foreign(refusal.remark),
        extra=caused_by(connection.remote_address),
    )
