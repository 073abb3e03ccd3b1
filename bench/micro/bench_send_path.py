"""64 sends through the reactor and the compiled handler, sockets included."""

import socket

import pytest

from bench.micro.bench_send_table import FACTS, new_table
from rmq._fastpath.handlers.send_path import SendPath
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

WINDOW = 64
ADDED = b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
FIELDS = {
    "a": "please_rename_unique_group_name",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "2",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "KEYS\x01k\x02UNIQ_KEY\x017F0163D218B4\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    "j": "0",
    "k": "false",
    "m": "false",
}


def mapped(path, size):
    file = MappedFile(str(path), size, create=True)
    file.allocate(size)
    return file


@pytest.fixture
def log(tmp_path):
    tail = LogTail(RecordEncoder(bytes(8)))
    tail.file = mapped(tmp_path / "log", 1 << 20)
    tail.is_writable = True
    return tail


@pytest.fixture
def queue():
    return QueueTail("TopicTest", 2)


@pytest.fixture
def reactor(log, queue):
    return new_reactor(log, queue)


def new_reactor(log, queue):
    table = new_table(log, facts=FACTS, added=ADDED, declined_properties=("DELAY",))
    table.register("TopicTest", 0, 4, queue)
    made = Reactor()
    made.natives.register(0, 310, SendPath(table, has_short_names=True))
    return made


@pytest.mark.parametrize("size", [128, 1024])
@pytest.mark.parametrize("kind", ["json", "binary"])
def bench_64_sends(benchmark, reactor, log, queue, kind, size):
    measure_sends(benchmark, reactor, log, queue, kind, size)


@pytest.mark.parametrize("size", [128, 1024])
def bench_64_sends_with_a_crc(benchmark, log, queue, size):
    log.encoder.has_record_crc = True
    measure_sends(benchmark, new_reactor(log, queue), log, queue, "json", size)


def measure_sends(benchmark, reactor, log, queue, kind, size):
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    frame = encode(
        Command(310, FIELDS, bytes(size), serialize_type=int(kind == "binary"))
    )

    def run():
        log.file.write_position = 0
        queue.truncate_to(0, -1)
        theirs.sendall(frame * WINDOW)
        reactor.poll(0)
        theirs.recv(1 << 20)

    benchmark(run)
    assert not reactor.has_events
    assert log.put_messages == reactor.statistics().frames
    theirs.close()
