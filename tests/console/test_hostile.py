"""Bad input: what must be refused or bounded, and leaves the console whole."""

import json
import time

import pytest
import trio

from rmq.console import server as module
from rmq.console import sessions
from rmq.http import listener
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing import RawClient, running_node
from tests.console.test_server import (
    AUTH,
    ON,
    Browser,
    change_password,
    next_event,
    open_stream,
    stack,  # noqa: F401
)

ROOT = {"user": "root", "password": "secret-1"}
FLOOD = 10_000
OPEN = 300


async def is_whole(browser):
    status, session = await browser.json("/api/session")
    return status == 200 and "version" in session


@pytest.mark.slow
async def test_sign_in_tried_10000_times(tmp_path):
    """Five a minute are judged; the others cost nothing and are told to wait."""
    async with running_node(tmp_path, ON | AUTH) as node:
        browser, told = Browser(node.console_port), set()
        lines = (
            f"POST /api/sign-in HTTP/1.1\r\nHost: {browser.host}\r\nX-Rmq: 1\r\n"
            f"Origin: http://{browser.host}\r\nContent-Type: application/json\r\n"
        )
        body = b'{"user":"root","password":"guess"}'
        request = f"{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
        stream = await trio.open_tcp_stream("127.0.0.1", node.console_port)
        judged = 0
        async with stream:
            for _ in range(FLOOD):
                await stream.send_all(request)
                answer = await stream.receive_some(65_536)
                told.add(answer.split(b"\r\n", 1)[0])
                judged += b"User or password" in answer
        assert told == {b"HTTP/1.1 403 Forbidden"}
        assert judged == sessions.MAX_WRONG
        assert (await browser.post("/api/sign-in", ROOT))[0] == 403


async def test_tables_of_the_sign_in_have_limits(tmp_path):
    async with running_node(tmp_path, ON | AUTH) as node:
        found = sessions.Sessions(node.broker.context)
        for number in range(1_200):
            address = f"10.0.{number // 256}.{number % 256}:1"
            with pytest.raises(Exception, match="User or password"):
                found.sign_in("root", "guess", address)
        assert len(found._wrong) == sessions.MAX_ADDRESSES
        keys = [found.sign_in("root", "secret-1", "10.9.9.9:1") for _ in range(1_010)]
        gone = len(keys) - sessions.MAX_SESSIONS
        users = [found.user(key, "10.9.9.9:1") for key in keys]
        assert users == [None] * gone + ["root"] * sessions.MAX_SESSIONS


async def test_more_streams_than_places(tmp_path, stack):  # noqa: F811
    async with running_node(tmp_path, ON) as node:
        browser = Browser(node.console_port)
        streams = []
        for _ in range(OPEN):
            stream = await trio.open_tcp_stream("127.0.0.1", node.console_port)
            stack.push_async_callback(stream.aclose)
            head = f"GET /api/live?view=topics HTTP/1.1\r\nHost: {browser.host}\r\n\r\n"
            await stream.send_all(head.encode())
            streams.append(stream)
        answers = {b"": 0, b"200": 0, b"503": 0}
        for stream in streams:
            with trio.fail_after(5):
                try:
                    answer = await stream.receive_some(4_096)
                except trio.BrokenResourceError:
                    answer = b""
            answers[answer[9:12]] += 1
        assert answers[b"200"] == module.MAX_STREAMS
        for stream in streams:
            await stream.aclose()
        with trio.fail_after(15):
            while True:
                try:
                    if await is_whole(browser):
                        break
                except (OSError, ValueError, trio.BrokenResourceError):
                    await trio.sleep(0.05)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: "])
async def test_browsers_that_send_nothing_keep_nobody_out(tmp_path, stack, sent):  # noqa: F811
    """Each held its place for half a minute; a stream keeps its own."""
    async with running_node(tmp_path, ON) as node:
        browser = Browser(node.console_port)
        looking = await open_stream(browser, stack, "view=overview")
        await next_event(looking)
        for _ in range(2 * listener.MAX_CONNECTIONS):
            silent = await trio.open_tcp_stream("127.0.0.1", node.console_port)
            await stack.enter_async_context(silent)
            await silent.send_all(sent)
        with trio.fail_after(module.IDLE_S / 4):
            assert await is_whole(browser)
            assert await next_event(looking)


async def test_rights_taken_away_end_a_stream(tmp_path, stack, monkeypatch):  # noqa: F811
    monkeypatch.setattr(module, "CHECK_S", 0.0)
    async with running_node(tmp_path, ON | AUTH) as node:
        browser = Browser(node.console_port)
        await browser.post("/api/sign-in", ROOT)
        events = await open_stream(browser, stack, "view=overview")
        assert (await next_event(events))[0] == "full"
        await change_password(node, "secret-2")
        name, said = await next_event(events)
        while name != "bye":
            name, said = await next_event(events)
        assert said == {"why": "signed out"}


