"""Pulls of 32 messages through the reactor and the compiled handler, and a socket."""

import socket

import pytest

from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.handlers.pull_path import PullPath
from rmq._fastpath.handlers.pull_table import PullTable, PullView
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail
from rmq._fastpath.reactor.reactor import Reactor
from rmq.filters.sql import compile_selector
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

MESSAGES = 32 * 64
PULLS = 8
ENTRY_SIZE = 20
FIELDS = {
    "consumerGroup": "please_rename_unique_group_name",
    "topic": "TopicTest",
    "queueId": "2",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1700000000000",
    "expressionType": "TAG",
    "maxMsgBytes": "262144",
}
PROPERTIES = "KEYS\x01k\x02UNIQ_KEY\x017F0163D218B4\x02WAIT\x01true\x02TAGS\x01{}\x02"
TAGS = ("TagA", "TagB")
TAG_A = 2_598_919
RARE = 2_598_921
"""The code of TagC, which the last message has."""


def mapped(path, size):
    file = MappedFile(str(path), size, create=True)
    file.allocate(size)
    return file


def reactor_with(tmp_path, size, tag_codes, selector=None, *, is_flushed=False):
    """A reactor that serves one queue of records with two tags in turn, the last apart.

    With its log, its queue and the pulls that wait. Flushed entries are in a file.
    """
    log = LogTail(RecordEncoder(bytes(8)))
    log.file = mapped(tmp_path / "log", 1 << 22)
    queue = QueueTail("TopicTest", 2)
    for n in range(MESSAGES):
        tag = "TagC" if n == MESSAGES - 1 else TAGS[n % 2]
        properties = PROPERTIES.format(tag)
        body = bytes(size)
        log.append(queue, True, 0, 0, 1, bytes(8), 1, 0, 0, body, properties, None)
    table = PullTable(
        log,
        LogReader([log.file]),
        None,
        hot_window=1 << 30,
        hot_limits=(32, 1 << 18),
        cold_limits=(8, 1 << 16),
        scan_bytes=16_000,
        version=513,
        on_work=print,
        commits=CommitTable(lambda commits: None),
    )
    view = PullView(
        FIELDS["consumerGroup"],
        FIELDS["topic"],
        None,
        sub_version=int(FIELDS["subVersion"]),
        tag_codes=tag_codes,
        flags={"topicSysFlag": "0", "groupSysFlag": "0"},
        selector=selector,
    )
    file = None
    if is_flushed:
        file = mapped(tmp_path / "queue", ENTRY_SIZE * MESSAGES)
        file.write(0, queue.unflushed_entries(MESSAGES))
        queue.mark_flushed(MESSAGES)
    view.register(queue, file)
    table.add(view)
    made = Reactor()
    made.natives.register(0, 11, PullPath(table))
    return made, log, queue, table.held


def serve(benchmark, tmp_path, frames, size, tag_codes, selector=None, **more):
    """Have pulls served through a socket; bytes that went out, and how many pulls."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    reactor, *_ = reactor_with(tmp_path, size, tag_codes, selector, **more)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    data = b"".join(map(encode, frames))
    taken = bytearray(1 << 20)

    def run():
        theirs.sendall(data)
        while reactor.poll(0):
            pass
        theirs.recv_into(taken)

    benchmark(run)
    assert not reactor.has_events
    served, declined = reactor.natives.counts()[0, 11]
    assert served == reactor.statistics().frames
    assert not declined
    theirs.close()
    return reactor.statistics().bytes_out, served


@pytest.mark.parametrize("tag_codes", [None, (TAG_A,)], ids=["all", "half"])
@pytest.mark.parametrize("size", [128, 1024])
@pytest.mark.parametrize("kind", ["json", "binary"])
def bench_8_pulls(benchmark, tmp_path, kind, size, tag_codes):
    frames = [
        Command(
            11,
            {**FIELDS, "queueOffset": str(64 * n)},
            serialize_type=int(kind == "binary"),
        )
        for n in range(PULLS)
    ]
    sent, served = serve(benchmark, tmp_path, frames, size, tag_codes)
    assert sent > served * 32 * size


@pytest.mark.parametrize("expression", ["n > 6", "TAGS = 'TagA'", "WAIT = 'true'"])
def bench_8_pulls_by_sql(benchmark, tmp_path, expression):
    """None of 800 records matches; a half; all."""
    frames = [Command(11, {**FIELDS, "queueOffset": str(64 * n)}) for n in range(PULLS)]
    selector = compile_selector(expression)
    _, served = serve(benchmark, tmp_path, frames, 128, None, selector)
    assert served
