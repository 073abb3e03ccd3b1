"""A node with access control on: who gets in, and what mqadmin's requests do."""

import json
import logging
import stat
from typing import NamedTuple

import pytest

from rmq.access.config import AuthConfig
from rmq.access.networks import LOOPBACK, parse_networks
from rmq.access.signature import signature_of, signed_content
from rmq.access.tables import UserTable
from rmq.core.clock import SystemClock
from rmq.core.errors import ConfigError, RequestRejected
from rmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.remoting.client import RemotingClient
from rmq.testing.broker import running_node
from rmq_plugins.auth.handler import AuthHandler
from rmq_plugins.auth.unguarded import Unguarded

ENTRY = PolicyEntryInfo(resource="Topic:Orders", actions=["Pub"], decision="Allow")
ROOT = ("root", "root-password")
ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-password"}',
    "innerClientAuthenticationCredentials": (
        '{"accessKey":"inner","secretKey":"inner-password"}'
    ),
}


class Peer(NamedTuple):
    """What the handler asks a connection for."""

    remote_address: str
    source_host: str
    peer_host: str


class Signer:
    """Sends signed requests to one node."""

    def __init__(self, client, address):
        self._client = client
        self._address = address

    async def ask(self, code, fields=None, body=b"", user=ROOT):
        request = Command.request(code, body=body)
        request.ext_fields = dict(fields or {})
        if user is not None:
            request.ext_fields["AccessKey"] = user[0]
            signature = signature_of(signed_content(request), user[1])
            request.ext_fields["Signature"] = signature
        return await self._client.invoke(self._address, request, 3_000)

    async def done(self, *arguments, **more):
        answer = await self.ask(*arguments, **more)
        assert answer.code == 0, answer.remark
        return answer

    async def create_user(self, name, password="pw", kind="Normal", **more):
        body = UserInfo(password=password, user_type=kind).encode()
        code = RequestCode.AUTH_CREATE_USER
        return await self.ask(code, {"username": name}, body, **more)

    async def allow(self, name, resource, *actions, decision="Allow", sources=None):
        entry = PolicyEntryInfo(
            resource=resource,
            actions=list(actions),
            source_ips=sources,
            decision=decision,
        )
        acl = AclInfo(
            subject=f"User:{name}", policies=[PolicyInfo(entries=[entry])]
        ).encode()
        fields = {"subject": f"User:{name}"}
        return await self.done(RequestCode.AUTH_CREATE_ACL, fields, acl)

    async def send(self, topic, user):
        fields = {
            "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0",
            "g": "0", "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        return await self.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x", user=user)


@pytest.fixture
async def signer(tmp_path, nursery):
    async with running_node(tmp_path / "store", ON) as node:
        client = RemotingClient()
        await nursery.start(client.run)
        yield Signer(client, node.address)
        nursery.cancel_scope.cancel()


async def test_who_is_unknown_or_signs_wrongly_does_not_get_in(signer):
    for user, remark in (
        (None, "username cannot be null."),
        (("stranger", "x"), "User:stranger is not found."),
        (("root", "x"), "check signature failed."),
    ):
        answer = await signer.send("T", user)
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, remark)
    assert (await signer.send("T", ROOT)).code == 0
    assert (await signer.send("T", ("inner", "inner-password"))).code == 0


async def test_a_user_may_what_its_rules_say(signer):
    await signer.done(
        RequestCode.AUTH_CREATE_USER,
        {"username": "ann"},
        UserInfo(password="pw").encode(),
    )
    ann = ("ann", "pw")
    refused = await signer.send("Orders", ann)
    assert refused.remark == (
        "User:ann has no permission to access Topic:Orders from 127.0.0.1, "
        "no matched policies."
    )
    await signer.allow("ann", "Topic:Ord*", "Pub")
    assert (await signer.send("Orders", ann)).code == 0
    await signer.allow("ann", "Topic:OrdersOld", "Pub", decision="Deny")
    refused = await signer.send("OrdersOld", ann)
    assert refused.remark is not None
    assert refused.remark.endswith("the decision is deny.")
    await signer.allow("ann", "Topic:Ord*", "Pub", sources=["10.0.0.0/8"])
    assert (await signer.send("Orders", ann)).code == ResponseCode.NO_PERMISSION


