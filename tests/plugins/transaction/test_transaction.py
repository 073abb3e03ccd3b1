"""Transactions: half messages, their ends, checks, and what a restart remembers."""

import json

import pytest
import trio
import trio.testing

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from rmq.protocol.records import decode_stored
from rmq.remoting import turns
from rmq.store.durability import RefusalKind
from rmq_plugins.transaction.half_log import HalfLog
from rmq_plugins.transaction.transaction_check import Checker
from tests.plugins.conftest import RecordingConnection

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


def records(caller, topic="T", queue_id=0):
    found, offset = [], 0
    while True:
        got = caller.broker.store.reads.get(topic, queue_id, offset, 32)
        if not got.message_count:
            return found
        found += decode_stored(got.body)
        offset = got.next_begin_offset


def begin(caller, body=b"pay", properties="", **more):
    """Send a half message and return its record."""
    text = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02TAGS\x01A\x02" + properties
    answer = caller.send(body=body, properties=text, sysFlag=4, **more)
    assert answer.code == 0
    return records(caller, HALF)[-1]


def end_of(half, how, **more):
    return {
        "producerGroup": "PG",
        "tranStateTableOffset": half.queue_offset,
        "commitLogOffset": half.physical_offset,
        "commitOrRollback": how,
        "msgId": "x",
        **more,
    }


def end(caller, half, how, **more):
    return caller.call(RequestCode.END_TRANSACTION, end_of(half, how, **more))


def check(caller):
    """Run one round of checks; return what the producer was asked."""
    caller.connection.sent.clear()
    checker = Checker(caller.broker, caller.find(Checker).log)
    trio.run(checker.check_round)
    return list(caller.connection.sent)


@pytest.fixture
def producer(caller):
    """A live member of the producer group."""
    caller.broker.producers.register("PG", "p@1", caller.connection, "JAVA", 513, 0)


def test_a_half_message_is_held_back(caller):
    half = begin(caller, queueId=1)
    assert records(caller, queue_id=1) == []
    properties = half.properties
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "1")
    assert properties["__transactionId__"] == properties["UNIQ_KEY"]
    assert half.sys_flag & 0xC == 0


def test_the_answer_names_the_wanted_queue_and_the_transaction(caller):
    answer = caller.send(properties="TRAN_MSG\x01true\x02UNIQ_KEY\x01k\x02", queueId=1)
    assert answer.ext_fields["queueId"] == "1"
    assert answer.ext_fields["transactionId"] == "k"


def test_a_commit_is_stored_as_java_stores_it(caller):
    half = begin(caller, queueId=1, flag=3)
    assert end(caller, half, COMMIT).code == 0
    (record,) = records(caller, queue_id=1)
    assert (record.body, record.flag) == (b"pay", 3)
    assert record.sys_flag & 0xC == COMMIT
    assert record.prepared_transaction_offset == half.physical_offset
    assert record.born_timestamp == half.born_timestamp
    assert record.born_host == half.born_host
    expected = half.properties
    del expected["REAL_TOPIC"], expected["REAL_QID"]
    assert record.properties == expected


def test_a_rollback_is_written_down_before_its_answer(caller):
    half = begin(caller)
    assert end(caller, half, ROLLBACK).code == 0
    assert records(caller) == []
    (op,) = records(caller, OP)
    assert op.body == b"0,"
    assert op.properties == {"TAGS": "d"}


def test_commits_are_written_down_together(caller):
    for _ in range(3):
        end(caller, begin(caller), COMMIT)
    assert records(caller, OP) == []
    caller.find(Checker).log.ops.write_ended()
    assert [op.body for op in records(caller, OP)] == [b"0,1,2,"]


def test_an_op_message_has_a_limit(make_caller):
    caller = make_caller(transaction_op_msg_max_size=32)
    for _ in range(40):
        end(caller, begin(caller), COMMIT)
    ops = [op.body for op in records(caller, OP)]
    assert ops[0] == b"0,1,2,3,4,5,6,7,8,9,10,11,12,13,"
    assert len(ops) == 3


