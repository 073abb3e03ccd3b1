import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.errors import RemoteProtocolError
from rmq.protocol.fastjson import loads

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5).filter("$ref".__ne__), inner, max_size=4)
    ),
    max_leaves=12,
)


def in_dialect(value, quote):
    """Write as loosely as the dialect allows: other quotes, blanks, commas."""
    if isinstance(value, dict):
        members = [
            f"{in_dialect(name, quote)} : {in_dialect(item, quote)} ,"
            for name, item in value.items()
        ]
        return "{ " + "".join(members) + "\n}"
    if isinstance(value, list):
        return "[" + "".join(f"{in_dialect(item, quote)}\t," for item in value) + "]"
    if isinstance(value, str):
        text = json.dumps(value)[1:-1]
        if quote == "'":
            text = text.replace('\\"', '"').replace("'", "\\'")
        return quote + text + quote
    return json.dumps(value)


@settings(max_examples=50)
@given(values, st.sampled_from("'\""))
def test_the_dialect_means_the_same(value, quote):
    assert loads(in_dialect(value, quote)) == value


@given(st.text(alphabet="{}[]:,'\"\\ux01a$-.eE tn", max_size=40))
def test_noise(text):
    with suppress(RemoteProtocolError):
        loads(text)


@given(st.binary(max_size=40))
def test_noise_of_bytes(data):
    with suppress(RemoteProtocolError):
        loads(data)


def test_integer_names_are_read_as_text():
    assert loads("{0:'a',-1:2}") == {"0": "a", "-1": 2}


def test_objects_as_names_are_hashable():
    with pytest.raises(RemoteProtocolError):
        loads("{{'a':[1]}:2}")


def test_escapes():
    assert loads(r"'\x41\u00e9\'\n\q\ud83d\ude00'") == "Aé'\nq😀"


@pytest.mark.parametrize(
    "text",
    ["", "{", "{'a':1", "[1", "'abc", "'\\", "'\\u12", "'\\u12g4'", "'\\ud800'",
     "'\\ud800\\u0041'", "{a}", "{a:}", "{:1}", "{,}", "[,]", "nope", "1 2", "{'a' 1}",
     "[1 2]", "'\\x+1'", "--1", "-", "9" * 5000 + "x"],
)  # fmt: skip
def test_what_is_no_json(text):
    with pytest.raises(RemoteProtocolError):
        loads(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a:" * 100_000, "{" * 100_000])
def test_nesting_is_limited(text):
    with pytest.raises(RemoteProtocolError):
        loads(text)
