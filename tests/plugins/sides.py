"""Two brokers that get the same frames, one of them with compiled handlers."""

import random
import re
import shutil
import socket
from itertools import count

import pytest

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.scan import walk_log
from rmq._fastpath.reactor.connections import EventKind
from rmq._fastpath.reactor.reactor import Reactor
from rmq.config.broker import BrokerConfig
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.hosts import host_bytes
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.testing import ManualClock
from rmq_plugins.consume.pull.handler import PullHandler
from tests.plugins.conftest import (
    Caller,
    RecordingConnection,
    build_context,
)

MAIN = 0
LOOP_EPOCH_MS = 1_000_000_000
"""The clock of polls has another zero than that of the wall."""


MADE_KEY = re.compile(rb"(7F000001[0-9A-F]{4})[0-9A-F]{8}(?=[0-9A-F]{12})")
"""A unique key of ours: address, process, maker, then time and number."""


RECORD_CRC = re.compile(rb"(?<=__CRC32#\x01)\d{10}(?=\x02)")
"""It covers the made key, too."""


def without_maker(data):
    return RECORD_CRC.sub(b"?" * 10, MADE_KEY.sub(rb"\1????????", data))


class Side:
    """One broker behind a reactor, with or without compiled handlers."""

    def __init__(
        self, folder, *, compiled, encrypt=None, broker_options=(), **store_options
    ):
        """`encrypt` makes a TlsPeer of the client's socket."""
        config = StoreConfig(
            root_dir=str(folder),
            **{
                "commit_log_file_size": 1 << 20,
                "queue_file_size": 20 * 64,
                "max_message_size": 4096,
                **store_options,
            },
        )
        clock = ManualClock()
        self.store = MessageStore.open(
            config, clock=clock, store_host=host_bytes("127.0.0.1", 10_911)
        )
        self.broker = build_context(
            BrokerConfig(broker_name="broker-a", **dict(broker_options)),
            self.store,
            clock,
        )
        self.caller = Caller(self.broker)
        self.reactor = Reactor()
        self.reactor.held.attach(self.store.positions.durable)
        if compiled:
            for port, code, handler in self.caller.registered.made_natives():
                if port == "main":
                    self.reactor.natives.register(MAIN, code, handler)
        for name, queues, kind in (("T", 3, "SINGLE_TAG"), ("M", 2, "MULTI_TAG")):
            self.caller.topic(name, queues=queues, topic_filter_type=kind)
        self.peer, ours = socket.socketpair()
        self.peer.setblocking(False)
        ours.setblocking(False)
        self.connection = RecordingConnection()
        self.is_encrypted, layer = encrypt is not None, None
        if encrypt is not None:
            self.peer = encrypt(self.peer)
            layer = self.peer.layer
        self.token = self.reactor.connections.add(
            ours.detach(), MAIN, self.connection.remote_host, 0, layer
        )
        self.connection.token = self.token
        self.broker.connection_of = {self.token: self.connection}.get
        self.pulls = self.caller.find(PullHandler)
        self.decoder = FrameDecoder()
        self.replies = {}

    def play(self, chunks):
        """Send the chunks, one poll each, and collect the replies by opaque number."""
        random.seed(7)
        for chunk in chunks:
            if self.is_encrypted:
                for segment in self.peer.segments(chunk):
                    self.peer.plain.sendall(segment)
                    self.poll()
            elif chunk:
                self.peer.sendall(chunk)
            self.poll()
            self.run_held_pulls()
            self.collect()

    def poll(self):
        """Serve what has come."""
        while self.reactor.poll(self.broker.clock.now_ms() - LOOP_EPOCH_MS):
            self.broker.arrivals.flush()
            for kind, token, frame in self.reactor.take_events():
                assert kind == EventKind.FRAME, EventKind(kind)
                self.serve(token, frame)
            self.broker.arrivals.flush()
            self.reactor.flush()

    def serve(self, token, frame):
        """Let the Python handler answer, as the dispatcher does."""
        [request] = FrameDecoder().feed(frame)
        answer = self.caller.handle(request, self.connection)
        if not request.is_oneway and answer is not None:
            self.reactor.send(token, encode(getattr(answer, "response", answer)))

    def run_held_pulls(self):
        """Go on with the pulls that compiled code gave back, as the service does."""
        for returned in self.pulls.take_returned():
            self.pulls.resume_returned(returned)
        while self.pulls.held.has_more:
            self.pulls.held.run_turn()

    def collect(self):
        while True:
            try:
                data = self.peer.recv(1 << 20)
            except BlockingIOError:
                return
            for reply in self.decoder.feed(data):
                assert reply.opaque not in self.replies
                self.replies[reply.opaque] = without_maker(encode(reply))

    @property
    def served(self):
        return sum(count for count, _ in self.reactor.natives.counts().values())

    def _write(self):
        """Move the log to its files, if it has a ring."""
        if self.store.log.writer is not None:
            self.store.durability.flush()

    def checked_end(self):
        """Where the first record ends whose CRC is wrong, or the log."""
        self._write()
        end = 0
        for file in self.store.log.files.files:
            status, position = RecordStatus.OK, 0
            while status is RecordStatus.OK and position < file.size:
                status, position, _ = walk_log(file, position, file.size, check_crc=2)
            end = file.base_offset + position
            if status not in (RecordStatus.OK, RecordStatus.BLANK):
                break
        return end

    def files(self):
        """Every byte of log and queues, and the tables that a send can change."""
        self._write()
        root = self.store.directory.root
        return {
            str(path.relative_to(root)): without_maker(path.read_bytes())
            for folder in ("commitlog", "consumequeue")
            for path in sorted((root / folder).rglob("*"))
            if path.is_file()
        }

    def close(self):
        self.peer.close()
        self.reactor.held.detach()
        self.store.close()


@pytest.fixture
def sides(tmp_path):
    """Make pairs, one after the other: a new one removes the one before it."""
    numbers = count()
    made = []

    def close():
        while made:
            side = made.pop()
            side.close()
            shutil.rmtree(side.store.directory.root)

    def make(**options):
        close()
        folder = tmp_path / str(next(numbers))
        for name in ("python", "compiled"):
            made.append(Side(folder / name, compiled=name == "compiled", **options))
        return list(made)

    yield make
    close()