async def test_a_listener_that_does_not_read_is_left_behind(tmp_path, stack):  # noqa: F811
    """Its events wait in a channel with a limit; the others are not held up."""
    async with running_node(tmp_path, ON) as node:
        browser = Browser(node.console_port)
        await open_stream(browser, stack, "view=overview")
        events = await open_stream(browser, stack, "view=overview")
        for _ in range(2):
            assert (await next_event(events))[0] in ("full", "diff")
        assert await is_whole(browser)


async def test_a_body_of_4_mib(tmp_path):
    async with running_node(
        tmp_path, ON | {"mappedFileSizeCommitLog": "16777216"}
    ) as node:
        broker, browser = node.broker.context, Browser(node.console_port)
        broker.topics.ensure("Large", queues=1, perm=6)
        body = b"<script>" * (4 << 17)
        result = broker.publish("Large", body[: (4 << 20) - 1_000], queue_id=0)
        assert result.status.name == "PUT_OK"
        place = "topic=Large&queue=0&offset=0"
        began = time.monotonic()
        status, _, answer = await browser.get(f"/api/message?{place}")
        assert (status, len(answer) < 120_000) == (200, True)
        assert json.loads(answer)["cut"] is True
        status, headers, answer = await browser.get(f"/api/body?{place}")
        assert (status, len(answer)) == (200, (4 << 20) - 1_000)
        assert headers["content-type"] == "application/octet-stream"
        assert headers["content-disposition"].startswith("attachment")
        status, _, answer = await browser.get("/api/messages?topic=Large&q=script")
        assert (status, len(answer) < 5_000) == (200, True)
        assert time.monotonic() - began < 5


async def test_a_broker_that_stops_in_the_middle(tmp_path, stack):  # noqa: F811
    async with running_node(tmp_path, ON) as node:
        browser = Browser(node.console_port)
        stream, _ = events = await open_stream(browser, stack, "view=overview")
        await next_event(events)
    with trio.fail_after(5):
        try:
            while await stream.receive_some(65_536):
                pass
        except trio.BrokenResourceError:
            pass


async def test_numbers_above_2_53_are_texts(tmp_path):
    async with running_node(tmp_path, ON) as node:
        broker, browser = node.broker.context, Browser(node.console_port)
        broker.topics.ensure("T", queues=1, perm=6)
        broker.publish("T", b'{"n":9007199254740993}', queue_id=0)
        _, found = await browser.json("/api/messages?topic=T")
        assert found["rows"][0]["offset"] == "0"
        assert "9007199254740993" in found["rows"][0]["text"]
        _, found = await browser.json("/api/message?topic=T&queue=0&offset=0")
        assert isinstance(found["physical"], str)


@pytest.mark.parametrize(
    "path",
    [
        "/api/messages?topic=" + "x" * 300, "/api/messages?topic=%00",
        "/api/message?topic=T&queue=-1&offset=0", "/api/message?topic=T&offset=1e9",
        "/api/messages?topic=T&at=99999999999999999999", "/api/body?topic=T",
        "/api/messages?topic=%2e%2e%2f", "/api/dead?name=" + "y" * 300,
        "/api/dead?name=..%2f..%2f", "/api/messages?id=" + "F" * 32,
    ],
)  # fmt: skip
async def test_strange_queries(tmp_path, path):
    async with running_node(tmp_path, ON) as node:
        browser = Browser(node.console_port)
        status, answer = await browser.json(path)
        assert status in (400, 404)
        assert answer["error"].endswith(".")
        assert await is_whole(browser)


async def test_hostile_texts_are_only_data_everywhere(tmp_path):
    """Names, client ids and the audit come back as the JSON texts that they are."""
    hostile = "<img src=x onerror=alert(1)>\u202e\x1b[2J"
    async with running_node(tmp_path, ON) as node:
        browser = Browser(node.console_port)
        async with RawClient.connect(node.address) as client:
            beat = {
                "clientID": hostile,
                "producerDataSet": [{"groupName": "P"}],
            }  # fmt: skip
            body = json.dumps(beat).encode()
            command = Command.request(RequestCode.HEART_BEAT, body=body)
            await client.call(command)
            _, _, data = await browser.get("/api/clients")
            rows = json.loads(data)["rows"]
            assert [row["client"] for row in rows] == [hostile]
            assert b"\x1b" not in data
            _, headers, _ = await browser.get("/api/clients")
            assert headers["content-type"] == "application/json"
            assert headers["x-content-type-options"] == "nosniff"
