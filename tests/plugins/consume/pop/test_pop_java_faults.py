"""Known faults of Java's POP, and input that is beyond its limits: not in rmq.

Others have their test where the behaviour is: a wrong clock, a topic that was made
again, checkpoints of a Java broker, records in RocksDB.
"""

import json
import os

import pytest

from rmq.plugin.native import Checkpoint, PopQueue
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.message import Message
from rmq.store.durability import RefusalKind
from rmq_plugins.consume.pop import checkpoints as tables
from rmq_plugins.consume.pop.revive import GROUP
from tests.plugins.conftest import records
from tests.plugins.consume.pop.popping import INVISIBLE_MS, Popping

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.fixture
def popping(make_caller):
    """A broker with one revive queue, so that its order is known."""
    caller = make_caller(revive_queue_nums=1)
    caller.topic("T", queues=2)
    return Popping(caller)


def fill(popping, count, queue_id=0):
    for number in range(count):
        popping.caller.send(body=b"%d" % number, queueId=queue_id)


def bodies(messages):
    return sorted(message.body for message in messages)


def settled(popping):
    return popping.caller.broker.offsets.query(GROUP, REVIVE, 0)


def test_what_is_due_while_the_store_refuses_comes_once_it_takes(popping):
    """Java ended the checkpoint after an exception: the message was lost."""
    fill(popping, 3)
    popping.pop()
    durability = popping.caller.broker.store.durability
    durability.refuse(RefusalKind.DISK_FULL, "full")
    for _ in range(3):
        popping.work(INVISIBLE_MS)
    assert popping.pop() == []
    durability.resume()
    popping.work(2_000)
    assert bodies(popping.pop()) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("is_buffered", [True, False])
def test_an_ack_that_is_not_stored_is_no_success(make_caller, is_buffered):
    """Java answers 0 and forgets the ack."""
    caller = make_caller(enable_pop_buffer_merge=is_buffered)
    popping = Popping(caller)
    fill(popping, 1)
    (message,) = popping.pop()
    if is_buffered:  # else its checkpoint is known, and has to learn of the ack
        pop_ms = message.handle.split(" ")[1]
        message.handle = message.handle.replace(pop_ms, str(int(pop_ms) - 1))
    durability = caller.broker.store.durability
    durability.refuse(RefusalKind.DISK_FULL, "full")
    refused = popping.ack(message)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "the ack is not stored" in refused.remark
    durability.resume()
    assert popping.ack(message).code == 0


def test_offsets_over_two_billion(popping):
    """Java computed the place of an ack in 32 bits."""
    start = (1 << 33) + 7
    offsets = start, start + 1, start + 40
    checkpoint = Checkpoint(PopQueue("T", "G", 0, start), start, 0, 0, 0, offsets, 0)
    is_cleared = checkpoint.clear(start + 1)
    assert is_cleared
    is_cleared = checkpoint.clear((start + 40) & 0xFFFFFFFF)
    assert not is_cleared
    assert checkpoint.open_offsets() == [start, start + 40]
    adopt(popping, so=start, d=[0, 1, 40], n=3)
    adopt(popping, kind="ack", so=start, ao=start + 1)
    (checkpoint,) = popping.reviver.checkpoints.table.all()
    assert checkpoint.open_offsets() == [start, start + 40]


@pytest.mark.parametrize(
    "fields",
    [
        {"so": 1 << 62, "d": [1 << 62]},
        {"so": -5},
        {"pt": 1 << 62, "it": 1 << 62},
        {"d": [5, 3, 5, -9], "n": 4},
        {"d": list(range(100)), "n": 32},
        {"q": 1 << 30},
        {"so": 1 << 80},
        {"t": "x" * 5_000},
    ],
)
def test_a_forged_checkpoint_stops_nobody(popping, fields):
    """A store that comes from elsewhere may have any record."""
    fill(popping, 1)
    (message,) = popping.pop()
    adopt(popping, **fields)
    popping.work(2 * INVISIBLE_MS)
    popping.work(10_000)
    assert bodies(popping.pop()) == [message.body]


def adopt(popping, kind="ck", **fields):
    """Have the reviver read a record that another broker wrote."""
    now_ms = popping.clock.now_ms()
    value = {
        "bn": "broker-a", "c": "G", "d": [0], "it": INVISIBLE_MS, "n": 1, "pt": now_ms,
        "q": 0, "so": 0, "t": "T", **fields,
    }  # fmt: skip
    broker = popping.caller.broker
    broker.topics.ensure(REVIVE, queues=1, perm=6)
    body = json.dumps(value).encode()
    message = Message(REVIVE, 0, body, 0, 0, now_ms, broker.store_host)
    message.properties = {"TAGS": kind}
    assert broker.put.append(message).end_offset
    popping.work()


