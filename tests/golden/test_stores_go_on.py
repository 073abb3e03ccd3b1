"""A store of Java with pending delays and open transactions goes on in rmq."""

import pytest
import trio

from rmq.config.broker import BrokerConfig
from rmq.config.option import build, read_properties
from rmq.protocol.codes import RequestCode
from rmq.protocol.hosts import host_bytes
from rmq.protocol.records import decode_stored
from rmq.protocol.topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.testing import ManualClock
from rmq_plugins.schedule.deliver import Deliveries
from rmq_plugins.transaction.transaction_check import Checker
from tests.golden.recordings import copy_store, read_rows
from tests.plugins.conftest import Caller, build_context
from tests.plugins.consume.pop.popping import Popping

HOST = host_bytes("127.0.0.1", 22_931)
NAME = "store-features"
HOUR_MS = 3_600_000
LEVELS = 18


@pytest.fixture(scope="module")
def rows(golden):
    return read_rows(golden / "stores" / f"{NAME}.expected.jsonl")


@pytest.fixture(scope="module")
def stopped_ms(rows):
    """When Java's broker stored its last message."""
    return max(row["storeTimestamp"] for row in rows if row["kind"] == "message")


@pytest.fixture
def clock(stopped_ms):
    return ManualClock(stopped_ms)


@pytest.fixture
def caller(golden, tmp_path, clock):
    values = read_properties(golden / "stores" / f"{NAME}.conf")
    values["storePathRootDir"] = str(copy_store(NAME, tmp_path))
    store = MessageStore.open(build(StoreConfig, values), clock=clock, store_host=HOST)
    config = build(BrokerConfig, values)
    yield Caller(build_context(config, store, clock))
    store.close()


def java_rows(rows, topic):
    return [row for row in rows if row["kind"] == "message" and row["cqTopic"] == topic]


def records(caller, topic, queue_id=0, offset=0):
    found = []
    while True:
        got = caller.broker.store.reads.get(topic, queue_id, offset, 32)
        if not got.message_count:
            return found
        found += decode_stored(got.body)
        offset = got.next_begin_offset


def end_of(caller, row):
    where = row["properties"]["REAL_TOPIC"], int(row["properties"]["REAL_QID"])
    return caller.broker.store.reads.max_offset(*where)


def test_pending_delays_are_delivered_when_they_are_due(rows, caller, clock):
    deliveries = caller.find(Deliveries)
    pending = [
        row
        for row in java_rows(rows, SCHEDULE_TOPIC)
        if row["queueOffset"] >= deliveries.offsets.get(row["queueId"] + 1)
    ]
    assert sorted(row["keys"] for row in pending) == [
        "level14", "level17", "level18", "level18", "retry2", "retry3",
    ]  # fmt: skip
    pending.sort(key=lambda row: row["cqTagsCode"])
    deliveries.find_pending()
    for row in pending:
        level, end = row["queueId"] + 1, end_of(caller, row)
        clock.ms = row["cqTagsCode"] - 1
        early = [deliveries.deliver(each) for each in range(1, LEVELS + 1)]
        assert not any(early)
        clock.ms += 1
        assert deliveries.deliver(level) == 1
        properties = row["properties"]
        where = properties["REAL_TOPIC"], int(properties["REAL_QID"])
        (delivered,) = records(caller, *where, end)
        assert delivered.properties == properties
        assert delivered.body_crc == row["bodyCRC"]
        assert delivered.reconsume_times == row["reconsumeTimes"]
        assert delivered.store_timestamp == clock.ms
    clock.ms += 100 * HOUR_MS
    late = [deliveries.deliver(each) for each in range(1, LEVELS + 1)]
    assert not any(late)


def test_open_transactions_are_checked_and_end(rows, caller, clock):
    caller.broker.producers.register(
        "PG_F_tx", "p@1", caller.connection, "JAVA", 513, 0
    )
    committed = sum(len(records(caller, "FTx", queue)) for queue in range(2))
    clock.ms += 4_000
    asked = ask(caller)
    assert list(asked) == ["pending0", "pending1", "pending2"]
    newest = {row["keys"]: row for row in java_rows(rows, TRANS_HALF_TOPIC)}
    for key, (record, _) in asked.items():
        before = newest[key]["properties"]
        assert record.topic == "FTx"
        assert record.queue_id == int(before["REAL_QID"])
        assert before["TRANSACTION_CHECK_TIMES"] == "10"
        assert record.properties["TRANSACTION_CHECK_TIMES"] == "11"
    for key, how in (("pending0", 8), ("pending1", 12)):
        question = asked[key][1].ext_fields
        fields = {
            "producerGroup": "PG_F_tx",
            "tranStateTableOffset": question["tranStateTableOffset"],
            "commitLogOffset": question["commitLogOffset"],
            "commitOrRollback": how,
            "fromTransactionCheck": "true",
            "msgId": question["msgId"],
        }
        assert caller.call(RequestCode.END_TRANSACTION, fields).code == 0
    stored = [each for queue in range(2) for each in records(caller, "FTx", queue)]
    assert len(stored) == committed + 1 == 5
    assert "pending0" in {each.properties["KEYS"] for each in stored}
    clock.ms += 4_000
    assert list(ask(caller)) == ["pending2"]


def ask(caller):
    """Run a round of checks; the message and the request of each question by key."""
    caller.connection.sent.clear()
    trio.run(caller.find(Checker).check_round)
    found = {}
    for question in caller.connection.sent:
        (record,) = decode_stored(question.body)
        found[record.properties["KEYS"]] = record, question
    return found


def test_what_java_s_consumers_have_popped_is_adopted(rows, caller, clock):
    """Four of ten messages were not acked; the others do not come again."""
    popping = Popping(caller, "CG_F_pop", "FPop")
    assert popping.pop() == []
    popping.work(400_000)
    messages = popping.pop()
    assert len(messages) == 4
    for message in messages:
        assert message.topic == "%RETRY%CG_F_pop_FPop"
        popping.ack(message)
    popping.work(400_000)
    assert popping.pop() == []
