"""Readers of single messages, and the services of plugins, at a damaged record.

While another broker may give the bytes, readers get an error and services wait; they
never begin again, and pass no message.  After `rmq.damagePatienceMs` they pass it.
"""

import json
import os

import pytest
import trio
from trio.testing import MockClock

from rmq._fastpath.log.block_digests import BLOCK_BYTES
from rmq.core.errors import RecordDamaged
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.message import Message
from rmq.protocol.topics import TIMER_TOPIC, TRANS_HALF_TOPIC, revive_topic
from rmq_plugins.schedule.deliver import DAMAGED_MS
from rmq_plugins.schedule.deliver import Deliveries as Delays
from rmq_plugins.timer.deliver import Deliveries as Timed
from rmq_plugins.transaction.transaction_check import Checker
from tests.plugins.conftest import bodies, records
from tests.plugins.consume.pop.popping import INVISIBLE_MS, Popping
from tests.plugins.timer.timing import recall, send_timed, work
from tests.plugins.transaction.test_transaction import COMMIT, begin, check, end

PATIENCE_MS = 60_000
COUNT = 70
"""Messages of 1 KB that fill a block."""


class Damage:
    """A byte of the newest record of a queue that the disk has changed."""

    def __init__(self, caller, topic="T", mark=b"body"):
        self.store = store = caller.broker.store
        self.clock = caller.broker.clock
        offset = store.reads.max_offset(topic, 0) - 1
        place, size, _ = store.queues.get(topic, 0).entry_at(offset)
        for _ in range(COUNT):
            assert caller.send("Filler", b"x" * 1_000).code == 0
        store.durability.flush()
        store.digests.update()
        self.block = place - place % BLOCK_BYTES
        self.right = store.log.read(self.block, BLOCK_BYTES)
        store.digests.has_peers = lambda: True
        file = store.log.files.find(place)
        at = place + store.log.read(place, size).index(mark) - file.base_offset
        with open(file.path, "r+b") as opened:
            os.pwrite(opened.fileno(), b"!", at)
        file.digests.forget_checks()

    def heal(self):
        """Give the block its bytes again, as a broker does."""
        digests = self.store.digests
        assert list(digests.bad) == [self.block]
        assert digests.repair(self.block, self.right)
        digests.end_repair(digests.bad[self.block], "h:1")

    def lose_patience(self):
        self.clock.ms += PATIENCE_MS


@pytest.fixture
def damaged(caller):
    caller.topic("Filler")
    assert caller.send(body=b"body", properties="KEYS\x01k\x02TAGS\x01A\x02").code == 0
    return Damage(caller)


def change_keys(caller, text):
    assert caller.call(RequestCode.UPDATE_BROKER_CONFIG, body=text).code == 0


def assert_damaged(answer):
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "of the log is damaged; this broker gets its bytes" in answer.remark


# -- readers of one message


def test_reads_by_offset_wait_and_then_pass_it(caller, damaged):
    reads = caller.broker.store.reads
    for read in (
        reads.message_at,
        reads.verified_message_at,
        reads.appended_message_at,
        reads.record_at,
    ):
        with pytest.raises(RecordDamaged, match="the record at 0 of the log"):
            read(0)
    damaged.lose_patience()
    assert reads.message_at(0) is None
    assert reads.record_at(0) is None
    assert damaged.store.digests.passed_reads == 2


def test_reads_by_offset_get_healed_bytes(caller, damaged):
    reads = caller.broker.store.reads
    with pytest.raises(RecordDamaged):
        reads.message_at(0)
    damaged.heal()
    assert reads.message_at(0).body == b"body"
    assert reads.record_at(0) == damaged.right[: reads.message_at(0).size]


def test_another_message_of_the_block_is_served_after_the_patience(caller, damaged):
    """Its own checksum is right."""
    reads = caller.broker.store.reads
    place = reads.physical_at("Filler", 0, 0)
    with pytest.raises(RecordDamaged):
        reads.message_at(place)
    damaged.lose_patience()
    assert reads.message_at(place).body == b"x" * 1_000
    assert damaged.store.digests.doubtful_reads == 1


