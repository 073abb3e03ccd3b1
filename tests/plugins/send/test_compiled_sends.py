"""The compiled and the Python handler of sends leave the same bytes.

Two brokers with the same clock get the same frames over a socket, cut at the same
places; one of them serves what it can compiled. Replies, log and queues must be equal.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq._fastpath.reactor.connections import EventKind
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import FLAG_ONEWAY
from rmq.protocol.frames import FrameDecoder
from rmq.store.config import FlushDiskType
from rmq.store.durability import RefusalKind
from tests.plugins.send.frames import (
    ONCE,
    PLAIN,
    assert_equal,
    cut,
    log_that_fails,
    request,
)
from tests.plugins.sides import sides

__all__ = ["sides"]

CRC = {"has_record_crc": True}
LIGHT = {"lmq_enabled": True, "multi_dispatch_enabled": True}
PIECES = st.sampled_from(
    [
        "TAGS\x01A\x02",
        "TAGS\x01\u4e2d\U0001f600\x02",
        "KEYS\x01a b\x02",
        "KEYS\x01\x02",
        "WAIT\x01true\x02",
        "WAIT\x01false\x02",
        "WAIT\x01TRUE\x02",
        "own\x01v\x01w\x02",
        'q\x01say "hi" \\ back\x02',
        "DELAY\x010\x02",
        "TRAN_MSG\x01false\x02",
        "__SHARDINGKEY\x01s\x02",
        "_SYS_MSG_PRIORITY_\x011\x02",
        "CLUSTER\x01x\x02",
        "MSG_REGION\x01mine\x02",
        "TRACE_ON\x01false\x02",
        "\x01novalue\x02",
        "junk\x02",
        "\x02",
        "line\x01a\nb\tc\x02",
        "1ST_POP_TIME\x01x\x02",
        "POP_CK\x01x\x02",
        "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02",
        "INNER_MULTI_DISPATCH\x01T\x02",
        "XINNER_MULTI_DISPATCH\x01%LMQ%a\x02",
        "INNER_MULTI_QUEUE_OFFSET\x017\x02",
        "__CRC32#\x0100\x02",
    ]
)


@st.composite
def properties(draw):
    keys = [
        "UNIQ_KEY\x017F00000163D2\x02",
        'UNIQ_KEY\x01q"\\\x02',
        "UNIQ_KEY\x01\u00e9\x02",
        "",
    ]
    pieces = draw(st.lists(PIECES, max_size=5))
    pieces.insert(draw(st.integers(0, len(pieces))), draw(st.sampled_from(keys)))
    text = "".join(pieces)
    return text[:-1] if draw(st.booleans()) else text


ODD = {
    "topic": st.sampled_from(
        ["T", "T", "M", "New", "%RETRY%G", "../x", "", "SELF_TEST_TOPIC", "T\u00e9"]
    ),
    "queueId": st.sampled_from(
        ["0", "1", "2", "3", "-1", "99", "+1", "01", "1a", " 1", "", "2147483648"]
    ),
    "sysFlag": st.sampled_from(
        ["0", "1", "257", "4", "8", "12", "16", "32", "64", "128", "-1", "9" * 12]
    ),
    "bornTimestamp": st.sampled_from(["0", "-5", "9" * 18, str(2**63 - 1), "1e3", ""]),
    "flag": st.sampled_from(["0", "-1", "7", "2147483647", "-2147483648", "x"]),
    "reconsumeTimes": st.sampled_from(["0", "1", "00", None]),
    "unitMode": st.sampled_from(["false", "0", "true", "yes", None]),
    "batch": st.sampled_from(["false", "0", "FALSE", None]),
    "properties": st.sampled_from(["", None]),
    "maxReconsumeTimes": st.sampled_from(["16", "-1", "", "z"]),
    "defaultTopicQueueNums": st.sampled_from(["4", "0", "-1", "four", None]),
    "producerGroup": st.sampled_from(["PG", "", 'a"b', None]),
    "defaultTopic": st.sampled_from(["TBW102", "None", None]),
    "bname": st.just("broker-a"),
}


@st.composite
def frames(draw):
    fields = {**PLAIN, "properties": draw(properties())}
    fields["queueId"] = draw(st.sampled_from(["0", "1", "2"]))
    for name in draw(st.lists(st.sampled_from(sorted(ODD)), max_size=2)):
        fields[name] = draw(ODD[name])
    kind = draw(st.sampled_from(["plain", "escaped", "binary"]))
    fields = {
        name: value
        for name, value in fields.items()
        if value is not None and (value or kind != "binary")
    }
    return {
        "fields": fields,
        "kind": kind,
        "code": draw(st.sampled_from([10, 310])),
        "body": draw(st.sampled_from([b"x", b"y" * 128, b"z" * 700, b"", b"w" * 5000])),
        "flag": draw(st.sampled_from([0, 0, 0, FLAG_ONEWAY])),
    }


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whatever_comes_leaves_the_same_bytes(sides, data):
    python, compiled = sides(**data.draw(st.sampled_from([{}, CRC, LIGHT, ONCE])))
    opaque = 0
    for _ in range(data.draw(st.integers(1, 4))):
        made = data.draw(st.lists(frames(), min_size=1, max_size=12))
        stream = b""
        for each in made:
            opaque += 1
            stream += request(opaque=opaque, **each)
        chunks = cut(data.draw, stream)
        change = data.draw(st.sampled_from([None, None, "fewer", "more", "delete"]))
        for side in (python, compiled):
            side.play(chunks)
            if change == "delete":
                side.broker.topics.delete("T")
                side.store.delete_topic("T")()
            elif change:
                side.caller.topic("T", queues=1 if change == "fewer" else 3)
    assert_equal(python, compiled)


@pytest.mark.parametrize("kind", ["plain", "escaped", "binary"])
@pytest.mark.parametrize("code", [10, 310])
@pytest.mark.parametrize("more", [{}, CRC])
def test_plain_sends_are_served_compiled_and_files_roll(sides, kind, code, more):
    """1,000 records fill several files of log and queues."""
    python, compiled = sides(commit_log_file_size=1 << 16, **more)
    stream = b"".join(
        request(
            {**PLAIN, "queueId": str(n % 3), "topic": "TM"[n % 50 == 7]}
            if n % 50 != 7 or n % 3 != 2
            else {**PLAIN, "queueId": "0"},
            opaque=n,
            code=code,
            kind=kind,
            body=bytes([n % 251]) * (n % 300 + 1),
        )
        for n in range(1_000)
    )
    chunks = [stream[i : i + 3_000] for i in range(0, len(stream), 3_000)]
    for side in (python, compiled):
        side.play(chunks)
    assert_equal(python, compiled)
    assert len(python.replies) == 1_000
    assert python.served == 0
    assert compiled.served > 800


@pytest.mark.parametrize("text", ["", "UNIQ_KEY\x01A", "UNIQ_KEY\x01A\x02"])
@pytest.mark.parametrize("size", [1, 700])
def test_the_crc_of_a_record_is_equal(sides, text, size):
    """With a key of the client's all digits are equal, too."""
    python, compiled = sides(**CRC)
    stream = request({**PLAIN, "properties": text}, opaque=1, body=b"x" * size)
    crcs = []
    for side in (python, compiled):
        side.play([request(PLAIN, opaque=0)])
        side.play([stream])
        queue = side.store.queues.get("T", int(PLAIN["queueId"]))
        record = side.store.log.read(*queue.entry_at(1)[:2])
        assert record[-20:-11] == b"__CRC32#\x01"
        crcs.append(record[-20:])
    assert_equal(python, compiled)
    assert compiled.served == 1
    assert not text or crcs[0] == crcs[1]


