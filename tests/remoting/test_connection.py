"""Connections of a server: requests of its own, their end, silence."""

import contextlib
import logging
import struct

import pytest
import trio

from rmq.core.errors import InvokeTimeout, LocalProtocolError, PeerClosed
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import MAX_FRAME_SIZE, FrameDecoder, encode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.loop_clock import now_ms
from rmq.remoting.server import IDLE_SCAN_INTERVAL_S
from rmq.testing import RawClient
from tests.connections import connections_of
from tests.waiting import until

PROBE = 99
ASK = 220


def probe(request, connection):
    return request.reply(remark=connection.remote_address)


class Answers:
    """The client's half: read the server's requests, answer as a test says."""

    def __init__(self, client):
        self._stream = client.stream
        self._decoder = FrameDecoder()
        self._waiting = []

    async def next(self):
        while not self._waiting:
            self._waiting = self._decoder.feed(await self._stream.receive_some())
        return self._waiting.pop(0)

    async def send(self, *commands):
        await self._stream.send_all(b"".join(map(encode, commands)))


@pytest.fixture
async def server(serving):
    async with serving() as served:
        served.register(PROBE, probe)
        yield served


@pytest.fixture
async def client(server, request_of):
    """A client that the server knows: it has asked once."""
    async with server.client() as client:
        await client.call(request_of(PROBE))
        yield client


async def asked(connection, timeout_ms, results):
    """Ask the client; keep the answer or the error."""
    try:
        results.append(await connection.invoke(Command.request(ASK), timeout_ms))
    except Exception as error:
        results.append(error)


# -- requests of the server


async def test_the_server_asks_and_the_client_answers(server, client):
    answers, results = Answers(client), []
    connection = server.only_connection()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(asked, connection, 5_000, results)
        requests = [await answers.next() for _ in range(3)]
        assert {r.code for r in requests} == {ASK}
        assert len({r.opaque for r in requests}) == 3
        for request in reversed(requests):
            await answers.send(request.reply(remark=f"to {request.opaque}"))
    assert {(r.opaque, r.remark) for r in results} == {
        (r.opaque, f"to {r.opaque}") for r in requests
    }


async def test_an_answer_with_a_wrong_number_is_not_taken(
    server, client, request_of, mock_clock
):
    answers, results = Answers(client), []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asked, server.only_connection(), 1_000, results)
        request = await answers.next()
        wrong = request.reply(remark="wrong")
        wrong.opaque = request.opaque + 1
        await answers.send(wrong)
        # once this is answered, the wrong one was read
        probe = request_of(PROBE)
        await answers.send(probe)
        assert (await answers.next()).is_response
        assert results == []
        mock_clock.jump(1)
    (error,) = results
    assert isinstance(error, InvokeTimeout)
    assert f"did not answer request {ASK} within 1000 ms" in str(error)
    # an answer that comes after all disturbs nobody
    await answers.send(request.reply(remark="late"))
    assert (await client.call(request_of(PROBE))).code == 0


async def test_a_client_that_leaves_ends_the_wait(server, client):
    results = []
    connection = server.only_connection()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asked, connection, 60_000, results)
        await Answers(client).next()
        await client.stream.aclose()
    (error,) = results
    assert isinstance(error, PeerClosed)
    assert "closed before it answered" in str(error)
    with pytest.raises(PeerClosed, match="is gone"):
        await connection.invoke(Command.request(ASK), 1_000)
    connection.send_nowait(Command.request(ASK))


async def test_requests_that_wait_are_limited(server, client, monkeypatch):
    monkeypatch.setattr("rmq.remoting.connection.INVOKE_LIMIT", 5)
    results = []
    connection = server.only_connection()
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(asked, connection, 60_000, results)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(LocalProtocolError, match="5 requests"):
            await connection.invoke(Command.request(ASK), 60_000)
        assert connection.is_open
        nursery.cancel_scope.cancel()
    assert results == []


async def test_a_notice_is_sent_as_a_oneway_request(server, client):
    connection = server.only_connection()
    connection.send_nowait(Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED))
    notice = await Answers(client).next()
    assert (notice.code, notice.is_oneway, notice.is_response) == (40, True, False)
    assert connection.take_response(notice.reply()) is None


async def test_an_answer_to_a_server_that_never_asked_is_passed_over(
    server, client, request_of
):
    await client.send_bytes(encode(Command.request(ASK).reply(remark="unasked")))
    assert (await client.call(request_of(PROBE))).code == 0
    assert server.server.statistics().requests == 2


# -- the end of a connection


async def test_closing_is_told_once_with_its_reason(server, client):
    connection = server.only_connection()
    assert repr(connection) == f"<Connection {connection.remote_address} on main>"
    connection.close()
    connection.close("again")
    assert await client.stream.receive_some() == b""
    assert server.closed == [connection]
    assert server.reasons() == ["closed by the broker"]
    assert not connection.is_open
    assert connections_of(server.server, "main") == []


async def test_an_answer_is_sent_before_its_handler_closes(server, client, request_of):
    def farewell(request, connection):
        connection.send_nowait(request.reply(remark="farewell"))
        connection.close()

    server.register(10, farewell)
    assert (await client.call(request_of(10))).remark == "farewell"
    assert await client.stream.receive_some() == b""