def test_with_stop_the_error_stays(caller, damaged):
    change_keys(caller, b"rmq.onDamage=STOP\n")
    with pytest.raises(RecordDamaged, match="gets its bytes from another one"):
        caller.broker.store.reads.message_at(0)
    damaged.lose_patience()
    with pytest.raises(RecordDamaged, match=r"rmq\.onDamage is STOP"):
        caller.broker.store.reads.message_at(0)
    with pytest.raises(RecordDamaged):
        caller.broker.store.reads.get("T", 0, 0, 32)


def test_without_a_limit_readers_wait_for_ever(caller, damaged):
    change_keys(caller, b"rmq.damagePatienceMs=0\n")
    for _ in range(3):
        with pytest.raises(RecordDamaged):
            caller.broker.store.reads.message_at(0)
        damaged.lose_patience()


def test_a_query_by_id(caller, damaged):
    fields = {"topic": "T", "offset": 0}
    assert_damaged(caller.call(RequestCode.VIEW_MESSAGE_BY_ID, fields))
    damaged.heal()
    assert caller.call(RequestCode.VIEW_MESSAGE_BY_ID, fields).code == 0


def test_a_query_by_key(caller, damaged):
    caller.broker.store.index.build()
    fields = {
        "topic": "T", "key": "k", "maxNum": 32, "beginTimestamp": 0,
        "endTimestamp": 1 << 60,
    }  # fmt: skip
    assert_damaged(caller.call(RequestCode.QUERY_MESSAGE, fields))
    damaged.heal()
    assert b"body" in caller.call(RequestCode.QUERY_MESSAGE, fields).body


def test_a_message_that_a_consumer_gives_back(caller, damaged):
    fields = {"offset": 0, "group": "G", "delayLevel": 1, "maxReconsumeTimes": 16}
    caller.broker.groups.find("G")
    assert_damaged(caller.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields))
    damaged.heal()
    assert caller.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0


# -- delay levels


@pytest.fixture
def delayed(caller):
    caller.topic("Filler")
    text = "DELAY\x011\x02"
    assert caller.send(body=b"body", properties=text).code == 0
    damage = Damage(caller, "SCHEDULE_TOPIC_XXXX")
    assert caller.send(body=b"second", properties=text).code == 0
    caller.broker.clock.ms += 1_000
    return damage


def test_a_delayed_message_waits_for_its_bytes(caller, delayed):
    delays, clock = caller.find(Delays), caller.broker.clock
    assert delays.deliver(1) == 0
    assert delays.due_ms[1] == clock.steady_ms() + DAMAGED_MS
    delayed.heal()
    assert delays.deliver(1) == 2
    assert bodies(caller) == [b"body", b"second"]


def test_a_delayed_message_that_no_broker_has_is_passed(caller, delayed):
    delays = caller.find(Delays)
    assert delays.deliver(1) == 0
    delayed.lose_patience()
    delays.deliver(1)
    delays.deliver(1)
    assert bodies(caller) == [b"second"]


# -- timed messages


def test_a_timed_message_waits_before_it_has_a_slot(caller):
    caller.topic("Filler")
    send_timed(caller, body=b"body")
    damage = Damage(caller, TIMER_TOPIC)
    deliveries = caller.find(Timed)
    with pytest.raises(RecordDamaged):
        deliveries.enqueue_batch()
    damage.heal()
    work(caller, 10_000)
    assert bodies(caller) == [b"body"]


@pytest.mark.parametrize("heals", [True, False])
def test_a_slot_waits_for_a_damaged_message(caller, heals):
    """The others of the slot are delivered once."""
    caller.topic("Filler")
    send_timed(caller, body=b"first")
    send_timed(caller, body=b"body")
    work(caller)
    damage = Damage(caller, TIMER_TOPIC)
    send_timed(caller, body=b"last")
    work(caller)
    deliver_slot(caller, damage, heals=heals)
    assert bodies(caller) == [b"first", *[b"body"] * heals, b"last"]


