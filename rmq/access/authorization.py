"""Rights: which user sends a request, and whether the user may send it.

First the signature is checked, then, unless the user is a super user, the policies.
Every refusal is NO_PERMISSION with Java's remark.
"""

import hmac
from collections.abc import Iterable
from typing import NamedTuple

from rmq.access.actions import Action
from rmq.access.policies import Decision
from rmq.access.resources import Resource
from rmq.access.signature import ACCESS_KEY, is_signed
from rmq.access.tables import DISABLED, SUPER, AclTable, UserTable
from rmq.core.errors import RequestRejected
from rmq.protocol.bodies.auth import UserInfo
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command


class RequiredPermission(NamedTuple):
    """A right that a request needs: one of the actions on the resource."""

    resource: Resource
    actions: tuple[Action, ...]


class Rights:
    """Known in Java as `AuthenticationEvaluator` and `AuthorizationEvaluator`."""

    def __init__(self, users: UserTable, acls: AclTable) -> None:
        self._users = users
        self._acls = acls

    def authenticate(self, request: Command) -> None:
        """Raise `RequestRejected` unless a known user has signed the request."""
        name = request.ext_fields.get(ACCESS_KEY)
        if not name:
            raise refusal_of("username cannot be null.")
        user = self._enabled_user(name, f"User:{name} is not found.")
        if not is_signed(request, user.password or ""):
            raise refusal_of("check signature failed.")

    def authenticate_text(self, name: str, content: bytes, mac: bytes) -> None:
        """Raise `RequestRejected` unless a known user has signed a text (SHA-1)."""
        if not name:
            raise refusal_of("username cannot be null.")
        user = self._enabled_user(name, f"User:{name} is not found.")
        right = hmac.digest((user.password or "").encode(), content, "sha1")
        if not hmac.compare_digest(right, mac):
            raise refusal_of("check signature failed.")

    def authorize(
        self, request: Command, needs: Iterable[RequiredPermission], source: str
    ) -> None:
        """Raise `RequestRejected` unless the request's user has all these rights.

        `source` is the caller's address without its port.
        """
        self.authorize_user(request.ext_fields.get(ACCESS_KEY, ""), needs, source)

    def authorize_user(
        self, name: str, needs: Iterable[RequiredPermission], source: str
    ) -> None:
        """Raise `RequestRejected` unless the user has all these rights."""
        if not name:
            raise refusal_of(
                "Authorization failed. Please verify your access rights and try again."
            )
        user = self._enabled_user(name, f"User:{name} not found.")
        if user.user_type == SUPER:
            return
        for need in needs:
            self._check_one(name, need, source)

    def _check_one(self, name: str, need: RequiredPermission, source: str) -> None:
        policies = self._acls.policies_of(f"User:{name}")
        decision = policies and policies.decide(need.resource, need.actions, source)
        if decision is Decision.ALLOW:
            return
        why = "the decision is deny." if decision else "no matched policies."
        raise refusal_of(
            f"User:{name} has no permission to access {need.resource.key} "
            f"from {source}, {why}"
        )

    def _enabled_user(self, name: str, remark: str) -> UserInfo:
        user = self._users.get(name)
        if user is None:
            raise refusal_of(remark)
        if user.user_status == DISABLED:
            raise refusal_of(f"User:{name} is disabled.")
        return user


def refusal_of(remark: str) -> RequestRejected:
    """Return the error for a request that the user may not send."""
    return RequestRejected(ResponseCode.NO_PERMISSION, remark)
