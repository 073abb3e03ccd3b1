"""A connection of HTTP/2 for the benchmarks of its modules."""

from tests.fastpath.http2.caller import Caller, new_server


class Calls:
    """Rounds of frames with new stream ids."""

    def __init__(self):
        wire, server = new_server()
        self.caller = Caller(wire, server)
        self.stream = 1
        self.now_ms = 0

    def next_streams(self, count):
        """Return stream ids that are new."""
        first, self.stream = self.stream, self.stream + 2 * count
        return range(first, self.stream, 2)

    def send(self, frames):
        """Send, poll, answer every call, and drop what comes back; calls served."""
        self.now_ms += 10_000  # every bucket is full again
        caller, served = self.caller, 0
        caller.peer.setblocking(True)
        caller.peer.sendall(frames)
        caller.peer.setblocking(False)
        caller.wire.reactor.poll(self.now_ms)
        while (event := caller.server.take_event()) is not None:
            served += 1
            caller.server.reply(caller.token, event[2], b"answer", True)
        caller.wire.reactor.flush()
        try:
            while caller.peer.recv(1 << 20):
                pass
        except BlockingIOError:
            return served

    def close(self):
        """Close the sockets."""
        self.caller.wire.close()