def test_a_client_cannot_send_a_crc(sides):
    python, compiled = sides(**CRC)
    text = "KEYS\x01k\x02__CRC32#\x0112\x02"
    for side in (python, compiled):
        side.play([request(PLAIN, opaque=0)])
        side.play([request({**PLAIN, "properties": text}, opaque=1)])
    assert_equal(python, compiled)
    assert compiled.served == 0


def test_properties_without_room_for_the_crc_are_refused(sides):
    python, compiled = sides(**CRC)
    for side in (python, compiled):
        side.play([request(PLAIN, opaque=0)])
        for number in range(80):
            text = f"UNIQ_KEY\x01A\x02K\x01{'v' * (32_640 + 2 * number)}\x02"
            side.play([request({**PLAIN, "properties": text}, opaque=1 + number)])
    assert_equal(python, compiled)
    assert len(set(map(len, python.replies.values()))) > 1


def test_counters_and_touched_queues_are_those_of_puts(sides):
    told = []
    python, compiled = sides()
    for side in (python, compiled):
        side.broker.arrivals.listen((lambda touched: told.append(dict(touched)),))
        side.play([request(PLAIN, opaque=n) for n in range(5)])
    assert told[:5] == told[5:] == [{("T", 1): n + 1} for n in range(5)]
    statistics = [side.store.statistics() for side in (python, compiled)]
    assert statistics[0].put_messages == statistics[1].put_messages == 5
    assert statistics[0].put_bytes == statistics[1].put_bytes > 0
    assert compiled.served == 4


