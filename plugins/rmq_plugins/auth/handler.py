"""Requests 3001 to 3010: users and policies, as mqadmin administers them.

The broker answers a change when it is on disk. Only super users see passwords. While
access control is off, `unguarded.py` restricts the sources of these requests.
"""

import logging
from collections.abc import Coroutine, Iterator
from typing import Any, Final

import msgspec

from rmq.access.actions import Action
from rmq.access.policies import Decision, PolicyType, actions_of, by_name, is_source
from rmq.access.resources import parse
from rmq.access.signature import ACCESS_KEY
from rmq.access.tables import (
    DISABLED,
    ENABLED,
    MAX_RULES,
    MAX_USERS,
    SUPER,
    AclTable,
    UserTable,
)
from rmq.plugin import Connection, RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from rmq_plugins.auth.unguarded import Unguarded

logger = logging.getLogger(__name__)

NORMAL: Final = "Normal"
MAX_NAME_LENGTH: Final = 255
USER_PREFIX: Final = "User:"

_ONLY_SUPER: Final = "The super user can only be update by super user"

Saving = Coroutine[Any, Any, Command]


class AuthHandler:
    """The part of Java's `AdminBrokerProcessor` about users and policies."""

    def __init__(
        self, users: UserTable, acls: AclTable, unguarded: Unguarded | None
    ) -> None:
        self._users = users
        self._acls = acls
        self._unguarded = unguarded

    # -- users

    def create_user(self, request: Command, connection: Connection) -> Saving:
        """Add a user; only a super user creates super users."""
        self._check_sender(request, connection)
        user = _decode_user(request)
        if user.user_type == SUPER and not self._may_change_super(request):
            raise _system_error("The super user can only be create by super user")
        if not (user.password or "").strip():
            raise _no_permission("password can not be blank")
        assert user.username, "_decode_user checks it"
        if self._users.get(user.username) is not None:
            raise _no_permission("The user is existed")
        if len(self._users) >= MAX_USERS:
            raise _no_permission(
                f"there are already {MAX_USERS} users, the limit: delete users first"
            )
        user.user_type = user.user_type or NORMAL
        user.user_status = user.user_status or ENABLED
        self._users.put(user)
        return self._save_change(request, connection)

    def update_user(self, request: Command, connection: Connection) -> Saving:
        """Change the fields that are in the body."""
        self._check_sender(request, connection)
        change = _decode_user(request)
        is_super = self._may_change_super(request)
        if change.user_type == SUPER and not is_super:
            raise _system_error(_ONLY_SUPER)
        old = self._users.get(change.username or "")
        if old is None:
            raise _no_permission("The user is not exist")
        if old.user_type == SUPER and not is_super:
            raise _no_permission(_ONLY_SUPER)
        if not (change.password or "").strip():
            change.password = old.password
        change.user_type = change.user_type or old.user_type
        change.user_status = change.user_status or old.user_status
        self._users.put(change)
        return self._save_change(request, connection)

    def delete_user(self, request: Command, connection: Connection) -> Saving:
        """Remove a user and its rules; an unknown user is not an error."""
        self._check_sender(request, connection)
        name = request.header(UserRequestHeader).username or ""
        if not name.strip():
            raise _no_permission("username can not be blank")
        user = self._users.get(name)
        if user is not None:
            if user.user_type == SUPER and not self._may_change_super(request):
                raise _no_permission(_ONLY_SUPER)
            self._users.remove(name)
            self._acls.remove(USER_PREFIX + name)
        return self._save_change(request, connection)

    def get_user(self, request: Command, connection: Connection) -> Command:
        """Answer one user; no body if there is none."""
        self._check_sender(request, connection)
        name = request.header(UserRequestHeader).username or ""
        if not name.strip():
            raise _invalid("The username is blank")
        user = self._users.get(name)
        if user is None:
            return request.reply()
        return request.reply(body=self._hide_password(user, request).encode())

    def list_users(self, request: Command, connection: Connection) -> Command:
        """Answer the users whose names contain the filter; no body if there is none."""
        self._check_sender(request, connection)
        part = (request.header(ListUsersRequestHeader).filter or "").strip()
        users = [
            self._hide_password(user, request)
            for user in self._users.all_users()
            if part in (user.username or "")
        ]
        return request.reply(body=fastjson.dump_json(users) if users else b"")

    # -- policies

    def change_acl(self, request: Command, connection: Connection) -> Saving:
        """Add rules to a user, or replace the user's rules about the same resources.

        As in Java, the requests to create and to update do the same.
        """
        self._check_sender(request, connection)
        acl = AclInfo.decode(request.body) if request.body else AclInfo()
        if not acl.policies:
            raise _system_error("The body of acl is null")
        given = acl.subject or request.header(AclRequestHeader).subject
        subject = self._check_subject(given, "The subject of {} is not exist.")
        policies = [_check_policy(policy) for policy in acl.policies if policy.entries]
        if not policies:
            raise _no_permission("The policies is empty.")
        old = self._acls.get(subject)
        held = old.policies if old is not None else []
        rules = sum(len(policy.entries) for policy in (*held, *policies))
        if rules > MAX_RULES:
            raise _no_permission(f"{subject} would have more than {MAX_RULES} rules")
        merged = _merge_policies(held, policies) if old is not None else policies
        self._acls.put(subject, AclInfo(subject=subject, policies=merged))
        return self._save_change(request, connection)

    def delete_acl(self, request: Command, connection: Connection) -> Saving:
        """Remove the rule about a resource; without a resource, all rules of a user."""
        self._check_sender(request, connection)
        header = request.header(DeleteAclRequestHeader)
        subject = self._check_subject(header.subject, "The subject is not exist.")
        acl = self._acls.get(subject)
        if acl is None:
            raise _no_permission("The acl is not exist.")
        resource = parse(header.resource)
        if resource is None and (header.resource or "").strip():
            raise _invalid(f"{header.resource} is not a resource, nothing was deleted")
        kind = by_name(PolicyType, header.policy_type) or PolicyType.CUSTOM
        policies = []
        if resource is not None:
            policies = list(_remove_resource(acl.policies, kind, resource.key))
        if policies:
            self._acls.put(subject, AclInfo(subject=subject, policies=policies))
        else:
            self._acls.remove(subject)
        return self._save_change(request, connection)

    def get_acl(self, request: Command, connection: Connection) -> Command:
        """Answer the rules of a user; no body if there is none."""
        self._check_sender(request, connection)
        subject = self._check_subject(
            request.header(AclRequestHeader).subject, "The subject is not exist."
        )
        acl = self._acls.get(subject)
        return request.reply(body=acl.encode() if acl is not None else b"")

    def list_acls(self, request: Command, connection: Connection) -> Command:
        """Answer the rules whose subjects and resources contain the filters."""
        self._check_sender(request, connection)
        header = request.header(ListAclsRequestHeader)
        part, wanted = header.subject_filter or "", header.resource_filter or ""
        acls = []
        for subject, acl in self._acls.all_rules():
            if part.strip() and part not in subject:
                continue
            policies = list(_select_policies(acl.policies, wanted))
            if policies:
                acls.append(AclInfo(subject=subject, policies=policies))
        return request.reply(body=fastjson.dump_json(acls) if acls else b"")

    # -- shared

    def _check_sender(self, request: Command, connection: Connection) -> None:
        if self._unguarded is not None:
            self._unguarded.check_source(request, connection)

    def _may_change_super(self, request: Command) -> bool:
        """Return whether the sender may create, change and remove super users."""
        return self._unguarded is not None or self._is_super(request)

    def _is_super(self, request: Command) -> bool:
        """Return whether the sender, whose signature was checked, is a super user."""
        if self._unguarded is not None:
            return False
        user = self._users.get(request.ext_fields.get(ACCESS_KEY, ""))
        return user is not None and user.user_type == SUPER

    def _hide_password(self, user: UserInfo, request: Command) -> UserInfo:
        if self._is_super(request):
            return user
        return msgspec.structs.replace(user, password=None)

    def _check_subject(self, given: str | None, remark: str) -> str:
        """Return the subject in its stored form; refuse unknown users."""
        kind, _, name = (given or "").partition(":")
        if kind.lower() != "user":
            raise _no_permission(f"The subject {given} is not valid, write User:name")
        subject = USER_PREFIX + name
        if self._users.get(name) is None:
            raise _no_permission(remark.format(subject))
        return subject

    def _save_change(self, request: Command, connection: Connection) -> Saving:
        """Return a coroutine that answers when both tables are saved."""
        if self._unguarded is not None:
            self._unguarded.prepare_save(request, connection)
        return self._answer_when_saved(request)

    async def _answer_when_saved(self, request: Command) -> Command:
        for table in (self._users, self._acls):
            await table.wait_saved(None)
        return request.reply()


