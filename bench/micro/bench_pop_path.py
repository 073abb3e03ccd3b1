"""POPs of 1 and of 32 messages through the reactor and the compiled handler."""

import socket

import pytest

from bench.micro.bench_checkpoint_table import new_table
from bench.micro.bench_pull_path import MESSAGES, mapped
from rmq._fastpath.handlers.checkpoint import PopQueue
from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.handlers.pop_path import PopPath
from rmq._fastpath.handlers.pop_table import PopTable, PopTopic, PopView
from rmq._fastpath.handlers.pull_table import PullTable
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.queue_tail import QueueTail, TailSet
from rmq._fastpath.log.tail import LogTail
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

POP = 200_050
POPS = 16
QUEUE = 2
GROUP, TOPIC = "please_rename_unique_group_name", "TopicTest"
FIELDS = {
    "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(QUEUE), "maxMsgNums": "32",
    "invisibleTime": "60000", "pollTime": "15000", "bornTime": "1700000000000",
    "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
}  # fmt: skip
PROPERTIES = "KEYS\x01k\x02UNIQ_KEY\x017F0163D218B4\x02WAIT\x01true\x02TAGS\x01{}\x02"


def serve(benchmark, tmp_path, fields, tag_codes=None, pops=POPS):
    """Serve POPs through a socket from the first message on; return bytes and POPs."""
    log = LogTail(RecordEncoder(bytes(8)))
    log.file = mapped(tmp_path / "log", 1 << 22)
    tails = TailSet()
    queue = QueueTail(TOPIC, QUEUE, tails)
    for n in range(MESSAGES):
        properties = PROPERTIES.format("TagC" if n % 500 == 499 else "TagA")
        log.append(
            queue, True, 0, 0, 1, bytes(8), 1, 0, 0, bytes(128), properties, None
        )
    pulls = PullTable(
        log, LogReader([log.file]), None, hot_window=1 << 30, hot_limits=(32, 1 << 18),
        cold_limits=(8, 1 << 16), scan_bytes=16_000, version=513, on_work=print,
        commits=CommitTable(lambda commits: None),
    )  # fmt: skip
    checkpoints = new_table()
    popped = PopQueue(TOPIC, GROUP, QUEUE, 0)
    table = PopTable(
        pulls, checkpoints, draw=lambda: 0.0, on_remaining=print,
        on_work=print, broker_name="b", revive_queues=8, invisible_limit_ms=1 << 40,
        version=513,
    )  # fmt: skip
    own = PopTopic(
        GROUP, TOPIC, queue_count=3, tag_codes=tag_codes, committed={}, tails=tails
    )
    own.register(QUEUE, popped, (queue, None))
    table.add(PopView((GROUP, TOPIC, "TAG", "*"), own, ()))
    reactor = Reactor()
    reactor.natives.register(0, POP, PopPath(table))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    data = encode(Command(POP, FIELDS | fields)) * pops
    taken = bytearray(1 << 20)

    def run():
        theirs.sendall(data)
        while reactor.poll(0):
            pass
        theirs.recv_into(taken)
        popped.next_offset = 0
        for checkpoint in checkpoints.all():
            checkpoints.end(checkpoint)
        popped.drop_ended(0)

    benchmark(run)
    assert not reactor.has_events
    served, declined = reactor.natives.counts()[0, POP]
    assert served == reactor.statistics().frames
    assert not declined
    theirs.close()
    return reactor.statistics().bytes_out, served


@pytest.mark.parametrize("count", [1, 32])
def bench_16_pops(benchmark, tmp_path, count):
    sent, served = serve(benchmark, tmp_path, {"maxMsgNums": str(count)})
    assert sent > served * count * 128
