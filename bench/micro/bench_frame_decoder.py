"""Frames cut from what a socket has, without an answer."""

import socket

import pytest

from rmq._fastpath.reactor.reactor import Reactor

PAIR_BYTES = 1 << 20


def cut_all(reactor, peer, pieces):
    """The frames that come out of `pieces`, each sent before a poll."""
    frames = 0
    for piece in pieces:
        peer.sendall(piece)
        reactor.poll(1)
        frames += len(reactor.take_events())
        reactor.flush()
    return frames


def frame(size):
    return (size - 4).to_bytes(4, "big") + (100).to_bytes(4, "big") + b"x" * (size - 8)


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("size", [204, 4096])
def bench_whole_frames(benchmark, size, count):
    reactor = Reactor()
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    reactor.connections.add(ours.detach())
    assert benchmark(cut_all, reactor, peer, [frame(size) * count]) == count
    peer.close()


def bench_a_frame_in_pieces(benchmark):
    """256 KiB in pieces of 16 KiB: the inbox grows once, and no byte is read twice."""
    reactor = Reactor()
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PAIR_BYTES)
    reactor.connections.add(ours.detach())
    whole = frame(256 * 1024)
    pieces = [whole[i : i + 16384] for i in range(0, len(whole), 16384)]
    assert benchmark(cut_all, reactor, peer, pieces) == 1
    peer.close()