async def test_frames_behind_a_close_are_not_handled(server, client, request_of):
    seen = []

    def once(request, connection):
        seen.append(request.opaque)
        connection.close()

    server.register(10, once)
    await client.send_bytes(encode(request_of(10)) * 3)
    assert await client.stream.receive_some() == b""
    assert seen == [0]


async def test_the_end_of_the_server_closes_everybody(serving, request_of):
    async with contextlib.AsyncExitStack() as stack:
        async with serving() as served:
            served.register(PROBE, probe)
            client = await stack.enter_async_context(served.client())
            await client.call(request_of(PROBE))
            connection = served.only_connection()
        assert served.closed == [connection]
        assert connection.close_reason == "the server stops"
        assert await client.stream.receive_some() == b""


LONG_HEADER = "a header is longer than its frame, or than 1 MiB"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", MAX_FRAME_SIZE + 1), "a frame is larger than the limit"),
        (struct.pack(">i", 3), "a frame is too small for a header"),
        (struct.pack(">iI", 8, 9) + b"{}{}", LONG_HEADER),
    ],
)
async def test_what_cannot_be_framed_closes_with_a_warning(
    server, client, caplog, data, reason
):
    await client.send_bytes(data)
    assert await client.stream.receive_some() == b""
    await until(lambda: server.closed)
    assert server.reasons() == [reason]
    assert caplog.records[-1].levelno == logging.WARNING
    assert caplog.records[-1].message.endswith(reason)


async def test_a_client_that_leaves_is_no_warning(server, client, caplog):
    await client.stream.aclose()
    await until(lambda: server.closed)
    assert server.reasons() == ["closed by the peer"]
    assert caplog.records == []


async def test_a_client_that_does_not_read_is_not_read_either(
    server, client, request_of
):
    handled = []

    def answer(request, connection):
        handled.append(request.opaque)
        return request.reply(body=bytes(1 << 20))

    server.register(10, answer)
    for opaque in range(100):
        request = request_of(10)
        request.opaque = opaque
        await client.send_bytes(encode(request))
    await until(lambda: handled)
    await trio.testing.wait_all_tasks_blocked()
    assert len(handled) < 20, "it was served on while it did not read"
    assert server.server.statistics().reactor.buffer_bytes < 20 << 20
    answers = Answers(client)
    assert [(await answers.next()).opaque for _ in range(100)] == list(range(100))
    assert handled == list(range(100))


@pytest.mark.slow
async def test_a_client_that_never_reads_what_it_is_told_is_closed(
    server, client, caplog
):
    """Notices come without being asked for: only the limit ends them."""
    connection = server.only_connection()
    notice = Command(40, {}, bytes(15 << 20))
    while connection.is_open:
        connection.send_nowait(notice)
        await trio.testing.wait_all_tasks_blocked()
    assert server.reasons() == ["the peer does not read its answers"]
    assert "does not read its answers" in caplog.text
    assert server.server.statistics().reactor.buffer_bytes < 1 << 20


# -- silence


async def test_a_silent_connection_is_closed_after_its_listeners_time(
    serving, request_of, mock_clock
):
    async with serving(idle_timeout_s=20) as served:
        served.register(PROBE, probe)
        async with served.client() as silent, served.client() as active:
            await silent.call(request_of(PROBE))
            start_ms = now_ms()
            while not served.closed:
                assert now_ms() - start_ms <= (20 + IDLE_SCAN_INTERVAL_S + 1) * 1_000
                await active.call(request_of(PROBE))
                mock_clock.jump(0.5)
                await trio.testing.wait_all_tasks_blocked()
            assert now_ms() - start_ms >= 20_000
            assert served.reasons() == ["idle for too long"]
            assert await silent.stream.receive_some() == b""
            assert (await active.call(request_of(PROBE))).code == 0


# -- around


async def test_callbacks_run_after_each_poll(server, client, request_of):
    calls = []
    server.server.after_poll.append(lambda: calls.append(len(calls)))
    await client.call(request_of(PROBE))
    assert calls


async def test_a_second_listener_has_handlers_of_its_own(server, request_of):

    table = HandlerTable()
    table.register(PROBE, lambda request, connection: request.reply(remark="other"))
    port = await server.server.bind("other", "127.0.0.1", 0, table)
    server.server.start_accepting("other")
    async with RawClient.connect(f"127.0.0.1:{port}") as client:
        assert (await client.call(request_of(PROBE))).remark == "other"
        (connection,) = connections_of(server.server, "other")
        assert connection.local_address == f"127.0.0.1:{port}"
    assert connections_of(server.server, "main") == []


async def test_a_bound_address_waits_until_it_is_served(server, request_of):

    table = HandlerTable()
    table.register(PROBE, probe)
    port = await server.server.bind("late", "127.0.0.1", 0, table)
    async with RawClient.connect(f"127.0.0.1:{port}") as client:
        await trio.testing.wait_all_tasks_blocked()
        assert connections_of(server.server, "late") == []
        server.server.start_accepting("late")
        assert (await client.call(request_of(PROBE))).code == 0
