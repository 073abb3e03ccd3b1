"""POP: what is taken, acked, hidden longer, and popped again."""

import base64
import json
import re

import pytest
import trio
from trio.testing import MockClock

from rmq.observe.metrics.java import Requests
from rmq.observe.metrics.java import families as java_families
from rmq.plugin.native import Checkpoint
from rmq.protocol.batch import BatchItem, encode_batch
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.message import Message
from rmq.protocol.records import decode_stored
from rmq.remoting import turns
from rmq.testing import TrioClock
from rmq_plugins.consume.pop import checkpoints as tables
from tests.plugins.conftest import RecordingConnection
from tests.plugins.consume.pop.popping import INVISIBLE_MS, Popping

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.fixture
def popping(caller):
    caller.topic("T", queues=2)
    return Popping(caller)


def fill(caller, count=6, **more):
    for number in range(count):
        caller.send(body=b"%d" % number, queueId=number % 2, **more)


def bodies(messages):
    return sorted(message.body for message in messages)


def records(caller, topic, queue_id=0):
    found, offset = [], 0
    while True:
        got = caller.broker.store.reads.get(topic, queue_id, offset, 32)
        if not got.message_count:
            return found
        found += decode_stored(got.body)
        offset = got.next_begin_offset


def revive_records(caller):
    return [each for queue_id in range(8) for each in records(caller, REVIVE, queue_id)]


def timer_records(caller):
    return records(caller, "rmq_sys_wheel_timer")


# -- taking


def test_all_queues_are_popped_and_what_is_taken_is_hidden(popping):
    fill(popping.caller)
    messages = popping.pop()
    assert bodies(messages) == [b"%d" % number for number in range(6)]
    assert popping.pop() == []
    popping.work(INVISIBLE_MS - 1)
    assert popping.pop() == []


def test_the_committed_offset_stays_at_the_first_open_message(popping):
    fill(popping.caller)
    messages = popping.pop(queueId=0)
    assert popping.committed() == 0
    popping.ack(messages[0])
    popping.ack(messages[2])
    assert popping.committed() == 0
    popping.ack(messages[1])
    assert popping.committed() == 3


def test_a_group_lags_behind_by_what_it_was_not_given(popping):
    """As with Java: what waits for an ack is no lag, until it comes back."""
    fill(popping.caller)

    def lag():
        fields = {"consumerGroup": "G", "topic": "T"}
        answer = popping.caller.call(RequestCode.GET_CONSUME_STATS, fields)
        pattern = rb'"brokerOffset":(\d+),"consumerOffset":(\d+)'
        rows = re.findall(pattern, answer.body)
        assert len(rows) == 2
        return sum(int(end) - int(reached) for end, reached in rows)

    def shown():
        requests = Requests([], {}, 0)
        found = java_families(popping.caller.broker, requests)
        families = {each.name: each for each in found}
        samples = families["rocketmq_consumer_lag_messages"].samples
        return {each.labels["topic"]: each.value for each in samples}

    popping.pop(maxMsgNums=2)
    assert lag() == 4
    popping.pop()
    assert (lag(), shown()["T"]) == (0, 0)
    assert popping.committed() == 0
    fill(popping.caller, count=2)
    assert (lag(), shown()["T"]) == (2, 2)
    popping.work(INVISIBLE_MS)
    assert shown()["%RETRY%G_T"] == 6


def test_no_byte_is_written_for_what_is_acked_in_time(popping):
    fill(popping.caller)
    end = popping.caller.broker.store.log.end_offset
    for message in popping.pop():
        assert popping.ack(message).code == 0
    popping.work(20_000)
    assert popping.caller.broker.store.log.end_offset == end
    assert popping.reviver.checkpoints.table.count == 0


def test_an_answer_has_at_most_as_many_as_wanted_and_the_rest(popping):
    fill(popping.caller, 20)
    answer = popping.ask(maxMsgNums=7)
    assert len(popping.read(answer)) == 7
    assert answer.ext_fields["restNum"] == "13"
    assert answer.remark == "FOUND"


def test_tags_are_filtered_and_passed(popping):
    for number in range(9):
        tag = "AB"[number % 2]
        popping.caller.send(body=b"%d" % number, properties=f"TAGS\x01{tag}\x02")
    messages = popping.pop(expType="TAG", exp="B")
    assert bodies(messages) == [b"1", b"3", b"5", b"7"]
    for message in messages:
        popping.ack(message)
    assert popping.pop(expType="TAG", exp="B") == []


def test_a_selector_is_applied(make_caller):
    caller = make_caller(enable_property_filter=True)
    popping = Popping(caller)
    for number in range(9):
        caller.send(body=b"%d" % number, properties=f"n\x01{number}\x02")
    messages = popping.pop(expType="SQL92", exp="n > 5")
    assert bodies(messages) == [b"6", b"7", b"8"]
    assert popping.ask(expType="SQL92", exp="n >").code == 23


