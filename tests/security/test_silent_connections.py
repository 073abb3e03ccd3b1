"""Silent connections keep no client out, and end no broker."""

import contextlib
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise

import pytest
import trio

from rmq.core.errors import PeerClosed
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.remoting.admission import SILENT_GRACE_MS, Admission, default_limit
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.listener import ACCEPTS_PER_TURN
from rmq.remoting.server import RemotingServer
from rmq.remoting.sniffer import LOOKS_PER_TURN
from rmq.testing import RawClient
from tests.connections import connections_of
from tests.interop.processes import free_port

CODE = 10
REQUEST = Command(CODE, {}, b"")


@contextlib.asynccontextmanager
async def serving(*, is_accepting=True, **options):
    """Give (server, address) of one that answers CODE with the caller's address."""
    server = RemotingServer(**options)
    handlers = HandlerTable()
    handlers.register(CODE, lambda r, c: r.reply(remark=c.remote_address))
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        port = await server.bind("main", "127.0.0.1", 0, handlers)
        if is_accepting:
            server.start_accepting("main")
        yield server, f"127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


async def connected(address, count, first=b""):
    """Open connections that say nothing but `first`."""
    host, _, port = address.rpartition(":")
    made = []
    for _ in range(count):
        stream = await trio.open_tcp_stream(host, int(port))
        if first:
            await stream.send_all(first)
        made.append(stream)
    return made


def proxy_line(source):
    return f"PROXY TCP4 {source} 10.0.0.1 40001 10911\r\n".encode()


async def is_closed(stream):
    """True once the server has closed it; with unread bytes that is a reset."""
    with trio.move_on_after(5):
        try:
            return await stream.receive_some(10) == b""
        except trio.BrokenResourceError:
            return True
    return False


async def answer_from(address, first=b""):
    async with RawClient.connect(address) as client:
        if first:
            await client.stream.send_all(first)
        with trio.fail_after(5):
            return await client.call(REQUEST)


@pytest.mark.parametrize("first", [b"", encode(REQUEST)[:-1], b"\x16\x03\x01"])
async def test_an_honest_client_gets_in_among_more_silent_ones_than_there_is_room(
    first,
):
    async with serving(max_connections=20) as (server, address):
        silent = await connected(address, 60, first)
        for _ in range(3):
            assert (await answer_from(address)).code == 0
        assert server.statistics().admission.connections <= 20
        assert await is_closed(silent[0])
        for stream in silent:
            await stream.aclose()


async def test_who_has_spoken_stays(caplog):
    """Only silent ones leave for others; without them the newcomer is refused."""
    async with serving(max_connections=5) as (server, address):
        async with contextlib.AsyncExitStack() as stack:
            clients = []
            for _ in range(5):
                client = await stack.enter_async_context(RawClient.connect(address))
                assert (await client.call(REQUEST)).code == 0
                clients.append(client)
            [refused] = await connected(address, 1)
            assert await is_closed(refused)
            await refused.aclose()
            for client in clients:
                assert (await client.call(REQUEST)).code == 0
        statistics = server.statistics().admission
        assert (statistics.evicted, statistics.refused) == (0, 1)
    assert "rmq.maxConnections=5" in caplog.text


