"""AdminClient and its Link against a node, and against a closed port."""

import socket
import threading

import pytest
import trio

from rmq.client.admin import AdminClient, Queue
from rmq.core.errors import ConnectFailed, InvokeTimeout, PeerClosed
from rmq.outgoing.link import Link
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.records import decode_stored
from rmq.testing import running_node

NEW_TOPIC = {
    "topic": "T", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 3,
    "perm": 6, "topicFilterType": "SINGLE_TAG",
}  # fmt: skip


@pytest.fixture
async def node(tmp_path):
    async with running_node(tmp_path) as running:
        yield running


async def use(node, work):
    """Run a function with a client in a thread, as a tool would."""

    def run():
        with AdminClient(node.name_servers) as admin:
            return work(admin)

    return await trio.to_thread.run_sync(run)


async def test_what_a_tool_asks(node):
    def work(admin):
        (broker,) = admin.masters()
        assert broker == ("DefaultCluster", "broker-test", "0", node.address)
        admin.request(broker.address, 17, NEW_TOPIC)
        while "T" not in admin.topics():
            pass
        queues = list(admin.queues("T"))
        assert queues == [Queue("broker-test", node.address, n) for n in range(2)]
        assert len(admin.writable_queues("T")) == 3
        sent = admin.send("T", queues[1], b"hello", "KEYS\x01k\x02", 5)
        assert (sent["queueId"], sent["queueOffset"]) == ("1", "0")
        assert admin.offset(30, "T", queues[1]) == 1
        body, following, code = admin.pull("T", queues[1], 0)
        assert (following, code) == (1, 0)
        (record,) = decode_stored(body)
        assert (record.body, record.properties["KEYS"]) == (b"hello", "k")
        assert admin.pull("T", queues[0], 0)[2] == 19
        with pytest.raises(AnswerRefused) as error:
            admin.route("Unknown")
        assert error.value.code == ResponseCode.TOPIC_NOT_EXIST
        assert "TOPIC_NOT_EXIST" in str(error.value)
        with pytest.raises(AnswerRefused, match="206 CONSUMER_NOT_ONLINE"):
            admin.group_connections("G")

    await use(node, work)


async def test_the_first_name_server_that_answers(node):
    servers = ["127.0.0.1:1", *node.name_servers]

    def run():
        with AdminClient(servers) as admin:
            return admin.brokers()

    assert len(await trio.to_thread.run_sync(run)) == 1


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "127.0.0.1:x", "nowhere", "h:99999"]
)
def test_nobody_there(address):
    with pytest.raises(ConnectFailed, match=r"(cannot connect to|refuses)"):
        Link(address, 1)


@pytest.fixture
def server():
    """A server that runs a function on its one connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def serve(work):
        def run():
            connection, _ = listener.accept()
            with connection:
                work(connection)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield serve
    for thread in threads:
        thread.join()
    listener.close()


def test_no_answer_in_time(server):
    address = server(lambda connection: connection.recv(1 << 16) and connection.recv(1))
    with (
        Link(address, 0.1) as link,
        pytest.raises(InvokeTimeout, match="did not answer request 105 in time"),
    ):
        link.request(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC))


def test_the_connection_goes_away(server):
    address = server(lambda connection: connection.recv(1 << 16))
    with Link(address, 1) as link, pytest.raises(PeerClosed):
        link.request(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC))