@pytest.mark.parametrize(("mode", "expected"), [(0, 3), (1, 3)])
def test_a_new_group_begins_at_the_first_message_while_that_is_young(
    popping, mode, expected
):
    fill(popping.caller)
    assert len(popping.pop(initMode=mode, queueId=0)) == expected


# -- not acked in time


def test_what_is_not_acked_is_popped_again_with_a_count(popping):
    fill(popping.caller, 3)
    first, *_ = popping.pop()
    popping.work(INVISIBLE_MS)
    again = popping.pop()
    assert bodies(again) == [b"0", b"1", b"2"]
    for message in again:
        assert message.topic == "%RETRY%G_T"
        assert message.record.reconsume_times == 1
        assert message.record.properties["ORIGIN_GROUP"] == "G"
        assert message.record.properties["1ST_POP_TIME"] == first.handle.split(" ")[1]
        assert popping.ack(message).code == 0
    popping.work(3 * INVISIBLE_MS)
    assert popping.pop() == []
    assert popping.committed(0) == 2
    assert popping.committed(0, "%RETRY%G_T") == 3


def test_a_message_that_a_master_with_a_later_clock_stored_comes_again(popping):
    """What was stored after the POP by its time was taken for another topic's."""
    fill(popping.caller, 2)
    popping.clock.ms -= 3_600_000
    assert len(popping.pop()) == 2
    popping.work(INVISIBLE_MS)
    assert len(popping.pop()) == 2


def test_the_second_form_of_retry_topics(make_caller):
    caller = make_caller(enable_retry_topic_v2=True)
    popping = Popping(caller)
    fill(caller, 1)
    popping.pop()
    popping.work(INVISIBLE_MS)
    (again,) = popping.pop()
    assert again.topic == "%RETRY%G+T"
    popping.ack(again)
    caller.topic("%RETRY%G_T", queues=1)
    caller.send(topic="%RETRY%G_T", body=b"old")
    caller.broker.offsets.commit("t", "G", "%RETRY%G_T", 0, 0)
    (old,) = popping.pop()
    assert (old.topic, old.body) == ("%RETRY%G_T", b"old")


@pytest.mark.parametrize("is_second_form", [False, True])
def test_with_separate_retry_queues_a_message_keeps_its_queue(
    make_caller, is_second_form
):
    caller = make_caller(
        use_separate_retry_queue=True, enable_retry_topic_v2=is_second_form
    )
    caller.topic("T", queues=2)
    popping = Popping(caller)
    fill(caller, 2)
    for _ in range(2):
        popping.pop()
        popping.work(INVISIBLE_MS)
    caller.topic("T", queues=4)
    caller.send(body=b"3", queueId=3)
    popping.pop()
    popping.work(INVISIBLE_MS)
    again = popping.pop()
    queues = {each.body: each.queue_id for each in again}
    assert queues == {b"0": 0, b"1": 1, b"3": 3}
    topic = again[0].topic
    assert caller.broker.topics.get(topic).read_queue_nums == 4


def test_a_retry_topic_does_not_shrink_with_its_topic(make_caller):
    caller = make_caller(use_separate_retry_queue=True)
    caller.topic("T", queues=4)
    popping = Popping(caller)
    for queue_id in (3, 0):
        caller.send(body=b"%d" % queue_id, queueId=queue_id)
        popping.pop()
        popping.work(INVISIBLE_MS)
        caller.topic("T", queues=1)
    assert bodies(popping.pop()) == [b"0", b"3"]


@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("attempts", [0, 1])
def test_the_order_of_priorities(make_caller, ascending, attempts):
    caller = make_caller(
        use_separate_retry_queue=True,
        priority_order_asc=ascending,
        pop_from_retry_probability_for_priority=100,
    )
    caller.topic("T", queues=4, attributes={"message.type": "PRIORITY"})
    popping = Popping(caller)
    for number in (2, 0, 3, 1):
        caller.send(body=b"%d" % number, queueId=number)
    for _ in range(attempts):
        popping.pop()
        popping.work(INVISIBLE_MS)
    found = [popping.pop(maxMsgNums=1)[0].body for _ in range(4)]
    assert found == sorted(found, reverse=ascending)


def test_a_group_pops_no_more_while_too_many_have_no_ack(make_caller):
    caller = make_caller(
        enable_pop_message_threshold=True, pop_inflight_message_threshold=2
    )
    caller.topic("T", queues=1)
    popping = Popping(caller)
    for _ in range(6):
        caller.send(queueId=0)
    first, *_ = popping.pop(maxMsgNums=2)
    assert len(popping.pop(maxMsgNums=1)) == 1
    answer = popping.ask(maxMsgNums=1)
    assert answer.code == ResponseCode.POLLING_TIMEOUT
    assert answer.ext_fields["restNum"] == "3"
    popping.ack(first)
    assert len(popping.pop(maxMsgNums=1)) == 1


