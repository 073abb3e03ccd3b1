"""A reactor with real sockets that a test polls by hand, and frames to send."""

import select
import socket
import struct

from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from tests.fastpath.tls import RecordWriter, TlsPeer

POLLS = 20_000


def socket_pair():
    """Return (the reactor's socket, the peer's socket)."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(5)
    return ours, theirs


class Wire:
    """A reactor and its peers; closes what a test leaves open."""

    def __init__(self, **options):
        self.reactor = Reactor(**options)
        self.peers = []

    def connect(self, listener=0):
        """Return (token, the peer's socket)."""
        ours, theirs = socket_pair()
        self.peers.append(theirs)
        return self.reactor.connections.add(ours.detach(), listener), theirs

    def connect_tls(self, listener=0, **options):
        """Return (token, the peer) after a handshake."""
        ours, theirs = socket_pair()
        peer = TlsPeer(theirs, **options)
        self.peers.append(peer)
        return self.add_tls(ours, peer, listener), peer

    def connect_writer(self):
        """Return (token, the peer, the writer of its records)."""
        ours, theirs = socket_pair()
        peer, writer = RecordWriter.connect(theirs)
        self.peers.append(peer)
        return self.add_tls(ours, peer), peer, writer

    def add_tls(self, ours, peer, listener=0):
        return self.reactor.connections.add(ours.detach(), listener, b"", 0, peer.layer)

    def take(self, now_ms=0):
        """Poll until nothing is ready; everything that was handed over."""
        taken = []
        for _ in range(POLLS):
            if not self.reactor.poll(now_ms):
                return taken
            if self.reactor.has_events:
                taken += self.reactor.take_events()
                self.reactor.flush()
        raise AssertionError("the reactor does not come to rest")

    def close(self):
        for peer in self.peers:
            peer.close()


def frame(size=0, opaque=0):
    command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, body=bytes(size))
    command.opaque = opaque
    return encode(command)


def tiny(number):
    """The smallest frame that the framing allows, with a body to know it by."""
    return struct.pack(">iIi", 8, 0, number)


def fill(peer):
    """Send until the socket takes no more; how much it took."""
    peer.setblocking(False)
    sent = 0
    try:
        while True:
            sent += peer.send(b"x" * 65536)
    except BlockingIOError:
        return sent


def is_readable(descriptor):
    return bool(select.select([descriptor], [], [], 0)[0])
