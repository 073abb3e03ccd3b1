"""Several messages in one request: all of them or none."""

import pytest

from rmq.broker.put import PutPipeline
from rmq.plugin import Held
from rmq.protocol.batch import BatchItem, encode_batch
from rmq.protocol.codes import ResponseCode
from rmq.protocol.records import decode_stored
from rmq.store.config import FlushDiskType
from rmq.store.results import BatchPutResult, PutStatus

FACTS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
ITEMS = [BatchItem(3, b"one", "TAGS\x01A\x02"), BatchItem(0, b"two", "")]


def batch(caller, body=None, code=320, **more):
    """Send a batch with the short header."""
    fields = {
        "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 5, "h": 0,
        "i": "", "j": 0, "k": "false", "m": "true", **more,
    }  # fmt: skip
    return caller.call(code, fields, encode_batch(ITEMS) if body is None else body)


def test_messages_lie_side_by_side(caller):
    caller.send()
    answer = batch(caller)
    records = decode_stored(caller.broker.store.reads.get("T", 0, 1, 9).body)
    assert answer.ext_fields == {
        "msgId": ",".join(record.offset_msg_id for record in records),
        "queueId": "0",
        "queueOffset": "1",
        **FACTS,
    }
    assert [record.body for record in records] == [b"one", b"two"]
    assert [record.flag for record in records] == [3, 0]
    assert [record.queue_offset for record in records] == [1, 2]


def test_unique_key_of_the_batch_is_its_transaction_id(caller):
    answer = batch(caller, i="WAIT\x01true\x02UNIQ_KEY\x01AB12\x02")
    assert answer.ext_fields["transactionId"] == "AB12"


def test_properties_are_those_of_each_message(caller):
    batch(caller, i="TAGS\x01X\x02")
    records = decode_stored(caller.broker.store.reads.get("T", 0, 0, 9).body)
    assert [record.properties_text for record in records] == ["TAGS\x01A\x02", ""]


def test_flag_in_the_header_makes_a_batch(caller):
    assert "," in batch(caller, code=310).ext_fields["msgId"]


@pytest.mark.parametrize(
    ("fields", "body", "code", "remark"),
    [
        ({"b": "%RETRY%G"}, b"x", 13, "batch request does not support retry group"),
        ({"b": "%DLQ%" + "x" * 200}, None, 13, "message topic length over 127"),
        ({"b": "../../x"}, None, 29, "illegal characters"),
        ({"e": 7}, None, 29, "queueId[7] is illegal"),
        ({"i": "DELAY\x012\x02"}, None, 13, "the message is illegal"),
        ({"i": "TRAN_MSG\x01true\x02"}, None, 13, "the message is illegal"),
        ({}, b"not a batch", 13, "byte 0 is illegal"),
        ({}, b"\x7f\xff\xff\xff" + bytes(30), 13, "byte 0 is illegal"),
        ({}, bytes(16) + b"\x7f\xff\xff\xff", 13, "byte 0 is illegal"),
        ({}, bytes(16) + b"\xff\xff\xff\xff" + bytes(9), 13, "body of -1 bytes"),
        ({}, encode_batch(ITEMS) + b"\x00", 13, "illegal"),
        ({}, bytes((4 << 20) + 1), 13, "the message is illegal"),
    ],
)
def test_refused_batch_stores_nothing(caller, fields, body, code, remark):
    answer = batch(caller, body, **fields)
    assert answer.code == code
    assert remark in answer.remark
    assert answer.ext_fields == FACTS
    assert caller.broker.store.log.end_offset == 0


def test_one_message_too_large_refuses_all(make_caller):
    caller = make_caller(store={"max_message_size": 2_000})
    body = encode_batch([BatchItem(0, b"x", ""), BatchItem(0, b"y" * 1_990, "")])
    assert batch(caller, body).code == ResponseCode.MESSAGE_ILLEGAL
    assert caller.broker.store.log.end_offset == 0


def test_batch_without_a_body(caller):
    answer = batch(caller, b"")
    assert (answer.code, answer.remark) == (1, "the batch has no body")


def test_failed_put_is_answered(make_caller, monkeypatch):
    result = BatchPutResult(PutStatus.CREATE_MAPPED_FILE_FAILED)
    monkeypatch.setattr(PutPipeline, "put_batch", lambda *_given: result)
    assert batch(make_caller()).code == ResponseCode.SYSTEM_ERROR


