"""A store with a `LogServer` in front, and one with a `ReplicaFetcher` behind it."""

import random
import struct
from contextlib import asynccontextmanager

import pytest
import trio

from rmq.cluster.config import ReplicationConfig
from rmq.cluster.fetcher import ReplicaFetcher
from rmq.cluster.log_server import LogServer
from rmq.cluster.log_source import LogBounds
from rmq.cluster.slave_acks import Acks
from rmq.protocol.message import Message
from rmq.remoting.listener import open_listener
from rmq.store.config import BrokerRole, StoreConfig
from rmq.store.log_backup import LogBackup
from rmq.store.message_store import MessageStore
from rmq.store.replica_writer import ReplicaWriter
from rmq.testing.clocks import ManualClock

FILE_SIZE = 1 << 16
LOCAL = "127.0.0.1"
HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
HEAD = struct.Struct(">qi")


def count_in_sync(acks, end, gap):
    """How many slaves lack less than `gap` bytes of the log."""
    return sum(end - offset < gap for offset in acks._offsets.values())


@pytest.fixture
def open_store(tmp_path):
    opened = []

    def open_one(name="master", **settings):
        settings = {
            "commit_log_file_size": FILE_SIZE, "queue_file_size": 200,
            "index_slots": 500, "index_entries": 2_000, **settings,
        }  # fmt: skip
        config = StoreConfig(root_dir=str(tmp_path / name), **settings)
        store = MessageStore.open(config, clock=ManualClock(), store_host=HOST)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store):
    return open_store()


@pytest.fixture
def slave_store(open_store):
    return open_store("slave", broker_role=BrokerRole.SLAVE)


def put(store, count=1, size=300, seed=0):
    """Store messages with random bodies; return the end of the log."""
    rng = random.Random(f"{seed} {store.log.end_offset}")
    for number in range(count):
        body = rng.randbytes(rng.randrange(1, size))
        message = Message("T", number % 3, body, 0, 0, 1, HOST, properties={})
        store.writes.put(message)
    store.writes.end_batch()
    return store.log.end_offset


def bytes_of(store, start=0, end=None):
    end = store.log.end_offset if end is None else end
    data = b""
    while start < end:
        file = store.log.files.find(start)
        stop = min(file.base_offset + file.size, end)
        data += file.read(start - file.base_offset, stop - start)
        start = stop
    return data


async def members_here():
    return [f"{LOCAL}:1"] * 8


@asynccontextmanager
async def serving(
    store,
    members=members_here,
    needed=0,
    replicated=None,
    *,
    tls=None,
    control=None,
    on_sessions_changed=None,
    **keys,
):
    """A primary on a free port; yields it and its address."""
    keys = {"ha_heartbeat_interval_ms": 100, "ha_silence_limit_ms": 60_000, **keys}
    config = ReplicationConfig(**keys)
    primary = LogServer(
        config, store.log, members,
        acks=Acks(needed), replicated=replicated, tls=tls, term_state=control,
        on_sessions_changed=on_sessions_changed,
    )  # fmt: skip
    listening = await open_listener(LOCAL, 0)
    with listening:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(primary.serve, listening)
            yield primary, listening.getsockname()[1]
            nursery.cancel_scope.cancel()


class Peer:
    """A replica by hand."""

    def __init__(self, stream):
        self.stream = stream
        self._rest = b""

    async def report(self, offset):
        await self.stream.send_all(offset.to_bytes(8, "big", signed=True))

    async def frame(self):
        """Return offset and bytes of the next frame; None at the end."""
        head = await self._exactly(HEAD.size)
        if head is None:
            return None
        offset, size = HEAD.unpack(head)
        return offset, await self._exactly(size)

    async def log_up_to(self, end):
        """Return start and bytes of all frames up to an offset."""
        start, data = None, b""
        while start is None or start + len(data) < end:
            offset, body = await self.frame()
            start = offset if start is None else start
            assert offset == start + len(data)
            data += body
        return start, data

    async def is_closed(self):
        try:
            while await self.stream.receive_some(65_536):
                pass
        except trio.BrokenResourceError:
            pass
        return True

    async def _exactly(self, size):
        while len(self._rest) < size:
            try:
                data = await self.stream.receive_some(65_536)
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self._rest += data
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


@asynccontextmanager
async def peer_of(port):
    with trio.fail_after(10):
        async with await trio.open_tcp_stream(LOCAL, port) as stream:
            yield Peer(stream)


class FixedUpstream:
    """A master at a port; its log ends far away unless `bounds` says where."""

    def __init__(self, port, bounds=None, is_promised=True, records=None):
        self.port = port
        self._bounds = bounds
        self._is_promised = is_promised
        self.records = records
        self.asked = 0

    async def find(self):
        return f"{LOCAL}:{self.port}"

    async def find_bounds(self):
        return self._bounds() if self._bounds else LogBounds(0, 1 << 62)

    async def fetch_record(self, offset):
        self.asked += 1
        return self.records(offset)

    async def awaits_slaves(self):
        return self._is_promised


@asynccontextmanager
async def following(
    store,
    port,
    bounds=None,
    durable=None,
    *,
    upstream=None,
    cuts=False,
    tls=None,
    control=None,
    **keys,
):
    """A replica of whoever listens on a port; yields it."""
    keys = {"ha_heartbeat_interval_ms": 100, "ha_silence_limit_ms": 60_000, **keys}
    writer = ReplicaWriter(store)

    async def cut(end):
        aside = LogBackup(store.directory)
        for step in writer.cut_steps(end) if end else writer.reseed_steps(aside):
            step()
        if control is not None:
            control.cut_to(end)
        return writer.cuts if end else [aside]

    replica = ReplicaFetcher(
        ReplicationConfig(**keys),
        writer,
        upstream or FixedUpstream(port, bounds),
        on_append=store.writes.end_batch,
        durable=durable,
        cut=cut if cuts else None,
        tls=tls,
        term_state=control,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(replica.run)
        yield replica
        nursery.cancel_scope.cancel()