def test_a_message_that_waits_twice_keeps_its_first_time(popping):
    fill(popping.caller, 1)
    (first,) = popping.pop()
    for times in (1, 2, 3):
        popping.work(INVISIBLE_MS)
        (again,) = popping.pop()
        assert again.record.reconsume_times == times
    assert again.record.properties["1ST_POP_TIME"] == first.handle.split(" ")[1]
    assert len(records(popping.caller, "%RETRY%G_T")) == 3


def test_a_delayed_message_is_not_delayed_again(popping):
    popping.caller.send(properties="TIMER_DELAY_MS\x011500\x02")
    popping.work(5_000)
    assert len(popping.pop()) == 1
    popping.work(INVISIBLE_MS)
    assert len(popping.pop()) == 1


# -- written checkpoints


def test_an_old_checkpoint_is_written_in_java_s_form(popping):
    fill(popping.caller)
    messages = popping.pop(queueId=0)
    popping.ack(messages[1])
    popping.work(10_000)
    (ck,) = timer_records(popping.caller)
    pop_ms = int(messages[0].handle.split(" ")[1])
    body = json.loads(ck.body)
    assert list(body) == sorted(body)
    assert body == {
        "bm": 0, "bn": "broker-a", "c": "G", "d": [0, 2], "it": INVISIBLE_MS, "n": 2,
        "pt": pop_ms, "q": 0, "reviveTime": pop_ms + INVISIBLE_MS, "ro": 0, "so": 0,
        "sp": False, "t": "T",
    }  # fmt: skip
    assert ck.properties["UNIQ_KEY"] == f"T@0@0@G@{pop_ms}@broker-a@ck"
    assert ck.properties["TAGS"] == "ck"
    assert popping.committed() == 3, "the log has what is open"


def test_a_pop_that_the_next_master_does_not_know_is_popped_again_there(popping):
    """In a group with a controller the role ends: it has the offset, no checkpoint."""
    store = popping.caller.broker.store
    replicated = store.durability.await_group(100)
    fill(popping.caller)
    assert len(popping.pop(queueId=0)) == 3
    end = store.log.end_offset
    popping.reviver.stop()
    popping.work(1_000)
    assert timer_records(popping.caller)
    assert popping.committed() == 0
    replicated.advance(end)
    popping.work(1_000)
    assert popping.committed() == 0
    replicated.advance(store.log.end_offset)
    popping.work(1_000)
    assert popping.committed() == 3


def test_an_orderly_stop_commits_what_replicas_have_got_meanwhile(popping):
    store = popping.caller.broker.store
    replicated = store.durability.await_group(100)
    fill(popping.caller)
    popping.pop(queueId=0)

    async def stop():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(popping.reviver.run)
            await trio.testing.wait_all_tasks_blocked()
            popping.reviver.stop()
            replicated.advance(store.log.end_offset)
            nursery.cancel_scope.cancel()

    assert popping.committed() == 0
    trio.run(stop)
    assert popping.committed() == 3


def test_acks_of_a_written_checkpoint_are_one_record(popping):
    fill(popping.caller)
    messages = popping.pop(queueId=0)
    popping.work(10_000)
    for message in messages:
        popping.ack(message)
    popping.work(1_000)
    _, acks = timer_records(popping.caller)
    assert json.loads(acks.body)["aol"] == [0, 1, 2]
    assert acks.properties["TAGS"] == "bAck"
    popping.work(2 * INVISIBLE_MS)
    assert popping.pop(queueId=0) == []


def test_without_the_buffer_every_record_is_written_at_once(make_caller):
    caller = make_caller(enable_pop_buffer_merge=False)
    popping = Popping(caller)
    fill(caller, 2)
    messages = popping.pop()
    popping.work()
    assert [each.properties["TAGS"] for each in timer_records(caller)] == ["ck", "ck"]
    popping.ack(messages[0])
    assert timer_records(caller)[-1].properties["TAGS"] == "ack"
    popping.work(INVISIBLE_MS + 3_000)
    assert len(popping.pop()) == 1


def test_the_revive_topic_is_settled_behind_itself(popping):
    fill(popping.caller)
    popping.pop()
    popping.work(10_000)
    for _ in range(4):
        popping.work(INVISIBLE_MS)
    assert revive_records(popping.caller)
    ends = {
        queue_id: popping.caller.broker.store.reads.max_offset(REVIVE, queue_id)
        for queue_id in range(8)
    }
    group = Popping(popping.caller, "CID_RMQ_SYS_REVIVE_GROUP", REVIVE)
    for queue_id, end in ends.items():
        assert group.committed(queue_id) == end - 1


# -- another invisible time


@pytest.mark.parametrize("wait_ms", [0, 10_000])
def test_a_message_may_be_hidden_longer_or_shorter(popping, wait_ms):
    fill(popping.caller, 2)
    one, two = popping.pop()
    popping.work(wait_ms + 1)
    assert popping.change(one, 2_000).code == 0
    assert popping.change(two, 3 * INVISIBLE_MS).code == 0
    popping.work(2_000)
    assert bodies(popping.pop()) == [one.body]
    popping.work(INVISIBLE_MS)
    again = popping.pop()
    assert bodies(again) == [one.body]
    assert popping.ack(two).code == 0
    popping.work(4 * INVISIBLE_MS)
    assert two.body not in bodies(popping.pop())


