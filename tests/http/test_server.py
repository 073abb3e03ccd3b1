"""One request a connection, each with its limits."""

import socket
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus

import pytest
import trio
import trio.testing

from rmq.core.errors import ConfigError
from rmq.http import exchange, listener
from rmq.http import server as module
from rmq.http.server import HttpServer, Page


async def page():
    await trio.lowlevel.checkpoint()
    return Page(b"body\n")


async def busy():
    await trio.lowlevel.checkpoint()
    return Page(b"no\n", HTTPStatus.SERVICE_UNAVAILABLE)


async def broken():
    await trio.lowlevel.checkpoint()
    raise LookupError("a mistake of ours")


PAGE = b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n"
PAGES = {"/page": page, "/busy": busy, "/broken": broken}


@asynccontextmanager
async def serving():
    server = HttpServer("127.0.0.1", 0)
    await server.open()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, PAGES)
        yield server
        nursery.cancel_scope.cancel()
    await server.close()


async def connect(server, request):
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    if request:
        await stream.send_all(request)
    return stream


async def read_to_end(stream):
    answer = b""
    with trio.fail_after(5):
        async with stream:
            while data := await stream.receive_some(65_536):
                answer += data
    return answer.decode()


async def ask(server, request):
    return await read_to_end(await connect(server, request))


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        ("GET /page HTTP/1.1", "200 OK", "body\n"),
        ("GET /page?x=1 HTTP/1.0", "200 OK", "body\n"),
        ("HEAD /page HTTP/1.1", "200 OK", ""),
        ("GET /busy HTTP/1.1", "503 Service Unavailable", "no\n"),
        ("GET /../etc/passwd HTTP/1.1", "404 Not Found", "404 Not Found\n"),
        ("POST /page HTTP/1.1", "405 Method Not Allowed", "405 Method Not Allowed\n"),
        ("nonsense", "400 Bad Request", "400 Bad Request\n"),
        ("GET /page SPDY/9", "400 Bad Request", "400 Bad Request\n"),
        ("GET /page HTTP/1.1\r\n Folded", "400 Bad Request", "400 Bad Request\n"),
    ],
)
async def test_each_request_gets_its_answer(request_line, status, body):
    async with serving() as server:
        answer = await ask(server, f"{request_line}\r\nHost: x\r\n\r\n".encode())
    head, _, sent = answer.partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status}\r\n")
    assert "Connection: close" in head
    assert sent == body


async def test_a_head_of_more_than_the_limit_is_refused():
    long = b"GET /page HTTP/1.1\r\nHost: " + b"x" * exchange.MAX_HEAD_SIZE
    async with serving() as server:
        for request in (long, long + b"\r\n\r\n"):
            assert (await ask(server, request)).startswith("HTTP/1.1 431 ")


async def test_a_request_without_a_host_is_refused_as_http_1_1_wants_it():
    async with serving() as server:
        assert "400 Bad Request" in await ask(server, b"GET /page HTTP/1.1\r\n\r\n")
        assert "200 OK" in await ask(server, b"GET /page HTTP/1.0\r\n\r\n")


async def test_half_a_head_is_answered_and_none_is_not():
    async with serving() as server:
        for request, answer in ((b"GET /page HT", "HTTP/1.1 400"), (b"", "")):
            stream = await connect(server, request)
            await stream.send_eof()
            assert (await read_to_end(stream))[: len("HTTP/1.1 400")] == answer


async def test_a_silent_peer_is_left(autojump_clock, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT_S", 0.05)
    async with serving() as server:
        assert await ask(server, b"") == ""


@pytest.mark.parametrize(
    "sent", [b"", b"GET /page HTTP/1.1\r\nHost: ", b"GET /page HTTP/1.0\r\n\r\n"]
)
async def test_peers_that_keep_their_connections_keep_nobody_out(sent):
    """Each held its place for ten seconds."""
    async with serving() as server, AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(await connect(server, sent))
            for _ in range(2 * listener.MAX_CONNECTIONS)
        ]
        with trio.fail_after(module.TIMEOUT_S / 4):
            assert "200 OK" in await ask(server, PAGE)
            await read_to_end(peers[0])


async def test_the_longest_wait_gives_way_and_no_other(monkeypatch):
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 2)
    async with serving() as server:
        first = await connect(server, PAGE[:-2])
        second = await connect(server, PAGE[:-2])
        await trio.testing.wait_all_tasks_blocked()
        third = await connect(server, PAGE[:-2])
        assert await read_to_end(first) == ""
        for stream in (second, third):
            await stream.send_all(PAGE[-2:])
            assert "200 OK" in await read_to_end(stream)


async def test_a_page_that_is_being_written_does_not_give_way(monkeypatch):
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 1)
    begun, go_on = trio.Event(), trio.Event()

    async def slow():
        begun.set()
        await go_on.wait()
        return Page(b"slow\n")

    monkeypatch.setitem(PAGES, "/page", slow)
    async with serving() as server:
        stream = await connect(server, PAGE)
        await begun.wait()
        assert await ask(server, b"") == ""
        go_on.set()
        assert "slow" in await read_to_end(stream)


async def test_an_address_in_use_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = HttpServer("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(ConfigError, match="set metricsPromExporterPort"):
            await server.open()


async def test_a_page_that_fails_is_the_end_of_nothing(caplog):
    target = "/broken?" + "x" * 1_000
    async with serving() as server:
        answer = await ask(server, f"GET {target} HTTP/1.0\r\n\r\n".encode())
        assert answer.startswith("HTTP/1.1 500 Internal Server Error\r\n")
        assert "mistake" not in answer
        assert "a mistake of ours" in caplog.text
        assert "/broken?xx" in caplog.text
        assert target not in caplog.text
        assert "200 OK" in await ask(server, PAGE)
