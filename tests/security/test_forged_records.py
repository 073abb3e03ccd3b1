"""Bytes in a body that look like a record are not taken for one.

A message id is an offset in the log, and a sender knows roughly where its next body
will lie. So it can put a record there that is right in each field: its own offset, the
topic of half messages, producer group and queue offset of another user's transaction.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.protocol.batch import BatchItem, encode_batch
from rmq.protocol.bodies.heartbeat import ConsumerData
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.hosts import host_bytes
from rmq.protocol.records import (
    StoredMessage,
    decode_stored,
    encode_stored,
    offset_message_id,
)

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
HOST = host_bytes("127.0.0.1", 10_911)
BODY_POSITION = 88
"""Where the body of a record begins, with addresses of 8 bytes."""

COMMIT, ROLLBACK = 8, 12
HALF_PROPERTIES = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"


def forge(offset, topic=HALF, queue_id=0, queue_offset=0, real_topic="T"):
    """Write a record that claims to lie at `offset`."""
    properties = (
        f"{HALF_PROPERTIES}REAL_TOPIC\x01{real_topic}\x02REAL_QID\x010\x02KEYS\x01k\x02"
    )
    record = StoredMessage(
        size=0,
        magic=0,
        body_crc=0,
        queue_id=queue_id,
        flag=0,
        queue_offset=queue_offset,
        physical_offset=offset,
        sys_flag=0,
        born_timestamp=1,
        born_host=HOST,
        store_timestamp=1,
        store_host=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"forged",
        topic=topic,
        properties_text=properties,
    )
    return encode_stored(record)


def plant(caller, in_batch=False, **claims):
    """Send a forged record in a body; return where it lies in the log."""
    store = caller.broker.store
    place = store.log.end_offset + BODY_POSITION
    if in_batch:
        place += BODY_POSITION + len(b"x" + b"\x01" + b"T" + b"\x00\x00")
        items = [BatchItem(0, b"x", ""), BatchItem(0, forge(place, **claims), "")]
        fields = {
            "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 5, "h": 0,
            "i": "", "j": 0, "k": "false", "m": "true",
        }  # fmt: skip
        answer = caller.call(
            RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(items)
        )
    else:
        answer = caller.send(body=forge(place, **claims))
    assert answer.code == 0, answer.remark
    planted = store.reads.message_at(place)
    assert planted is not None, "the forged record is not well made"
    assert planted.body == b"forged"
    return place


def end(caller, place, queue_offset, how):
    fields = {
        "producerGroup": "PG",
        "tranStateTableOffset": queue_offset,
        "commitLogOffset": place,
        "commitOrRollback": how,
        "msgId": "x",
    }
    return caller.call(RequestCode.END_TRANSACTION, fields)


def begin(caller):
    answer = caller.send(body=b"pay", properties=HALF_PROPERTIES, sysFlag=4)
    assert answer.code == 0
    place = int(answer.ext_fields["msgId"][16:], 16)
    return place, int(answer.ext_fields["queueOffset"])


def bodies(caller, topic="T"):
    found = caller.broker.store.reads.get(topic, 0, 0, 32)
    return [each.body for each in decode_stored(found.body)]


@pytest.mark.parametrize("in_batch", [False, True])
@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_no_transaction_is_ended_by_a_forged_half(caller, in_batch, how):
    place, queue_offset = begin(caller)
    forged = plant(caller, in_batch, queue_offset=queue_offset)
    answer = end(caller, forged, queue_offset, how)
    remark = "Find prepared transaction message failed"
    assert (answer.code, answer.remark) == (1, remark)
    assert end(caller, place, queue_offset, COMMIT).code == 0
    assert bodies(caller)[-1] == b"pay"


def test_a_half_to_come_cannot_be_ended_before_it_is_there(caller):
    forged = plant(caller, queue_offset=0)
    assert end(caller, forged, 0, ROLLBACK).code == ResponseCode.SYSTEM_ERROR
    place, queue_offset = begin(caller)
    assert end(caller, forged, 0, ROLLBACK).code == ResponseCode.SYSTEM_ERROR
    assert end(caller, place, queue_offset, COMMIT).code == 0
    assert bodies(caller)[-1] == b"pay"


@pytest.mark.parametrize(
    "topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "Theirs"]
)
def test_no_topic_is_written_by_a_forged_half(caller, topic):
    begin(caller)
    forged = plant(caller, real_topic=topic)
    end_offset = caller.broker.store.log.end_offset
    assert end(caller, forged, 0, COMMIT).code == ResponseCode.SYSTEM_ERROR
    assert caller.broker.store.log.end_offset == end_offset


def test_a_transaction_that_was_given_up_cannot_be_forged(caller):
    forged = plant(caller, topic=GIVEN_UP)
    before = caller.broker.store.log.end_offset
    answer = caller.call(
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        {"topic": "T", "msgId": offset_message_id(HOST, forged)},
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "is no message of TRANS_CHECK_MAX_TIME_TOPIC" in answer.remark
    assert caller.broker.store.log.end_offset == before


def test_a_forged_message_is_not_given_back(caller):
    caller.broker.groups.find("G")
    forged = plant(caller, topic="T")
    before = caller.broker.store.log.end_offset
    answer = caller.call(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        {"offset": forged, "group": "G", "delayLevel": 1},
    )
    assert answer.remark == f"look message by offset failed, {forged}"
    assert caller.broker.store.log.end_offset == before


def test_a_forged_message_is_not_shown(caller):
    forged = plant(caller, topic="T")
    answer = caller.call(
        RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "T", "offset": forged}
    )
    assert answer.remark == f"can not find message by the offset, {forged}"


def test_a_forged_message_is_not_pushed(caller, make_connection):
    consumer = make_connection()
    data = ConsumerData(group_name="G", subscription_data_set=[])
    caller.broker.groups.find("G")
    caller.broker.consumers.register(data, "c@1", consumer, "JAVA", 513, 0)
    consumer.sent.clear()
    message_id = offset_message_id(HOST, plant(caller, topic="T"))
    fields = {"consumerGroup": "G", "clientId": "c@1", "msgId": message_id}
    answer = caller.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, {**fields, "topic": "T"})
    assert answer.remark == f"there is no message {message_id}"
    assert not consumer.sent


CLAIMS = st.fixed_dictionaries(
    {
        "topic": st.sampled_from([HALF, GIVEN_UP, "T", "No", "SCHEDULE_TOPIC_XXXX"]),
        "queue_id": st.integers(-1, 2),
        "queue_offset": st.integers(-1, 4) | st.just(2**63 - 1),
    }
)


@pytest.mark.slow
def test_whatever_a_forged_record_claims_nothing_happens(make_caller):
    """The model: a place that no queue names is answered as an empty place is."""

    @settings(max_examples=60)
    @given(
        st.lists(st.tuples(CLAIMS, st.booleans()), min_size=1, max_size=4), st.data()
    )
    def check(plants, data):
        caller = make_caller()
        caller.broker.groups.find("G")
        honest = [begin(caller) for _ in range(data.draw(st.integers(0, 3)))]
        places = [plant(caller, in_batch, **claims) for claims, in_batch in plants]
        empty = caller.broker.store.log.end_offset + (1 << 20)
        before = caller.broker.store.log.end_offset
        for place, (claims, _) in zip(places, plants, strict=True):
            for code, fields in strikes(place, claims):
                answer = caller.call(code, fields)
                twin = caller.call(code, dict(strikes(empty, claims))[code])
                expected = twin.remark.replace(str(empty), str(place)).replace(
                    offset_message_id(HOST, empty), offset_message_id(HOST, place)
                )
                assert (answer.code, answer.remark) == (twin.code, expected)
        assert caller.broker.store.log.end_offset == before
        for place, queue_offset in honest:
            assert end(caller, place, queue_offset, COMMIT).code == 0
        assert bodies(caller).count(b"pay") == len(honest)

    check()


def strikes(place, claims):
    """Every request that names a place in the log."""
    message_id = offset_message_id(HOST, place)
    yield 33, {"topic": claims["topic"], "offset": place}
    yield 36, {"offset": place, "group": "G", "delayLevel": 1}
    yield 323, {"topic": claims["topic"], "msgId": message_id}
    yield (
        37,
        {
            "producerGroup": "PG",
            "tranStateTableOffset": claims["queue_offset"],
            "commitLogOffset": place,
            "commitOrRollback": ROLLBACK,
            "msgId": "x",
        },
    )