def _decode_user(request: Command) -> UserInfo:
    """Return the user in the body of a request, with the name in its header."""
    name = request.header(UserRequestHeader).username or ""
    if not name.strip():
        raise _invalid("The username is blank")
    if len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise _invalid(
            f"a username has at most {MAX_NAME_LENGTH} characters, all printable"
        )
    user = UserInfo.decode(request.body)
    user.username = name
    user.user_type = _match_word("userType", user.user_type, (SUPER, NORMAL))
    user.user_status = _match_word("userStatus", user.user_status, (ENABLED, DISABLED))
    return user


def _match_word(what: str, text: str | None, allowed: tuple[str, ...]) -> str | None:
    if not text:
        return None
    for word in allowed:
        if word.lower() == text.lower():
            return word
    raise _invalid(f"{what} is {text}, write {' or '.join(allowed)}")


def _check_policy(policy: PolicyInfo) -> PolicyInfo:
    kind = by_name(PolicyType, policy.policy_type) or PolicyType.CUSTOM
    return PolicyInfo(
        policy_type=kind, entries=[_check_entry(entry) for entry in policy.entries]
    )


def _check_entry(entry: PolicyEntryInfo) -> PolicyEntryInfo:
    """Return an entry in its stored form; refuse an invalid entry."""
    resource = parse(entry.resource)
    if resource is None:
        raise _no_permission("The resource is null.")
    actions = actions_of(entry)
    if not actions:
        raise _no_permission("The actions is empty.")
    if Action.ANY in actions:
        raise _no_permission("The actions can not be Any.")
    for source in entry.source_ips or ():
        if not source.strip():
            raise _no_permission("The source ip is empty.")
        if not is_source(source):
            raise _no_permission("The source ip is invalid.")
    decision = by_name(Decision, entry.decision)
    if decision is None:
        raise _no_permission("The decision is null or illegal.")
    return PolicyEntryInfo(
        resource=resource.key,
        actions=[str(action) for action in actions],
        source_ips=entry.source_ips or None,
        decision=str(decision),
    )


