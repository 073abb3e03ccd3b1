"""Accepting: taken ports, lack of descriptors, and what the first bytes decide."""

import contextlib
import logging
import os
import re
import resource
import socket
import struct
import threading
from pathlib import Path

import pytest
import trio

from rmq.core.errors import ConfigError, PeerClosed
from rmq.protocol.frames import encode
from rmq.remoting.listener import BACK_OFF_S, open_listener
from rmq.remoting.proxy_header import V2_START
from rmq.remoting.server import TABLE_DESCRIPTORS, raise_descriptor_limit
from rmq.remoting.sniffer import HEADER_LIMIT_S
from tests.connections import connections_of
from tests.waiting import until

CODE = 10
V1 = b"PROXY TCP4 10.1.2.3 10.0.0.1 40001 10911\r\n"
V1_NOBODY = b"PROXY UNKNOWN\r\n"
V2 = V2_START + struct.pack(
    ">BBH4s4sHH", 0x21, 0x11, 12, b"\n\1\2\3", b"\n\0\0\1", 40_001, 10_911
)


def echo(request, connection):
    return request.reply(remark=connection.remote_address)


async def received(client):
    """All that comes until the server closes."""
    with contextlib.suppress(trio.BrokenResourceError):
        return await client.stream.receive_some(100)
    return b""


