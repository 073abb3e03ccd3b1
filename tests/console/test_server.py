"""The console of a running broker, byte by byte as a browser sees it."""

import gzip
import json
import re
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from rmq.access.signature import sign
from rmq.config.option import build
from rmq.console import server as module
from rmq.console.config import ConsoleConfig
from rmq.console.headers import ALWAYS
from rmq.core.errors import ConfigError
from rmq.http import exchange
from rmq.protocol.bodies.auth import UserInfo
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.remoting.tls import TlsConfig
from rmq.testing import RawClient, running_node
from tests.model.json_changes import apply

WEB = Path(module.__file__).parent / "web"
ON = {"rmq.console": "true", "rmq.consolePort": "0"}
AUTH = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"secret-1"}',
    "innerClientAuthenticationCredentials": (
        '{"accessKey":"inner","secretKey":"inner-secret"}'
    ),
}


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "http://127.0.0.1:80"), ("::1", "http://[::1]:80"),
     ("localhost", "http://localhost:80")],
)  # fmt: skip
def test_the_address_is_one_for_browsers(host, address):
    given = {"rmq.consoleHost": host, "rmq.consolePort": "80"}
    config = build(ConsoleConfig, given)
    assert module.ConsoleServer(config, TlsConfig()).address == address


class Browser:
    """One request a connection."""

    def __init__(self, port):
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.cookie = ""

    async def connect(self):
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def raw(self, data):
        async with await self.connect() as stream:
            with trio.fail_after(5):
                await stream.send_all(data)
                answer = b""
                while part := await stream.receive_some(65_536):
                    answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {
            name.lower(): text
            for name, text in (line.split(": ", 1) for line in lines[1:])
        }
        return int(lines[0].split()[1]), headers, body

    async def get(self, path, method="GET", body=b"", **headers):
        known = {"Host": self.host, "Connection": "close", "Cookie": self.cookie}
        known |= {name.replace("_", "-"): text for name, text in headers.items()}
        known["Content-Length"] = str(len(body))
        lines = "".join(f"{name}: {text}\r\n" for name, text in known.items())
        return await self.raw(
            f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body
        )

    async def json(self, path):
        status, _, body = await self.get(path)
        return status, json.loads(body)

    async def post(self, path, value, **changed):
        headers = {
            "Content_Type": "application/json", "X_Rmq": "1",
            "Origin": f"http://{self.host}",
        }  # fmt: skip
        body = json.dumps(value).encode()
        status, headers, body = await self.get(path, "POST", body, **headers | changed)
        if cookie := headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
        return status, headers, json.loads(body)


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def plain(tmp_path):
    async with running_node(tmp_path, ON) as node:
        yield node, Browser(node.console_port)


@pytest.fixture
async def guarded(tmp_path):
    async with running_node(tmp_path, ON | AUTH) as node:
        yield node, Browser(node.console_port)


async def test_every_answer_has_the_headers(plain):
    _, browser = plain
    for path in ("/", "/app.js", "/nothing", "/api/session", "/api/x", "/../x"):
        _, headers, _ = await browser.get(path)
        for name, text in ALWAYS:
            assert headers[name.lower()] == text, path


async def test_files(plain):
    _, browser = plain
    for path in WEB.iterdir():
        status, headers, body = await browser.get(f"/{path.name}")
        assert (status, body) == (200, path.read_bytes())
        packed = await browser.get(f"/{path.name}", Accept_Encoding="gzip")
        assert gzip.decompress(packed[2]) == body
        again = await browser.get(f"/{path.name}", If_None_Match=headers["etag"])
        assert (again[0], again[2]) == (304, b"")
    status, _, body = await browser.get("/", "HEAD")
    assert (status, body) == (200, b"")


@pytest.mark.parametrize(
    "path", ["/..%2f..%2fserver.py", "/../server.py", "/web/app.js", "//etc/passwd"]
)
async def test_no_path_leaves_the_folder(plain, path):
    _, browser = plain
    assert (await browser.get(path))[0] == 404


async def test_a_foreign_name_is_refused_for_every_path(plain):
    _, browser = plain
    browser.host = "evil.example"
    for path in ("/", "/app.js", "/api/session", "/api/live?view=topics"):
        status, _, body = await browser.get(path)
        assert (status, b"rmq.consoleHosts" in body) == (421, True)
    assert (await browser.post("/api/sign-in", {}))[0] == 421