def _merge_policies(old: list[PolicyInfo], new: list[PolicyInfo]) -> list[PolicyInfo]:
    """Replace old rules by new ones, policy by policy and resource by resource."""
    entries = {
        policy.policy_type: {entry.resource: entry for entry in policy.entries}
        for policy in reversed(old)
    }
    merged = dict(reversed(entries.items()))
    for policy in new:
        held = merged.setdefault(policy.policy_type, {})
        held.update({entry.resource: entry for entry in policy.entries})
    return [
        PolicyInfo(policy_type=kind, entries=list(held.values()))
        for kind, held in merged.items()
    ]


def _remove_resource(
    policies: list[PolicyInfo], kind: PolicyType, resource: str
) -> Iterator[PolicyInfo]:
    """Remove one resource from one policy, and the policy if it is empty then."""
    for policy in policies:
        entries = policy.entries
        if policy.policy_type == kind:
            entries = [entry for entry in entries if entry.resource != resource]
        if entries:
            yield PolicyInfo(policy_type=policy.policy_type, entries=entries)


def _select_policies(policies: list[PolicyInfo], part: str) -> Iterator[PolicyInfo]:
    """Keep the rules about resources that contain `part`."""
    for policy in policies:
        entries = [
            entry
            for entry in policy.entries
            if not part.strip() or part in (entry.resource or "")
        ]
        if entries:
            yield PolicyInfo(policy_type=policy.policy_type, entries=entries)


def _system_error(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, remark)


def _invalid(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, remark)


def _no_permission(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.NO_PERMISSION, remark)
