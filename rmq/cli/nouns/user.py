"""The verbs of `rmq user`."""

import sys
from typing import Any, BinaryIO

import click

from rmq.cli.admin.auth import (
    create_user,
    delete_acl,
    delete_user,
    get_acl,
    get_user,
    list_user,
    policy_body,
    send_change,
    update_user,
)
from rmq.cli.admin.base import Function, Output, Sheet, Table, broker_or_cluster
from rmq.cli.failures import ExplainedError, Failure
from rmq.cli.nouns.verb import confirm_deletion, register_verb, yes_option
from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode

_name = click.argument("user")
_password = click.option(
    "--password-file", "file", type=click.File("rb"), metavar="FILE",
    help="File with the password in its only line; - reads stdin.",
)  # fmt: skip
_kind = click.option(
    "--super/--normal",
    "is_super",
    default=None,
    help="Give the user all rights, or only rights by rules.",
)
_KINDS = {True: "Super", False: "Normal", None: None}


@register_verb("user", "ls")
@broker_or_cluster
def list_users(admin: AdminClient, broker: str | None, cluster: str | None) -> Output:
    return list_user(admin, broker, cluster, None)


@register_verb("user", "info")
@_name
@broker_or_cluster
def show_user(
    admin: AdminClient, broker: str | None, cluster: str | None, user: str
) -> Output:
    found = _known_user(admin, broker, cluster, user)
    rules = get_acl(admin, broker, cluster, f"User:{user}")
    assert isinstance(rules, Table), user
    return Sheet(found.as_json()[0], "rules", rules)


def _known_user(
    admin: AdminClient, broker: str | None, cluster: str | None, user: str
) -> Table:
    """Return the row of a user; fail if there is no such user."""
    found = get_user(admin, broker, cluster, user)
    assert isinstance(found, Table), user
    if not found.rows:
        failure = Failure(f"there is no user {user}", "", "rmq user ls")
        raise ExplainedError(failure, is_refusal=True)
    return found


@register_verb("user", "create", "On a terminal it asks for the password.")
@_name
@_password
@_kind
@broker_or_cluster
def add_user(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    user: str,
    file: BinaryIO | None,
    *,
    is_super: bool | None,
) -> Output:
    password = _ask_password(user) if file is None else None
    kind = _KINDS[bool(is_super)]
    create_user(admin, broker, cluster, user, password, file, kind)
    return Table(("username", "userType"), [(user, kind)])


def _ask_password(user: str) -> str:
    if not sys.stdin.isatty():
        raise click.UsageError("give the password with --password-file; - reads stdin")
    text = f"Password of {user}"
    return str(click.prompt(text, hide_input=True, confirmation_prompt=True, err=True))


@register_verb("user", "set")
@_name
@_password
@click.option("--ask", is_flag=True, help="Ask for a new password.")
@_kind
@click.option(
    "--enable/--disable",
    "is_on",
    default=None,
    help="Allow or forbid the user to sign in.",
)
@broker_or_cluster
def change_user(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    user: str,
    file: BinaryIO | None,
    *,
    ask: bool,
    is_super: bool | None,
    is_on: bool | None,
) -> Output:
    if (file, ask, is_super, is_on) == (None, False, None, None):
        raise click.UsageError("give --password-file, --ask, --super or --disable")
    _known_user(admin, broker, cluster, user)
    password = _ask_password(user) if ask else None
    status = {True: "enable", False: "disable", None: None}[is_on]
    update_user(admin, broker, cluster, user, password, file, _KINDS[is_super], status)
    return _known_user(admin, broker, cluster, user)


@register_verb("user", "rm")
@click.argument("users", nargs=-1, required=True)
@broker_or_cluster
@yes_option
def remove_users(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    users: tuple[str, ...],
    *,
    is_sure: bool,
) -> Output:
    for each in users:
        _known_user(admin, broker, cluster, each)
    confirm_deletion(f"Delete {', '.join(users)} with all rules?", is_sure=is_sure)
    for each in users:
        delete_user(admin, broker, cluster, each)
    return Table(("username", "state"), [(each, "deleted") for each in users])


def _rule_options(function: Function) -> Function:
    for add in reversed(
        (
            _name,
            click.argument("resource", metavar="RESOURCE"),
            click.argument("actions", metavar="ACTION,…"),
            click.option(
                "--from", "sources", metavar="IP,…", help="Only for these addresses."
            ),
            broker_or_cluster,
        )
    ):
        function = add(function)
    return function


def _join_actions(
    before: Table, resource: str, actions: str, decision: str, sources: str | None
) -> str:
    """Return the actions, and the actions of the current rule, which the new rule
    replaces.

    A rule with another decision, or for other addresses, is replaced.
    """
    wanted = [each.strip() for each in actions.split(",")]
    rows: list[dict[str, Any]] = before.as_json()
    for row in rows:
        same = row["resource"], row["decision"], ",".join(row["sourceIps"] or ())
        if same == (resource, decision, sources or ""):
            wanted += [each for each in row["actions"] if each not in wanted]
    return ",".join(wanted)


def _register_rule(verb: str, decision: str) -> None:
    @register_verb(
        "user", verb,
        "RESOURCE is, for example, Topic:Orders, Topic:order-*, Group:* or Cluster:*. "
        "Actions are Pub, Sub, Create, Update, Delete, Get, List or All.",
    )  # fmt: skip
    @_rule_options
    def add_rule(
        admin: AdminClient,
        broker: str | None,
        cluster: str | None,
        user: str,
        resource: str,
        actions: str,
        sources: str | None,
    ) -> Output:
        _known_user(admin, broker, cluster, user)
        subject = f"User:{user}"
        before = get_acl(admin, broker, cluster, subject)
        assert isinstance(before, Table), user
        actions = _join_actions(before, resource, actions, decision, sources)
        body = policy_body(subject, resource, actions, decision, sources)
        code = RequestCode.AUTH_CREATE_ACL
        send_change(admin, broker, cluster, code, {"subject": subject}, body)
        return get_acl(admin, broker, cluster, subject)


_register_rule("allow", "Allow")
_register_rule("deny", "Deny")


@register_verb("user", "revoke", "Without RESOURCE it deletes all rules of the user.")
@_name
@click.argument("resource", required=False)
@broker_or_cluster
def revoke(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    user: str,
    resource: str | None,
) -> Output:
    delete_acl(admin, broker, cluster, f"User:{user}", resource)
    return get_acl(admin, broker, cluster, f"User:{user}")
