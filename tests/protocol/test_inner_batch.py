"""Messages of inner batches as records of their own."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.protocol.batch import BatchItem, encode_batch
from rmq.protocol.flags import COMPRESSED, INNER_BATCH, NEED_UNWRAP
from rmq.protocol.inner_batch import inner_messages
from rmq.protocol.records import StoredMessage, decode_stored, encode_stored

ITEMS = st.lists(
    st.builds(
        BatchItem, st.integers(0, 9), st.binary(max_size=9), st.just("A\x01b\x02")
    ),
    min_size=1,
    max_size=8,
)


def stored(body, flags=INNER_BATCH | NEED_UNWRAP):
    return StoredMessage(
        size=0, magic=0, body_crc=0, queue_id=1, flag=0, queue_offset=100,
        physical_offset=5_000, sys_flag=flags, born_timestamp=1, born_host=bytes(8),
        store_timestamp=2, store_host=bytes(8), reconsume_times=0,
        prepared_transaction_offset=0, body=body, topic="B",
        properties_text="INNER_NUM\x012\x02",
    )  # fmt: skip


@given(ITEMS, st.integers(0, 9), st.integers(1, 9))
def test_some_of_the_messages(items, skipped, count):
    found = inner_messages(stored(encode_batch(items)), 100 + skipped, count)
    wanted = list(enumerate(items))[skipped : skipped + count]
    assert [(each.queue_offset - 100, each.body) for each in found] == [
        (number, item.body) for number, item in wanted
    ]
    for each in found:
        [again] = decode_stored(encode_stored(each))
        assert again.sys_flag == 0
        assert again.body_crc == zlib.crc32(again.body) & 0x7FFFFFFF
        assert again.properties == {"A": "b"}
        assert (again.queue_id, again.physical_offset) == (1, 5_000)


@pytest.mark.parametrize(
    ("body", "flags"),
    [
        (b"plain", 0),
        (b"x" * 19, INNER_BATCH),
        (bytes(40), INNER_BATCH),
        (encode_batch([BatchItem(0, b"a", "")]), INNER_BATCH | COMPRESSED),
        (encode_batch([BatchItem(0, b"a", "")])[:-1], INNER_BATCH),
    ],
)
def test_what_cannot_be_read_is_left_as_it_is(body, flags):
    record = stored(body, flags)
    assert inner_messages(record) == [record]
