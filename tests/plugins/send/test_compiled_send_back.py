"""Messages that consumers give back: both ways store the same bytes.

As in `test_compiled_sends.py`: two brokers with the same clock get the same frames.
Replies, log, queues, deliveries and statistics must be equal.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.observe.statistics import GROUP_AGAIN
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.statistics import SNDBCK2DLQ_TIMES, SNDBCK_PUT_NUMS
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import FLAG_ONEWAY
from rmq.protocol.frames import FrameDecoder
from rmq.protocol.records import decode_stored
from rmq.protocol.topics import SCHEDULE_TOPIC
from rmq.store.config import FlushDiskType
from rmq_plugins.schedule.deliver import Deliveries
from tests.plugins.client.test_compiled_commits import frame
from tests.plugins.send.frames import ONCE, PLAIN, assert_equal, log_that_fails
from tests.plugins.send.frames import request as send_frame
from tests.plugins.send.test_diverted_sends import deliver
from tests.plugins.sides import sides

__all__ = ["sides"]

SEND_BACK = int(RequestCode.CONSUMER_SEND_MSG_BACK)
FIRST_OPAQUE = 100_000
PIECES = st.sampled_from(
    [
        "TAGS\x01A",
        "KEYS\x01a b",
        "WAIT\x01false",
        "WAIT\x01true",
        "WAITS\x01true",
        "own\x01v\x01w",
        "TAGS\x01\u4e2d\U0001f600",
        "DELAY\x010",
        "DELAY\x01-1",
        "TRAN_MSG\x01false",
        "_SYS_MSG_PRIORITY_\x011",
        "REAL_TOPIC\x01M",
        "REAL_QID\x019",
        "RETRY_TOPIC\x01Before",
        "ORIGIN_MESSAGE_ID\x01me",
        "INNER_MULTI_DISPATCH\x01%LMQ%a",
        "POP_CK\x01x",
        "TAGS\x01twice\x02TAGS\x01three",
        "junk",
        "\x01novalue",
    ]
)
ODD = {
    "group": st.sampled_from(["G", "H", "New", "G\u00e9", "", None]),
    "offset": st.sampled_from(["0", "7", "-1", "9" * 18, "9" * 19, "x", "01", None]),
    "delayLevel": st.sampled_from(["1", "18", "19", "99", "-1", "-7", "x", "+1", None]),
    "maxReconsumeTimes": st.sampled_from(["0", "1", "2", "-1", "16", "x", "", None]),
    "unitMode": st.sampled_from(["true", "false", "0", "x", None]),
    "originTopic": st.sampled_from(["M", 'q"', None]),
    "originMsgId": st.sampled_from(["", "A" * 600, None]),
}


def send(side, text="TAGS\x01A\x02", queue_id="1", topic="T", **more):
    """Send a message with a key of its own; return its offset in the log."""
    opaque = side.opaque = getattr(side, "opaque", FIRST_OPAQUE) + 1
    offset = side.store.log.end_offset
    text = f"UNIQ_KEY\x017F{opaque}\x02{text}"
    fields = {**PLAIN, "properties": text, "queueId": queue_id, "topic": topic}
    side.play([send_frame(fields | more, opaque=opaque, body=b"work")])
    return offset


def back_frame(offset, opaque, *, kind=0, flag=0, **more):
    fields = {
        "group": "G", "offset": str(offset), "delayLevel": "0", "originMsgId": "id",
        "originTopic": "T", "unitMode": "false", "maxReconsumeTimes": "16", **more,
    }  # fmt: skip
    return frame(fields, opaque=opaque, code=SEND_BACK, kind=kind, flag=flag)


def tables(side):
    """Return the counts and the progress of deliveries."""
    statistics = side.broker.statistics
    deliveries = side.caller.find(Deliveries)
    names = SNDBCK_PUT_NUMS, SNDBCK2DLQ_TIMES, GROUP_AGAIN
    return (
        [sorted(filter(None, statistics.totals_of(name))) for name in names],
        deliveries.due_ms,
        deliveries.offsets.facts(),
    )


def assert_alike(python, compiled):
    assert_equal(python, compiled)
    assert tables(compiled) == tables(python)
    assert python.served == 0


def records(side, topic, queue_id=0):
    """Return every record of a queue."""
    found = []
    while len(found) < side.store.reads.max_offset(topic, queue_id):
        body = side.store.reads.get(topic, queue_id, len(found), 32).body
        found += decode_stored(body)
    return found


@pytest.mark.parametrize("kind", [0, 1, 2], ids=["json", "binary", "numbers"])
@pytest.mark.parametrize("flag", [0, FLAG_ONEWAY], ids=["answered", "oneway"])
def test_messages_given_back_are_served_compiled(sides, kind, flag):
    """The log rolls, and old entries of the queue are in its files."""
    python, compiled = sides(commit_log_file_size=1 << 15)
    for side in (python, compiled):
        offsets = [send(side) for _ in range(40)]
        side.store.flush_queues(thorough=True)
        served = side.served
        for number, offset in enumerate(offsets):
            side.play([back_frame(offset, number, kind=kind, flag=flag)])
        side.backs = side.served - served
    assert_alike(python, compiled)
    assert compiled.backs == 38  # Python creates the queue, then shows it
    assert len(records(compiled, SCHEDULE_TOPIC, 2)) == 40


def test_a_message_is_given_back_each_time_also_in_a_window(sides):
    """All of its copies have one key; only clients' sends are stored once."""
    python, compiled = sides(**ONCE)
    for side in (python, compiled):
        offset = send(side)
        for number in range(4):
            side.play([back_frame(offset, number)])
        deliver(side, 12_000)
    assert_alike(python, compiled)
    assert compiled.reactor.natives.counts()[0, SEND_BACK][0] == 2
    assert len(records(compiled, "%RETRY%G")) == 4


