import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import RequestRejected
from rmq.protocol.batch import BatchItem, decode_batch, encode_batch
from rmq.protocol.codes import ResponseCode

items = st.lists(
    st.builds(
        BatchItem,
        flag=st.integers(-(2**31), 2**31 - 1),
        body=st.binary(max_size=50),
        properties_text=st.text(max_size=20),
    ),
    max_size=5,
)


@given(items)
def test_batch_round_trip(batch):
    assert decode_batch(encode_batch(batch)) == batch


@given(items.filter(bool), st.integers(0, 10_000))
def test_a_batch_cut_short_is_rejected_or_loses_items(batch, size):
    body = encode_batch(batch)
    with suppress(RequestRejected):
        kept = decode_batch(body[: size % len(body)])
        assert kept == batch[: len(kept)]


@given(st.binary(max_size=80))
def test_noise_is_rejected_with_message_illegal(noise):
    with suppress(RequestRejected):
        found = decode_batch(noise)
        assert decode_batch(encode_batch(found)) == found


def item(size=None, body_size=None, properties_size=None, body=b"xy", properties=b"p"):
    return struct.pack(
        f">iiiii{len(body)}sh{len(properties)}s",
        22 + len(body) + len(properties) if size is None else size,
        0, 0, 0,
        len(body) if body_size is None else body_size,
        body,
        len(properties) if properties_size is None else properties_size,
        properties,
    )  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        item(size=24), item(size=0), item(size=-1), item(size=2**31 - 1),
        item(body_size=-1), item(body_size=2**31 - 1), item(body_size=1),
        item(properties_size=-1), item(properties_size=500),
        item(properties=b"\xff"), item()[:-1], item() + b"\0",
    ],
)  # fmt: skip
def test_lengths_that_lie(body):
    with pytest.raises(RequestRejected) as caught:
        decode_batch(body)
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert "batch item at byte" in caught.value.remark


def test_an_item_that_is_right():
    assert decode_batch(item()) == [BatchItem(0, b"xy", "p")]
