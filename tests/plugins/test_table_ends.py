"""Tables of compiled handlers: after their old ends, and where they still have one.

A table that forgets everything when it is full makes each later request slow. Here one
more than fits is asked for, in turn, which is the worst order.
"""

import time

import pytest

import rmq_plugins.consume.pull.native
from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.handlers.heartbeat_path import HeartbeatPath
from rmq._fastpath.log.queue_tail import QueueTail
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq_plugins.consume.pull.handler import PullHandler
from rmq_plugins.send.handler import SendHandler
from tests.plugins.send.frames import PLAIN, assert_equal, request
from tests.plugins.sides import sides

__all__ = ["sides"]

TIMES_DEARER = 3
"""Compiled sends cost a tenth of those in Python, or less."""


def played(side, frames):
    """Play frames one by one; how many of them were served compiled."""
    before = side.served
    side.play(frames)
    return side.served - before


def with_properties(count):
    names = [f"p{n}\x01value of property {n}\x02" for n in range(count - 1)]
    return {**PLAIN, "properties": "".join(names) + "UNIQ_KEY\x017F01\x02"}


@pytest.mark.parametrize(("count", "served"), [(24, 3), (25, 3), (128, 3), (129, 0)])
def test_properties_of_a_message(sides, count, served):
    python, compiled = sides()
    frames = [request(with_properties(count), opaque=n) for n in range(4)]
    assert (played(python, frames), played(compiled, frames)) == (0, served)
    assert_equal(python, compiled)


def test_a_property_twice_is_found_among_many(sides):
    python, compiled = sides()
    fields = with_properties(100)
    fields["properties"] += "\x02p42\x01again\x02"
    frames = [request(PLAIN, opaque=0), request(fields, opaque=1)]
    assert (played(python, frames), played(compiled, frames)) == (0, 0)
    assert_equal(python, compiled)


def test_queues_of_a_topic(sides):
    python, compiled = sides()
    frames = [
        request({**PLAIN, "topic": "Wide", "queueId": queue_id}, opaque=n)
        for n, queue_id in enumerate(["1023", "1024", "1099"] * 2)
    ]
    for side in (python, compiled):
        side.caller.topic("Wide", queues=1_100)
    assert (played(python, frames), played(compiled, frames)) == (0, 3)
    assert_equal(python, compiled)


@pytest.mark.slow
def test_a_send_costs_the_same_on_both_sides_of_an_old_end(sides):
    _, compiled = sides(commit_log_file_size=64 << 20, queue_file_size=20 * 10_000)
    compiled.caller.topic("Wide", queues=1_100)
    opaque = iter(range(1 << 30))

    def cost(fields):
        least = float("inf")
        for _ in range(8):
            frames = [request(fields, opaque=next(opaque)) for _ in range(30)]
            began = time.perf_counter()
            side_served = played(compiled, [b"".join(frames)])
            least = min(least, (time.perf_counter() - began) / 30)
        assert side_served == 30
        return least

    wide = {**PLAIN, "topic": "Wide"}
    assert cost(with_properties(26)) < TIMES_DEARER * cost(with_properties(24))
    assert cost({**wide, "queueId": "1099"}) < TIMES_DEARER * cost(
        {**wide, "queueId": "1000"}
    )


def test_topics_of_sends(sides):
    """20,000 topics are known and none is forgotten for another."""
    _, compiled = sides()
    played(compiled, [request(PLAIN, opaque=0)])
    handler = compiled.caller.handlers[310].__self__
    assert isinstance(handler, SendHandler)
    table = handler.enable_native(compiled.broker).table
    tail = QueueTail("other", 0)
    for n in range(20_000):
        table.register(f"topic-{n}", 0, 1, tail)
    assert all(table.has_queue(f"topic-{n}", 0) for n in range(20_000))
    assert played(compiled, [request(PLAIN, opaque=1)]) == 1
    for n in range(20_000):
        table.unregister(f"topic-{n}")
    assert not table.has_queue("topic-7", 0)
    assert played(compiled, [request(PLAIN, opaque=2)]) == 1


def pull(group, opaque):
    fields = {
        "consumerGroup": group, "topic": "T", "queueId": "1", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    return encode(
        Command(
            RequestCode.PULL_MESSAGE,
            fields,
            opaque=opaque,
            language="JAVA",
            version=513,
        )
    )


def test_views_of_pulls(sides, monkeypatch):
    """Ten more groups than fit pull in turn: most are served compiled."""
    monkeypatch.setattr(rmq_plugins.consume.pull.native, "VIEW_LIMIT", 100)
    _, compiled = sides()
    played(compiled, [request(PLAIN, opaque=0)])
    groups = [f"G{n}" for n in range(110)]
    for group in groups:
        compiled.broker.groups.find(group)
    turns = [
        [pull(group, 1_000 * turn + n) for n, group in enumerate(groups)]
        for turn in range(1, 9)
    ]
    for turn in turns[:4]:
        played(compiled, turn)
    served = sum(played(compiled, turn) for turn in turns[4:])
    assert served > 0.7 * 4 * len(groups)
    handler = compiled.caller.find(PullHandler)
    assert len(handler.native.table) == 100


def test_pairs_of_commits():
    table = CommitTable(print)
    for n in range(70_000):
        table.register(f"group-{n}", "topic", 1_100)
    assert len(table) == 65_536


def test_heartbeats():
    path = HeartbeatPath(print, {"a": "b"}, 513)
    for token in range(70_000):
        path.register(token, b"{}", object(), version=513, language=0)
    assert len(path) == 65_536
    path.unregister_all()
    for token in range(3_000):
        path.register(token, bytes(16_000), object(), version=513, language=0)
    assert 2_000 < len(path) < 2_200
