"""Commands for users and access rules."""

from typing import BinaryIO

import click

from rmq.cli.admin.base import (
    Function,
    Output,
    Table,
    broker_or_cluster,
    register_command,
    resolve_brokers,
    send_to_brokers,
)
from rmq.client.admin import AdminClient
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode, ResponseCode

_kind_option = click.option(
    "-t",
    "--userType",
    "kind",
    type=click.Choice(["Normal", "Super"]),
    help="Type of the user.",
)
_source_option, _target_option = (
    click.option(
        f"-{end[0]}",
        f"--{end}Broker",
        name,
        required=True,
        metavar="HOST:PORT",
        help=f"Broker to copy {end}.",
    )
    for end, name in (("from", "source"), ("to", "target"))
)
user_option = click.option("-u", "--username", "user", required=True, help="User.")
subject_option = click.option(
    "-s", "--subject", required=True, metavar="User:NAME", help="User."
)


def send_change(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    code: int,
    fields: dict[str, object],
    value: dict[str, object] | None = None,
) -> list[str]:
    """Send a change to the broker of -b, or to all brokers of -c."""
    body = b"" if value is None else fastjson.dump_json(value)
    brokers = resolve_brokers(admin, broker, cluster, slaves=True)
    return send_to_brokers(admin, brokers, code, fields, body, text="{} success.")


def _user_body(
    name: str, password: str | None, kind: str | None, status: str | None
) -> dict[str, object]:
    parts = {
        "username": name, "password": password, "userType": kind, "userStatus": status,
    }  # fmt: skip
    return {key: value for key, value in parts.items() if value is not None}


def password_options(function: Function) -> Function:
    """Add mqadmin's -p, which shows the password to other users, and a safe option for
    a file.
    """
    shown = click.option(
        "-p", "--password", help="Password; other users of the machine can see it here."
    )
    hidden = click.option(
        "--password-file", type=click.File("rb"), metavar="FILE",
        help="File with the password in its only line; - reads stdin.",
    )  # fmt: skip
    decorated: Function = shown(hidden(function))
    return decorated


def _read_password(shown: str | None, file: BinaryIO | None) -> str | None:
    """Return the password of one of the two options; None if neither is given."""
    if file is None:
        return shown
    if shown is not None:
        raise click.UsageError("give -p or --password-file, not both")
    return file.read().decode("utf-8", "strict").rstrip("\r\n")


@register_command("createUser")
@broker_or_cluster
@user_option
@password_options
@_kind_option
def create_user(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    user: str,
    password: str | None,
    password_file: BinaryIO | None,
    kind: str | None,
) -> Output:
    password = _read_password(password, password_file)
    if password is None:
        raise click.UsageError("give the password with --password-file")
    value = _user_body(user, password, kind, None)
    code = RequestCode.AUTH_CREATE_USER
    return send_change(admin, broker, cluster, code, {"username": user}, value)


@register_command("updateUser")
@broker_or_cluster
@user_option
@password_options
@_kind_option
@click.option(
    "-s",
    "--userStatus",
    "status",
    type=click.Choice(["enable", "disable"]),
    help="Status of the user.",
)
def update_user(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    user: str,
    password: str | None,
    password_file: BinaryIO | None,
    kind: str | None,
    status: str | None,
) -> Output:
    value = _user_body(user, _read_password(password, password_file), kind, status)
    code = RequestCode.AUTH_UPDATE_USER
    return send_change(admin, broker, cluster, code, {"username": user}, value)


@register_command("deleteUser")
@broker_or_cluster
@user_option
def delete_user(
    admin: AdminClient, broker: str | None, cluster: str | None, user: str
) -> Output:
    code = RequestCode.AUTH_DELETE_USER
    return send_change(admin, broker, cluster, code, {"username": user})


@register_command("getUser")
@broker_or_cluster
@user_option
def get_user(
    admin: AdminClient, broker: str | None, cluster: str | None, user: str
) -> Output:
    address = resolve_brokers(admin, broker, cluster)[0].address
    body = admin.request(address, RequestCode.AUTH_GET_USER, {"username": user}).body
    return _user_table([fastjson.load_json(body)] if body else [])


@register_command("listUser")
@broker_or_cluster
@click.option("-f", "--filter", "text", help="Only users with this text in the name.")
def list_user(
    admin: AdminClient, broker: str | None, cluster: str | None, text: str | None
) -> Output:
    address = resolve_brokers(admin, broker, cluster)[0].address
    fields = {"filter": text} if text else {}
    body = admin.request(address, RequestCode.AUTH_LIST_USER, fields).body
    return _user_table(fastjson.load_json(body) if body else [])


def _user_table(users: list[dict[str, object]]) -> Table:
    columns = ("username", "userType", "userStatus")
    return Table(columns, [[user.get(name) for name in columns] for user in users])


def policy_body(
    subject: str, resource: str, actions: str, decision: str, sources: str | None
) -> dict[str, object]:
    entries = [
        {
            "resource": each.strip(),
            "actions": [part.strip() for part in actions.split(",")],
            "sourceIps": [part.strip() for part in (sources or "").split(",") if part],
            "decision": decision,
        }
        for each in resource.split(",")
    ]
    policies = [{"policyType": "Custom", "entries": entries}]
    return {"subject": subject, "policies": policies}


