"""Guard: who sends a request, and whether that user may.

First the signature, then, for users who are not super, the rules. Every refusal is
answered NO_PERMISSION with Java's remark; the log names user, request and source, never
a password or a signature.
"""

import logging

from rmq.broker.context import BrokerContext, Connection
from rmq.errors import ConfigError, RequestRejected
from rmq.protocol.bodies.auth import UserInfo
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq_plugins.auth.config import AuthConfig, codes_of
from rmq_plugins.auth.needs import Need, is_administrative, needs_of
from rmq_plugins.auth.policies import Decision
from rmq_plugins.auth.signature import ACCESS_KEY, is_signed
from rmq_plugins.auth.tables import AclTable, UserTable

logger = logging.getLogger(__name__)

DISABLED = "disable"
SUPER = "Super"


class AuthGuard:
    """Known in Java as `AuthenticationPipeline` and `AuthorizationPipeline`."""

    def __init__(
        self,
        broker: BrokerContext,
        config: AuthConfig,
        users: UserTable,
        acls: AclTable,
    ) -> None:
        self._cluster = broker.config.broker_cluster_name
        self._users = users
        self._acls = acls
        self._authorizes = config.authorization_enabled
        self._unsigned = _whitelist(
            "authenticationWhitelist", config.authentication_whitelist
        )
        self._unasked = _whitelist(
            "authorizationWhitelist", config.authorization_whitelist
        )

    def check(self, request: Command, connection: Connection) -> None:
        """Raise `RequestRejected` unless the request may pass."""
        try:
            if request.code not in self._unsigned:
                self._authenticate(request)
            if self._authorizes and request.code not in self._unasked:
                self._authorize(request, connection)
        except RequestRejected as refusal:
            logger.info(
                "request %d of %s is refused: %s",
                request.code,
                connection.remote_address,
                refusal.remark,
            )
            raise

    def _authenticate(self, request: Command) -> None:
        name = request.ext_fields.get(ACCESS_KEY)
        if not name:
            raise _refused("username cannot be null.")
        user = self._enabled(name, f"User:{name} is not found.")
        if not is_signed(request, user.password or ""):
            raise _refused("check signature failed.")

    def _authorize(self, request: Command, connection: Connection) -> None:
        needs = needs_of(request, self._cluster)
        if not needs:
            return
        name = request.ext_fields.get(ACCESS_KEY)
        if not name:
            raise _refused(
                "Authorization failed. Please verify your access rights and try again."
            )
        user = self._enabled(name, f"User:{name} not found.")
        if user.user_type == SUPER:
            return
        source = connection.remote_address.rpartition(":")[0]
        for need in needs:
            self._check_one(name, need, source)

    def _check_one(self, name: str, need: Need, source: str) -> None:
        policies = self._acls.policies(f"User:{name}")
        decision = policies and policies.decide(need.resource, need.actions, source)
        if decision is Decision.ALLOW:
            return
        why = "the decision is deny." if decision else "no matched policies."
        raise _refused(
            f"User:{name} has no permission to access {need.resource.key} "
            f"from {source}, {why}"
        )

    def _enabled(self, name: str, remark: str) -> UserInfo:
        user = self._users.get(name)
        if user is None:
            raise _refused(remark)
        if user.user_status == DISABLED:
            raise _refused(f"User:{name} is disabled.")
        return user


def _whitelist(key: str, text: str) -> frozenset[int]:
    """Read a white-list; what administers the broker cannot be on one."""
    codes = codes_of(key, text)
    for code in sorted(codes):
        if is_administrative(code):
            raise ConfigError(
                f"{key}={text}: request {code} administers the broker and is always "
                "checked; take it off the list"
            )
    return codes


def _refused(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.NO_PERMISSION, remark)
