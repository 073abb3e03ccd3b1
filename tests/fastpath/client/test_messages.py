"""Received messages, beside `decode_stored`, the slow and obvious reader."""

import contextlib
import zlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.client.messages import SendResult, SendStatus, decode_messages
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.protocol.compression import open_body
from rmq.protocol.properties import encode_properties
from rmq.protocol.records import StoredMessage, decode_stored, encode_stored

NAMES = st.sampled_from(
    ["UNIQ_KEY", "TAGS", "KEYS", "a", "RETRY_TOPIC", "TAG", "TAGSx"]
)
VALUES = st.text(st.characters(min_codepoint=33, exclude_categories=["Cs"]), min_size=1)
HOSTS = st.sampled_from([b"\x7f\0\0\1\0\0\0\x50", bytes(15) + b"\1\0\0\0\x50"])


@st.composite
def records(draw):
    born, stored = draw(HOSTS), draw(HOSTS)
    sys_flag = 0x10 * (len(born) == 20) | 0x20 * (len(stored) == 20)
    return StoredMessage(
        size=0,
        magic=0,
        body_crc=0,
        queue_id=draw(st.integers(0, 9)),
        flag=draw(st.integers(0, 9)),
        queue_offset=QueueOffset(draw(st.integers(0, 2**60))),
        physical_offset=PhysicalOffset(draw(st.integers(0, 2**60))),
        sys_flag=sys_flag,
        born_timestamp=draw(st.integers(0, 2**41)),
        born_host=born,
        store_timestamp=draw(st.integers(0, 2**41)),
        store_host=stored,
        reconsume_times=draw(st.integers(0, 20)),
        prepared_transaction_offset=draw(st.integers(0, 2**60)),
        body=draw(st.binary(max_size=40)),
        topic="Orders",
        properties_text=encode_properties(draw(st.dictionaries(NAMES, VALUES))),
    )


def pulled(found):
    return b"".join(map(encode_stored, found))


@given(st.lists(records(), max_size=4))
def test_fields_are_those_of_the_records(found):
    data = pulled(found)
    slow = decode_stored(data)
    fast = decode_messages(data, "Orders", "queue", "lease")
    assert len(slow) == len(fast)
    for a, b in zip(slow, fast, strict=True):
        assert (b.topic, b.queue, b.lease) == ("Orders", "queue", "lease")
        assert (b.body, b.size, b.flag) == (a.body, a.size, a.flag)
        assert (b.queue_offset, b.physical_offset) == (
            a.queue_offset,
            a.physical_offset,
        )
        assert (b.born_ms, b.stored_ms) == (a.born_timestamp, a.store_timestamp)
        assert (b.reconsume_times, b.attempt - 1) == (a.reconsume_times,) * 2
        assert b.prepared_offset == a.prepared_transaction_offset
        assert b.properties == dict(a.properties)
        assert b.tags == a.properties.get("TAGS", "")
        assert b.offset_msg_id == a.offset_msg_id
        assert b.msg_id == a.properties.get("UNIQ_KEY", a.offset_msg_id)
        assert b.born_host.endswith(":80")
        assert b.born_at == datetime.fromtimestamp(a.born_timestamp / 1_000, UTC)
        assert b.stored_at.tzinfo is UTC


@given(st.lists(records(), max_size=4))
def test_tags_are_compared_again(found):
    wanted = {each.properties.get("TAGS", "") for each in found[:1]}
    fast = decode_messages(pulled(found), "Orders", None, tags=wanted)
    right = [each.body for each in found if each.properties.get("TAGS", "") in wanted]
    assert [each.body for each in fast] == right


@given(records(), st.data())
def test_a_damaged_answer_is_refused_or_read_without_harm(record, data):
    raw = bytearray(encode_stored(record))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        decode_messages(bytes(raw), "Orders", None)


def test_a_cut_record_is_damaged():
    with pytest.raises(ValueError, match="record 0 of a pull of 10 bytes is damaged"):
        decode_messages(bytes(10), "Orders", None)


def one(**fields):
    return StoredMessage(
        **{
            "size": 0, "magic": 0, "body_crc": 0, "queue_id": 0, "flag": 0,
            "queue_offset": QueueOffset(0), "physical_offset": PhysicalOffset(0),
            "sys_flag": 0, "born_timestamp": 0, "born_host": bytes(8),
            "store_timestamp": 0, "store_host": bytes(8), "reconsume_times": 0,
            "prepared_transaction_offset": 0, "body": b"body", "topic": "Orders",
            "properties_text": "",
        } | fields
    )  # fmt: skip


def test_a_retried_message_has_its_first_topic():
    text = encode_properties({"RETRY_TOPIC": "Orders"})
    data = pulled([one(topic="%RETRY%g", properties_text=text)])
    (message,) = decode_messages(data, "%RETRY%g", None, origin_of=str.upper)
    assert message.topic == "ORDERS"


def test_a_compressed_body_is_inflated():
    squeezed = zlib.compress(b"three apples" * 99)
    data = pulled([one(sys_flag=0x301, body=squeezed), one(sys_flag=1, body=squeezed)])
    for message in decode_messages(data, "Orders", None, inflate=open_body):
        assert message.body == b"three apples" * 99


def test_a_body_that_is_no_stream_stays_as_it_is():
    data = pulled([one(sys_flag=1, body=b"no stream")])
    (message,) = decode_messages(data, "Orders", None, inflate=open_body)
    assert message.body == b"no stream"


def test_a_result_shows_itself():
    result = SendResult(10, "ID", "OFFSET", "queue", 7)
    assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
    assert "FLUSH_DISK_TIMEOUT" in repr(result)
    assert "queue_offset=7" in repr(result)


def test_acks_go_to_the_lease():
    class Lease:
        def ack(self, message):
            return ("ack", message.body)

        def nack(self, message, delay_s, *, dead_letter):
            return (message.body, delay_s, dead_letter)

    (message,) = decode_messages(pulled([one()]), "Orders", None, Lease())
    assert message.ack() == ("ack", b"body")
    assert message.nack(3, dead_letter=True) == (b"body", 3, True)
    assert "4 bytes" in repr(message)