def test_a_suspended_message_is_no_attempt(popping):
    fill(popping.caller, 1)
    (one,) = popping.pop()
    popping.clock.ms += 1
    popping.change(one, 1_000, suspend="true")
    popping.work(1_000)
    (again,) = popping.pop()
    assert again.record.reconsume_times == 0


def test_the_old_handle_is_worth_nothing(popping):
    fill(popping.caller, 1)
    (one,) = popping.pop()
    old = one.handle
    popping.work(10)
    popping.change(one, 5_000)
    assert popping.ack(one, extraInfo=old).code == 0
    popping.work(5_000)
    assert len(popping.pop()) == 1


# -- acks of several


def test_a_batch_of_acks(popping):
    fill(popping.caller)
    messages = popping.pop()
    by_queue = {}
    for message in messages:
        by_queue.setdefault(message.queue_id, []).append(message)
    acks = []
    for queue_id, some in by_queue.items():
        start, pop_ms, invisible_ms, revive_queue, *_ = some[0].handle.split(" ")
        bits = sum(1 << message.offset - int(start) for message in some)
        acks.append({
            "c": "G", "t": "T", "r": "0", "so": int(start), "q": queue_id,
            "rq": int(revive_queue), "pt": int(pop_ms), "it": int(invisible_ms),
            "b": base64.b64encode(bytes([bits])).decode(),
        })  # fmt: skip
    acks.append({"c": "G", "t": "T", "q": 77, "b": "AQ=="})
    body = json.dumps({"brokerName": "broker-a", "acks": acks}).encode()
    answer = popping.caller.call(RequestCode.BATCH_ACK_MESSAGE, body=body)
    assert answer.code == 0
    popping.work(2 * INVISIBLE_MS)
    assert popping.pop() == []


@pytest.mark.parametrize("body", [b"{}", b'{"acks":[]}'])
def test_a_batch_without_acks(popping, body):
    answer = popping.caller.call(RequestCode.BATCH_ACK_MESSAGE, body=body)
    assert answer.code == ResponseCode.NO_MESSAGE


@pytest.mark.parametrize("bits", ["", "%", "A" * 4_000, "////////////////////////"])
def test_odd_sets_of_bits(popping, bits):
    fill(popping.caller, 2)
    popping.pop()
    ack = {"c": "G", "t": "T", "q": 0, "so": 0, "pt": 1, "it": 1, "b": bits}
    body = json.dumps({"acks": [ack]}).encode()
    assert popping.caller.call(RequestCode.BATCH_ACK_MESSAGE, body=body).code == 0


# -- bad input


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"maxMsgNums": 33}, 29),
        ({"maxMsgNums": 0}, 29),
        ({"invisibleTime": 0}, 29),
        ({"invisibleTime": -5}, 29),
        ({"queueId": 2}, 29),
        ({"topic": "Unknown"}, 17),
        ({"expType": "SQL92", "exp": "a = 1"}, 210),
        ({"expType": "SQL92", "exp": "a >"}, 23),
        ({"expType": "CLASS", "exp": "a"}, 23),
        ({"bornTime": 5}, 210),
        ({"bornTime": 2**62}, 210),
        ({"invisibleTime": 2**40}, 210),
        ({"queueId": -7}, 210),
    ],
)  # fmt: skip
def test_pops_that_are_refused_or_find_nothing(popping, fields, code):
    assert popping.ask(**fields).code == code


def test_a_year_of_invisibility_is_a_day(popping):
    fill(popping.caller, 1)
    popping.pop(invisibleTime=365 * 86_400_000)
    popping.work(2 * 86_400_000)
    assert len(popping.pop()) == 1


def test_pop_needs_the_timer(make_caller):
    popping = Popping(make_caller(store={"timer_wheel_enable": False}))
    assert popping.ask().code == 1


@pytest.mark.parametrize(
    ("handle", "code"),
    [
        ("", 1),
        ("x", 1),
        ("0 1 2 3 0", 1),
        ("0 1 2 x 0 broker-a 0 0", 1),
        ("-1 1 2 3 0 broker-a 0 0", 1),
        ("0 1 2 3 0 broker-b 0 0", 13),
        ("9" * 5_000, 1),
        ("0 " + "9" * 18 + " 2 3 0 broker-a 0 0", 0),
        ("7 1 2 3 0 broker-a 0 0", 0),
        ("0 1 2 77 0 broker-a 0 0", 0),
    ],
)  # fmt: skip
def test_forged_handles(popping, handle, code):
    fill(popping.caller)
    (message, *_) = popping.pop()
    assert popping.ack(message, extraInfo=handle).code == code
    popping.work(INVISIBLE_MS)
    assert message.body in bodies(popping.pop())


