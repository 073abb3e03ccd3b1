"""The sysFlag of a send: queues built from the log are those that were served live."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmq.protocol.batch import BatchItem, encode_batch
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import decode_stored
from rmq.store.message_store import MessageStore
from rmq.tools.store_files import StoreFiles
from rmq.tools.verify import Verification

CLIENT_BITS = 0x703
TRANSACTION, INNER_BATCH = 0x4, 0x80
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"

FLAGS = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 0xFFF)


def send(caller, sys_flag, *, is_batch=False, properties=""):
    if not is_batch:
        return caller.send(sysFlag=sys_flag, properties=properties)
    fields = {
        "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": sys_flag, "g": 5,
        "h": 0, "i": properties, "j": 0, "k": "false", "m": "true",
    }  # fmt: skip
    items = [BatchItem(0, b"one", ""), BatchItem(0, b"two", "")]
    return caller.call(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(items))


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize(
    ("sys_flag", "remark"),
    [
        (4, "part of a transaction, without the property TRAN_MSG"),
        (12, "part of a transaction, without the property TRAN_MSG"),
        (0x80, "an inner batch"),
        (0x84, "an inner batch"),
        (-1, "an inner batch"),
    ],
)
def test_what_would_never_be_delivered_is_refused(caller, is_batch, sys_flag, remark):
    answer = send(caller, sys_flag, is_batch=is_batch)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert remark in answer.remark
    assert caller.broker.store.reads.max_offset("T", 0) == 0


@pytest.mark.parametrize("is_batch", [False, True])
def test_bits_that_only_the_broker_knows_are_taken_off(caller, is_batch):
    assert send(caller, 0x7FFFFF7B, is_batch=is_batch).code == 0
    assert caller.broker.store.reads.verified_message_at(0).sys_flag == CLIENT_BITS


def test_a_reply_keeps_what_a_client_may_say(caller):
    caller.send("R", code=324, sysFlag=-1)
    assert caller.broker.store.reads.verified_message_at(0).sys_flag == CLIENT_BITS


def test_the_flag_of_a_half_and_of_its_retry_is_no_news(caller):
    assert send(caller, 4, properties=HALF).code == 0
    assert caller.broker.store.reads.max_offset("T", 0) == 0
    caller.broker.groups.find("G")
    answer = caller.send(
        "%RETRY%G", sysFlag=4, properties=HALF, maxReconsumeTimes=3, queueId=0
    )
    assert answer.code == 0
    assert caller.broker.store.reads.max_offset("%RETRY%G", 0) == 1


def test_a_flag_ends_no_transaction_at_the_next_start(caller):
    """A commit that the op queue missed is found by its flag in the log."""
    half = caller.send(properties=HALF + "UNIQ_KEY\x01k\x02", sysFlag=4)
    assert half.ext_fields["msgId"].endswith("0" * 16)
    assert caller.send(properties="__transactionId__\x01k\x02", sysFlag=8).code == 0
    (stored,) = decode_stored(caller.broker.store.reads.get("T", 0, 0, 1).body)
    assert stored.sys_flag == 0


@pytest.mark.slow
def test_queues_built_from_the_log_are_the_live_ones(make_caller):
    @given(st.lists(st.tuples(FLAGS, st.booleans(), st.booleans()), max_size=8))
    @example([(TRANSACTION, True, False), (INNER_BATCH, False, False)])
    @example([(12, False, True), (8, True, False)])
    def check(sends):
        caller = make_caller()
        for sys_flag, is_batch, is_half in sends:
            properties = HALF if is_half else ""
            send(caller, sys_flag, is_batch=is_batch, properties=properties)
        assert_rebuilt(caller.broker)

    check()


def assert_rebuilt(broker):
    """Remove the queues, have them built from the log, and compare."""
    store = broker.store
    live = [entries(store, topic) for topic in ("T", HALF_TOPIC)]
    store.close()
    for path in store.directory.consume_queue.rglob("0*"):
        if path.is_file():
            path.unlink()
    store.directory.abort.set()
    built = MessageStore.open(
        store.config, clock=broker.clock, store_host=broker.store_host
    )
    assert [entries(built, topic) for topic in ("T", HALF_TOPIC)] == live
    built.close()
    assert Verification(StoreFiles(store.directory.root)).run().damages == []


def entries(store, topic):
    """The places that a queue names, by the records that a consumer gets."""
    found, offset = [], 0
    while offset < store.reads.max_offset(topic, 0):
        got = store.reads.get(topic, 0, offset, 32)
        found += [(r.queue_offset, r.physical_offset) for r in decode_stored(got.body)]
        offset = got.next_begin_offset
    return found
