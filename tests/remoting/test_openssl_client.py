"""A client of another library, `openssl s_client`, in every mode of the server."""

import shutil
import subprocess
from contextlib import suppress

import pytest
import trio

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.testing.broker import running_node
from tests.remoting.test_tls import Authority
from tests.waiting import until

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl")

REQUEST = encode(Command.request(RequestCode.GET_BROKER_RUNTIME_INFO))
ANSWER = b'"serializeTypeCurrentRPC"'


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_files(authority):
    cert, key = authority.issue("server")
    return {"tls.server.certPath": cert, "tls.server.keyPath": key}


async def talk(port, *options, command=b""):
    """Send a request by s_client, before it a command; return all that it shows."""
    process = await trio.lowlevel.open_process(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    seen = bytearray()

    async def read():
        async for data in process.stdout:
            seen.extend(data)
            if ANSWER in seen:
                return

    async def write():
        await until(lambda: b"Verify return code" in seen or b"no peer" in seen)
        if command:
            await process.stdin.send_all(command + b"\n")
            await until(lambda: DONE[command] in seen)
        with suppress(trio.BrokenResourceError):  # a refused client ends
            await process.stdin.send_all(REQUEST)

    with trio.move_on_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await read()
            nursery.cancel_scope.cancel()
    process.kill()
    await process.wait()
    await process.stdin.aclose()
    await process.stdout.aclose()
    return bytes(seen)


DONE = {b"K": b"KEYUPDATE", b"k": b"KEYUPDATE", b"R": b"RENEGOTIATING"}


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_it_is_served_in_each_mode(
    tmp_path, authority, server_files, mode, version
):
    settings = server_files | {"tls.server.mode": mode}
    async with running_node(tmp_path, settings) as node:
        port = int(node.address.rpartition(":")[2])
        seen = await talk(port, version, "-CAfile", str(authority.cert))
    assert b"Verify return code: 0 (ok)" in seen
    assert ANSWER in seen


async def test_it_is_served_by_a_self_signed_certificate(tmp_path):
    async with running_node(tmp_path) as node:
        seen = await talk(int(node.address.rpartition(":")[2]))
    assert b"self-signed certificate" in seen or b"self signed certificate" in seen
    assert ANSWER in seen


async def test_it_is_refused_where_tls_is_disabled(tmp_path):
    async with running_node(tmp_path, {"tls.server.mode": "disabled"}) as node:
        seen = await talk(int(node.address.rpartition(":")[2]))
    assert ANSWER not in seen


async def test_it_shows_its_certificate(tmp_path, authority, server_files):
    settings = server_files | {
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(authority.cert),
    }
    cert, key = authority.issue("client")
    async with running_node(tmp_path, settings) as node:
        port = int(node.address.rpartition(":")[2])
        assert ANSWER in await talk(port, "-cert", cert, "-key", key)
        assert ANSWER not in await talk(port)


@pytest.mark.parametrize("command", [b"k", b"K"])
async def test_it_changes_keys(tmp_path, server_files, command):
    async with running_node(tmp_path, server_files) as node:
        port = int(node.address.rpartition(":")[2])
        assert ANSWER in await talk(port, "-tls1_3", command=command)


async def test_its_renegotiation_is_refused(tmp_path, server_files):
    """The server answers with a warning, and s_client gives up."""
    async with running_node(tmp_path, server_files) as node:
        port = int(node.address.rpartition(":")[2])
        seen = await talk(port, "-tls1_2", command=b"R")
    assert b"no renegotiation" in seen
    assert ANSWER not in seen


async def test_the_server_selects_http2(tmp_path, server_files):
    async with running_node(tmp_path, server_files) as node:
        port = int(node.address.rpartition(":")[2])
        assert b"ALPN protocol: h2" in await talk(port, "-alpn", "h2,http/1.1")
        assert b"No ALPN negotiated" in await talk(port, "-alpn", "http/1.1")


async def test_a_name_in_the_hello_is_accepted(tmp_path, authority, server_files):
    async with running_node(tmp_path, server_files) as node:
        port = int(node.address.rpartition(":")[2])
        options = "-servername", "any.example", "-CAfile", str(authority.cert)
        assert ANSWER in await talk(port, *options)