async def test_views(plain):
    node, browser = plain
    node.broker.context.topics.ensure("Orders", queues=2, perm=6)
    node.broker.context.publish("Orders", b"x", queue_id=1)
    status, session = await browser.json("/api/session")
    assert (status, session["write"], session["signed_in"]) == (200, False, False)
    _, found = await browser.json("/api/find?q=order")
    assert found["rows"] == [{"kind": "topic", "name": "Orders"}]
    _, topic = await browser.json("/api/topic?name=Orders")
    assert [queue["end"] for queue in topic["queues"]] == ["0", "1"]
    for path in (
        "topics",
        "groups",
        "clients",
        "problems",
        "overview",
        "config",
        "audit",
    ):
        status, value = await browser.json(f"/api/{path}")
        assert status == 200, value
    _, value = await browser.json("/api/config")
    keys = {row["key"] for row in value["rows"]}
    assert "brokerName" in keys
    assert not any("password" in key.lower() for key in keys)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/topic?name=No", 404), ("/api/topics?n=x", 400),
        ("/api/live?view=no", 404),
        ("/api/live?view=topic&name=No", 404), ("/api/do/resetOffset", 404),
        ("/api/topics?sort=%00", 400), ("/api/topic?name=" + "x" * 300, 400),
    ],
)  # fmt: skip
async def test_wrong_questions_get_a_sentence(plain, path, status):
    _, browser = plain
    got, value = await browser.json(path)
    assert got == status
    assert value["error"].endswith(".")


async def test_a_stream_sends_the_state_and_then_what_changes(plain, stack):
    node, browser = plain
    node.broker.context.topics.ensure("Orders", queues=1, perm=6)
    events = await open_stream(browser, stack, "view=topic&name=Orders")
    name, state = await next_event(events)
    assert name == "full"
    node.broker.context.publish("Orders", b"x", queue_id=0)
    while state["queues"][0]["end"] != "1":
        name, change = await next_event(events)
        assert name == "diff"
        state = apply(state, change)
    assert state["row"]["kept"] == 1


async def open_stream(browser, stack, query):
    stream = await stack.enter_async_context(
        await trio.open_tcp_stream("127.0.0.1", browser.port)
    )
    head = f"GET /api/live?{query} HTTP/1.1\r\nHost: {browser.host}\r\n"
    await stream.send_all(f"{head}Cookie: {browser.cookie}\r\n\r\n".encode())
    return stream, bytearray()


async def next_event(events):
    """Read to the end of the next event; chunk lines are passed over."""
    stream, data = events
    pattern = re.compile(rb"event: (\w+)\ndata: (.*?)\n\n", re.DOTALL)
    with trio.fail_after(8):
        while not (match := pattern.search(bytes(data))):
            part = await stream.receive_some(65_536)
            assert part, bytes(data)
            data += part
    del data[: match.end()]
    return match[1].decode(), json.loads(match[2])


@pytest.mark.parametrize(
    ("host", "changes", "is_warned"),
    [
        ("127.0.0.1", {}, False), ("localhost", {}, False), ("0.0.0.0", {}, True),
        ("0.0.0.0", AUTH, False),
    ],
)  # fmt: skip
async def test_an_open_console_warns(tmp_path, caplog, host, changes, is_warned):
    values = ON | changes | {"rmq.consoleHost": host}
    async with running_node(tmp_path, values) as node:
        await Browser(node.console_port).get("/")
    told = [r for r in caplog.records if r.msg == module.OPEN_WARNING]
    assert len(told) == is_warned


async def test_streams_have_a_limit(plain, stack, monkeypatch):
    monkeypatch.setattr(module, "MAX_STREAMS", 2)
    _, browser = plain
    for _ in range(2):
        await next_event(await open_stream(browser, stack, "view=problems"))
    status, value = await browser.json("/api/live?view=problems")
    assert status == 503
    wanted = "2 pages of this broker are open already, the limit: close one."
    assert value["error"] == wanted


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 9_000 + b"\r\n\r\n", 431),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /?" + b"a=1&" * 30 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 400),
        (
            b"POST /api/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Length: 70000\r\n\r\n" + b"x" * 70_000,
            413,
        ),
        (b"PUT / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 405),
    ],
)
async def test_bad_requests(plain, data, status):
    _, browser = plain
    assert (await browser.raw(data))[0] == status


async def test_many_requests_on_one_connection(plain, stack):
    _, browser = plain
    stream = await stack.enter_async_context(
        await trio.open_tcp_stream("127.0.0.1", browser.port)
    )
    for _ in range(3):
        await stream.send_all(
            f"GET /mark.svg HTTP/1.1\r\nHost: {browser.host}\r\n\r\n".encode()
        )
        data = b""
        with trio.fail_after(5):
            while b"</svg>" not in data:
                data += await stream.receive_some(65_536)
        assert data.startswith(b"HTTP/1.1 200")


async def test_sign_in(guarded):
    node, browser = guarded
    assert (await browser.get("/"))[0] == 200
    assert (await browser.json("/api/session"))[0] == 401
    assert (await browser.json("/api/live?view=topics"))[0] == 401
    status, headers, _ = await browser.post(
        "/api/sign-in", {"user": "root", "password": "secret-1"}
    )
    assert status == 200
    cookie = headers["set-cookie"]
    assert f"rmq-{browser.port}=" in cookie
    assert "HttpOnly; SameSite=Strict" in cookie
    status, session = await browser.json("/api/session")
    assert (status, session["user"], session["signed_in"]) == (200, "root", True)
    await change_password(node, "secret-2")
    assert (await browser.json("/api/session"))[0] == 401
    await browser.post("/api/sign-in", {"user": "root", "password": "secret-2"})
    assert (await browser.json("/api/session"))[0] == 200
    await browser.post("/api/sign-out", {})
    assert (await browser.json("/api/session"))[0] == 401