def deliver_slot(caller, damage, *, heals):
    """Deliver the first slot; its damage ends after some seconds."""
    caller.broker.clock.ms += 10_000
    deliveries = caller.find(Timed)

    async def run():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliveries.deliver, deliveries.due_slot())
            await trio.sleep(5)
            assert damage.store.digests.bad
            if heals:
                damage.heal()
            else:
                damage.lose_patience()

    trio.run(run, clock=MockClock(autojump_threshold=0))


def test_a_slot_waits_for_a_damaged_recall(make_caller):
    caller = make_caller(recall_message_enable=True)
    caller.topic("Filler")
    send_timed(caller, body=b"kept")
    answer = send_timed(caller, body=b"gone")
    assert recall(caller, answer.ext_fields["recallHandle"]).code == 0
    work(caller)
    deliver_slot(caller, Damage(caller, TIMER_TOPIC, b"TIMER_DEL"), heals=True)
    assert bodies(caller) == [b"kept"]


# -- POP


@pytest.fixture
def popping(caller):
    caller.topic("Filler")
    caller.broker.groups.find("G")
    assert caller.send(body=b"body").code == 0
    return Popping(caller)


@pytest.mark.parametrize("heals", [True, False])
def test_a_popped_message_without_an_ack_waits_for_its_bytes(popping, heals):
    (message,) = popping.pop()
    assert message.body == b"body"
    damage = Damage(popping.caller)
    popping.work(INVISIBLE_MS + 1_000)
    assert popping.reviver.checkpoints.table.count == 1
    assert popping.reviver.revived == 0
    if heals:
        damage.heal()
    else:
        damage.lose_patience()
    popping.work(2_000)
    assert [each.body for each in popping.pop()] == [b"body"] * heals
    assert popping.reviver.revived == heals


def test_a_damaged_message_holds_no_other_back(popping):
    popping.pop()
    Damage(popping.caller)
    popping.caller.send(body=b"second")
    popping.pop()
    popping.work(INVISIBLE_MS + 1_000)
    popping.work(1_000)
    assert [each.body for each in popping.pop()] == [b"second"]


def test_the_revive_topic_waits_for_its_bytes(popping):
    caller, reviver = popping.caller, popping.reviver
    fields = {"c": "G", "t": "T", "q": 0, "bm": 0, "pt": 1, "it": 1, "so": 0, "d": [0]}
    body = json.dumps(fields).encode()
    topic = revive_topic(caller.broker.config.broker_cluster_name)
    host = caller.broker.store_host
    message = Message(topic, 0, body, 0, 0, caller.broker.clock.ms, host)
    message.properties = {"TAGS": "ck"}
    caller.broker.put.append(message)
    damage = Damage(caller, topic, b'"so"')
    assert reviver.read_batch(0) is False
    assert reviver.facts()["reviveBehind"] == 1
    damage.heal()
    assert reviver.read_batch(0) is True
    assert reviver.facts()["reviveBehind"] == 0
    assert reviver.checkpoints.table.count == 1


# -- transactions


def test_a_damaged_half_message_ends_the_round_of_checks(caller):
    caller.topic("Filler")
    caller.broker.producers.register("PG", "p@1", caller.connection, "JAVA", 513, 0)
    begin(caller, b"body")
    damage = Damage(caller, TRANS_HALF_TOPIC)
    caller.broker.clock.ms += 10_000
    assert check(caller) == []
    assert caller.find(Checker).log.progress == 0
    damage.heal()
    (asked,) = check(caller)
    assert b"body" in asked.body


def test_a_commit_of_a_damaged_half_message_is_refused(caller):
    caller.topic("Filler")
    half = begin(caller, b"body")
    damage = Damage(caller, TRANS_HALF_TOPIC)
    assert_damaged(end(caller, half, COMMIT))
    assert records(caller) == []
    damage.heal()
    assert end(caller, half, COMMIT).code == 0
    assert bodies(caller) == [b"body"]
