"""The port of a name server with access control, and without it, over the wire."""

import json

import pytest
import trio

from rmq.access.signature import sign
from rmq.namesrv.request_gate import KINDS
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing import RawClient, running_name_server, running_node

USER = json.dumps({"username": "root", "password": "rootSecret"})
INNER = json.dumps({"accessKey": "inner", "secretKey": "innerSecret"})
ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": USER,
}
FIELDS = {
    "namespace": "N", "key": "k", "value": "v", "topic": "T", "brokerName": "broker-a",
    "brokerAddr": "10.9.9.9:10911", "clusterName": "DefaultCluster", "brokerId": "0",
    "haServerAddr": "10.9.9.9:10912", "cluster": "DefaultCluster",
}  # fmt: skip


def request(code, user=None, body=b"", **fields):
    command = Command(code, FIELDS | fields, body, version=513)
    if user:
        sign(command, user, user + "Secret")
    return command


async def is_routed(link, topic):
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    with trio.fail_after(10):
        while (await link.call(request(code, topic=topic))).code:  # noqa: ASYNC110
            await trio.sleep(0.01)


def state_of(node, folder):
    """Everything that a request to the name server may change."""
    names = node.name_server
    files = {
        path.name: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in (".json", ".bak", ".conf")
    }
    routes = names.routes.cluster_info(), sorted(names.routes.topics.names())
    return files, routes, names.kv_config.entries_of("N"), dict(names.config.__dict__)


async def test_nothing_unsigned_is_stored_changed_or_told(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("# mine\n")
    settings = ON | {"brokerConfigPath": str(path)}
    async with (
        running_node(tmp_path, settings) as node,
        RawClient.connect(node.name_servers[0]) as link,
    ):
        await is_routed(link, "TBW102")
        before = state_of(node, tmp_path)
        for code in KINDS:
            if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                continue
            for user in (None, "nobody"):
                answer = await link.call(
                    request(code, user, b"scanNotActiveBrokerInterval=100")
                )
                assert (answer.code, answer.body) == (16, b""), code
        assert state_of(node, tmp_path) == before
        put = await link.call(request(RequestCode.PUT_KV_CONFIG, "root"))
        assert put.code == 0, put.remark
        assert node.name_server.kv_config.get("N", "k") == "v"
        shown = await link.call(request(RequestCode.GET_NAMESRV_CONFIG, "root"))
        assert shown.code == 0
        assert b"Secret" not in shown.body


async def test_a_broker_signs_its_registrations(tmp_path):
    settings = ON | {"innerClientAuthenticationCredentials": INNER}
    async with running_name_server(tmp_path / "n", settings) as names:
        async with (
            running_node(
                tmp_path / "b", settings | {"namesrvAddr": names.name_servers[0]}
            ),
            RawClient.connect(names.name_servers[0]) as link,
        ):
            await is_routed(link, "TBW102")
            [group] = names.name_server.routes.cluster_info().broker_addr_table
        assert names.name_server.routes.group(group) is None, "it said goodbye"


async def test_a_broker_that_does_not_sign_is_refused_unless_it_is_listed(tmp_path):
    for number, listed in enumerate(("", "127.0.0.0/8")):
        settings = ON | {"rmq.namesrv.brokersFrom": listed}
        async with running_name_server(tmp_path / f"n{number}", settings) as names:
            plain = {"namesrvAddr": names.name_servers[0]}
            async with running_node(tmp_path / f"b{number}", plain) as node:
                [status] = node.broker.context.name_servers.statistics()
                assert status.is_registered is bool(listed)


@pytest.mark.parametrize(("source", "code"), [("127.0.0.1", 0), ("10.9.9.9", 16)])
async def test_without_access_control_changes_come_from_loopback(
    tmp_path, source, code
):
    """A PROXY header takes rights away and gives none: the peer is looked at too."""
    async with running_name_server(tmp_path) as names:
        host, _, port = names.name_servers[0].rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(f"PROXY TCP4 {source} 127.0.0.1 1 2\r\n".encode())
            assert (
                await RawClient(stream).call(request(RequestCode.PUT_KV_CONFIG))
            ).code == code