@pytest.mark.parametrize(
    ("handle", "code"),
    [
        ("", 1),
        ("0 1 2 3 0", 1),
        ("-1 1 2 3 0 broker-a 0 0", 1),
        ("0 1 2 3 0 broker-b 0 0", 13),
        ("0 " + "9" * 18 + " 2 3 0 broker-a 0 0", 1),
        ("7 1 2 3 0 broker-a 0 0", 0),
    ],
)
def test_another_time_by_forged_handles(popping, handle, code):
    fill(popping.caller, 1)
    (message,) = popping.pop()
    message.handle = handle
    assert popping.change(message, 3 * INVISIBLE_MS).code == code
    popping.work(INVISIBLE_MS)
    assert bodies(popping.pop()) == [message.body]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"offset": 99}, 208),
        ({"offset": -1}, 208),
        ({"queueId": 2}, 13),
        ({"queueId": -1}, 13),
        ({"topic": "Unknown"}, 17),
        ({"topic": "Another"}, 0),
        ({"queueId": 1}, 0),
        ({"consumerGroup": "Other"}, 0),
        ({"liteTopic": "x"}, 29),
        ({"liteTopic": ""}, 0),
    ],
)
def test_acks_of_others(popping, fields, code):
    popping.caller.send("Another")
    fill(popping.caller, 1)
    (message,) = popping.pop()
    assert popping.ack(message, **fields).code == code
    popping.work(INVISIBLE_MS)
    wanted = 0 if fields == {"liteTopic": ""} else 1
    assert len(popping.pop()) == wanted


def test_late_and_double_acks(popping):
    fill(popping.caller, 1)
    (message,) = popping.pop()
    popping.work(INVISIBLE_MS)
    assert popping.ack(message).code == 0
    (again,) = popping.pop()
    assert popping.ack(again).code == 0
    assert popping.ack(again).code == 0
    popping.work(2 * INVISIBLE_MS)
    assert popping.pop() == []


@pytest.mark.parametrize("invisible_ms", [-1, 2**50])
def test_odd_invisible_times(popping, invisible_ms):
    fill(popping.caller, 1)
    (message,) = popping.pop()
    assert popping.change(message, invisible_ms).code == 29


def test_more_checkpoints_than_fit_are_left_to_the_log(popping, monkeypatch):
    monkeypatch.setattr(tables, "MAX_CHECKPOINTS", 3)
    caller = popping.caller
    fill(caller, 8)
    messages = []
    for _ in range(8):
        popping.clock.ms += 1
        messages += popping.pop(maxMsgNums=1)
    assert popping.reviver.checkpoints.table.count == 3
    popping.work()
    for message in messages[::2]:
        assert popping.ack(message).code == 0
    popping.work(INVISIBLE_MS + 3_000)
    popping.work(3_000)
    again = popping.pop()
    assert bodies(again) == bodies(messages[1::2])


# -- topics and groups that go


def test_a_topic_made_again_gets_no_old_messages(popping):
    """Java revived messages of the new topic for checkpoints of the old one."""
    fill(popping.caller, 2)
    popping.pop()
    popping.work(10_000)
    popping.caller.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    popping.caller.topic("T", queues=2)
    fill(popping.caller, 2)
    messages = popping.pop()
    for message in messages:
        popping.ack(message)
    popping.work(2 * INVISIBLE_MS)
    assert popping.pop() == []


@pytest.mark.parametrize(
    ("code", "fields", "kept"),
    [
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, {("Other", "T")}),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "T"}, {("T", "G")}),
    ],
)
def test_queues_of_what_is_deleted_are_forgotten_alone(popping, code, fields, kept):
    """Also where a topic and a group have one name."""
    fill(popping.caller, 2)
    popping.caller.topic("Other", queues=2)
    popping.pop()
    Popping(popping.caller, group="T", topic="Other").pop()
    popping.caller.call(code, fields)
    found = {place[:2] for place in popping.reviver.checkpoints.queues}
    assert found >= kept
    part = 0 if "topic" in fields else 1
    assert not [place for place in found if place[part] == "T"]


def test_a_reset_offset_counts(popping):
    fill(popping.caller)
    for message in popping.pop(queueId=0):
        popping.ack(message)
    popping.caller.broker.offsets.reset("G", "T", 0, 1)
    assert len(popping.pop(queueId=0)) == 2


# -- in order


def test_a_queue_in_order_waits_for_its_acks(popping):
    fill(popping.caller)
    first = popping.pop(order="true", queueId=0, maxMsgNums=2)
    assert [message.body for message in first] == [b"0", b"2"]
    assert first[0].handle.split(" ")[3] == "999"
    assert popping.pop(order="true", queueId=0) == []
    assert popping.ack(first[0]).code == 0
    assert popping.committed() == 1
    assert popping.pop(order="true", queueId=0) == []
    assert popping.ack(first[1]).code == 0
    assert popping.committed() == 2
    assert bodies(popping.pop(order="true", queueId=0)) == [b"4"]


