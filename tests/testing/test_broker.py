"""A node in the test's own process comes up, answers and leaves nothing behind."""

from rmq.protocol.bodies.route import ClusterInfo
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing import RawClient, running_name_server, running_node


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