async def test_a_disabled_user_is_refused_at_once(signer):
    assert (await signer.create_user("bob")).code == 0
    body = UserInfo(user_status="disable").encode()
    await signer.done(RequestCode.AUTH_UPDATE_USER, {"username": "bob"}, body)
    answer = await signer.send("T", ("bob", "pw"))
    assert answer.remark == "User:bob is disabled."


async def test_retry_topics_need_the_right_on_their_group(signer):
    await signer.create_user("ann")
    ann = ("ann", "pw")
    await signer.allow("ann", "Group:mine", "Sub")
    await signer.allow("ann", "Topic:*", "Pub", "Sub")
    assert "Group:other" in (await signer.send("%RETRY%other", ann)).remark
    assert (await signer.send("%RETRY%mine", ann)).code == 0
    fields = {"topic": "%RETRY%other", "consumerGroup": "mine", "queueId": "0"}
    stolen = await signer.ask(RequestCode.PULL_MESSAGE, fields, user=ann)
    assert stolen.code == ResponseCode.NO_PERMISSION


async def test_administration_needs_a_right_on_the_cluster(signer):
    await signer.create_user("ann")
    for code in (RequestCode.GET_BROKER_CONFIG, RequestCode.AUTH_LIST_USER):
        answer = await signer.ask(code, user=("ann", "pw"))
        assert "Cluster:DefaultCluster" in answer.remark
    await signer.allow("ann", "Cluster:DefaultCluster", "Get")
    listed = await signer.done(RequestCode.AUTH_LIST_USER, user=("ann", "pw"))
    assert b"password" not in listed.body
    assert b'"username":"root"' in listed.body


async def test_super_users_alone_see_passwords_and_make_super_users(signer):
    listed = await signer.done(RequestCode.AUTH_LIST_USER)
    shown = {user["username"]: user for user in json.loads(listed.body)}
    assert shown["root"] == {
        "username": "root",
        "password": "root-password",
        "userType": "Super",
        "userStatus": "enable",
    }
    await signer.create_user("ann")
    ann = ("ann", "pw")
    await signer.allow("ann", "Cluster:DefaultCluster", "Update")
    answer = await signer.create_user("eve", kind="Super", user=ann)
    assert answer.remark == "The super user can only be create by super user"
    fields, body = {"username": "root"}, UserInfo(password="mine").encode()
    answer = await signer.ask(RequestCode.AUTH_UPDATE_USER, fields, body, user=ann)
    assert answer.remark == "The super user can only be update by super user"
    answer = await signer.ask(RequestCode.AUTH_DELETE_USER, fields, user=ann)
    assert answer.remark == "The super user can only be update by super user"
    assert (await signer.send("T", ROOT)).code == 0


async def test_rules_are_listed_changed_and_deleted(signer):
    await signer.create_user("ann")
    await signer.allow("ann", "topic:A", "pub", sources=["10.0.0.1"])
    await signer.allow("ann", "Group:G*", "Sub")
    await signer.allow("ann", "Topic:A", "Sub")
    subject = {"subject": "User:ann"}
    got = json.loads((await signer.done(RequestCode.AUTH_GET_ACL, subject)).body)
    assert got == {
        "subject": "User:ann",
        "policies": [
            {
                "policyType": "Custom",
                "entries": [
                    {"resource": "Topic:A", "actions": ["Sub"], "decision": "Allow"},
                    {"resource": "Group:G*", "actions": ["Sub"], "decision": "Allow"},
                ],
            }
        ],
    }
    wanted = {"subjectFilter": "ann", "resourceFilter": "Group"}
    (only,) = json.loads((await signer.done(RequestCode.AUTH_LIST_ACL, wanted)).body)
    assert [e["resource"] for e in only["policies"][0]["entries"]] == ["Group:G*"]
    await signer.done(RequestCode.AUTH_DELETE_ACL, subject | {"resource": "Topic:A"})
    left = (await signer.done(RequestCode.AUTH_GET_ACL, subject)).body
    assert b"Topic:A" not in left
    assert b"Group:G*" in left
    await signer.done(RequestCode.AUTH_DELETE_ACL, subject)
    assert (await signer.done(RequestCode.AUTH_GET_ACL, subject)).body == b""