@contextlib.contextmanager
def no_more_descriptors():
    """Take every descriptor that the limit leaves."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
"""What a client of gRPC sends first: the preface, and empty SETTINGS."""


async def test_a_taken_port_is_refused_with_advice():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1 is in use"):
            await open_listener("127.0.0.1", port)


async def test_an_address_of_another_machine_is_refused():
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:0"):
        await open_listener("192.0.2.1", 0)


async def test_a_grpc_client_is_told_what_to_do(serving, caplog):
    async with serving() as served:
        host, _, port = served.address.rpartition(":")
        stream = await trio.open_tcp_stream(host, int(port))
        async with stream:
            await stream.send_all(GREETING)
            answer = b"".join([part async for part in stream])
    assert answer[:9] == bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), "SETTINGS"
    assert answer[12] == 7, "GOAWAY"
    assert answer[9 + 9 + 4 : 9 + 9 + 8] == bytes([0, 0, 0, 13])
    assert b"gRPC client (HTTP/2), but this port speaks the remoting protocol" in answer
    assert "the peer is a gRPC client" in caplog.text


class NoCalls:
    """A service of gRPC without a method."""

    def __init__(self):
        self.compiled = {}

    def end_connection(self, token):
        pass


async def test_other_clients_are_served_while_grpc_is_loaded(serving, request_of):
    """The first client of gRPC once stopped all others for 30 ms."""
    may_load = threading.Event()
    async with serving() as served:
        served.register(CODE, echo)
        served.server.serve_grpc(NoCalls, "main", load_libraries=may_load.wait)
        host, _, port = served.address.rpartition(":")
        first = await trio.open_tcp_stream(host, int(port))
        second = await trio.open_tcp_stream(host, int(port))
        async with first, second, served.client() as client:
            for stream in (first, second):
                await stream.send_all(GREETING)
            assert (await client.call(request_of(CODE))).code == 0
            assert served.server.grpc is None
            may_load.set()
            with trio.fail_after(10):
                for stream in (first, second):
                    answer = await stream.receive_some()
                    assert answer[3:5] == b"\4\0", "SETTINGS"


async def test_a_grpc_client_of_a_broker_without_its_libraries(serving):
    def load():
        raise ImportError("no module protobuf")

    async with serving() as served:
        served.server.serve_grpc(NoCalls, "main", load_libraries=load)
        host, _, port = served.address.rpartition(":")
        for _ in range(2):
            stream = await trio.open_tcp_stream(host, int(port))
            async with stream:
                await stream.send_all(GREETING)
                with trio.fail_after(10):
                    answer = b"".join([part async for part in stream])
            assert b"this broker serves it after" in answer


async def test_without_descriptors_the_caller_waits_and_is_then_served(
    serving, request_of, caplog, mock_clock
):
    def complaints():
        return [r for r in caplog.records if "cannot accept" in r.message]

    async with serving() as served:
        served.register(CODE, echo)
        waiting = trio.socket.socket()
        with waiting, no_more_descriptors():
            host, _, port = served.address.rpartition(":")
            await waiting.connect((host, int(port)))
            await waiting.send(encode(request_of(CODE)))
            await until(complaints)
            for _ in range(100):
                await trio.lowlevel.checkpoint()
            assert len(complaints()) == 1, "it tried again without a pause"
            mock_clock.jump(BACK_OFF_S + 0.01)
            await until(lambda: len(complaints()) == 2)
        # the descriptors are back; `waiting` was closed with its request in flight
        mock_clock.jump(BACK_OFF_S + 0.01)
        async with served.client() as client:
            assert (await client.call(request_of(CODE))).code == 0
    assert all(r.levelno == logging.ERROR for r in complaints())


async def test_frames_are_served_as_they_are(serving, request_of):
    async with serving() as served, served.client() as client:
        served.register(CODE, echo)
        host, port = client.stream.socket.getsockname()
        assert (await client.call(request_of(CODE))).remark == f"{host}:{port}"


@pytest.mark.parametrize("header", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("cut", [0, 1, 5, 13, 27])
async def test_a_proxy_header_names_the_client(
    serving, request_of, mock_clock, header, cut
):
    async with serving() as served, served.client() as client:
        served.register(CODE, echo)
        first, rest = header[:cut], header[cut:]
        if first:
            await client.send_bytes(first)
            mock_clock.jump(0.02)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            assert not connections_of(served.server, "main")
        await client.send_bytes(rest + encode(request_of(CODE)))
        while not connections_of(served.server, "main"):
            mock_clock.jump(0.02)
            await trio.lowlevel.checkpoint()
        assert (await client.call(request_of(CODE))).remark == "10.1.2.3:40001"


async def test_a_proxy_header_may_name_nobody(serving, request_of):
    async with serving() as served, served.client() as client:
        served.register(CODE, echo)
        await client.send_bytes(V1_NOBODY)
        host, port = client.stream.socket.getsockname()
        assert (await client.call(request_of(CODE))).remark == f"{host}:{port}"


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"PROXY TCP4 nowhere 10.0.0.1 1 2\r\n", "names no address"),
        (b"PROXY TCP4 10.1.2.3 10.0.0.1 99999999999 2\r\n", "names no address"),
        (b"PROXY TCP4 10.1.2.3 10.0.0.1 -1 2\r\n", "names no address"),
        (b"PROXY " + b"x" * 200, "does not end"),
    ],
)
async def test_bad_first_bytes_close_that_connection_only(
    serving, request_of, caplog, first, said
):
    async with serving() as served:
        served.register(CODE, echo)
        async with served.client() as bad:
            await bad.send_bytes(first)
            assert await received(bad) == b""
        assert said in caplog.text
        async with served.client() as good:
            assert (await good.call(request_of(CODE))).code == 0


async def test_a_caller_that_leaves_before_its_first_byte_is_forgotten(
    serving, request_of, caplog
):
    caplog.set_level(logging.DEBUG)
    async with serving() as served:
        served.register(CODE, echo)
        async with served.client():
            pass
        await until(lambda: "the peer closed before its first byte" in caplog.text)
        async with served.client() as good:
            assert (await good.call(request_of(CODE))).code == 0


async def test_a_caller_that_resets_before_its_first_byte_is_forgotten(
    serving, request_of, caplog
):
    caplog.set_level(logging.DEBUG)
    async with serving() as served:
        served.register(CODE, echo)
        async with served.client() as rude:
            await trio.testing.wait_all_tasks_blocked()
            rude.stream.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        await until(lambda: "broke before its first byte" in caplog.text)
        async with served.client() as good:
            assert (await good.call(request_of(CODE))).code == 0


async def test_a_server_may_have_all_descriptors_that_are_allowed():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard))
    try:
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_connection_waits_until_the_table_of_descriptors_has_grown():
    raise_descriptor_limit()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    status = Path("/proc/self/status").read_text()
    size = int(re.search(r"FDSize:\s+(\d+)", status)[1])
    assert size >= min(hard, TABLE_DESCRIPTORS)


async def test_a_caller_that_says_nothing_is_closed(serving, caplog, mock_clock):
    caplog.set_level(logging.INFO)
    async with serving(idle_timeout_s=7) as served, served.client() as silent:
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        mock_clock.jump(6.9)
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        assert "sent nothing" not in caplog.text
        mock_clock.jump(0.2)
        assert await received(silent) == b""
        assert "sent nothing for 7.0 s" in caplog.text


async def test_half_a_proxy_header_has_three_seconds(serving, caplog, mock_clock):
    caplog.set_level(logging.INFO)
    async with serving(idle_timeout_s=7) as served, served.client() as slow:
        await slow.send_bytes(V1[:12])
        for byte in V1[12:15]:
            for _ in range(50):
                await trio.lowlevel.checkpoint()
            mock_clock.jump(HEADER_LIMIT_S / 4)
            await slow.send_bytes(bytes([byte]))
        for _ in range(50):
            await trio.lowlevel.checkpoint()
        assert "an incomplete PROXY header" not in caplog.text
        mock_clock.jump(HEADER_LIMIT_S / 4 + 0.1)
        assert await received(slow) == b""
        assert "an incomplete PROXY header" in caplog.text


async def test_ipv6_is_served(serving, request_of):
    try:
        (await open_listener("::1", 0)).close()
    except ConfigError as error:
        pytest.skip(str(error))
    async with serving("::1") as served:
        served.register(CODE, echo)
        async with served.client() as client:
            answer = await client.call(request_of(CODE))
            assert answer.remark == f"::1:{client.stream.socket.getsockname()[1]}"


async def test_nobody_is_served_after_the_stop_of_accepting(serving, request_of):
    async with serving() as served:
        served.register(CODE, echo)
        async with served.client() as client:
            assert (await client.call(request_of(CODE))).code == 0
            served.server.stop_accepting("other")
            async with served.client() as another:
                assert (await another.call(request_of(CODE))).code == 0
            served.server.stop_accepting()
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises((OSError, PeerClosed)):
                async with served.client() as late:
                    await late.call(request_of(CODE))
            assert (await client.call(request_of(CODE))).code == 0