def test_in_order_all_from_the_first_open_one_come_again(popping):
    fill(popping.caller)
    one, two, _three = popping.pop(order="true", queueId=0)
    popping.ack(two)
    popping.work(INVISIBLE_MS)
    answer = popping.ask(order="true", queueId=0)
    assert bodies(popping.read(answer)) == [b"0", b"2", b"4"]
    assert answer.ext_fields["orderCountInfo"] == (
        "0 qo0%0 1;0 qo0%1 1;0 qo0%2 1;0 0 1"
    )
    assert popping.ack(one).code == 0, "an ack of an earlier POP has no effect"
    assert popping.committed() == 0


def test_the_same_attempt_gets_the_same_messages(popping):
    fill(popping.caller)
    first = popping.pop(order="true", queueId=0, attemptId="a")
    again = popping.pop(order="true", queueId=0, attemptId="a")
    assert bodies(first) == bodies(again)
    assert popping.pop(order="true", queueId=0, attemptId="b") == []


def test_in_order_a_message_may_be_hidden_longer(popping):
    fill(popping.caller, 1)
    (one,) = popping.pop(order="true", queueId=0)
    assert popping.change(one, 3 * INVISIBLE_MS).code == 0
    popping.work(2 * INVISIBLE_MS)
    assert popping.pop(order="true", queueId=0) == []
    popping.work(2 * INVISIBLE_MS)
    assert len(popping.pop(order="true", queueId=0)) == 1


def test_the_table_of_orders_has_java_s_form(popping):
    fill(popping.caller)
    popping.pop(order="true", queueId=0, attemptId="a")
    table = next(
        table for table, _ in popping.caller.registered.tables
        if table.file_name == "consumerOrderInfo.json"
    )  # fmt: skip
    value = json.loads(table.text())
    order = value["table"]["T@G"]["0"]
    assert (value["orderInfoCount"], value["orderedConsumptionLevel"]) == (1, "QUEUE")
    assert (order["a"], order["o"], order["cm"]) == ("a", [0, 1, 2], 0)


# -- waiting


def waiting(make_caller, main, **options):
    clock = TrioClock()
    caller = make_caller(clock=clock, **options)
    popping = Popping(caller)

    async def run():
        async with trio.open_nursery() as nursery:
            for service in caller.services("pop") + caller.services("timer"):
                nursery.start_soon(service)
            await trio.testing.wait_all_tasks_blocked()
            await main(popping)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=MockClock(autojump_threshold=0))


def hold(popping, **more):
    fields = {"pollTime": 15_000, **more}
    result = popping.ask(**fields)
    assert result is None, result


def test_a_waiting_pop_gets_what_comes(make_caller):
    async def main(popping):
        hold(popping)
        await trio.sleep(1)
        popping.caller.send(body=b"new")
        popping.caller.report_arrivals()
        await trio.sleep(0.01)
        (answer,) = popping.caller.connection.sent
        assert bodies(popping.read(answer)) == [b"new"]

    waiting(make_caller, main)


def test_a_waiting_pop_gets_what_nobody_acked_in_time(make_caller):
    async def main(popping):
        popping.caller.send(body=b"x")
        popping.caller.report_arrivals()
        assert len(popping.pop(invisibleTime=3_000)) == 1
        began = trio.current_time()
        hold(popping)
        while not popping.caller.connection.sent:  # noqa: ASYNC110
            await trio.sleep(0.01)
        assert trio.current_time() - began == pytest.approx(3, abs=0.06)
        (answer,) = popping.caller.connection.sent
        (again,) = popping.read(answer)
        assert again.topic == "%RETRY%G_T"

    waiting(make_caller, main)


def test_a_checkpoint_of_an_earlier_run_ends_while_the_timer_has_no_message(
    make_caller,
):
    """The timer had delivered the checkpoint, and slept before the messages were due:
    they came after the next timed message, or after the next start.
    """

    async def main(popping):
        popping.caller.send(body=b"x")
        assert len(popping.pop(queueId=0)) == 1
        checkpoint = {
            "bn": "broker-a", "c": "G", "d": [0], "it": 4_000, "n": 1,
            "pt": popping.clock.now_ms() - 1_000, "q": 0, "so": 0, "t": "T",
        }  # fmt: skip
        broker = popping.caller.broker
        broker.topics.ensure(REVIVE, queues=1, perm=6)
        message = Message(
            REVIVE, 0, json.dumps(checkpoint).encode(), 0, 0, 0, broker.store_host
        )
        message.properties = {"TAGS": "ck"}
        assert broker.put.append(message).end_offset
        popping.caller.report_arrivals()
        hold(popping)
        await trio.sleep(6)
        (answer,) = popping.caller.connection.sent
        (again,) = popping.read(answer)
        assert (again.body, again.topic) == (b"x", "%RETRY%G_T")

    waiting(make_caller, main)