async def test_a_deleted_user_leaves_no_rules_behind(signer):
    await signer.create_user("ann")
    await signer.allow("ann", "Topic:*", "Pub")
    await signer.done(RequestCode.AUTH_DELETE_USER, {"username": "ann"})
    await signer.create_user("ann")
    answer = await signer.send("T", ("ann", "pw"))
    assert answer.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"resource": "Nothing:A"}, "The resource is null."),
        ({"actions": []}, "The actions is empty."),
        ({"actions": ["Any"]}, "The actions can not be Any."),
        ({"source_ips": [" "]}, "The source ip is empty."),
        ({"source_ips": ["10.0.0.0/99"]}, "The source ip is invalid."),
        ({"source_ips": ["localhost"]}, "The source ip is invalid."),
        ({"decision": "Perhaps"}, "The decision is null or illegal."),
    ],
)
async def test_a_wrong_rule_is_refused_with_javas_remark(signer, change, remark):
    good = {"resource": "Topic:A", "actions": ["Pub"], "decision": "Allow"}
    acl = AclInfo(policies=[PolicyInfo(entries=[PolicyEntryInfo(**good | change)])])
    answer = await signer.ask(
        RequestCode.AUTH_CREATE_ACL, {"subject": "User:root"}, acl.encode()
    )
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, remark)


async def test_users_and_rules_survive_and_only_the_owner_may_read_them(
    tmp_path, nursery
):
    folder = tmp_path / "store"
    for is_second in (False, True):
        async with running_node(folder, ON) as node:
            client = RemotingClient()
            await nursery.start(client.run)
            signer = Signer(client, node.address)
            if not is_second:
                await signer.create_user("ann")
                await signer.allow("ann", "Topic:T", "Pub")
                saved = folder / "config" / "auth"
                assert "ann" in json.loads((saved / "users.json").read_text())["users"]
                assert stat.S_IMODE(saved.stat().st_mode) == 0o700
            assert (await signer.send("T", ("ann", "pw"))).code == 0
    nursery.cancel_scope.cancel()


async def test_compiled_handlers_are_off_while_requests_are_checked(signer):
    await signer.send("T", ROOT)
    for _ in range(3):
        refused = await signer.send("T", ("root", "wrong"))
        assert refused.code == ResponseCode.NO_PERMISSION


async def test_users_are_prepared_while_it_is_off(tmp_path, nursery, caplog):
    """Nothing is enforced before the switch, and everything after it."""
    folder = tmp_path / "store"
    client = RemotingClient()
    await nursery.start(client.run)
    async with running_node(folder) as node:
        signer = Signer(client, node.address)
        for name, kind in (("ann", "Normal"), ("chief", "Super")):
            answer = await signer.create_user(name, kind=kind, user=None)
            assert answer.code == 0, answer.remark
        rules = AclInfo(policies=[PolicyInfo(entries=[ENTRY])]).encode()
        subject = {"subject": "User:ann"}
        code = RequestCode.AUTH_CREATE_ACL
        assert (await signer.ask(code, subject, rules, user=None)).code == 0
        assert "no effect before a start with authenticationEnabled=true" in caplog.text
        listed = await signer.done(RequestCode.AUTH_LIST_USER, user=None)
        assert b'"username":"chief"' in listed.body
        assert b"password" not in listed.body
        shown = await signer.done(RequestCode.AUTH_GET_ACL, subject, user=None)
        assert b"Topic:Orders" in shown.body
        assert not node.broker.is_guarded
        assert (await signer.send("Other", None)).code == 0
        saved = folder / "config" / "auth"
        assert stat.S_IMODE(saved.stat().st_mode) == 0o700
        assert set(json.loads((saved / "users.json").read_text())["users"]) == {
            "ann",
            "chief",
        }
    async with running_node(folder, ON) as node:
        signer = Signer(client, node.address)
        assert (await signer.send("Orders", ("ann", "pw"))).code == 0
        refused = await signer.send("Other", ("ann", "pw"))
        assert refused.code == ResponseCode.NO_PERMISSION
        listed = await signer.done(RequestCode.AUTH_LIST_USER, user=("chief", "pw"))
        assert {user["username"] for user in json.loads(listed.body)} == {
            "ann", "chief", "inner", "root",
        }  # fmt: skip
    nursery.cancel_scope.cancel()


