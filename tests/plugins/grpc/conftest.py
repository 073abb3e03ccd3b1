import pytest

from rmq.testing.broker import running_node

SETTINGS = {
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
    "transactionTimeOut": "0",
    "transactionCheckInterval": "1000",
}


@pytest.fixture
async def node(tmp_path):
    async with running_node(tmp_path, SETTINGS) as node:
        yield node


@pytest.fixture
async def client(node):
    from tests.plugins.grpc.clients import GrpcClient

    async with GrpcClient.open(node.broker.port) as client:
        yield client