def test_each_attempt_waits_longer_and_the_last_one_is_a_dead_letter(sides):
    python, compiled = sides()
    for side in (python, compiled):
        for number in range(3):  # Python serves the first two messages of a level
            offset = send(side)
            for attempt in range(5):
                opaque = 10 * number + attempt
                side.play([back_frame(offset, opaque, maxReconsumeTimes="4")])
                level = 3 + attempt
                if attempt < 4:
                    [*_, retry] = records(side, SCHEDULE_TOPIC, level - 1)
                    offset = retry.physical_offset
        side.broker.arrivals.flush()
    assert_alike(python, compiled)
    [*_, last] = records(compiled, "%DLQ%G")
    assert last.reconsume_times == 5
    assert last.properties["RETRY_TOPIC"] == "T"
    assert last.properties["DELAY"] == "0"
    counts = compiled.reactor.natives.counts()[0, SEND_BACK]
    assert counts[0] == 1 + 5


def test_retries_that_were_delivered_are_given_back_again(sides):
    """Their record has the properties of the first attempt."""
    python, compiled = sides()
    for side in (python, compiled):
        for number in range(4):
            side.play([back_frame(send(side), number, delayLevel="1")])
        deliver(side, 2_000)
        for number, record in enumerate(records(side, "%RETRY%G")):
            frame_of = back_frame(record.physical_offset, 10 + number, delayLevel="2")
            side.play([frame_of])
    assert_alike(python, compiled)
    assert len(records(compiled, SCHEDULE_TOPIC, 1)) == 4
    assert compiled.reactor.natives.counts()[0, SEND_BACK][0] == 4


@st.composite
def requests(draw, offsets):
    fields = {}
    for name in draw(st.lists(st.sampled_from(sorted(ODD)), max_size=2)):
        fields[name] = draw(ODD[name])
    return {
        "offset": draw(st.sampled_from(offsets)) + draw(st.sampled_from([0] * 9 + [1])),
        "kind": draw(st.sampled_from([0, 0, 1, 2])),
        "flag": draw(st.sampled_from([0, 0, FLAG_ONEWAY])),
        **fields,
    }


def update_group(side, **fields):
    side.broker.groups.update(SubscriptionGroupConfig(group_name="G", **fields))


def delete_topic(side):
    side.broker.topics.delete("T")
    side.store.delete_topic("T")()
    side.caller.topic("T", queues=3)


