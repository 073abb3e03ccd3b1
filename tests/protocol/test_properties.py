import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import LocalProtocolError
from rmq.protocol.properties import decode_properties, encode_properties

plain = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1)


def model_decode(text):
    """As Java does it, by index."""
    properties, index = {}, 0
    while index < len(text):
        end = text.find("\x02", index)
        end = len(text) if end < 0 else end
        if end - index >= 3:
            middle = text.find("\x01", index)
            if index < middle < end - 1:
                properties[text[index:middle]] = text[middle + 1 : end]
        index = end + 1
    return properties


@given(st.text(alphabet="ab\x01\x02", max_size=30))
def test_like_the_model(text):
    assert decode_properties(text) == model_decode(text)


@given(st.dictionaries(plain, plain))
def test_round_trip(properties):
    assert decode_properties(encode_properties(properties)) == properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("TAGS\x01A\x02KEYS\x01k1 k2\x02", {"TAGS": "A", "KEYS": "k1 k2"}),
        ("TAGS\x01A", {"TAGS": "A"}),
        ("a\x011\x02a\x012\x02", {"a": "2"}),
        ("a\x01\x02b\x011\x02", {"b": "1"}),
        ("\x01v\x02b\x011\x02", {"b": "1"}),
        ("novalue\x02b\x011\x02", {"b": "1"}),
        ("a\x01x\x01y\x02", {"a": "x\x01y"}),
    ],
)
def test_examples(text, properties):
    assert decode_properties(text) == properties


@pytest.mark.parametrize("properties", [{"a\x01": "v"}, {"a\x02": "v"}, {"a": "v\x02"}])
def test_separators_in_names_and_values_are_our_mistake(properties):
    with pytest.raises(LocalProtocolError, match="separator"):
        encode_properties(properties)


@pytest.mark.parametrize("properties", [{None: "v"}, {"a": None}, {1: "v"}])
def test_what_is_no_text_is_no_property(properties):
    with pytest.raises(TypeError):
        encode_properties(properties)