def test_sync_flush_holds_the_answer(make_caller):
    caller = make_caller(store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    results = []
    handle = caller.handlers[320]
    caller.handlers[320] = lambda *given: results.append(handle(*given)) or results[-1]
    batch(caller)
    batch(caller, i="WAIT\x01false\x02")
    assert isinstance(results[0], Held)
    assert results[0].on_timeout is None
    assert not isinstance(results[1], Held)


# -- topics with queues of type BatchCQ


@pytest.fixture
def batches(caller):
    """Make the topic of inner batches."""
    answer = caller.call(
        17,
        {
            "topic": "B", "defaultTopic": "TBW102", "readQueueNums": 1,
            "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
            "attributes": "+queue.type=BatchCQ",
        },
    )  # fmt: skip
    assert answer.code == 0, answer.remark
    return caller


def inner(caller, body=None, **more):
    return batch(caller, body, **{"b": "B", "i": "UNIQ_KEY\x01K1\x02", **more})


def test_an_inner_batch_is_one_record(batches):
    inner(batches)
    answer = inner(batches, i="UNIQ_KEY\x01K2\x02TAGS\x01A\x02WAIT\x01true\x02")
    found = batches.broker.store.reads.get("B", 0, 2, 9)
    [record] = decode_stored(found.body)
    assert answer.ext_fields == {
        "msgId": record.offset_msg_id,
        "queueId": "0",
        "queueOffset": "2",
        "transactionId": "K2",
        "batchUniqId": "K2",
        **FACTS,
    }
    assert (found.message_count, found.next_begin_offset) == (2, 4)
    assert (record.sys_flag, record.queue_offset) == (0xC0, 2)
    assert record.body == encode_batch(ITEMS)
    assert record.properties == {
        "UNIQ_KEY": "K2", "TAGS": "A", "WAIT": "true", "INNER_NUM": "2",
        "INNER_BASE": "2", "CLUSTER": "DefaultCluster", **FACTS,
    }  # fmt: skip


def test_a_batch_without_a_key_is_stored_one_by_one(batches):
    answer = inner(batches, i="WAIT\x01true\x02")
    assert "," in answer.ext_fields["msgId"]
    assert "batchUniqId" not in answer.ext_fields
    inner(batches)
    batches.send(topic="B")
    found = batches.broker.store.reads.get("B", 0, 0, 9)
    records = decode_stored(found.body)
    assert [record.queue_offset for record in records] == [0, 1, 2, 4]
    assert (found.message_count, found.next_begin_offset) == (5, 5)


def test_pulls_find_inner_batches(batches):
    inner(batches)
    answer = batches.pull(topic="B", offset=1)
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (0, "2")
    assert answer.ext_fields["maxOffset"] == "2"
    [record] = decode_stored(answer.body)
    assert record.properties["INNER_NUM"] == "2"
    assert batches.pull(topic="B", offset=2).code == 19


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"i": "UNIQ_KEY\x01K\x02DELAY\x012\x02"}, None),
        ({"i": "UNIQ_KEY\x01K\x02TRAN_MSG\x01true\x02"}, None),
        ({"i": "UNIQ_KEY\x01K\x02TIMER_DELAY_SEC\x013\x02"}, None),
        ({"f": 0x80}, None),
        ({}, b"not a batch"),
        ({}, encode_batch([BatchItem(0, b"", "")] * 32_768)),
        ({"i": "UNIQ_KEY\x01" + "k" * 32_760 + "\x02"}, None),
    ],
)
def test_refused_inner_batches(batches, fields, body):
    end = batches.broker.store.log.end_offset
    assert inner(batches, body, **fields).code == ResponseCode.MESSAGE_ILLEGAL
    assert batches.broker.store.log.end_offset == end


def test_the_most_messages_of_an_inner_batch(batches):
    inner(batches, encode_batch([BatchItem(0, b"", "")] * 32_767))
    assert inner(batches).ext_fields["queueOffset"] == "32767"


@pytest.mark.parametrize("topic", ["B", "T"])
def test_a_message_that_says_it_is_an_inner_batch(batches, topic):
    end = batches.broker.store.log.end_offset
    for fields in ({"properties": "INNER_NUM\x019\x02"}, {"sysFlag": 0x80}):
        answer = batches.send(topic=topic, **fields)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert batches.broker.store.log.end_offset == end


def test_an_inner_batch_is_not_sent_back(batches):
    """Java refuses it in the same way; its clients send the message anew."""
    inner(batches)
    batches.broker.groups.find("G", "c")
    fields = {"group": "G", "originMsgId": "", "offset": 0, "delayLevel": 0,
              "originTopic": "B", "unitMode": "false"}  # fmt: skip
    answer = batches.call(36, fields)
    assert (answer.code, answer.remark) == (1, "MESSAGE_ILLEGAL")
