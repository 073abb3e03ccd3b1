"""Properties against a slow, obvious decoder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.bytes.properties import decode_properties


def model(text):
    properties = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


@given(st.text("\x00\x01\x02aé\u4e2d\U0001f600\ud800"))
def test_as_model(text):
    assert decode_properties(text) == model(text)


def test_order_is_that_of_the_text():
    assert list(decode_properties("b\x011\x02a\x012\x02b\x013")) == ["b", "a"]


def test_none_is_refused():
    with pytest.raises(TypeError):
        decode_properties(None)
