"""In a client's scenario the reactor serves every frame, and no trio stream does."""

import pytest
import trio

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing import RawClient, running_node

SEND = {
    "producerGroup": "PG",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "queueId": 0,
    "sysFlag": 0,
    "bornTimestamp": 1_795_230_112_758,
    "flag": 0,
    "properties": "",
}
PULL = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 0,
    "expressionType": "TAG",
}
OFFSET = {"consumerGroup": "G", "topic": "T", "queueId": 0}
HEARTBEAT = (
    b'{"clientID":"c","producerDataSet":[{"groupName":"PG"}],"consumerDataSet":'
    b'[{"groupName":"G","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
    b'"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":'
    b'[{"topic":"T","subString":"*"}],"unitMode":false}]}'
)


def request(code, fields=(), body=b""):
    return Command(code, {k: str(v) for k, v in dict(fields).items()}, body)


@pytest.fixture
def receiving_ports(monkeypatch):
    """The local ports of all streams of trio that receive."""
    ports = set()
    receive = trio.SocketStream.receive_some

    async def watched(stream, *arguments):
        ports.add(stream.socket.getsockname()[1])
        return await receive(stream, *arguments)

    monkeypatch.setattr(trio.SocketStream, "receive_some", watched)
    return ports


async def test_every_frame_of_a_scenario_came_through_the_reactor(
    tmp_path, receiving_ports
):
    async with running_node(tmp_path) as node:
        host = node.address.rpartition(":")[0]
        main, fast = node.broker.port, node.broker.fast_port
        before = node.server.statistics().reactor
        calls = [
            request(RequestCode.HEART_BEAT, body=HEARTBEAT),
            request(RequestCode.SEND_MESSAGE, SEND, b"hello"),
            request(RequestCode.PULL_MESSAGE, PULL),
            request(RequestCode.UPDATE_CONSUMER_OFFSET, {**OFFSET, "commitOffset": 1}),
            request(RequestCode.QUERY_CONSUMER_OFFSET, OFFSET),
        ]
        codes = []
        for port in (main, fast):
            async with RawClient.connect(f"{host}:{port}") as client:
                served = [
                    call
                    for call in calls
                    if port == main or call.code != RequestCode.PULL_MESSAGE
                ]
                codes += [(await client.call(call)).code for call in served]
        after = node.server.statistics()
        ports = {main, fast, node.name_server.port}
    assert codes == [0] * 9
    assert after.reactor.frames - before.frames >= 9
    compiled = sum(served for served, _ in node.server.native_counts().values())
    assert after.reactor.frames == after.reactor.declined + compiled
    assert after.reactor.declined == after.requests
    assert receiving_ports
    assert not receiving_ports & ports