def test_the_delay_of_a_transaction_begins_with_its_commit(caller, clock):
    half = begin(caller, properties="DELAY\x011\x02")
    clock.ms += 5_000
    assert records(caller, "SCHEDULE_TOPIC_XXXX") == []
    end(caller, half, COMMIT)
    (aside,) = records(caller, "SCHEDULE_TOPIC_XXXX")
    assert aside.properties["REAL_TOPIC"] == "T"
    assert aside.store_timestamp == clock.ms


@pytest.mark.parametrize("checked", ["true", "false"])
def test_unknown_is_never_answered(caller, checked):
    half = begin(caller)
    answer = end(caller, half, UNKNOWN, fromTransactionCheck=checked)
    assert answer is None


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"commitOrRollback": 5}, "commitOrRollback field wrong"),
        ({"commitOrRollback": 4}, "commitOrRollback field wrong"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 2**62}, "Find prepared transaction message failed"),
        ({"producerGroup": "Other"}, "The producer group wrong"),
        ({"tranStateTableOffset": 7}, "The transaction state table offset wrong"),
    ],
)
@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_wrong_ends_change_nothing(caller, fields, remark, how):
    half = begin(caller)
    answer = end(caller, half, how, **fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark.endswith(remark)
    assert records(caller) == records(caller, OP) == []
    assert end(caller, half, COMMIT).code == 0
    assert len(records(caller)) == 1


def test_an_ordinary_message_cannot_be_committed(caller):
    caller.send(properties="PGROUP\x01PG\x02")
    (record,) = records(caller)
    answer = end(caller, record, COMMIT)
    assert answer.remark == "Find prepared transaction message failed"


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_an_end_that_comes_after_its_immunity(caller, clock, how):
    half = begin(
        caller,
        properties="CHECK_IMMUNITY_TIME_IN_SECONDS\x015\x02",
        bornTimestamp=clock.ms,
    )
    clock.ms += 5_001
    answer = end(caller, half, how)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert records(caller) == []
    assert end(caller, half, how, fromTransactionCheck="true").code == 0


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
def test_the_first_word_counts(caller, first, second):
    half = begin(caller)
    end(caller, half, first)
    assert end(caller, half, second).code == 0
    assert len(records(caller)) == (1 if first == COMMIT else 0)


def test_a_store_that_takes_nothing(caller):
    half = begin(caller)
    caller.broker.store.durability.refuse(RefusalKind.DISK_FULL, "the disk is full")
    for how in (COMMIT, ROLLBACK):
        assert end(caller, half, how).code == ResponseCode.SERVICE_NOT_AVAILABLE
    caller.broker.store.disk.update_refusal()
    assert end(caller, half, COMMIT).code == 0
    assert len(records(caller)) == 1


def test_too_many_open_transactions(caller, monkeypatch):
    monkeypatch.setattr("rmq_plugins.transaction.half_log.MAX_OPEN", 2)
    first = begin(caller)
    begin(caller)
    answer = caller.send(properties="TRAN_MSG\x01true\x02")
    assert (answer.code, "2 transactions are open" in answer.remark) == (2, True)
    end(caller, first, COMMIT)
    begin(caller)


def test_a_refused_group_of_transactions(make_caller):
    caller = make_caller(reject_transaction_message=True)
    assert (
        caller.send(properties="TRAN_MSG\x01true\x02").code
        == ResponseCode.NO_PERMISSION
    )


def test_a_retry_of_a_transactional_message_is_a_retry(caller):
    caller.broker.groups.find("G")
    end(caller, begin(caller), COMMIT)
    (record,) = records(caller)
    fields = {"offset": record.physical_offset, "group": "G"}
    for level, topic in ((1, "SCHEDULE_TOPIC_XXXX"), (-1, "%DLQ%G")):
        assert (
            caller.call(
                RequestCode.CONSUMER_SEND_MSG_BACK, {**fields, "delayLevel": level}
            ).code
            == 0
        )
        assert len(records(caller, topic)) == 1
    assert len(records(caller, HALF)) == 1


def test_young_halves_are_left_alone(caller, clock, producer):
    begin(caller, bornTimestamp=clock.ms)
    clock.ms += 6_000
    assert check(caller) == []
    assert len(records(caller, HALF)) == 1


def test_the_question(caller, clock, producer):
    half = begin(caller, bornTimestamp=clock.ms, queueId=1)
    clock.ms += 6_001
    (question,) = check(caller)
    assert (question.code, question.is_oneway) == (39, True)
    renewed = records(caller, HALF)[-1]
    header = question.header(CheckTransactionStateRequestHeader)
    assert header.topic == HALF
    assert header.tran_state_table_offset == renewed.queue_offset == 1
    assert header.commit_log_offset == renewed.physical_offset
    assert header.offset_msg_id == renewed.offset_msg_id
    assert header.msg_id == header.transaction_id == half.properties["UNIQ_KEY"]
    assert header.bname == "broker-a"
    (asked,) = decode_stored(question.body)
    assert (asked.topic, asked.queue_id, asked.body) == ("T", 1, b"pay")
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert asked.store_timestamp == renewed.store_timestamp
    assert asked.store_host == renewed.store_host


@pytest.mark.parametrize("which", ["first", "newest"])
def test_a_checked_transaction_ends_once(caller, clock, producer, which):
    half = begin(caller, bornTimestamp=clock.ms)
    for _ in range(3):
        clock.ms += 30_000
        assert len(check(caller)) == 1
    newest = records(caller, HALF)[-1]
    assert newest.properties["TRANSACTION_CHECK_TIMES"] == "3"
    assert end(caller, half if which == "first" else newest, COMMIT).code == 0
    for again in (half, newest):
        assert end(caller, again, COMMIT).code == 0
    assert len(records(caller)) == 1
    clock.ms += 30_000
    assert check(caller) == []
    assert end(caller, half, COMMIT).code == ResponseCode.SYSTEM_ERROR
    assert len(records(caller)) == 1


def test_ended_transactions_are_not_asked_about(caller, clock, producer):
    for how in (COMMIT, ROLLBACK):
        end(caller, begin(caller, bornTimestamp=clock.ms), how)
    begin(caller, b"open", bornTimestamp=clock.ms)
    clock.ms += 7_000
    (question,) = check(caller)
    assert decode_stored(question.body)[0].body == b"open"


def test_without_a_producer_nothing_counts_as_a_check(caller, clock):
    begin(caller, bornTimestamp=clock.ms)
    for _ in range(20):
        clock.ms += 30_000
        check(caller)
    caller.broker.producers.register("PG", "p@1", caller.connection, "JAVA", 513, 0)
    clock.ms += 30_000
    (question,) = check(caller)
    asked = decode_stored(question.body)[0].properties
    assert asked["TRANSACTION_CHECK_TIMES"] == "1"


def test_given_up_after_so_many_checks(caller, clock, producer):
    half = begin(caller, bornTimestamp=clock.ms)
    for _ in range(15):
        clock.ms += 30_000
        assert len(check(caller)) == 1
    clock.ms += 30_000
    assert check(caller) == []
    (given_up,) = records(caller, "TRANS_CHECK_MAX_TIME_TOPIC")
    assert given_up.body == b"pay"
    assert not caller.find(Checker).log.has_pending
    assert end(caller, half, COMMIT).code == ResponseCode.SYSTEM_ERROR
    assert records(caller) == []


def test_a_check_passes_many_that_ended(caller, clock, producer):
    """Read are only those that are open; their number is no multiple of a step."""
    for number in range(100):
        half = begin(caller, body=b"%d" % number, bornTimestamp=clock.ms)
        if number % 33:
            assert end(caller, half, COMMIT).code == 0
    before = caller.broker.store.statistics().own_read_messages
    clock.ms += 30_000
    asked = [decode_stored(question.body)[0].body for question in check(caller)]
    assert asked == [b"0", b"33", b"66", b"99"]
    assert caller.broker.store.statistics().own_read_messages - before == len(asked) + 1
    assert caller.find(Checker).log.progress == 100


def test_what_a_check_passes_is_counted_for_its_group(caller, clock, producer):
    for _ in range(3):
        half = begin(caller, bornTimestamp=clock.ms)
        assert end(caller, half, COMMIT).code == 0
    clock.ms += 30_000
    check(caller)
    fields = {"statsName": "GROUP_GET_NUMS", "statsKey": f"{HALF}@CID_RMQ_SYS_TRANS"}
    answer = caller.call(RequestCode.VIEW_BROKER_STATS_DATA, fields)
    assert json.loads(answer.body)["statsMinute"]["sum"] == 3


def test_what_was_given_up_is_checked_again_when_told(caller, clock, producer):
    half = begin(caller, bornTimestamp=clock.ms)
    for _ in range(16):
        clock.ms += 30_000
        check(caller)
    (given_up,) = records(caller, "TRANS_CHECK_MAX_TIME_TOPIC")
    assert caller.broker.statistics.open_transactions == {}
    fields = {"topic": "T", "msgId": given_up.offset_msg_id}
    assert caller.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, fields).code == 0
    assert caller.broker.statistics.open_transactions == {"T": 1}
    clock.ms += 30_000
    (question,) = check(caller)
    asked = decode_stored(question.body)[0]
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert end(caller, half, COMMIT).code == ResponseCode.SYSTEM_ERROR, (
        "the old ids end nothing"
    )
    assert end(caller, records(caller, HALF)[-1], COMMIT).code == 0
    (record,) = records(caller)
    assert record.body == b"pay"
    assert caller.broker.statistics.open_transactions == {}


