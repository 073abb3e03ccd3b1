"""Sends with a delay level and half messages: both ways leave the same bytes.

As in `test_compiled_sends.py`: two brokers with the same clock get the same frames.
Replies, log, queues, deliveries and open transactions must be equal.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_ONEWAY
from rmq.protocol.frames import FrameDecoder
from rmq.protocol.topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rmq.store.config import FlushDiskType
from rmq_plugins.schedule.deliver import Deliveries
from rmq_plugins.transaction.transaction_check import Checker
from tests.plugins.send.frames import (
    ONCE,
    PLAIN,
    assert_equal,
    cut,
    log_that_fails,
    request,
)
from tests.plugins.sides import sides
from tests.plugins.timer.test_timed_sends import read_handles

__all__ = ["sides"]

LEVELS = [
    "0", "1", "3", "18", "19", "99", "-1", "+3", "03", " 3", "3 ", "x", "\u0663",
    "9" * 10, "9" * 11,
]  # fmt: skip
DIVERTING = st.one_of(
    st.sampled_from(LEVELS).map("DELAY\x01{}".format),
    st.sampled_from(["true", "false", "TRUE", "x"]).map("TRAN_MSG\x01{}".format),
)
PIECES = st.sampled_from(
    [
        "TAGS\x01A",
        "KEYS\x01a b",
        "WAIT\x01false",
        'q\x01say "hi" \\ back',
        "own\x01v\x01w",
        "TAGS\x01\u4e2d\U0001f600",
        "_SYS_MSG_PRIORITY_\x011",
        "POP_CK\x01x",
        "PGROUP\x01PG",
        "TIMER_DELAY_SEC\x019",
        "TIMER_OUT_MS\x015",
        "REAL_TOPIC\x01M",
        "REAL_QID\x010",
        "XREAL_QID\x010",
        "__transactionId__\x01me",
        "TRAN_PREPARED_QUEUE_OFFSET\x014",
        "TRANSACTION_CHECK_TIMES\x012",
        "INNER_MULTI_DISPATCH\x01%LMQ%a",
        "junk",
        "\x01novalue",
    ]
)
KEYS = st.sampled_from(["UNIQ_KEY\x017F01", 'UNIQ_KEY\x01q"\\', "UNIQ_KEY\x01\u00e9"])
DIFFERENT = [
    {},
    {"has_record_crc": True},
    {"delay_levels": "1s 2s 3s"},
    {"broker_options": {"reject_transaction_message": True}},
    {"lmq_enabled": True, "multi_dispatch_enabled": True},
    ONCE,
]


@st.composite
def frames(draw):
    pieces = [
        *draw(st.lists(DIVERTING, min_size=1, max_size=draw(st.sampled_from([1, 2])))),
        *draw(st.lists(KEYS, max_size=1)),
        *draw(st.lists(PIECES, max_size=2)),
    ]
    text = "\x02".join(draw(st.permutations(pieces)))
    fields = {
        **PLAIN,
        "topic": draw(st.sampled_from(["T", "T", "T", "M", "%RETRY%G"])),
        "queueId": draw(st.sampled_from(["0", "1", "2", "3", "-1"])),
        "sysFlag": draw(st.sampled_from(["0", "0", "1", "4", "5", "8", "12", "16"])),
        "properties": text + draw(st.sampled_from(["\x02", ""])),
        "batch": draw(st.sampled_from(["false"] * 5 + ["true"])),
        "reconsumeTimes": draw(st.sampled_from(["0", "0", "0", "1"])),
    }
    return {
        "fields": fields,
        "kind": draw(st.sampled_from(["plain", "escaped", "binary"])),
        "code": draw(st.sampled_from([10, 310])),
        "body": draw(st.sampled_from([b"x", b"y" * 300, b"", b"w" * 5000])),
        "flag": draw(st.sampled_from([0, 0, 0, FLAG_ONEWAY])),
    }


def deliver(side, ms):
    """Let time pass and deliver all that is due."""
    side.broker.clock.ms += ms
    side.broker.arrivals.flush()
    deliveries = side.caller.find(Deliveries)
    for level in sorted(deliveries.due_ms):
        while deliveries.deliver(level):
            pass
    side.broker.arrivals.flush()


def tables(side):
    """What the plugins know of the messages."""
    deliveries = side.caller.find(Deliveries)
    return (
        deliveries.due_ms,
        deliveries.offsets.facts(),
        dict(side.broker.statistics.open_transactions),
        side.caller.find(Checker).log.open_offsets(),
    )


def assert_alike(python, compiled):
    read_handles(python)
    read_handles(compiled)
    assert_equal(python, compiled)
    assert tables(compiled) == tables(python)


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data(), options=st.sampled_from(DIFFERENT))
def test_whatever_comes_leaves_the_same_bytes(sides, data, options):
    python, compiled = sides(**options)
    opaque = 0
    for _ in range(data.draw(st.integers(1, 4))):
        made = data.draw(st.lists(frames(), min_size=1, max_size=12))
        stream = b""
        for each in made:
            opaque += 1
            stream += request(opaque=opaque, **each)
        chunks = cut(data.draw, stream)
        passes_ms = data.draw(st.sampled_from([0, 1, 999, 5_000, 8_000_000]))
        for side in (python, compiled):
            side.play(chunks)
            deliver(side, passes_ms)
    assert_alike(python, compiled)


def delayed(level, more="", **fields):
    return {**PLAIN, "properties": f"KEYS\x01k\x02DELAY\x01{level}\x02{more}", **fields}


def half(more="", **fields):
    text = f"KEYS\x01k\x02TRAN_MSG\x01true\x02PGROUP\x01PG\x02{more}"
    return {**PLAIN, "properties": text, **fields}


@pytest.mark.parametrize("kind", ["plain", "escaped", "binary"])
@pytest.mark.parametrize("code", [10, 310])
def test_delay_levels_are_served_compiled(sides, kind, code):
    """All levels, files of log and queues that roll, and the deliveries."""
    python, compiled = sides(commit_log_file_size=1 << 16)
    for side in (python, compiled):
        for n in range(300):
            more = f"UNIQ_KEY\x01key-{n}\x02" if n % 2 else ""
            fields = delayed(1 + n % 18, more, queueId=str(n % 3))
            side.play([request(fields, opaque=n, code=code, kind=kind)])
        deliver(side, 7_200_001)
        assert sum(side.store.reads.max_offset("T", q) for q in range(3)) == 300
    assert_alike(python, compiled)
    assert python.served == 0
    assert compiled.served > 240


@pytest.mark.parametrize("kind", ["plain", "escaped", "binary"])
@pytest.mark.parametrize("sys_flag", ["0", "4", "5"])
def test_half_messages_are_served_compiled(sides, kind, sys_flag):
    """Java's client sets the flag of a half message, which is not stored."""
    python, compiled = sides(commit_log_file_size=1 << 16)
    for side in (python, compiled):
        for n in range(300):
            more = f"UNIQ_KEY\x01key-{n}\x02" if n % 2 else ""
            fields = half(more, queueId=str(n % 3), sysFlag=sys_flag)
            side.play([request(fields, opaque=n, kind=kind)])
    assert_alike(python, compiled)
    assert compiled.broker.statistics.open_transactions == {"T": 300}
    assert compiled.caller.find(Checker).log.woken.is_set()
    assert compiled.served > 280


