"""Timed messages: intake, slots, delivery, recall, restarts, odd stores."""

import json
import shutil
import struct

import pytest
import trio
from trio.testing import MockClock

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.handles import RecallHandle
from rmq.protocol.topics import TIMER_TOPIC
from rmq.store.durability import RefusalKind
from rmq.store.timer.checkpoint import TimerCheckpoint
from rmq.testing import TrioClock
from rmq_plugins.timer.deliver import NEVER_IN_A_SLOT, RETRY_S, Deliveries
from rmq_plugins.timer.intake import due_time, out_time
from tests.plugins.conftest import bodies, records
from tests.plugins.timer.timing import flush, recall, send_timed, work

KEY = "0A00000100"
DAY_S = 86_400


# -- intake


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({"TIMER_DELAY_SEC": "3"}, 10_000 + 3_000),
        ({"TIMER_DELAY_MS": "3"}, 10_003),
        ({"TIMER_DELIVER_MS": "12345"}, 12_345),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "9"}, 11_000),
        ({"TIMER_DELAY_MS": "9", "TIMER_DELIVER_MS": "1"}, 10_009),
        ({"TIMER_DELAY_MS": "-9"}, 9_991),
        ({"TIMER_DELAY_MS": "x"}, None),
        ({"TIMER_DELAY_MS": "1.5"}, None),
        ({"TIMER_DELAY_SEC": "9" * 20}, None),
        ({"TIMER_DELAY_MS": "٣"}, None),
    ],
)  # fmt: skip
def test_the_time_of_a_message(properties, due_ms):
    assert due_time(properties, 10_000) == due_ms


@pytest.mark.parametrize(
    ("due_ms", "expected"), [(5_000, 4_000), (5_001, 5_000), (5_999, 5_000), (1, 0)]
)
def test_the_slot_ends_at_or_after_the_time(due_ms, expected):
    assert out_time(due_ms, 1_000) == expected