CHANGES = {
    "": lambda side: None,
    "time": lambda side: deliver(side, 12_000),
    "flush": lambda side: side.store.flush_queues(thorough=True),
    "few": lambda side: update_group(side, retry_max_times=1),
    "no retries": lambda side: update_group(side, retry_queue_nums=0),
    "more queues": lambda side: (
        side.caller.topic("%RETRY%G", queues=3),
        update_group(side, retry_queue_nums=2),
    ),
    "not writable": lambda side: side.caller.topic("%RETRY%G", queues=1, perm=4),
    "no group": lambda side: side.broker.groups.delete("G"),
    "delete dead letters": lambda side: (
        side.broker.topics.delete("%DLQ%G"),
        side.store.delete_topic("%DLQ%G")(),
    ),
    "delete": delete_topic,
}


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_request_stores_the_same_bytes(sides, data):
    pair = sides(
        **data.draw(
            st.sampled_from(
                [
                    {},
                    {"delay_levels": "1s 2s 3s 5s"},
                    {"lmq_enabled": True, "multi_dispatch_enabled": True},
                    ONCE,
                ]
            )
        )
    )
    opaque = 0
    offsets = []
    for _ in range(data.draw(st.integers(1, 4))):
        for _ in range(data.draw(st.integers(1, 3))):
            pieces = data.draw(st.lists(PIECES, max_size=3))
            text = "".join(each + "\x02" for each in pieces)
            where = (
                data.draw(st.sampled_from(["0", "1"])),
                data.draw(st.sampled_from(["T", "M"])),
            )
            offsets.append([send(side, text, *where) for side in pair])
        made = data.draw(
            st.lists(requests([each[0] for each in offsets]), min_size=1, max_size=8)
        )
        frames = []
        for each in made:
            opaque += 1
            frames.append(back_frame(opaque=opaque, **each))
        change = data.draw(st.sampled_from(sorted(CHANGES)))
        is_one = data.draw(st.booleans())
        for side in pair:
            side.play([b"".join(frames)] if is_one else frames)
            CHANGES[change](side)
            side.broker.arrivals.flush()
        for python, compiled in offsets:
            assert python == compiled
    assert_alike(*pair)


def test_several_retry_queues_get_the_messages_of_a_group(sides):
    python, compiled = sides()
    for side in (python, compiled):
        side.broker.groups.find("G")
        update_group(side, retry_queue_nums=3)
        offset = send(side)
        side.play([back_frame(offset, 0), back_frame(offset, 100)])
        side.play([b"".join(back_frame(offset, number) for number in range(1, 40))])
    assert_alike(python, compiled)
    stored = records(compiled, SCHEDULE_TOPIC, 2)
    assert {each.properties["REAL_QID"] for each in stored} == {"0", "1", "2"}
    assert compiled.reactor.natives.counts()[0, SEND_BACK][0] == 39


def test_an_offset_inside_a_body_gives_nothing_back(sides):
    """A client sends a body that looks like a record."""
    _, compiled = sides()
    offset = send(compiled)
    compiled.play([back_frame(offset, 1)])
    record = compiled.store.log.reader.read_record(offset)
    inside = compiled.store.log.end_offset + 88
    forged = bytearray(record)
    forged[28:36] = inside.to_bytes(8, "big")
    compiled.play([send_frame({**PLAIN}, opaque=2, body=bytes(forged))])
    assert compiled.store.log.reader.read_record(inside) == bytes(forged)
    compiled.play([back_frame(inside, 3)])
    [reply] = FrameDecoder().feed(compiled.replies[3])
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert len(records(compiled, SCHEDULE_TOPIC, 2)) == 1


@pytest.mark.usefixtures("without_ring")
def test_messages_that_are_not_written_are_not_counted(sides):
    """Their replies are not sent: the consumer gives them back again."""
    _, compiled = sides(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    offset = send(compiled)
    compiled.store.durability.flush()
    compiled.play([back_frame(offset, 1)])
    before = tables(compiled)[0]
    compiled.peer.sendall(back_frame(offset, 2))
    with log_that_fails(compiled):
        compiled.reactor.poll(0)
    compiled.collect()
    assert 2 not in compiled.replies
    assert tables(compiled)[0] == before


def test_the_broker_may_not_be_written_any_more(sides):
    python, compiled = sides()
    body = b"brokerPermission=4\n"
    for side in (python, compiled):
        offset = send(side)
        side.play([back_frame(offset, 1)])
        assert side.caller.call(RequestCode.UPDATE_BROKER_CONFIG, body=body).code == 0
        side.play([back_frame(offset, 2)])
    assert_alike(python, compiled)
    [reply] = FrameDecoder().feed(compiled.replies[2])
    assert reply.code == ResponseCode.NO_PERMISSION
