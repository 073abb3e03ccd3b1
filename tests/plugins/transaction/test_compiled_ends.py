"""Ends of transactions: the compiled and the Python handler leave the same bytes."""

import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq._fastpath.reactor.connections import EventKind
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.topics import TRANS_HALF_TOPIC
from rmq.store.config import FlushDiskType
from rmq_plugins.transaction.transaction_check import Checker
from tests.plugins.send.frames import PLAIN, assert_equal, log_that_fails
from tests.plugins.send.frames import request as send_frame
from tests.plugins.sides import sides

__all__ = ["sides"]

COMMIT, ROLLBACK = "8", "12"
PIECES = st.sampled_from(
    [
        "TAGS\x01A\x02",
        "KEYS\x01a b\x02",
        "CHECK_IMMUNITY_TIME_IN_SECONDS\x015\x02",
        "REAL_TOPICS\x01x\x02",
        "own\x01v\x01w\x02",
        "DELAY\x010\x02",
        "DELAY\x013\x02",
        "TIMER_DELAY_SEC\x019\x02",
        "TAGS\x01\u4e2d\U0001f600\x02",
        "PGROUP\x01other\x02",
    ]
)


def log_of(side):
    return side.caller.find(Checker).log


def begin(side, count=1, more="", **fields):
    """Send half messages."""
    text = f"{more}TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    for _ in range(count):
        side.opaque = getattr(side, "opaque", 100_000) + 1
        wanted = {**PLAIN, "properties": text, "sysFlag": "4", **fields}
        side.play([send_frame(wanted, opaque=side.opaque)])


def half_offset(side, queue_offset):
    queue = side.store.queues.get(TRANS_HALF_TOPIC, 0)
    if queue is None or not 0 <= queue_offset < queue.next_offset:
        return 77
    return queue.entry_at(queue_offset)[0]


def end_frame(side, queue_offset, opaque, how=COMMIT, *, flag=0, binary=False, **more):
    """Request 37 for the half message at an offset of its queue."""
    fields = {
        "topic": "T", "producerGroup": "PG", "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": str(half_offset(side, queue_offset)),
        "commitOrRollback": how, "fromTransactionCheck": "false", "msgId": "k",
        "transactionId": "k", **more,
    }  # fmt: skip
    return encode(
        Command(37, fields, opaque=opaque, flag=flag, version=513,
                serialize_type=int(binary))
    )  # fmt: skip


def tables(side):
    """What the plugin knows of the transactions."""
    log = log_of(side)
    return (
        log.open_offsets(),
        len(log.ops),
        dict(side.broker.statistics.open_transactions),
        [list(each.counts) for each in side.broker.statistics.commit_ages.all()],
    )


def assert_alike(python, compiled):
    assert_equal(python, compiled)
    assert tables(compiled) == tables(python)
    assert python.served == 0


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("flag", [0, FLAG_ONEWAY], ids=["answered", "oneway"])
def test_commits_are_served_compiled(sides, binary, flag):
    """Files of the log roll, and op messages follow."""
    python, compiled = sides(commit_log_file_size=1 << 16)
    for side in (python, compiled):
        for n in range(90):
            begin(side, queueId=str(n % 3))
        side.broker.clock.ms += 1_500
        served = side.served
        for n in range(90):
            side.play([end_frame(side, n, n, flag=flag, binary=binary)])
        assert side.store.reads.max_offset("T", 1) == 30
        side.ends = side.served - served
        assert log_of(side).ops.write_ended()
    assert_alike(python, compiled)
    assert compiled.ends == 87
    assert log_of(compiled).open_offsets() == []