async def test_while_it_is_off_a_claimed_key_shows_no_password(tmp_path, nursery):
    """Nobody checks the signature, so a super user's name proves nothing."""
    client = RemotingClient()
    await nursery.start(client.run)
    async with running_node(tmp_path / "store") as node:
        signer = Signer(client, node.address)
        await signer.create_user("chief", "a-secret", kind="Super", user=None)
        chief = ("chief", "guessed")
        listed = await signer.done(RequestCode.AUTH_LIST_USER, user=chief)
        assert b"a-secret" not in listed.body
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("code", range(3001, 3011))
async def test_while_it_is_off_other_hosts_cannot_plant_a_user(code, tmp_path):
    request = Command.request(code)
    unguarded = Unguarded(LOOPBACK + parse_networks("k", "10.1.0.0/16"), tmp_path)
    handler = AuthHandler(UserTable(tmp_path, SystemClock()), None, unguarded)
    method = {
        3001: handler.create_user, 3002: handler.update_user,
        3003: handler.delete_user, 3004: handler.get_user, 3005: handler.list_users,
        3006: handler.change_acl, 3007: handler.change_acl, 3008: handler.delete_acl,
        3009: handler.get_acl, 3010: handler.list_acls,
    }[code]  # fmt: skip
    for source, peer in (
        ("192.0.2.7", "192.0.2.7"), ("127.0.0.1", "192.0.2.7"), ("192.0.2.7", "::1"),
    ):  # fmt: skip
        with pytest.raises(RequestRejected, match=r"rmq\.auth\.adminFrom") as refusal:
            method(request, Peer(f"{source}:4711", source, peer))
        assert refusal.value.code == ResponseCode.NO_PERMISSION
    assert not list(tmp_path.iterdir())
    unguarded.check_source(request, Peer("10.1.2.3:4711", "10.1.2.3", "10.1.2.3"))
    unguarded.check_source(request, Peer("::1:4711", "::1", "127.0.0.1"))


async def test_without_users_nothing_is_written_while_it_is_off(tmp_path):
    async with running_node(tmp_path / "store"):
        pass
    assert not (tmp_path / "store" / "config" / "auth").exists()


async def test_passwords_and_signatures_stay_out_of_the_log(signer, caplog):
    caplog.set_level(logging.DEBUG)
    await signer.create_user("ann", "a-secret-word")
    await signer.send("T", ("ann", "a-wrong-word"))
    await signer.ask(RequestCode.AUTH_CREATE_USER, {"username": "x"}, b'{"password":')
    assert "check signature failed" in caplog.text
    assert "secret-word" not in caplog.text
    assert "root-password" not in caplog.text


def test_rules_without_signatures_are_no_configuration():
    with pytest.raises(ConfigError, match="set authenticationEnabled=true too"):
        AuthConfig(authorization_enabled=True)


@pytest.mark.parametrize("text", ["{", "[]", '{"username":"root"}', "root:secret"])
def test_a_wrong_initial_user_is_refused_without_being_repeated(text):
    config = AuthConfig(init_authentication_user=text)
    with pytest.raises(ConfigError, match="username, password") as raised:
        config.initial_users()
    assert "secret" not in str(raised.value)
