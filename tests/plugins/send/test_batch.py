"""Several messages in one request: all of them or none."""

import pytest

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


def test_failed_put_is_answered(caller, broker):
    result = BatchPutResult(PutStatus.CREATE_MAPPED_FILE_FAILED)
    handler = caller.handlers[320].__self__
    handler._batch._put_batch = lambda *_given: result
    assert batch(caller).code == ResponseCode.SYSTEM_ERROR


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