def _register_acl_command(name: str, code: int) -> None:
    """Register createAcl or updateAcl, which differ only in these arguments."""

    @register_command(name)
    @broker_or_cluster
    @subject_option
    @click.option(
        "-r",
        "--resources",
        "resource",
        required=True,
        metavar="Topic:T,…",
        help="Resources, such as Topic:Orders or Group:*.",
    )
    @click.option(
        "-a",
        "--actions",
        required=True,
        metavar="Pub,Sub,…",
        help="Actions: Pub, Sub, Create, Update, Delete, Get, List, Any or All.",
    )
    @click.option(
        "-d",
        "--decision",
        type=click.Choice(["Allow", "Deny"]),
        required=True,
        help="Effect of the rule.",
    )
    @click.option(
        "-i",
        "--sourceIp",
        "sources",
        metavar="IP,…",
        help="Client addresses to which the rule applies. [default: all]",
    )
    def change_acl(
        admin: AdminClient,
        broker: str | None,
        cluster: str | None,
        subject: str,
        resource: str,
        actions: str,
        decision: str,
        sources: str | None,
    ) -> Output:
        body = policy_body(subject, resource, actions, decision, sources)
        return send_change(admin, broker, cluster, code, {"subject": subject}, body)


_register_acl_command("createAcl", RequestCode.AUTH_CREATE_ACL)
_register_acl_command("updateAcl", RequestCode.AUTH_UPDATE_ACL)


@register_command("deleteAcl")
@broker_or_cluster
@subject_option
@click.option("-r", "--resources", "resource", help="Only the rules for this resource.")
def delete_acl(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    subject: str,
    resource: str | None,
) -> Output:
    fields: dict[str, object] = {"subject": subject, "policyType": "Custom"}
    if resource:
        fields["resource"] = resource
    return send_change(admin, broker, cluster, RequestCode.AUTH_DELETE_ACL, fields)


@register_command("getAcl")
@broker_or_cluster
@subject_option
def get_acl(
    admin: AdminClient, broker: str | None, cluster: str | None, subject: str
) -> Output:
    address = resolve_brokers(admin, broker, cluster)[0].address
    body = admin.request(address, RequestCode.AUTH_GET_ACL, {"subject": subject}).body
    return _rule_table([fastjson.load_json(body)] if body else [])


@register_command("listAcl")
@broker_or_cluster
@click.option("-s", "--subject", "subject", metavar="User:NAME", help="Only this user.")
@click.option("-r", "--resources", "resource", help="Only this resource.")
def list_acl(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    subject: str | None,
    resource: str | None,
) -> Output:
    address = resolve_brokers(admin, broker, cluster)[0].address
    wanted = {"subjectFilter": subject, "resourceFilter": resource}
    fields = {name: value for name, value in wanted.items() if value}
    body = admin.request(address, RequestCode.AUTH_LIST_ACL, fields).body
    return _rule_table(fastjson.load_json(body) if body else [])


def _rule_table(infos: list[dict[str, object]]) -> Table:
    names = ("resource", "actions", "sourceIps", "decision")
    rows = []
    for info in infos:
        for policy in info.get("policies") or ():  # type: ignore[attr-defined] # a list
            for entry in policy["entries"]:
                start = info["subject"], policy["policyType"]
                rows.append((*start, *(entry.get(name) for name in names)))
    return Table(("subject", "policyType", *names), rows)


@register_command("copyUser")
@_source_option
@_target_option
@click.option(
    "-u", "--usernames", "names", help="Only these users, separated by commas."
)
def copy_user(
    admin: AdminClient, source: str, target: str, names: str | None
) -> Output:
    codes = RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_CREATE_USER
    listing = RequestCode.AUTH_LIST_USER
    return _copy_all(admin, (source, target), listing, codes, "username", names)


@register_command("copyAcl")
@_source_option
@_target_option
@click.option(
    "-s", "--subjects", "subjects", help="Only these subjects, separated by commas."
)
def copy_acl(
    admin: AdminClient, source: str, target: str, subjects: str | None
) -> Output:
    codes = RequestCode.AUTH_UPDATE_ACL, RequestCode.AUTH_CREATE_ACL
    listing = RequestCode.AUTH_LIST_ACL
    return _copy_all(admin, (source, target), listing, codes, "subject", subjects)


def _copy_all(
    admin: AdminClient,
    ends: tuple[str, str],
    listing: RequestCode,
    codes: tuple[RequestCode, RequestCode],
    key: str,
    names: str | None,
) -> Output:
    """Copy users or rules between brokers: update old entries, create new entries."""
    source, target = ends
    update, create = codes
    wanted = set(names.split(",")) if names else None
    missing = (ResponseCode.USER_NOT_EXIST, ResponseCode.POLICY_NOT_EXIST)
    lines = []
    for value in fastjson.load_json(admin.request(source, listing).body or b"[]"):
        if wanted is not None and value[key] not in wanted:
            continue
        fields, body = {key: value[key]}, fastjson.dump_json(value)
        try:
            admin.request(target, update, fields, body)
        except AnswerRefused as error:
            if error.code not in (*missing, ResponseCode.SYSTEM_ERROR):
                raise
            admin.request(target, create, fields, body)
        lines.append(f"copied {value[key]} to {target}")
    return lines