def test_a_commit_finds_a_compiled_half(sides):
    python, compiled = sides()
    for side in (python, compiled):
        for n in range(4):
            side.play([request(half(f"UNIQ_KEY\x01key-{n}\x02"), opaque=n)])
        halves = side.store.queues.get(TRANS_HALF_TOPIC, 0)
        answer = side.caller.call(
            RequestCode.END_TRANSACTION,
            {
                "producerGroup": "PG", "commitOrRollback": "8", "msgId": "key-3",
                "tranStateTableOffset": "3",
                "commitLogOffset": str(halves.entry_at(3)[0]),
                "fromTransactionCheck": "false", "transactionId": "key-3",
            },
        )  # fmt: skip
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert side.store.reads.max_offset("T", 1) == 1
    assert_alike(python, compiled)
    assert compiled.served == 2


@pytest.mark.parametrize(
    "text",
    [
        "DELAY\x013\x02REAL_TOPIC\x01x\x02",
        "DELAY\x0199\x02",
        "DELAY\x0103\x02",
        "DELAY\x01-1\x02",
        "DELAY\x015\x02",
        "DELAY\x013\x02TIMER_DELAY_SEC\x019\x02",
        "DELAY\x013\x02TRAN_MSG\x01true\x02",
        "TRAN_MSG\x01TRUE\x02",
        "TRAN_MSG\x01true\x02__transactionId__\x01x\x02",
        "TRAN_MSG\x01true\x02TRANSACTION_CHECK_TIMES\x011\x02",
    ],
)
def test_what_is_not_plainly_valid_is_left_to_python(sides, text):
    """Level 5 has no queue yet."""
    _, compiled = sides()
    for n in range(3):
        compiled.play([request(delayed(3), opaque=n), request(half(), opaque=n + 50)])
    served = compiled.served
    assert served == 2
    compiled.play([request({**PLAIN, "properties": text}, opaque=3)])
    assert compiled.served == served


