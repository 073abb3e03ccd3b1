"""One request a connection, each with its limits."""

import socket
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
import trio

from rmq.errors import ConfigError
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


async def ask(server, request):
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    async with stream:
        if request:
            await stream.send_all(request)
        answer = b""
        with trio.fail_after(5):
            while data := await stream.receive_some(65_536):
                answer += data
    return answer.decode()


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
    ],
)
async def test_each_request_gets_its_answer(request_line, status, body):
    async with serving() as server:
        answer = await ask(server, f"{request_line}\r\nHost: x\r\n\r\n".encode())
    head, _, sent = answer.partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status}\r\n")
    assert "Connection: close" in head
    assert sent == body


async def test_a_head_without_end_is_refused():
    async with serving() as server:
        answer = await ask(server, b"GET /page HTTP/1.1\r\n" + b"x" * 9_000)
    assert answer.startswith("HTTP/1.1 400")


async def test_a_silent_peer_is_left(autojump_clock, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT_S", 0.05)
    async with serving() as server:
        assert await ask(server, b"") == ""


async def test_connections_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 0)
    async with serving() as server:
        assert await ask(server, b"") == ""


async def test_an_address_in_use_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = HttpServer("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(ConfigError, match="set metricsPromExporterPort"):
            await server.open()


async def test_a_page_that_fails_is_the_end_of_nothing(caplog):
    async with serving() as server:
        answer = await ask(server, b"GET /broken HTTP/1.1\r\n\r\n")
        assert answer.startswith("HTTP/1.1 500 Internal Server Error\r\n")
        assert "mistake" not in answer
        assert "a mistake of ours" in caplog.text
        assert "200 OK" in await ask(server, b"GET /page HTTP/1.1\r\n\r\n")
