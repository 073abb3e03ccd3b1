"""Bytes of a store never end a broker, and never stop the records after them.

A service logs a record that it cannot handle, passes it, and the list of problems says
so. The bytes are those of a disk that has changed some, or of a broken program.
"""

import json

import pytest
import trio

from rmq.config.broker import BrokerConfig
from rmq.observe.findings import find_problems
from rmq.observe.snapshot import take_snapshot
from rmq.protocol.hosts import host_bytes
from rmq.protocol.message import Message
from rmq.protocol.topics import revive_topic
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq_plugins.consume.pop.handler import PopHandler
from rmq_plugins.schedule.deliver import Deliveries as Delays
from rmq_plugins.transaction.transaction_check import Checker
from tests.plugins.conftest import Caller, build_context, records
from tests.plugins.timer.timing import work

HOST = host_bytes("127.0.0.1", 10_911)
GOOD, BROKEN = b"REAL_TOPIC\x01T\x02", b"REAL_TOPIC\x01\xff\x02"
OP_GOOD, OP_BROKEN = b"0,", b"\xff,"


@pytest.fixture
def open_again(tmp_path, clock):
    """Open a broker on one folder; close it first, and change bytes of its log."""
    opened = []

    def start(old=b"", new=b""):
        if opened:
            opened[-1].broker.store.close()
            (path,) = (tmp_path / "s" / "commitlog").iterdir()
            data = path.read_bytes()
            assert old in data
            path.write_bytes(data.replace(old, new, 1))
        config = StoreConfig(root_dir=str(tmp_path / "s"), commit_log_file_size=1 << 20)
        store = MessageStore.open(config, clock=clock, store_host=HOST)
        caller = Caller(build_context(BrokerConfig(broker_name="b"), store, clock))
        caller.topic("T", queues=1)
        opened.append(caller)
        return caller

    yield start
    for caller in opened:
        caller.broker.store.close()


def find_passed(caller):
    """Return the numbers of passed records by service, and the problems' sentences."""
    monitor = caller.broker.monitor
    failures = {each.service: each.records for each in monitor.failures.all()}
    problems = find_problems(take_snapshot(caller.broker, monitor))
    return failures, [each for each in problems if each.kind.startswith("passed-")]


def test_a_delayed_message_with_broken_properties(open_again, clock):
    caller = open_again()
    for body in (b"broken", b"good"):
        assert caller.send(body=body, properties="DELAY\x011\x02").code == 0
    caller = open_again(GOOD, BROKEN)
    clock.ms += 1_000
    caller.find(Delays).deliver(1)
    assert [record.body for record in records(caller)] == [b"good"]
    failures, (problem,) = find_passed(caller)
    assert failures == {"schedule": 1}
    assert "could not handle 1 message" in problem.message
    assert "queue offset 0" in problem.message


def test_a_timed_message_with_broken_properties(open_again, clock):
    caller = open_again()
    for body in (b"broken", b"good"):
        text = "TIMER_DELAY_MS\x015000\x02"
        assert caller.send(body=body, properties=text).code == 0
    caller = open_again(GOOD, BROKEN)
    work(caller, 10_000)
    assert [record.body for record in records(caller)] == [b"good"]
    assert find_passed(caller)[0] == {"timer": 1}


def test_a_timed_message_that_breaks_after_it_has_a_slot(open_again, clock):
    caller = open_again()
    for body in (b"broken", b"good"):
        text = "TIMER_DELAY_MS\x015000\x02"
        assert caller.send(body=body, properties=text).code == 0
    work(caller)
    caller = open_again(GOOD, BROKEN)
    work(caller, 10_000)
    assert [record.body for record in records(caller)] == [b"good"]


def test_a_half_message_with_broken_properties(open_again, clock):
    caller = open_again()
    for body in (b"broken", b"good"):
        text = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
        assert caller.send(body=body, properties=text, sysFlag=4).code == 0
    caller = open_again(GOOD, BROKEN)
    caller.broker.producers.register("PG", "p@1", caller.connection, "JAVA", 513, 0)
    clock.ms += 60_000
    trio.run(caller.find(Checker).check_round)
    (asked,) = caller.connection.sent
    assert b"good" in asked.body
    assert find_passed(caller)[0]["transaction"] >= 1


def test_an_op_record_that_is_no_text(open_again):
    """It was read as UTF-8 at each start, which ended there."""
    caller = open_again()
    text = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    assert caller.send(body=b"half", properties=text, sysFlag=4).code == 0
    log = caller.find(Checker).log
    assert log.ops.write_end(0)
    caller = open_again(b"0,", b"\xff,")
    assert 0 not in caller.find(Checker).log.ops


@pytest.mark.parametrize(
    "fields",
    [
        {"so": (1 << 63) - 1, "d": [9]},
        {"so": -(1 << 63), "d": [-9]},
        {"pt": (1 << 63) - 1, "it": (1 << 63) - 1, "n": 1},
        {"rp": "9" * 5_000, "n": 1},
    ],
)
async def test_a_checkpoint_with_numbers_that_do_not_fit(open_again, clock, fields):
    caller = open_again()
    caller.find(PopHandler)
    topic = revive_topic(caller.broker.config.broker_cluster_name)
    body = {"c": "G", "t": "T", "q": 0, "bm": 0, "pt": clock.ms, "it": 1, **fields}
    for value in (body, {**body, "so": 0, "d": [0], "rp": "0", "pt": 1, "it": 1}):
        text = json.dumps(value).encode()
        message = Message(topic, 0, text, 0, 0, clock.ms, HOST)
        message.properties = {"TAGS": "ck"}
        caller.broker.put.append(message)
    caller.broker.arrivals.flush()
    (reviver,) = {
        run.__self__.get_parts().reviver
        for run in caller.services("pop")
        if run.__name__ == "revive"
    }
    for _ in range(3):
        reviver.read_batch(0)
        await reviver.tick()
        await reviver.revive_due()
    assert reviver.read_batch(0) is False
