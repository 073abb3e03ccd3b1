"""Strangers do not fill the log or write lines of their own; no secret is in it."""

import logging
import socket
from contextlib import suppress

import pytest
import trio

from rmq.core.logs import LINES, LINES_OF_ADDRESS
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.frames import MAX_FRAME_SIZE, encode
from rmq.remoting.client import RemotingClient
from rmq.testing.broker import running_node
from tests.connections import connections_of

FORGED = "x\n2026-11-22 12:00:00 INFO rmq: everything is fine\r\x1b[2J"
ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"a-secret-of-root"}',
    "innerClientAuthenticationCredentials": (
        '{"accessKey":"inner","secretKey":"a-secret-of-brokers"}'
    ),
}


@pytest.fixture
def lines(caplog):
    """What was logged since it was asked last; each line is checked."""
    caplog.set_level(logging.DEBUG)

    def take():
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        for line in found:
            assert line.isprintable(), line
            assert len(line) < 800, line[:800]
            assert "secret" not in line
        return found

    return take


@pytest.fixture
async def node(tmp_path):
    async with running_node(tmp_path, ON) as running:
        yield running


@pytest.fixture
async def ask(node, nursery):
    client = RemotingClient()
    await nursery.start(client.run)

    async def ask(code, fields):
        request = Command.request(code)
        request.ext_fields = fields
        return await client.invoke(node.address, request, 3_000)

    yield ask
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("key", "tries", "wanted"),
    [(FORGED, 20, LINES_OF_ADDRESS), ("k" * (1 << 19), 1, 1)],
    ids=["lines", "512 KiB"],
)
async def test_the_name_of_a_user(ask, lines, key, tries, wanted):
    lines()
    for _ in range(tries):
        fields = {"AccessKey": key, "Signature": "a-secret-of-somebody"}
        answer = await ask(RequestCode.GET_ALL_TOPIC_CONFIG, fields)
        assert answer.code == ResponseCode.NO_PERMISSION
    refusals = [line for line in lines() if "is refused" in line]
    assert len(refusals) == wanted


async def test_a_broken_handler_shows_no_signature(ask, lines, node):
    def broken(request, connection):
        raise ValueError("broken by " + request.ext_fields["topic"])

    names = [each.name for each in node.server._listeners]
    table = node.server._dispatcher.tables[names.index("main")]
    table.guards.clear()
    table.register(4_711, broken)
    lines()
    fields = {"topic": FORGED, "Signature": "a-secret", "SecurityToken": "a-secret"}
    assert (await ask(4_711, fields)).code == ResponseCode.SYSTEM_ERROR
    found = lines()
    assert ["topic" in line for line in found if "request 4711" in line] == [True], (
        found
    )


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY TCP6 fe80::1%" + b"\n2026 INFO forged" + b" ::1 5 6\r\n",
        b"PROXY TCP4 " + b"\x1b\n" * 30 + b"\r\n",
        b"\r\n\r\n\x00\r\nQUIT\n\x31\xff\x00\x00",
        b"\x16\x03\x01" + bytes(60),
        (8).to_bytes(4, "big") + (4).to_bytes(4, "big") + b"\n{\n[",
        (MAX_FRAME_SIZE + 9).to_bytes(4, "big") + bytes(8),
    ],
    ids=["zone", "line", "version 2", "handshake", "header", "size"],
)
async def test_the_first_bytes_of_a_connection(node, lines, data):
    lines()
    host, port = node.address.rsplit(":", 1)
    for _ in range(LINES + 5):
        with trio.fail_after(5), suppress(OSError, trio.BrokenResourceError):
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                await stream.send_all(data)
                stream.socket.shutdown(socket.SHUT_WR)
                while await stream.receive_some(100):
                    pass
    assert sum("closing" in line for line in lines()) <= LINES_OF_ADDRESS


async def test_a_zone_is_no_part_of_an_address(node, lines):
    host, port = node.address.rsplit(":", 1)
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        header = b"PROXY TCP6 fe80::1%\nforged ::1 5 6\r\n"
        await stream.send_all(
            header + encode(Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP))
        )
        assert await stream.receive_some(4_096)
        addresses = [
            each.remote_address for each in connections_of(node.server, "main")
        ]
    assert addresses == ["fe80::1:5"]
    lines()