@settings(
    max_examples=settings.default.max_examples // 3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_history_leaves_the_same_bytes(sides, data):
    """Halves of all kinds are ended, also twice, checked, or deleted with the topic."""
    pair = sides()
    opaque = 0
    for side in pair:
        begin(side, 3)
        side.play([end_frame(side, n, 90_000 + n) for n in range(2)])
    for _ in range(data.draw(st.integers(1, 5))):
        more = "".join(data.draw(st.lists(PIECES, max_size=2, unique=True)))
        queue_id = data.draw(st.sampled_from(["0", "1", "2"]))
        for side in pair:
            begin(side, 2, more, queueId=queue_id)
        ends = []
        for _ in range(data.draw(st.integers(1, 4))):
            opaque += 1
            odd = data.draw(
                st.dictionaries(
                    st.sampled_from(
                        ["producerGroup", "commitLogOffset", "fromTransactionCheck",
                         "commitOrRollback"]
                    ),
                    st.sampled_from(["x", "0", "7", "true", "-1", "PG", "8"]),
                    max_size=data.draw(st.sampled_from([0, 0, 1])),
                )
            )  # fmt: skip
            how = data.draw(st.sampled_from([COMMIT, COMMIT, COMMIT, ROLLBACK, "0"]))
            flag = data.draw(st.sampled_from([0, 0, FLAG_ONEWAY]))
            at = data.draw(st.integers(0, 14))
            ends.append((at, opaque, how, flag, odd))
        change = data.draw(st.sampled_from(["", "", "renew", "delete", "topic", "op"]))
        is_one = data.draw(st.booleans())
        for side in pair:
            frames = [
                end_frame(side, at, number, how, flag=flag, **odd)
                for at, number, how, flag, odd in ends
            ]
            side.play([b"".join(frames)] if is_one else frames)
            change_side(side, change)
    assert_alike(*pair)


def change_side(side, change):
    random.seed(7)
    log = log_of(side)
    if change == "renew" and (found := log.read_head()) is not None:
        record, _ = found
        if record.queue_offset not in log.ops and (
            log.live_offset(record) == record.queue_offset
        ):
            log.renew_half(record, 1)
    elif change == "op":
        log.ops.write_ended()
        log.skip_ended(99)
        log.save_progress()
    elif change == "delete":
        side.broker.topics.delete("T")
        side.store.delete_topic("T")()
    elif change == "topic":
        side.caller.topic("T", queues=2)
    side.broker.arrivals.flush()


def test_a_transaction_ends_once_in_one_poll(sides):
    python, compiled = sides()
    for side in (python, compiled):
        begin(side, 4)
        side.play([end_frame(side, 0, 1)])
        served = side.served
        side.play([b"".join(end_frame(side, 3, n) for n in (2, 3, 4))])
        side.ends = side.served - served
    assert_alike(python, compiled)
    assert compiled.ends == 1
    assert compiled.store.reads.max_offset("T", 1) == 2


def test_a_checked_half_is_left_to_python(sides):
    """Its live record is another one, which the op queue names."""
    python, compiled = sides()
    for side in (python, compiled):
        begin(side, 4)
        side.play([end_frame(side, 0, 1)])
        log = log_of(side)
        log.skip_ended(9)
        record, _ = log.read_head()
        log.renew_half(record, 1)
        served = side.served
        side.play([end_frame(side, 1, 2)])
        side.ends = side.served - served
        assert 4 in log.ops
    assert_alike(python, compiled)
    assert compiled.ends == 0


def test_an_offset_inside_a_body_commits_nothing(sides):
    """A client sends a body that looks like a half message."""
    _, compiled = sides()
    begin(compiled, 4)
    compiled.play([end_frame(compiled, 0, 1)])
    offset = half_offset(compiled, 2)
    compiled.play([end_frame(compiled, 2, 2, commitLogOffset=str(offset + 84))])
    [reply] = FrameDecoder().feed(compiled.replies[2])
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert compiled.store.reads.max_offset("T", 1) == 1


@pytest.mark.usefixtures("without_ring")
def test_a_commit_that_is_not_written_ends_nothing(sides):
    """Its transaction stays open: after a restart it is checked, and ends then."""
    _, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    begin(compiled, 4)
    compiled.store.durability.flush()
    compiled.play([end_frame(compiled, 0, 1), send_frame(PLAIN, opaque=4)])
    compiled.store.durability.flush()
    compiled.play([b""])
    frames = [
        send_frame(PLAIN, opaque=5), end_frame(compiled, 2, 2),
        send_frame(PLAIN, opaque=6), end_frame(compiled, 3, 3),
    ]  # fmt: skip
    compiled.peer.sendall(b"".join(frames))
    with log_that_fails(compiled):
        compiled.reactor.poll(0)
    compiled.collect()
    kinds = [kind for kind, *_ in compiled.reactor.take_events()]
    assert kinds == [EventKind.NOT_STORED]
    assert not {2, 3} & compiled.replies.keys()
    assert log_of(compiled).open_offsets() == [1, 2, 3]
    assert compiled.store.queues.get("T", 1).next_offset == 2


def test_sync_flush_holds_the_answer(sides):
    _, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    begin(compiled, 4)
    compiled.store.durability.flush()
    compiled.play([end_frame(compiled, 0, 1)])
    served = compiled.served
    compiled.play([end_frame(compiled, 2, 2)])
    assert compiled.served == served + 1
    assert 2 not in compiled.replies
    compiled.store.durability.flush()
    compiled.play([b""])
    assert 2 in compiled.replies


def test_many_commits_fill_op_messages(sides):
    _, compiled = sides(broker_options={"transaction_op_msg_max_size": 32})
    begin(compiled, 40)
    compiled.play([end_frame(compiled, n, n) for n in range(40)])
    log = log_of(compiled)
    assert len(log.ops) == 40
    ops = compiled.store.reads.max_offset("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)
    assert ops >= 1


@pytest.mark.parametrize("heals", [False, True])
def test_a_damaged_half_message_is_never_committed_in_silence(sides, heals):
    """The compiled handler copied its changed bytes."""
    pair = python, compiled = sides()
    for side in pair:
        begin(side, 400)
        side.play([end_frame(side, 300, 899)])  # Python registers the target
        side.store.durability.flush()
        side.store.digests.update()
        side.store.digests.has_peers = lambda: heals
        place = half_offset(side, 30)
        file = side.store.log.files.files[0]
        with open(file.path, "r+b") as opened:
            body = file.read(place, 200).index(b"hello")
            os.pwrite(opened.fileno(), b"!", place + body)
        file.digests.forget_checks()
        side.play([end_frame(side, 30, 900)])
        [reply] = FrameDecoder().feed(side.replies[900])
        assert reply.code == ResponseCode.SYSTEM_ERROR
        text = "is damaged" if heals else "Find prepared transaction message failed"
        assert text in reply.remark
        assert side.store.reads.max_offset("T", 1) == 1
        with open(file.path, "r+b") as opened:
            os.pwrite(opened.fileno(), b"h", place + body)
    assert_alike(python, compiled)