def test_a_pop_that_waits_in_vain_is_answered_a_little_earlier(make_caller):
    async def main(popping):
        hold(popping)
        await trio.sleep(14.9)
        assert popping.caller.connection.sent == []
        await trio.sleep(0.1)
        (answer,) = popping.caller.connection.sent
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        assert answer.remark == "NO_MESSAGE_IN_QUEUE"

    waiting(make_caller, main)


def test_a_client_with_a_wrong_clock_waits_as_long(make_caller):
    async def main(popping):
        now_ms = popping.clock.now_ms()
        for born_ms in (now_ms - 3_600_000, now_ms + 3_600_000):
            hold(popping, bornTime=born_ms)
        await trio.sleep(14.9)
        assert popping.caller.connection.sent == []
        await trio.sleep(0.1)
        assert len(popping.caller.connection.sent) == 2

    waiting(make_caller, main)


def test_one_message_wakes_one_of_many(make_caller):
    async def main(popping):
        for _ in range(5):
            hold(popping)
        fields = {"consumerGroup": "G", "topic": "T", "queueId": -1}
        info = popping.caller.call(RequestCode.POLLING_INFO, fields)
        assert info.ext_fields["pollingNum"] == "5"
        popping.caller.send(body=b"new")
        popping.caller.report_arrivals()
        await trio.sleep(0.01)
        assert len(popping.caller.connection.sent) == 1
        assert popping.handler.held.waiting == 4

    waiting(make_caller, main)


def test_too_many_wait(make_caller):
    async def main(popping):
        for _ in range(4):
            hold(popping)
        assert popping.ask(pollTime=15_000).code == ResponseCode.POLLING_FULL

    waiting(make_caller, main, max_pop_polling_size=4)


def test_a_closed_connection_waits_no_more(make_caller):
    async def main(popping):
        other = RecordingConnection(port=5)
        fields = {
            "consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 1,
            "invisibleTime": 1_000, "pollTime": 9_000, "bornTime": 0, "initMode": 0,
        }  # fmt: skip
        popping.caller.call(RequestCode.POP_MESSAGE, fields, connection=other)
        popping.handler.held.drop(other)
        assert popping.handler.held.waiting == 0
        await trio.sleep(10)
        assert other.sent == []

    waiting(make_caller, main)


def test_a_stop_answers_those_who_wait(make_caller):
    async def main(popping):
        hold(popping)
        popping.handler.held.end_all()
        (answer,) = popping.caller.connection.sent
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        assert popping.ask(pollTime=1_000).code == ResponseCode.POLLING_FULL

    waiting(make_caller, main)


def test_a_notification_tells_of_messages(make_caller):
    async def main(popping):
        fields = {
            "consumerGroup": "G", "topic": "T", "queueId": -1, "pollTime": 5_000,
            "bornTime": 0,
        }  # fmt: skip
        ask = popping.caller.call
        assert ask(RequestCode.NOTIFICATION, fields) is None
        popping.caller.send(body=b"new")
        popping.caller.report_arrivals()
        await trio.sleep(0.01)
        (answer,) = popping.caller.connection.sent
        assert answer.ext_fields["hasMsg"] == "true"
        popping.pop()
        assert ask(RequestCode.NOTIFICATION, fields | {"pollTime": 0}).ext_fields == {
            "hasMsg": "false", "pollingFull": "false",
        }  # fmt: skip

    waiting(make_caller, main)


def test_a_peek_takes_nothing(popping):
    fill(popping.caller, 3)
    fields = {"consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 9}
    for _ in range(2):
        answer = popping.caller.call(RequestCode.PEEK_MESSAGE, fields)
        assert len(decode_stored(answer.body)) == 3
    assert len(popping.pop()) == 3
    answer = popping.caller.call(RequestCode.PEEK_MESSAGE, fields)
    assert answer.code == ResponseCode.PULL_NOT_FOUND


def test_a_group_that_pops_is_assigned_all_queues_at_once(popping):
    mode = {"topic": "T", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 8}
    popping.caller.broker.groups.find("G")
    body = json.dumps(mode).encode()
    answer = popping.caller.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)
    assert answer.code == 0
    assert popping.caller.call(RequestCode.POP_ROLLBACK).code == 0


# -- inner batches


@pytest.fixture
def batches(caller):
    caller.topic("B", queues=1, attributes={"queue.type": "BatchCQ"})
    return Popping(caller, topic="B")


def send_batch(caller, texts):
    fields = {
        "a": "PG", "b": "B", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 5, "h": 0,
        "i": "UNIQ_KEY\x01K\x02", "j": 0, "k": "false", "m": "true",
    }  # fmt: skip
    items = [BatchItem(0, text, f"UNIQ_KEY\x01{text.decode()}\x02") for text in texts]
    answer = caller.call(320, fields, encode_batch(items))
    assert answer.code == 0, answer.remark
    assert "batchUniqId" in answer.ext_fields