def test_sync_flush_holds_the_answer_until_the_log_is_durable(sides):
    _, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    wanted = []
    compiled.store.signals.new_messages = lambda: wanted.append(1)
    compiled.play([request(PLAIN, opaque=0)])
    compiled.replies.clear()
    at_once = {**PLAIN, "properties": "UNIQ_KEY\x01A\x02WAIT\x01false\x02"}
    compiled.play([request(PLAIN, opaque=1) + request(at_once, opaque=2)])
    assert compiled.served == 2
    assert set(compiled.replies) == {2}
    assert len(wanted) >= 2
    compiled.store.durability.flush()
    compiled.play([b""])
    assert set(compiled.replies) == {1, 2}


def test_a_refusing_store_answers_through_the_python_handler(sides):
    _, compiled = sides()
    compiled.play([request(PLAIN, opaque=0)])
    compiled.store.durability.refuse(RefusalKind.WRITE_FAILED, "the disk is gone")
    compiled.play([request(PLAIN, opaque=1)])
    [reply] = FrameDecoder().feed(compiled.replies[1])
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "the disk is gone" in reply.remark
    assert compiled.served == 0


@pytest.mark.usefixtures("without_ring")
def test_a_failed_write_answers_nobody_and_stores_nothing(sides):
    """Under SYNC_FLUSH records go through pwrite; here its descriptor cannot write."""
    _, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    compiled.play([request(PLAIN, opaque=0)])
    end = compiled.store.log.end_offset
    compiled.peer.sendall(request(PLAIN, opaque=1))
    with log_that_fails(compiled):
        compiled.reactor.poll(0)
    [(kind, _, _)] = compiled.reactor.take_events()
    assert kind == EventKind.NOT_STORED
    assert compiled.store.log.end_offset == end
    assert "failed" in compiled.store.durability.refuse_reason
    compiled.collect()
    assert set(compiled.replies) <= {0}
    assert compiled.store.queues.get("T", 1).next_offset == 1


def test_topics_with_a_meaning_are_never_shown(sides):
    _, compiled = sides()
    compiled.broker.topics.update(
        TopicConfig(topic_name="%DLQ%G", read_queue_nums=1, write_queue_nums=1, perm=6)
    )
    for n, topic in enumerate(["%DLQ%G", "SELF_TEST_TOPIC", "%RETRY%G"] * 3):
        fields = {**PLAIN, "topic": topic, "queueId": "0"}
        compiled.play([request(fields, opaque=n)])
    assert compiled.served == 0


def test_only_messages_for_light_queues_are_left_to_python(sides):
    python, compiled = sides(**LIGHT)
    light = PLAIN["properties"] + "INNER_MULTI_DISPATCH\x01%LMQ%a\x02"
    for side in (python, compiled):
        for n in range(12):
            properties = light if n % 3 == 2 else PLAIN["properties"]
            side.play([request(PLAIN | {"properties": properties}, opaque=n)])
    assert_equal(python, compiled)
    assert compiled.served == 7
    assert compiled.store.reads.max_offset("%LMQ%a", 0) == 4


def test_a_declined_message_leaves_no_time_behind(sides):
    """Python gets a message whose time is no number; the next poll has its own time."""
    _, compiled = sides()
    timed = {**PLAIN, "properties": "UNIQ_KEY\x01K\x02TIMER_DELAY_SEC\x01x\x02"}
    compiled.play([request(PLAIN, opaque=1), request(timed, opaque=2)])
    compiled.broker.clock.ms += 60_000
    compiled.play([request(PLAIN, opaque=3)])
    last = compiled.broker.messages.max_offset("T", 1) - 1
    stored_ms = compiled.broker.messages.store_time_at("T", 1, last)
    assert stored_ms == compiled.broker.clock.now_ms()