def test_a_timed_message_is_put_aside(caller):
    now_ms = caller.broker.clock.now_ms()
    answer = send_timed(caller, "TIMER_DELAY_SEC", "5", queueId=1)
    assert answer.code == 0
    assert answer.ext_fields["queueId"] == "1"
    assert bodies(caller, queue_id=1) == []
    (aside,) = records(caller, TIMER_TOPIC)
    properties = aside.properties
    assert properties["TIMER_OUT_MS"] == str(now_ms + 4_000)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "1")
    assert properties["TIMER_DELAY_SEC"] == "5"
    handle = RecallHandle.decode(answer.ext_fields["recallHandle"])
    key = properties["UNIQ_KEY"]
    assert handle == RecallHandle("T", "broker-a", now_ms + 4_001, key)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("TIMER_DELAY_SEC", 3 * DAY_S, 0),
        ("TIMER_DELAY_SEC", 3 * DAY_S + 1, ResponseCode.MESSAGE_ILLEGAL),
        ("TIMER_DELIVER_MS", 2**62, ResponseCode.MESSAGE_ILLEGAL),
        ("TIMER_DELAY_MS", "soon", ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_too_far_away_is_refused(caller, name, value, code):
    assert send_timed(caller, name, value).code == code


@pytest.mark.parametrize(
    ("name", "value"),
    [("TIMER_DELIVER_MS", 5), ("TIMER_DELAY_MS", 0), ("TIMER_DELAY_MS", -7)],
)
def test_the_past_is_delivered_at_once(caller, name, value):
    answer = send_timed(caller, name, value)
    assert "recallHandle" not in answer.ext_fields
    assert bodies(caller) == [b"later"]


def test_without_the_wheel_nothing_is_taken(make_caller):
    caller = make_caller(store={"timer_wheel_enable": False})
    answer = send_timed(caller)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "timerWheelEnable is false" in answer.remark
    assert caller.call(RequestCode.GET_TIMER_CHECK_POINT).remark == (
        "The checkpoint is null"
    )


def test_a_retry_gets_no_handle(caller):
    caller.topic("%RETRY%G", queues=1)
    answer = send_timed(caller, topic="%RETRY%G")
    assert answer.code == 0
    assert "recallHandle" not in answer.ext_fields


def test_a_full_slot_takes_no_more(make_caller):
    caller = make_caller(store={"timer_most_in_slot": 2})
    codes = set()
    for _ in range(5):
        codes.add(send_timed(caller).code)
        work(caller)
    assert codes == {0, ResponseCode.SYSTEM_ERROR}
    assert len(records(caller, TIMER_TOPIC)) <= 4


# -- delivery


def test_it_is_delivered_after_its_second_and_never_before(caller):
    send_timed(caller, "TIMER_DELAY_MS", "2500")
    work(caller)
    for _ in range(29):
        work(caller, 100)
        assert bodies(caller) == []
    work(caller, 100)
    (record,) = records(caller)
    (aside,) = records(caller, TIMER_TOPIC)
    added = {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
    assert record.properties.keys() - aside.properties.keys() == added
    assert record.born_timestamp == aside.born_timestamp
    assert record.properties["TIMER_DEQUEUE_MS"] == str(record.store_timestamp)
    assert int(record.properties["TIMER_ENQUEUE_MS"]) == record.store_timestamp - 3_000


def test_a_message_that_was_due_when_it_was_taken(caller):
    send_timed(caller, "TIMER_DELAY_MS", "500")
    work(caller, 10_000)
    (record,) = records(caller)
    assert record.properties["TIMER_ENQUEUE_MS"] == str(NEVER_IN_A_SLOT)


def test_messages_of_a_slot_keep_their_order(caller):
    for number in range(100):
        send_timed(caller, body=str(number).encode())
    work(caller)
    work(caller, 6_000)
    assert bodies(caller) == [str(number).encode() for number in range(100)]


@pytest.mark.parametrize(
    "odd",
    [
        "",
        "TIMER_ENQUEUE_MS\x015\x02",
        "TIMER_DEQUEUE_MS\x015\x02",
        "TIMER_ROLL_TIMES\x011\x02",
        "TIMER_OUT\x011\x02",
        "f\x01" + "x" * 32_400 + "\x02",
    ],
)
def test_compiled_and_decoded_deliveries_are_alike(caller, odd):
    """The first message of a queue is decoded, the next ones are copied."""
    for number in range(40):
        properties = (
            f"TIMER_DELAY_MS\x012000\x02k\x01v\x02{odd if number == 20 else ''}"
        )
        caller.send(queueId=number % 2, body=b"%d" % number, properties=properties)
    work(caller)
    work(caller, 10_000)
    aside = {record.body: record for record in records(caller, TIMER_TOPIC)}
    for queue_id in (0, 1):
        came = records(caller, queue_id=queue_id)
        assert [int(each.body) for each in came] == list(range(queue_id, 40, 2))
        for record in came:
            before = aside[record.body]
            expected = dict(before.properties)
            for name in ("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"):
                assert name in record.properties
                expected[name] = record.properties[name]
            assert list(record.properties.items()) == list(expected.items())
            assert record.properties_text.count("TIMER_ENQUEUE_MS") == 1
            assert record.queue_id == queue_id
            for field in ("flag", "sys_flag", "born_timestamp", "born_host"):
                assert getattr(record, field) == getattr(before, field)
            assert record.prepared_transaction_offset == 0
    facts = caller.broker.facts("timer")
    assert facts["dequeued"] == {"T": 40}
    assert facts["waiting"] == {}


def test_a_far_message_is_stored_again_on_the_way(make_caller):
    caller = make_caller(store={"timer_roll_window": 60})
    send_timed(caller, "TIMER_DELAY_SEC", "70")
    send_timed(caller, "TIMER_DELAY_SEC", "200", body=b"far")
    work(caller)
    for _ in range(90):
        work(caller, 1_000)
    (record,) = records(caller)
    assert record.properties["TIMER_ROLL_TIMES"] == "1"
    for _ in range(120):
        work(caller, 1_000)
    assert bodies(caller) == [b"later", b"far"]
    assert caller.broker.store.timer.waiting_counts == {}


def test_a_topic_that_is_no_topic_blocks_nobody(caller, caplog):
    send_timed(caller)
    bad = (
        ("REAL_TOPIC", "a b"),
        ("REAL_TOPIC", ""),
        ("REAL_QID", "-1"),
        ("REAL_QID", "x"),
    )
    for name, value in bad:
        (aside, *_) = records(caller, TIMER_TOPIC)
        message = aside.to_message()
        message.set_property(name, value)
        caller.broker.put.append(message)
    work(caller)
    work(caller, 6_000)
    assert bodies(caller) == [b"later"]
    assert "dropped the timed message" in caplog.text


def test_a_record_without_a_time_is_passed(caller, caplog):
    send_timed(caller)
    (aside,) = records(caller, TIMER_TOPIC)
    for text in ("", "x", "9" * 30):
        message = aside.to_message()
        message.set_property("TIMER_OUT_MS", text)
        caller.broker.put.append(message)
    work(caller)
    work(caller, 6_000)
    assert bodies(caller) == [b"later"]
    assert "has no time" in caplog.text


def test_a_message_that_just_fits_is_delivered_without_new_properties(make_caller):
    """Java's timer stopped at such a record for ever."""
    caller = make_caller()
    filler = "f\x01" + "x" * 32_560 + "\x02"
    assert caller.send(properties=f"TIMER_DELAY_MS\x011000\x02{filler}").code == 0
    work(caller)
    work(caller, 3_000)
    (record,) = records(caller)
    assert "TIMER_DEQUEUE_MS" not in record.properties


def test_nothing_is_dropped_while_the_store_refuses(make_caller):
    """Java drops a due message after three attempts."""
    clock = TrioClock()
    caller = make_caller(clock=clock)
    deliveries = caller.find(Deliveries)

    async def main():
        durability = caller.broker.store.durability
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliveries.run)
            send_timed(caller, "TIMER_DELAY_MS", "2000")
            caller.report_arrivals()
            await trio.sleep(1)
            durability.refuse(RefusalKind.DISK_FULL, "full")
            await trio.sleep(60)
            assert bodies(caller) == []
            durability.resume()
            await trio.sleep(RETRY_S + 0.1)
            assert bodies(caller) == [b"later"]
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_the_task_sleeps_until_the_slot_ends(make_caller):
    clock = TrioClock()
    caller = make_caller(clock=clock)
    deliveries = caller.find(Deliveries)

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliveries.run)
            await trio.sleep(5)
            for delay_ms in (1, 700, 1_500, 30_000):
                send_timed(caller, "TIMER_DELAY_MS", delay_ms, body=b"%d" % delay_ms)
            caller.report_arrivals()
            await trio.sleep(40)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    came = {record.body: record.store_timestamp for record in records(caller)}
    born = records(caller, TIMER_TOPIC)[0].store_timestamp
    for delay_ms in (1, 700, 1_500, 30_000):
        late_ms = came[b"%d" % delay_ms] - born - delay_ms
        assert 0 <= late_ms <= 1_050, f"{delay_ms} was {late_ms} ms late"