def test_messages_of_an_inner_batch_are_popped_one_by_one(batches):
    send_batch(batches.caller, [b"%d" % n for n in range(5)])
    batches.caller.send("B", b"alone")
    first = batches.pop(maxMsgNums=3)
    assert [each.body for each in first] == [b"0", b"1", b"2"]
    assert [each.offset for each in first] == [0, 1, 2]
    assert {each.record.sys_flag for each in first} == {0}
    second = batches.pop()
    assert [each.body for each in second] == [b"3", b"4", b"alone"]
    assert batches.pop() == []
    for each in first[:1] + second:
        assert batches.ack(each).code == 0
    batches.work(INVISIBLE_MS + 1)
    again = batches.pop()
    assert bodies(again) == [b"1", b"2"]
    assert all("INNER_NUM" not in each.record.properties for each in again)
    for each in again:
        assert batches.ack(each).code == 0
    batches.work(INVISIBLE_MS + 1)
    assert batches.pop() == []
    assert batches.committed() == 6


def test_a_checkpoint_of_java_means_all_of_an_inner_batch(batches):
    """Java notes the offset of the record alone."""
    send_batch(batches.caller, [b"0", b"1", b"2"])
    assert len(batches.pop()) == 3
    table = batches.reviver.checkpoints.table
    (ours,) = table.all()
    table.end(ours)
    checkpoint = Checkpoint(
        ours.queue, 0, ours.pop_ms, ours.invisible_ms, 0, (0,), ours.log_end,
        is_adopted=True,
    )  # fmt: skip
    table.add(checkpoint)

    async def revive():
        one_turn = turns.TurnTaker(trio.lowlevel.checkpoint)
        return await batches.reviver.revive(checkpoint, one_turn)

    is_revived = trio.run(revive)
    assert is_revived
    assert bodies(batches.pop()) == [b"0", b"1", b"2"]


def test_a_large_inner_batch_is_popped_in_parts(batches):
    texts = [b"%d" % n for n in range(1_000)]
    send_batch(batches.caller, texts)
    got = []
    while messages := batches.pop():
        assert len(messages) <= 32
        got += [each.body for each in messages]
    assert got == texts


def test_an_ack_between_two_turns_of_reviving_counts(popping, monkeypatch):
    """Messages that are due together are stored again one by one."""
    monkeypatch.setattr(turns, "TURN_S", 0)
    fill(popping.caller, 6)
    messages, acked = popping.pop(), []

    async def ack_one():
        if len(acked) < 3:
            message = next(each for each in reversed(messages) if each not in acked)
            popping.ack(message)
            acked.append(message)

    popping.reviver.next_turn = ack_one
    popping.work(INVISIBLE_MS + 1_000)
    again = bodies(popping.pop())
    assert again == sorted({m.body for m in messages} - {m.body for m in acked})
    assert len(again) == 3


def test_records_that_are_due_together_are_written_in_turns(popping, monkeypatch):
    """Others waited until all checkpoints, or acks, of a second were written."""
    monkeypatch.setattr(turns, "TURN_S", 0)
    fill(popping.caller, 40)
    messages = [one for _ in range(40) for one in popping.pop(maxMsgNums=1)]
    assert len(messages) == 40
    taken = []

    async def next_turn():
        taken.append(1)

    popping.reviver.next_turn = next_turn
    before = len(timer_records(popping.caller))
    popping.work(popping.caller.broker.config.pop_memory_ms + 1)
    assert len(timer_records(popping.caller)) == before + 40
    assert len(taken) >= 40
    taken.clear()
    for message in messages:
        assert popping.ack(message).code == 0
    popping.work(1_000)
    assert len(timer_records(popping.caller)) == before + 80
    assert len(taken) >= 40


def test_acks_that_wait_for_a_turn_are_written_at_a_stop(popping, monkeypatch):
    monkeypatch.setattr(turns, "TURN_S", 0)
    fill(popping.caller, 10)
    messages = [one for _ in range(10) for one in popping.pop(maxMsgNums=1)]
    popping.work(popping.caller.broker.config.pop_memory_ms + 1)
    before = len(timer_records(popping.caller))
    for message in messages:
        popping.ack(message)

    async def stop():
        popping.reviver.stop()

    popping.reviver.next_turn = stop
    popping.work(1_000)
    assert len(timer_records(popping.caller)) == before + 10


def test_checkpoints_that_wait_for_a_turn_are_written_once_at_a_stop(
    popping, monkeypatch
):
    monkeypatch.setattr(turns, "TURN_S", 0)
    fill(popping.caller, 10)
    for _ in range(10):
        popping.pop(maxMsgNums=1)

    async def stop():
        popping.reviver.stop()

    popping.reviver.next_turn = stop
    popping.work(popping.caller.broker.config.pop_memory_ms + 1)
    keys = [each.properties["UNIQ_KEY"] for each in timer_records(popping.caller)]
    assert len(keys) == len(set(keys)) == 10