def test_level_zero_is_no_delay(sides):
    python, compiled = sides()
    for side in (python, compiled):
        side.play([request(delayed(0), opaque=n) for n in range(4)])
    assert_alike(python, compiled)
    assert compiled.served == 3
    assert compiled.store.reads.max_offset("T", 1) == 4


def test_a_full_table_of_transactions_refuses(sides, monkeypatch):
    python, compiled = sides()
    monkeypatch.setattr("rmq_plugins.transaction.half_log.MAX_OPEN", 5)
    for side in (python, compiled):
        side.play([request(half(), opaque=n) for n in range(8)])
    assert_alike(python, compiled)
    [reply] = FrameDecoder().feed(compiled.replies[5])
    assert reply.code == ResponseCode.SYSTEM_BUSY
    assert compiled.store.reads.max_offset(TRANS_HALF_TOPIC, 0) == 5


def test_the_deliveries_hear_of_the_levels_of_compiled_sends(sides):
    _, compiled = sides()
    due_ms = compiled.caller.find(Deliveries).due_ms
    for n in range(3):
        due_ms.clear()
        compiled.play(
            [request(delayed(1), opaque=n), request(delayed(18), opaque=50 + n)]
        )
    assert compiled.served == 2
    assert due_ms.keys() == {1, 18}


@pytest.mark.usefixtures("without_ring")
def test_a_disk_that_fails_stores_none_of_them(sides):
    _, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    for n in range(3):
        compiled.play([request(delayed(3), opaque=n), request(half(), opaque=n + 50)])
    end = compiled.store.log.end_offset
    compiled.peer.sendall(request(delayed(3), opaque=8) + request(half(), opaque=9))
    with log_that_fails(compiled):
        compiled.reactor.poll(0)
    compiled.collect()
    assert compiled.store.log.end_offset == end
    assert not {8, 9} & compiled.replies.keys()
    for topic, queue_id in ((SCHEDULE_TOPIC, 2), (TRANS_HALF_TOPIC, 0)):
        assert compiled.store.queues.get(topic, queue_id).next_offset == 3


def test_sync_flush_holds_the_answers(sides):
    _, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    for n in range(3):
        compiled.play([request(delayed(3), opaque=n), request(half(), opaque=n + 50)])
    assert compiled.served == 2
    compiled.replies.clear()
    compiled.play([request(delayed(3), opaque=8) + request(half(), opaque=9)])
    assert not compiled.replies
    compiled.store.durability.flush()
    compiled.play([b""])
    assert compiled.replies.keys() >= {8, 9}