@pytest.mark.parametrize("header", [b"", b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n"])
async def test_who_leaves_between_the_arrival_and_the_reading_of_its_bytes_ends_nothing(
    header,
):
    """The bytes were there before the accept; the next one took the room."""
    async with serving(max_connections=1, is_accepting=False) as (server, address):
        streams = await connected(address, 60, header + encode(REQUEST))
        server.start_accepting("main")
        for stream in streams:
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.receive_some(1_000)
            await stream.aclose()
        with trio.fail_after(5):
            while server.statistics().admission.connections:
                await trio.lowlevel.checkpoint()
        assert (await answer_from(address)).code == 0


async def test_an_address_whose_guests_all_spoke_leaves_room_for_the_next_one():
    """Ten thousand connections from two addresses kept every newcomer out."""
    async with (
        serving(max_connections=20) as (_server, address),
        contextlib.AsyncExitStack() as stack,
    ):
        served = {}
        for source in ("192.0.2.7", "192.0.2.8", "192.0.2.9"):
            served[source] = []
            for _ in range(20):
                client = await stack.enter_async_context(RawClient.connect(address))
                await client.stream.send_all(proxy_line(source))
                with contextlib.suppress(trio.BrokenResourceError, PeerClosed):
                    assert (await client.call(REQUEST)).code == 0
                    served[source].append(client)
        assert [len(each) for each in served.values()] == [10, 5, 3]
        assert (await answer_from(address)).code == 0
        for client in served["192.0.2.7"]:
            assert (await client.call(REQUEST)).code == 0


@pytest.mark.parametrize("first", [b"", encode(REQUEST)])
async def test_a_flood_of_connections_costs_no_tasks_and_takes_turns(first):
    """A task for each of 10,000 made garbage collections that took 50 ms."""
    async with serving(max_connections=500, is_accepting=False) as (server, address):
        flood = await connected(address, 200, first)
        before = trio.lowlevel.current_statistics().tasks_living
        server.start_accepting("main")
        accepted, served = [0], [0]
        with trio.fail_after(5):
            while accepted[-1] < 200 or served[-1] < (200 if first else 0):
                await trio.lowlevel.checkpoint()
                accepted.append(server.statistics().admission.connections)
                served.append(len(connections_of(server, "main")))
        for counts, limit in (accepted, ACCEPTS_PER_TURN), (served, LOOKS_PER_TURN):
            most = max(after - each for each, after in pairwise(counts))
            assert most <= 2 * limit, "trio runs two turns between two of this task"
        added = trio.lowlevel.current_statistics().tasks_living - before
        assert added <= 5, "the listener has three tasks, for any number of peers"
        assert (await answer_from(address)).code == 0
        for stream in flood:
            await stream.aclose()


async def test_room_returns_when_connections_end():
    async with serving(max_connections=3) as (server, address):
        for _ in range(10):
            assert (await answer_from(address)).code == 0
        with trio.fail_after(5):
            while server.statistics().admission.connections:
                await trio.lowlevel.checkpoint()
        assert server.statistics().admission.refused == 0


async def test_an_address_has_its_own_limit_and_takes_nothing_from_others():
    """A balancer's own address does not count, but those that it names."""
    options = {"max_connections": 100, "max_connections_per_address": 4}
    async with serving(**options) as (server, address):
        greedy = await connected(address, 30, proxy_line("192.0.2.7"))
        with trio.fail_after(5):
            while server.statistics().admission.evicted < 26:
                await trio.lowlevel.checkpoint()
        assert server.statistics().admission.connections == 4
        other = await answer_from(address, proxy_line("192.0.2.8"))
        assert other.remark.startswith("192.0.2.8:")
        again = await answer_from(address, proxy_line("192.0.2.7"))
        assert again.remark.startswith("192.0.2.7:")
        for stream in greedy:
            await stream.aclose()


async def test_loopback_has_no_limit_of_its_own():
    async with serving(max_connections=40, max_connections_per_address=2) as (
        server,
        address,
    ):
        streams = await connected(address, 30)
        assert (await answer_from(address)).code == 0
        assert server.statistics().admission.evicted == 0
        for stream in streams:
            await stream.aclose()


async def test_evictions_are_told_sparsely(caplog):
    caplog.set_level(logging.WARNING)
    async with serving(max_connections=2) as (_server, address):
        streams = await connected(address, 50)
        assert (await answer_from(address)).code == 0
        for stream in streams:
            await stream.aclose()
    lines = [r for r in caplog.records if "no whole request" in r.message]
    assert 1 <= len(lines) <= 5


def test_the_store_keeps_a_quarter_of_the_descriptors(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    assert default_limit() == 768
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, resource.RLIM_INFINITY))
    assert default_limit() == 1 << 20


def test_an_address_over_its_share_makes_only_stale_guests_of_others_leave():
    now, ended = [0], []
    admission = Admission(
        lambda token: token == 1, max_connections=8, clock_ms=lambda: now[0]
    )

    def spoken():
        admitted = admission.admit("192.0.2.1", lambda: ended.append("spoken"))
        if admitted is not None:
            admitted.token = 1
        return admitted

    assert all(spoken() for _ in range(3))
    for name in ("first", "second"):
        is_admitted = admission.admit("192.0.2.2", partial(ended.append, name))
        assert is_admitted
    assert not spoken()
    assert ended == [], "the others came this moment"
    now[0] = SILENT_GRACE_MS
    assert spoken()
    assert ended == ["first"]
    assert not spoken(), "half of all is the most"
    assert ended == ["first"]
    assert admission.statistics().connections == 5


# -- a broker with few descriptors


def send_request(port):
    """Send one message and return its answer; the connection ends with it."""
    fields = {
        "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0",
        "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false",
    }  # fmt: skip
    with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
        peer.sendall(encode(Command(RequestCode.SEND_MESSAGE_V2, fields, b"body")))
        decoder = FrameDecoder()
        while True:
            data = peer.recv(65_536)
            assert data, "the broker closed the connection"
            if answers := decoder.feed(data):
                return answers[0]


@pytest.mark.slow
def test_a_broker_with_few_descriptors_outlives_more_silent_connections(tmp_path):
    """1,124 of them ended a broker with 1,024 descriptors in 0.9 s."""
    port = free_port()
    command = [
        sys.executable, "-m", "rmq", "broker",
        "--set", f"storePathRootDir={tmp_path / 'store'}",
        "--set", f"listenPort={port}",
        "--set", f"rmq.namesrv.listenPort={free_port()}",
        "--set", "mappedFileSizeCommitLog=1048576",
    ]  # fmt: skip
    limits = (256, 256)
    broker = subprocess.Popen(
        command,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    silent = []
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                assert send_request(port).code == 0
                break
            time.sleep(0.1)
        for _ in range(356):
            peer = socket.socket()
            peer.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                peer.connect(("127.0.0.1", port))
            silent.append(peer)
        time.sleep(2)  # checkpoints and flushes open files meanwhile
        for _ in range(5):
            assert send_request(port).code == 0
        assert broker.poll() is None
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) <= 256 * 3 // 4 + 40
    finally:
        for peer in silent:
            peer.close()
        broker.send_signal(signal.SIGTERM)
        _, log = broker.communicate(timeout=30)
    assert broker.returncode == 0, log.decode()
