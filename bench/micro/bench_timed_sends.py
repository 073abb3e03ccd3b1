"""64 sends with a time of their own through the reactor, sockets included.

`bench_send_path.py` has the same without a time.
"""

import socket

import pytest

from bench.micro.bench_send_path import ADDED
from bench.micro.bench_send_table import FACTS, new_table
from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.handlers.send_path import SendPath
from rmq._fastpath.handlers.timed_sends import TimedSends
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.store.timer.wheel import TimerWheel

WINDOW = 64
NOW_MS = 1_700_000_000_000
FIELDS = {
    "a": "please_rename_unique_group_name",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "2",
    "f": "0",
    "g": str(NOW_MS),
    "h": "0",
    "i": "KEYS\x01k\x02UNIQ_KEY\x017F0163D218B4\x02TIMER_DELAY_SEC\x0130\x02",
    "j": "0",
    "k": "false",
    "m": "false",
}


def serve(benchmark, tmp_path, queue, diversions, fields, kind):
    """Have sends served that go into another queue."""
    log = LogTail(RecordEncoder(bytes(8)))
    log.file = MappedFile(str(tmp_path / "log"), 1 << 20, create=True)
    log.file.allocate(1 << 20)
    log.is_writable = True
    table = new_table(
        log,
        now_ms=lambda: NOW_MS,
        facts=FACTS,
        added=ADDED,
        keys=UniqueKeys(bytes(8), lambda: NOW_MS),
        diversions=diversions,
    )
    table.register("TopicTest", 0, 4, None)
    reactor = Reactor()
    reactor.natives.register(0, 310, SendPath(table, has_short_names=True))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    frame = encode(
        Command(310, fields, bytes(128), serialize_type=int(kind == "binary"))
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


@pytest.mark.parametrize("kind", ["json", "binary"])
def bench_64_timed_sends(benchmark, tmp_path, kind):
    queue = QueueTail("rmq_sys_wheel_timer", 0)
    timed = TimedSends(
        count_of=TimerWheel().count_of,
        broker_name=b"broker-a",
        precision_ms=1_000,
        max_delay_ms=259_200_000,
        most_in_slot=(1 << 31) - 1,
    )
    timed.register(queue)
    diversions = {"TIMER_DELAY_SEC": timed}
    serve(benchmark, tmp_path, queue, diversions, FIELDS, kind)