def test_a_clock_that_is_set_back_makes_nothing_early(caller):
    send_timed(caller)
    work(caller)
    caller.broker.clock.set_back_ms += 3_600_000
    send_timed(caller, "TIMER_DELAY_MS", "60000", body=b"second")
    for _ in range(50):
        work(caller, 1_000)
        assert b"second" not in bodies(caller)
    for _ in range(8_000 // 10):
        work(caller, 10_000)
    assert sorted(bodies(caller)) == [b"later", b"second"]


# -- recall


def test_a_recalled_message_is_not_delivered(recalling):
    kept = send_timed(recalling, body=b"kept")
    gone = send_timed(recalling, body=b"gone")
    work(recalling)
    answer = recall(recalling, gone.ext_fields["recallHandle"])
    assert answer.code == 0
    handle = RecallHandle.decode(gone.ext_fields["recallHandle"])
    assert answer.ext_fields["msgId"] == handle.unique_key
    stored = records(recalling, TIMER_TOPIC)[-1]
    assert stored.body == b"0"
    assert stored.properties["TIMER_DEL_UNIQKEY"] == handle.unique_key
    assert "TRACE_CONTEXT\x01\x02" in stored.properties_text
    work(recalling, 10_000)
    assert bodies(recalling) == [b"kept"]
    assert recall(recalling, kept.ext_fields["recallHandle"]).code == 604
    assert recalling.broker.store.timer.waiting_counts == {}


def test_a_recall_that_disk_or_slaves_do_not_have_in_time_is_no_success(recalling):
    handle = send_timed(recalling).ext_fields["recallHandle"]
    recalling.broker.store.durability.await_replicas(300)
    fields = {"topic": "T", "recallHandle": handle, "producerGroup": "PG"}
    held = recalling.handle(Command(RequestCode.RECALL_MESSAGE, fields, opaque=1))
    assert held.end_offset == recalling.broker.store.log.end_offset
    assert held.timeout_ms == 300
    assert held.on_timeout is None, "its code says who lags, as that of a send"


def test_a_recall_of_the_topic_with_the_key(make_caller):
    caller = make_caller(
        recall_message_enable=True, append_topic_for_timer_delete_key=True
    )
    gone = send_timed(caller)
    recall(caller, gone.ext_fields["recallHandle"])
    work(caller)
    work(caller, 10_000)
    assert bodies(caller) == []


@pytest.mark.parametrize(
    ("handle", "code", "remark"),
    [
        ("", 604, "recall handle is invalid"),
        ("%%%", 604, "recall handle is invalid"),
        ("x" * 10_000, 604, "recall handle is invalid"),
        (RecallHandle("T", "broker-a", 1, "K"), 604, "timestamp invalid"),
        (RecallHandle("T", "broker-a", 10**16, "K"), 604, "timestamp invalid"),
        (RecallHandle("T", "broker-b", 5, "K"), 604, "service not available"),
        (RecallHandle("U", "broker-a", 5, "K"), 604, "topic not match"),
        (RecallHandle("T", "broker-a", "x", "K"), 604, "timestamp invalid"),
        (RecallHandle("T", "broker-a", 5, "K").encode()[:-9], 604, "invalid"),
    ],
)  # fmt: skip
def test_bad_handles(recalling, handle, code, remark):
    text = handle if isinstance(handle, str) else handle.encode()
    answer = recall(recalling, text)
    assert answer.code == code
    assert remark in answer.remark


def test_a_recall_of_an_unknown_topic_and_of_no_right(recalling, caller):
    handle = RecallHandle("U", "broker-a", 5, "K").encode()
    assert recall(recalling, handle, topic="U").code == ResponseCode.TOPIC_NOT_EXIST
    assert recall(caller, handle).code == ResponseCode.NO_PERMISSION


def test_a_recall_after_the_begin_of_the_delivery_is_counted(recalling):
    gone = send_timed(recalling, "TIMER_DELAY_MS", "1500")
    work(recalling)
    recall(recalling, gone.ext_fields["recallHandle"])
    recalling.broker.clock.ms += 10_000
    deliveries = recalling.find(Deliveries)
    trio.run(deliveries.deliver, deliveries.due_slot())
    assert bodies(recalling) == [b"later"]
    assert recalling.broker.facts("timer")["lateRecalls"] == 1


# -- what tools see


def test_checkpoint_and_metrics(caller):
    for number in range(3):
        send_timed(caller, body=str(number).encode())
    work(caller)
    answer = caller.call(RequestCode.GET_TIMER_METRICS)
    count = json.loads(answer.body)["timingCount"]["T"]["count"]
    assert count == 3
    assert len(caller.call(RequestCode.GET_TIMER_CHECK_POINT).body) == 56
    table = json.loads(caller.call(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert table["timerCongestNum"] == "3"
    assert table["timerOffsetBehind"] == "0"
    work(caller, 10_000)
    assert caller.broker.facts("timer")["waiting"] == {}
    assert caller.broker.facts("timer")["dequeued"] == {"T": 3}


# -- restarts


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_waiting_messages_survive(caller, again, crash, flushed):
    for number in range(50):
        send_timed(
            caller, "TIMER_DELAY_MS", 1_000 * (number % 7 + 2), body=b"%d" % number
        )
    work(caller)
    work(caller, 4_000)
    assert bodies(caller)
    if flushed:
        flush(caller)
    caller = again(caller, crash=crash)
    work(caller)
    work(caller, 60_000)
    came = bodies(caller)
    assert {int(body) for body in came} == set(range(50))
    if flushed or not crash:
        assert len(came) == 50


def test_what_was_due_when_taken_comes_once(caller, again):
    """Java delivers again what needed no unit, at each start."""
    send_timed(caller, "TIMER_DELAY_MS", "500")
    work(caller, 10_000)
    assert bodies(caller) == [b"later"]
    flush(caller)
    for crash in (True, False, True):
        caller = again(caller, crash=crash)
        work(caller, 10_000)
    assert bodies(caller) == [b"later"]


def test_what_is_due_while_deliveries_are_stopped_is_kept(make_caller, again):
    """The progress went past slots that nobody had delivered."""
    caller = make_caller(store={"timer_stop_dequeue": True})
    send_timed(caller)
    work(caller)
    work(caller, 10_000)
    send_timed(caller, body=b"second")
    work(caller, 10_000)
    flush(caller)
    assert bodies(caller) == []
    caller = again(caller, crash=True)
    object.__setattr__(caller.broker.store_config, "timer_stop_dequeue", False)
    work(caller)
    assert bodies(caller) == [b"later", b"second"]


def test_a_stop_begins_no_further_slot(caller):
    send_timed(caller)
    work(caller)
    caller.find(Deliveries).stop()
    work(caller, 10_000)
    assert bodies(caller) == []


@pytest.mark.parametrize("gone", ["timerlog", "config/timercheck"])
def test_a_store_without_one_of_the_files_loses_nothing(caller, again, gone):
    send_timed(caller, "TIMER_DELAY_MS", "1000", body=b"first")
    send_timed(caller, "TIMER_DELAY_MS", "20000", body=b"second")
    work(caller)
    work(caller, 5_000)

    def remove(root):
        path = root / gone
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    caller = again(caller, change=remove)
    work(caller)
    work(caller, 30_000)
    came = bodies(caller)
    assert set(came) == {b"first", b"second"}
    if gone == "timerlog":
        assert came == [b"first", b"second"]


@pytest.mark.parametrize(
    "damage", ["torn", "foreign", "loop", "another slot", "beyond the log", "size"]
)
def test_a_damaged_timer_log(caller, again, damage, caplog):
    """Units that point elsewhere are passed; a torn end is made again."""
    for number in range(10):
        send_timed(caller, body=b"%d" % number)
    work(caller)

    def change(root):
        (path,) = (root / "timerlog").iterdir()
        data = bytearray(path.read_bytes())
        at = 9 * 52
        if damage == "torn":
            data[at + 20 : at + 52] = bytes(32)
            data[at : at + 4] = bytes(4)
        elif damage == "foreign":
            struct.pack_into(">q", data, at + 28, 7)
        elif damage == "loop":
            struct.pack_into(">q", data, at + 4, at)
        elif damage == "another slot":
            struct.pack_into(">i", data, at + 24, 1_000)
        elif damage == "beyond the log":
            struct.pack_into(">q", data, at + 28, 1 << 50)
        elif damage == "size":
            struct.pack_into(">i", data, at, 53)
        path.write_bytes(data)

    caller = again(caller, change=change, crash=True)
    work(caller)
    work(caller, 60_000)
    came = {int(body) for body in bodies(caller)}
    if damage == "loop":
        assert came == {9}
    else:
        assert came == set(range(9 + (damage != "another slot")))


def test_a_stale_wheel_is_removed(caller, again):
    send_timed(caller)
    work(caller)

    def change(root):
        path = root / "timerwheel"
        assert path.stat().st_size == 38_707_200
        assert path.stat().st_blocks * 512 < 1 << 20
        data = bytearray(path.read_bytes()[:64])
        path.write_bytes(bytes(64) + data)

    caller = again(caller, change=change)
    root = caller.broker.store.config.root_path
    assert not (root / "timerwheel").exists()
    check = TimerCheckpoint.load(root / "config" / "timercheck")
    assert check.log_flushed == 0
    work(caller, 10_000)
    assert bodies(caller) == [b"later"]


def test_a_recall_survives_a_restart(recalling, again):
    gone = send_timed(recalling)
    work(recalling)
    recall(recalling, gone.ext_fields["recallHandle"])
    work(recalling)
    caller = again(recalling, crash=True)
    work(caller)
    work(caller, 10_000)
    assert bodies(caller) == []
