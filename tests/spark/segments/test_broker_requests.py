import json
import socket
import threading

import pytest
import trio

from rmq.core.errors import ConfigError, ConnectFailed, RemoteProtocolError, RmqError
from rmq.protocol.frames import decode, encode
from rmq.testing.broker import running_node
from rmq_spark.segments.broker_requests import (
    forget_exporter,
    report_offset,
    request_end,
)
from rmq_spark.segments.commit_log import find_end
from tests.interop.processes import free_port


@pytest.fixture
def answering():
    """A server that answers one request with what it is given; its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads = []

    def start(answer):
        def serve():
            connection, _ = listener.accept()
            with connection:
                request = decode(connection.recv(65_536))
                connection.sendall(answer(request))

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for thread in threads:
        thread.join()
    listener.close()


def test_the_end_is_what_the_table_says(answering):
    body = json.dumps({"table": {"commitLogMaxOffset": "1234"}}).encode()
    assert (
        request_end(answering(lambda request: encode(request.reply(body=body)))) == 1234
    )


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        (lambda r: encode(r.reply(1, "no")), RmqError, "does not report.*1 no"),
        (lambda r: encode(r.reply(body=b"{}")), RemoteProtocolError, "without"),
        (lambda r: encode(r.reply(body=b"\xff")), RemoteProtocolError, "without"),
        (lambda _: b"", RemoteProtocolError, "closed the connection"),
        (lambda _: b"HTTP/1.1 400", RemoteProtocolError, "is no broker"),
    ],
)
def test_a_wrong_answer_is_told_in_a_sentence(answering, answer, error, sentence):
    with pytest.raises(error, match=sentence):
        request_end(answering(answer))


def test_nobody_there_and_no_address():
    port = free_port()
    with pytest.raises(
        ConnectFailed, match=f"cannot ask the broker at 127.0.0.1:{port}"
    ):
        request_end(f"127.0.0.1:{port}")
    for address in ("broker", ":1", "a:b"):
        with pytest.raises(ConfigError, match="is not host:port"):
            request_end(address)


async def test_a_broker_of_rmq_says_what_the_walk_finds(tmp_path):
    async with running_node(tmp_path) as node:
        address = node.address
        end = await trio.to_thread.run_sync(request_end, address)
        assert end == await trio.to_thread.run_sync(find_end, tmp_path)


async def test_a_broker_hears_of_an_export(tmp_path):
    async with running_node(tmp_path, {"rmq.exportHold": "true"}) as node:
        address = node.address
        await trio.to_thread.run_sync(report_offset, address, "lake", 0)
        needed_from = node.broker.context.store.cleaner.needed_from
        assert needed_from() == 0
        await trio.to_thread.run_sync(forget_exporter, address, "lake")
        assert needed_from() is None
        with pytest.raises(RmqError, match="lake: 22 there is no exporter"):
            await trio.to_thread.run_sync(forget_exporter, address, "lake")
