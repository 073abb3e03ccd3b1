"""Packed messages, against the model of the protocol and the way of all others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.client.packing import PackedMessage, join, pack_plain
from rmq.client.message import Message, properties_of
from rmq.core.errors import LocalProtocolError
from rmq.protocol.batch import BatchItem, encode_batch

WAIT = b"WAIT\x01true\x02"
HOST = bytes([10, 0, 0, 1, 0, 0, 0, 0])


def keys():
    return UniqueKeys(HOST, lambda: 1_700_000_000_000)


def packed(body=b"x", properties=b"a\x01b\x02"):
    return PackedMessage("T", "1", properties, body, 0, True)


@given(st.lists(st.tuples(st.binary(max_size=40), st.text("ab\x01\x02é")), min_size=1))
def test_a_batch_is_that_of_the_protocol(items):
    batch = join([packed(body, text.encode()) for body, text in items], WAIT)
    assert batch.body == encode_batch([BatchItem(0, *each) for each in items])
    assert (batch.properties, batch.msg_ids) == (WAIT, ["1"] * len(items))
    assert batch.is_batch
    assert batch.alone
    assert batch.size == len(batch.body) + len(WAIT)


def test_properties_that_no_record_can_hold():
    with pytest.raises(LocalProtocolError, match="not 32767"):
        join([packed(properties=bytes(32_768))], WAIT)


@given(st.binary(min_size=1, max_size=9))
def test_a_plain_message_is_that_of_the_long_way(body):
    message, made = Message("T", body), keys()
    found = pack_plain(made, message, 9)
    text = properties_of(message, found.msg_ids)
    assert (found.topic, found.body, found.properties) == ("T", body, text)
    assert (found.sys_flag, found.wait_stored, found.alone) == (0, True, False)
    assert found.size == len(body) + len(text)
    assert made.next() != found.msg_ids


@pytest.mark.parametrize(
    "message",
    [
        Message("T", bytes(10)),
        Message("T", b"x", tags="t"),
        Message("T", b"x", keys=["k"]),
        Message("T", b"x", properties={"a": "b"}),
        Message("T", b"x", wait_stored=False),
        Message("%RETRY%g", b"x"),
    ],
)
def test_what_is_not_plain(message):
    assert pack_plain(keys(), message, 9) is None


def test_a_clock_without_a_date():
    with pytest.raises(ValueError, match="calendar"):
        pack_plain(UniqueKeys(HOST, lambda: 1 << 60), Message("T", b"x"), 9)
