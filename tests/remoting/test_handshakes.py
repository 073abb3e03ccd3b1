"""Handshakes in their thread: limits by address and time, storms, early ends."""

import contextlib
import itertools
import os
import socket
import threading

import pytest
import trio
import trio.testing

from rmq.remoting import handshakes
from rmq.remoting.handshakes import (
    ACTIVE_PER_ADDRESS,
    FINISHES_PER_TURN,
    THREAD_NICENESS,
    Handshakes,
)
from tests.fastpath.tls import client_context, server_context
from tests.waiting import until

NEAR, FAR = "192.0.2.1", "198.51.100.1"


class Doors:
    """Connections in their handshake; `ended` has what became of them."""

    def __init__(self, made, nursery):
        self.made, self._nursery = made, nursery
        self.ended = {}
        self.peers = []
        self.streams = []

    def open(self, address=NEAR):
        """Return (number, the peer's socket, the function that ends it)."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        number = len(self.peers)
        self.peers.append(theirs)

        def finish(layer, reason):
            self.ended[number] = (layer, reason)
            ours.close()

        return number, theirs, self.made.begin(ours, address, finish, self._nursery)

    async def finish(self, number):
        await until(lambda: number in self.ended)
        return self.ended[number]


@pytest.fixture
async def doors():
    async with trio.open_nursery() as nursery:
        made = Doors(Handshakes(server_context), nursery)
        yield made
        for stream in made.streams:
            await trio.aclose_forcefully(stream)
        nursery.cancel_scope.cancel()
    for peer in made.peers:
        peer.close()


async def shake_hands(plain, context=None):
    stream = trio.SSLStream(
        trio.SocketStream(trio.socket.from_stdlib_socket(plain)),
        context or client_context(),
    )
    with trio.fail_after(20):
        await stream.do_handshake()
    return stream


async def test_a_peer_shakes_hands(doors):
    number, peer, _ = doors.open()
    doors.streams.append(await shake_hands(peer))
    layer, reason = await doors.finish(number)
    assert layer is not None
    assert not reason
    statistics = doors.made.statistics()
    assert (statistics.finished, statistics.active, statistics.waiting) == (1, 0, 0)


async def test_the_reactor_has_the_higher_priority():
    """Else, on one core, a send waits 3 ms for the thread that makes handshakes."""
    found = []

    def context():
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return server_context()

    before = os.getpriority(os.PRIO_PROCESS, 0)
    async with trio.open_nursery() as nursery:
        doors = Doors(Handshakes(context), nursery)
        _, peer, _ = doors.open()
        await trio.aclose_forcefully(await shake_hands(peer))
        nursery.cancel_scope.cancel()
    assert found == [min(before + THREAD_NICENESS, 19)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


async def test_a_session_is_resumed(doors):
    context = client_context()
    session = None
    for _ in range(2):
        number, peer, _ = doors.open()
        plain = socket.socket(fileno=peer.detach())
        plain.settimeout(20)
        tls = await trio.to_thread.run_sync(wrap, context, plain, session)
        await doors.finish(number)
        # TLS 1.3 sends its tickets after the handshake
        plain_read(tls)
        session = tls.session
        tls.close()
    assert doors.made.statistics().resumed == 1


def wrap(context, plain, session):
    return context.wrap_socket(plain, session=session)


def plain_read(tls):
    tls.settimeout(0.2)
    with contextlib.suppress(TimeoutError):
        tls.read(1)


async def test_who_says_nothing_is_late(doors, monkeypatch):
    monkeypatch.setattr(handshakes, "HANDSHAKE_TIMEOUT_S", 0.05)
    number, _, _ = doors.open()
    layer, reason = await doors.finish(number)
    assert layer is None
    assert reason == "no TLS handshake in 0.05 s"
    assert doors.made.statistics().late == 1


async def test_half_handshakes_of_an_address_keep_others_of_it_waiting_shortly(
    doors, monkeypatch
):
    monkeypatch.setattr(handshakes, "GRACE_S", 0.05)
    monkeypatch.setattr(handshakes, "LOOK_AGAIN_S", 0.01)
    for _ in range(ACTIVE_PER_ADDRESS):
        doors.open()
    number, peer, _ = doors.open()
    doors.streams.append(await shake_hands(peer))
    assert (await doors.finish(number))[0] is not None
    assert "other handshakes wait" in doors.ended[0][1]


async def test_half_handshakes_of_one_address_do_not_delay_another(doors):
    for _ in range(3 * ACTIVE_PER_ADDRESS):
        doors.open(NEAR)
    number, peer, _ = doors.open(FAR)
    doors.streams.append(await shake_hands(peer))
    assert (await doors.finish(number))[0] is not None
    assert set(doors.ended) == {number}
    statistics = doors.made.statistics()
    assert statistics.active == ACTIVE_PER_ADDRESS
    assert statistics.waiting == 2 * ACTIVE_PER_ADDRESS


async def test_half_handshakes_of_many_addresses_keep_others_waiting_shortly(
    doors, monkeypatch
):
    monkeypatch.setattr(handshakes, "ACTIVE_LIMIT", 8)
    monkeypatch.setattr(handshakes, "GRACE_S", 0.05)
    monkeypatch.setattr(handshakes, "LOOK_AGAIN_S", 0.01)
    for last in range(8):
        doors.open(f"203.0.113.{last}")
    number, peer, _ = doors.open(FAR)
    doors.streams.append(await shake_hands(peer))
    assert (await doors.finish(number))[0] is not None


async def test_one_that_is_ended_early_is_given_back(doors):
    """Also one that still waits for its turn."""
    ends = [doors.open() for _ in range(ACTIVE_PER_ADDRESS + 1)]
    await until(lambda: doors.made.statistics().waiting == 1)
    for number, _, end in (ends[0], ends[-1]):
        end()
        layer, reason = await doors.finish(number)
        assert layer is None
        assert reason


async def test_any_error_of_a_handshake_ends_this_handshake_only():
    contexts = iter((broken_context, server_context))
    async with trio.open_nursery() as nursery:
        doors = Doors(Handshakes(lambda: next(contexts)()), nursery)
        number, _, _ = doors.open()
        layer, reason = await doors.finish(number)
        assert layer is None
        assert reason == "TLS handshake: this key cannot be used"
        number, peer, _ = doors.open()
        stream = await shake_hands(peer)
        assert (await doors.finish(number))[0] is not None
        await trio.aclose_forcefully(stream)
        nursery.cancel_scope.cancel()
    for peer in doors.peers:
        peer.close()


def broken_context():
    raise RuntimeError("this key cannot be used")


async def test_too_many_bytes_are_refused(doors, monkeypatch):
    monkeypatch.setattr(handshakes, "HANDSHAKE_BYTES", 1000)
    number, peer, _ = doors.open()
    peer.send(b"\x16\x03\x01\x40\x00" + bytes(1200))
    layer, reason = await doors.finish(number)
    assert layer is None
    assert "more than 1000 bytes" in reason


async def test_a_peer_that_leaves_is_noticed(doors):
    number, peer, _ = doors.open()
    peer.close()
    assert (await doors.finish(number))[1] == (
        "TLS handshake: the peer closed the connection"
    )


async def test_handshakes_that_end_together_take_turns(doors):
    """All their ends in one turn would delay a send by a millisecond."""
    for _ in range(ACTIVE_PER_ADDRESS):
        doors.open()
    await until(lambda: doors.made.statistics().active == ACTIVE_PER_ADDRESS)
    for peer in doors.peers:
        peer.close()
    while doors.made.statistics().failed < ACTIVE_PER_ADDRESS:
        os.sched_yield()  # no turn of trio
    counts = [len(doors.ended)]
    with trio.fail_after(20):
        while counts[-1] < ACTIVE_PER_ADDRESS:
            await trio.lowlevel.checkpoint()
            counts.append(len(doors.ended))
    most = max(after - before for before, after in itertools.pairwise(counts))
    assert most <= 2 * FINISHES_PER_TURN, "trio runs two turns between two of this task"


async def test_a_handshake_in_single_bytes_succeeds(doors):
    number, peer, _ = doors.open()
    near, far = socket.socketpair()
    for each in (near, far):
        each.setblocking(False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(carry_bytes, far, peer)
        doors.streams.append(await shake_hands(near))
        assert (await doors.finish(number))[0] is not None
        nursery.cancel_scope.cancel()
    far.close()


async def carry_bytes(client, server):
    """Copy both ways, one byte at a time to the server."""

    async def carry(source, target, size):
        while True:
            await trio.lowlevel.wait_readable(source)
            data = source.recv(size)
            if not data:
                return
            target.send(data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(carry, client, server, 1)
        nursery.start_soon(carry, server, client, 65_536)


async def test_ends_and_beginnings_at_a_stop_close_their_sockets():
    """The thread reads no more orders then, and its epoll set is closed."""
    entered, stopping = threading.Event(), threading.Event()

    def slow_context():
        entered.set()
        assert stopping.wait(20)
        return server_context()

    async def stop_when_blocked():
        await trio.testing.wait_all_tasks_blocked()
        stopping.set()

    async with trio.open_nursery() as nursery:
        doors = Doors(Handshakes(slow_context), nursery)
        _, _, end = doors.open()
        await until(entered.is_set)
        end()
        doors.open()
        nursery.cancel_scope.cancel()
        trio.lowlevel.spawn_system_task(stop_when_blocked)
    end()
    doors.open()
    assert not doors.ended
    for peer in doors.peers:
        assert peer.recv(1) == b"", "our socket is closed"
        peer.close()
