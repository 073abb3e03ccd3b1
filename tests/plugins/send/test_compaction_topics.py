"""Compaction topics over requests: keys, tombstones, pulls, POPs, batches."""

import pytest

from rmq.protocol.batch import BatchItem, encode_batch
from rmq.protocol.codes import RequestCode
from rmq.protocol.records import decode_stored
from rmq.store.compaction.compaction_store import run_steps


@pytest.fixture
def compacting(make_caller):
    sizes = {"compaction_file_size": 46 * 100, "compaction_queue_file_size": 46 * 20}
    caller = make_caller(store=sizes)
    answer = caller.call(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": "C", "defaultTopic": "TBW102", "readQueueNums": 1,
            "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0, "order": "false", "attributes":
            "+cleanup.policy=COMPACTION",
        },
    )  # fmt: skip
    assert answer.code == 0, answer.remark
    return caller


def put(caller, key, body=b"v", **more):
    return caller.send("C", body, properties=f"KEYS\x01{key}\x02", **more)


def compact(caller):
    store = caller.broker.store
    store.durability.flush()
    run_steps(store.compaction.copy_steps())
    run_steps(store.compaction.compact_steps())


def pull_all(caller):
    offset, found = 0, []
    while (answer := caller.pull("C", offset=offset)).code in (0, 20):
        records = decode_stored(answer.body)
        found += [(each.properties["KEYS"], each.body) for each in records]
        offset = int(answer.ext_fields["nextBeginOffset"])
    assert answer.code == 19, answer
    return found


@pytest.mark.parametrize("properties", ["", "KEYS\x01 \x02", "TAGS\x01A\x02"])
def test_a_message_without_a_key_is_refused_as_by_java(compacting, properties):
    answer = compacting.send("C", b"v", properties=properties)
    assert (answer.code, answer.remark) == (13, "Required message key is missing")


def test_a_batch_needs_a_key_in_each_message(compacting):
    items = [BatchItem(0, b"a", "KEYS\x01a\x02"), BatchItem(0, b"b", "")]
    answer = compacting.send("C", encode_batch(items), batch="true")
    assert (answer.code, answer.remark) == (13, "Required message key is missing")
    answer = compacting.send("C", encode_batch(items[:1]), batch="true")
    assert answer.code == 0
    assert pull_all(compacting) == [("a", b"a")]


def test_a_message_without_a_body_is_for_compaction_topics_only(compacting):
    assert put(compacting, "k", b"").code == 0
    answer = compacting.send("T", b"", properties="KEYS\x01k\x02")
    assert (answer.code, answer.remark) == (1, "the message has no body")


def test_pulls_get_the_last_message_of_each_key(compacting):
    for number in range(100):
        put(compacting, f"k{number % 3}", b"%d" % number)
    put(compacting, "k1", b"")
    for number in range(60):
        put(compacting, "filler", b"%d" % number)
    compact(compacting)
    found = pull_all(compacting)
    assert found[:2] == [("k2", b"98"), ("k0", b"99")]
    assert "k1" not in dict(found)
    assert len(found) < 30
    low = compacting.call(RequestCode.GET_MIN_OFFSET, {"topic": "C", "queueId": 0})
    assert low.ext_fields["offset"] == "98"


def test_a_pop_gets_them_too(compacting):
    for number in range(60):
        put(compacting, "k", b"%d" % number)
    compact(compacting)
    answer = compacting.call(
        RequestCode.POP_MESSAGE,
        {
            "consumerGroup": "G", "topic": "C", "queueId": 0, "maxMsgNums": 3,
            "invisibleTime": 60_000, "pollTime": 0, "bornTime": 0, "initMode": 0,
            "order": "false",
        },
    )  # fmt: skip
    assert answer.code == 0
    bodies = [int(each.body) for each in decode_stored(answer.body)]
    assert len(bodies) == 3
    assert bodies[0] > 30


def test_a_deleted_topic_can_be_created_as_another_kind(compacting):
    put(compacting, "k")
    compact(compacting)
    compacting.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "C"})
    compacting.topic("C", queues=1)
    assert compacting.send("C", b"without key").code == 0
    assert not compacting.broker.store.reads.is_compacted("C")