def test_a_message_that_is_gone_brings_no_other(make_caller, clock):
    """Java took what it got when it read "from" the offset of an expired message."""
    caller = make_caller()
    popping = Popping(caller)
    store = caller.broker.store
    for number in range(40):
        assert caller.send(body=b"%02d" % number * 500_000).code == 0
    assert len(popping.pop(invisibleTime=86_400_000)) == 1
    popping.work(10_000)
    while store.index.lag_bytes:
        store.index.build()
    clock.ms += 12 * 3_600_000
    for path in store.directory.commit_log.glob("0*"):
        os.utime(path, (0, 0))
    store.cleaner.request()
    expiry_ms = store.cleaner.expiry_ms(0)
    while file := store.cleaner.take_log_file(expiry_ms):
        store.cleaner.discard([file])
    assert store.log.min_offset > 0
    popping.work(13 * 3_600_000)
    popping.work(10_000)
    assert records(caller, "%RETRY%G_T") == []


def test_a_slow_consumer_does_not_get_the_same_again(popping):
    """With Java's buffer it did, when its acks came after the checkpoint was stored."""
    fill(popping, 4)
    messages = popping.pop()
    for message in messages:
        popping.work(INVISIBLE_MS // 5)
        assert popping.ack(message).code == 0
    for _ in range(4):
        popping.work(INVISIBLE_MS)
        assert popping.pop() == []
    assert popping.committed() == 4


def test_acks_alone_move_the_revive_offset(popping):
    """In Java it stood still until a checkpoint came."""
    fill(popping, 3)
    for message in popping.pop():
        pop_ms = message.handle.split(" ")[1]
        message.handle = message.handle.replace(pop_ms, str(int(pop_ms) - 1))
        assert popping.ack(message).code == 0
    popping.work(INVISIBLE_MS + 2_000)
    popping.work(2_000)
    tags = [each.properties["TAGS"] for each in records(popping.caller, REVIVE)]
    assert tags[-3:] == ["ack"] * 3
    assert settled(popping) == len(tags) - 1


def test_the_revive_offset_passes_nothing_open(popping):
    """In Java a later checkpoint that was done committed for those before it."""
    fill(popping, 2)
    first = popping.pop(maxMsgNums=1)
    popping.clock.ms += 1
    second = popping.pop(maxMsgNums=1)
    popping.work(11_000)
    assert popping.ack(second[0]).code == 0
    popping.clock.ms -= 11_000
    popping.work(INVISIBLE_MS - 900)
    assert records(popping.caller, REVIVE)
    assert settled(popping) == -1
    popping.work(INVISIBLE_MS)
    assert settled(popping) == len(records(popping.caller, REVIVE)) - 1
    assert bodies(popping.pop()) == bodies(first)


def test_two_pops_of_one_place_in_a_millisecond(popping):
    """Java's later checkpoint replaced the earlier one, whose messages were lost."""
    fill(popping, 1)
    first = popping.pop()
    popping.caller.broker.offsets.reset("G", "T", 0, 0)
    assert popping.pop() == []
    popping.clock.ms += 1
    second = popping.pop()
    assert bodies(first) == bodies(second) == [b"0"]
    assert popping.ack(second[0]).code == 0
    popping.work(INVISIBLE_MS)
    assert bodies(popping.pop()) == [b"0"], "the first one was not acked"


# -- beyond the limits


@pytest.mark.slow
def test_200_001_open_checkpoints(make_caller):
    queues = 16
    caller = make_caller(store={"queue_file_size": 400_000})
    caller.topic("T", queues=queues)
    popping = Popping(caller)
    count = tables.MAX_CHECKPOINTS + 1
    assert count == 200_001
    for number in range(count):
        assert caller.send(body=b"x", queueId=number % queues).code == 0
    handles = []
    for number in range(count):
        if number % 1_000 == 0:
            popping.clock.ms += 1
        handles += popping.pop(maxMsgNums=1, queueId=number % queues)
    checkpoints = popping.reviver.checkpoints
    assert len(handles) == count
    assert checkpoints.table.count == tables.MAX_CHECKPOINTS
    popping.work()
    for message in handles[::-1]:
        assert popping.ack(message).code == 0
    popping.work(INVISIBLE_MS + 3_000)
    popping.work(3_000)
    assert popping.pop() == []
    assert checkpoints.table.count == 0
    assert [popping.committed(queue_id) for queue_id in range(queues)] == [
        caller.broker.store.reads.max_offset("T", queue_id)
        for queue_id in range(queues)
    ]


@pytest.mark.slow
def test_100_001_held_pops(make_caller):
    caller = make_caller()
    held = Popping(caller).handler.held
    most = caller.broker.config.max_pop_polling_size
    assert most == 100_000
    groups = [Popping(caller, group=f"G{number}") for number in range(200)]
    for number in range(most):
        assert groups[number % 200].ask(pollTime=600_000) is None
    refused = groups[0].ask(pollTime=600_000)
    assert refused.code == ResponseCode.POLLING_FULL
    assert held.waiting == most
    fields = {"consumerGroup": "G7", "topic": "T", "queueId": -1}
    info = caller.call(RequestCode.POLLING_INFO, fields)
    assert info.ext_fields["pollingNum"] == "500"
    held.end_all()
    assert held.waiting == 0
    assert len(caller.connection.sent) == most