async def change_password(node, password):
    async with RawClient.connect(node.address) as client:
        body = UserInfo(password=password).encode()
        command = Command.request(RequestCode.AUTH_UPDATE_USER, body=body)
        command.ext_fields = {"username": "root"}
        sign(command, "root", "secret-1")
        answer = await client.call(command)
        assert answer.code == 0, answer.remark


async def test_wrong_passwords_wait(guarded):
    _, browser = guarded
    for n in range(6):
        wrong = {"user": "root" if n % 2 else "nobody", "password": "x"}
        status, _, value = await browser.post("/api/sign-in", wrong)
        assert status == 403
        assert value["error"].startswith("User or password" if n < 5 else "Too many")
    right = {"user": "root", "password": "secret-1"}
    assert (await browser.post("/api/sign-in", right))[0] == 403


@pytest.mark.parametrize(
    "changed",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"X_Rmq": "0"},
        {"Content_Type": "text/plain"}, {"Sec_Fetch_Site": "cross-site"},
    ],
)  # fmt: skip
async def test_posts_of_other_pages(guarded, changed):
    _, browser = guarded
    body = {"user": "root", "password": "secret-1"}
    status, headers, _ = await browser.post("/api/sign-in", body, **changed)
    assert (status, "set-cookie" in headers) == (403, False)


def test_the_page_is_small_and_parses_no_markup():
    files = list(WEB.iterdir())
    assert sum(path.stat().st_size for path in files) <= 120_000
    sinks = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function"
    )
    for path in files:
        assert not re.search(sinks, path.read_text()), path
        assert "http" not in path.read_text().replace("http://www.w3.org/", ""), path


class SecureBrowser(Browser):
    """Speaks https, and knows who signed the certificate."""

    def __init__(self, port, authority):
        super().__init__(port)
        self._context = ssl.create_default_context(cafile=authority / "ca.pem")
        self._context.set_alpn_protocols(["h2", "http/1.1"])

    async def connect(self):
        stream = await trio.open_ssl_over_tcp_stream(
            "127.0.0.1", self.port, https_compatible=True, ssl_context=self._context
        )
        await stream.do_handshake()
        assert stream.selected_alpn_protocol() == "http/1.1"
        return stream


def certificate(authority):
    return {
        "rmq.consoleTls": "on", "tls.server.certPath": str(authority / "cert.pem"),
        "tls.server.keyPath": str(authority / "key.pem"),
    }  # fmt: skip


@pytest.mark.slow
async def test_the_console_speaks_https(tmp_path, authority, monkeypatch):
    monkeypatch.setattr(exchange, "DRAIN_S", 0.05)
    async with running_node(tmp_path, ON | AUTH | certificate(authority)) as node:
        browser = SecureBrowser(node.console_port, authority)
        status, headers, _ = await browser.get("/")
        assert (status, dict(ALWAYS).items() <= capital(headers).items()) == (200, True)
        sign_in = {"user": "root", "password": "secret-1"}
        status, headers, _ = await browser.post("/api/sign-in", sign_in)
        assert status == 200
        cookie = headers["set-cookie"]
        assert cookie.startswith(f"__Host-rmq-{browser.port}=")
        assert "; Path=/;" in cookie
        assert cookie.endswith("; Secure")
        status, session = await browser.json("/api/session")
        assert (status, session["user"]) == (200, "root")
        stream = await browser.connect()
        head = f"Host: {browser.host}\r\nCookie: {browser.cookie}\r\n\r\n"
        await stream.send_all(f"GET /api/live?view=topics HTTP/1.1\r\n{head}".encode())
        with trio.fail_after(5):
            told = b""
            while b"event: full" not in told:
                told += await stream.receive_some(65_536)
        await trio.aclose_forcefully(stream)
        with pytest.raises((IndexError, trio.BrokenResourceError)):
            await Browser(node.console_port).get("/")  # without TLS nobody answers
        status, _, _ = await browser.raw(b"GET / HTTP/1.1\r\n" + b"x" * 9_000)
        assert status == 431  # and the answer arrives


def capital(headers):
    return {name.title(): text for name, text in headers.items()}


def test_a_console_without_a_certificate_does_not_start():
    config = build(ConsoleConfig, ON | {"rmq.consoleTls": "on"})
    with pytest.raises(ConfigError, match="set a certificate and its key"):
        module.ConsoleServer(config, TlsConfig())


async def test_behind_a_proxy_the_cookie_is_secure(tmp_path):
    async with running_node(tmp_path, ON | AUTH | {"rmq.consoleTls": "proxy"}) as node:
        browser = Browser(node.console_port)
        sign_in = {"user": "root", "password": "secret-1"}
        _, headers, _ = await browser.post("/api/sign-in", sign_in)
        assert headers["set-cookie"].startswith(f"__Host-rmq-{browser.port}=")
        assert headers["set-cookie"].endswith("; Secure")
        assert (await browser.json("/api/session"))[0] == 200