@pytest.mark.parametrize("name", ["X", "", "0" * 32, "F" * 32, "G" * 32, "half"])
def test_nothing_else_is_checked_again(caller, name):
    half = begin(caller)
    message_id = half.offset_msg_id if name == "half" else name
    answer = caller.call(
        RequestCode.RESUME_CHECK_HALF_MESSAGE, {"topic": "T", "msgId": message_id}
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "is no message of TRANS_CHECK_MAX_TIME_TOPIC" in answer.remark
    assert len(records(caller, HALF)) == 1


def test_given_up_when_too_old(caller, clock, producer):
    begin(caller, bornTimestamp=clock.ms)
    clock.ms += 72 * 3_600_000 + 1
    assert check(caller) == []
    assert len(records(caller, "TRANS_CHECK_MAX_TIME_TOPIC")) == 1


def test_immunity_of_its_own(caller, clock, producer):
    text = "CHECK_IMMUNITY_TIME_IN_SECONDS\x01100\x02"
    begin(caller, properties=text, bornTimestamp=clock.ms)
    for _ in range(3):
        clock.ms += 30_000
        assert check(caller) == []
    clock.ms += 30_000
    (question,) = check(caller)
    asked = decode_stored(question.body)[0].properties
    assert asked["TRANSACTION_CHECK_TIMES"] == "1"
    assert asked["TRAN_PREPARED_QUEUE_OFFSET"] == "0"


def test_a_producer_cannot_speak_for_another_transaction(caller, clock, producer):
    begin(caller, b"mine", bornTimestamp=clock.ms)
    text = "TRAN_PREPARED_QUEUE_OFFSET\x010\x02TRANSACTION_CHECK_TIMES\x0199\x02"
    other = begin(caller, b"other", properties=text, bornTimestamp=clock.ms)
    end(caller, other, ROLLBACK)
    clock.ms += 7_000
    (question,) = check(caller)
    assert decode_stored(question.body)[0].body == b"mine"


def test_progress_is_that_of_the_system_group(caller, clock, producer):
    for _ in range(4):
        end(caller, begin(caller, bornTimestamp=clock.ms), ROLLBACK)
    clock.ms += 7_000
    check(caller)
    query = caller.broker.offsets.query
    assert query("CID_RMQ_SYS_TRANS", HALF, 0) == 4
    assert query("CID_RMQ_SYS_TRANS", OP, 0) == 4


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_a_restart_remembers_what_ended(caller, how):
    half = begin(caller)
    end(caller, half, how)
    again = HalfLog(caller.broker)
    assert again.live_offset(half) in again.ops


def test_a_commit_of_a_half_that_waits_for_its_delay_is_remembered(caller):
    half = begin(caller, properties="DELAY\x011\x02")
    end(caller, half, COMMIT)
    assert 0 in HalfLog(caller.broker).ops


def test_halves_are_checked_in_turns(caller, clock, producer, monkeypatch):
    """64 checks in a row kept others waiting for 10 ms and more."""
    monkeypatch.setattr(turns, "TURN_S", 0)
    for _ in range(20):
        begin(caller, bornTimestamp=clock.ms)
    clock.ms += 60_000
    sent = []

    async def next_turn():
        sent.append(len(caller.connection.sent))

    caller.broker.next_turn = next_turn
    assert len(check(caller)) == 20
    assert sent[:20] == [*range(1, 21)]


def test_a_check_asks_another_producer_if_one_is_gone(caller, clock):
    gone, live = RecordingConnection(1), RecordingConnection(2)
    for number, connection in enumerate((gone, live)):
        caller.broker.producers.register(
            "PG", f"p@{number}", connection, "JAVA", 513, 0
        )
    gone.is_open = False
    for _ in range(10):
        begin(caller, bornTimestamp=clock.ms)
    clock.ms += 60_000
    check(caller)
    assert (len(gone.sent), len(live.sent)) == (0, 10)


def test_an_idle_checker_never_wakes(caller, clock, monkeypatch):
    rounds = []

    async def main():
        log = caller.find(Checker).log
        checker = Checker(caller.broker, log)
        monkeypatch.setattr(checker, "check_round", lambda: rounds.append(1))
        with trio.move_on_after(100_000):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(checker.run)
                nursery.start_soon(log.ops.write_periodically)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert not rounds


def test_services_check_and_write_down(caller, clock, producer):
    async def main():
        log = caller.find(Checker).log
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Checker(caller.broker, log).run)
            nursery.start_soon(log.ops.write_periodically)
            await trio.sleep(100)
            end(caller, begin(caller, bornTimestamp=clock.ms), COMMIT)
            begin(caller, b"open", bornTimestamp=clock.ms)
            await trio.sleep(3.5)
            assert [op.body for op in records(caller, OP)] == [b"0,"]
            clock.ms += 30_000
            await trio.sleep(30)
            assert [sent.code for sent in caller.connection.sent] == [39]
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_commit_that_disk_or_slaves_do_not_have_in_time_is_no_success(caller):
    half = begin(caller)
    durability = caller.broker.store.durability
    durability.await_replicas(300)
    fields = {name: str(value) for name, value in end_of(half, COMMIT).items()}
    held = caller.handle(Command(RequestCode.END_TRANSACTION, fields, opaque=1))
    assert held.end_offset == caller.broker.store.log.end_offset
    assert held.timeout_ms == 300
    assert held.on_timeout is None, "its code says who lags, as that of a send"


def test_a_delayed_transaction_is_held_back_before_it_is_delayed(caller):
    """Also if only its property says that it is transactional, as in an old flag."""
    caller.send(properties="TRAN_MSG\x01true\x02PGROUP\x01PG\x02DELAY\x013\x02")
    store = caller.broker.store
    assert store.reads.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) == 1
    assert store.reads.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 0
    (half,) = decode_stored(store.reads.get("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 1).body)
    assert half.properties["REAL_TOPIC"] == "T"
