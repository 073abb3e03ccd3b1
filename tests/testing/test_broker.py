"""A node in the test's own process comes up, answers and leaves nothing behind."""

import pytest

from rmq.core.errors import ConfigError
from rmq.protocol.bodies.route import ClusterInfo
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing import (
    RawClient,
    running_controller,
    running_name_server,
    running_node,
)


async def test_a_node_registers_with_its_own_name_server(tmp_path):
    async with running_node(tmp_path) as node:
        async with RawClient.connect(node.name_servers[0]) as client:
            request = Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
            answer = await client.call(request)
        info = ClusterInfo.decode(answer.body)
        assert info.broker_addr_table["broker-test"].broker_addrs == {0: node.address}
        assert (tmp_path / "abort").exists()
    assert not (tmp_path / "abort").exists()


async def test_stopping_a_broker_takes_it_out_of_the_routes_at_once(tmp_path):
    async with running_name_server(tmp_path) as names:
        address = names.name_servers[0]
        settings = {"namesrvAddr": address}
        async with running_node(tmp_path / "store", settings) as node:
            assert node.name_server is None
            assert node.name_servers == (address,)
            assert names.name_server.routes.group("broker-test") is not None
        assert names.name_server.routes.group("broker-test") is None


async def test_a_node_finds_its_store_again(tmp_path):
    for _ in range(2):
        async with running_node(tmp_path) as node:
            assert node.broker.context.store.durability.is_writable


@pytest.mark.parametrize(
    ("run", "key", "nearest"),
    [
        (running_node, "enablePropertyFiler", "enablePropertyFilter"),
        (running_node, "rmq.stopTimeoutSecond", "rmq.stopTimeoutSeconds"),
        (running_name_server, "rmq.listenPort", "listenPort"),
        (running_controller, "rmq.controllerEngin", "rmq.controllerEngine"),
    ],
)
async def test_an_unknown_key_of_a_test_is_refused(tmp_path, run, key, nearest):
    with pytest.raises(ConfigError) as caught:
        async with run(tmp_path, {key: "1"}):
            pass
    assert str(caught.value) == f"unknown key {key}; did you mean {nearest}?"
    assert caught.value.keys == (key,)


async def test_a_key_of_java_without_effect_is_accepted(tmp_path):
    async with running_node(tmp_path, {"sendMessageThreadPoolNums": "4"}):
        pass
