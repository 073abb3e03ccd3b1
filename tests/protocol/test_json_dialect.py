import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.core.errors import RemoteProtocolError
from rmq.protocol.fastjson import ObjectKey, load_json
from rmq.protocol.json_dialect import read_dialect
from tests.model import json_dialect as model

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
    assert load_json(in_dialect(value, quote)) == value


pieces = st.sampled_from(
    ["{", "}", "[", "]", ":", ",", "{{", "'a'", '"b"', "x", "0", "-07", "1.", "2.5e3",
     "true", "null", " ", "\n", r"'\x41\v\q\''", r'"\u00e9\ud83d\ude00\\"', "'é\t\"'"]
)  # fmt: skip


def model_form(value):
    """The value as the model has it: objects as names are frozen sets."""
    if isinstance(value, dict):
        return {model_form(name): model_form(item) for name, item in value.items()}
    if isinstance(value, ObjectKey):
        return frozenset(value.items())
    return [model_form(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=300)
@given(st.lists(pieces, max_size=25).map("".join) | st.text(max_size=20))
def test_the_reader_is_the_model(text):
    try:
        wanted = model.read_dialect(text.encode(errors="replace"))
    except (ValueError, IndexError):
        with pytest.raises(RemoteProtocolError):
            read_dialect(text.encode(errors="replace"))
    else:
        assert model_form(read_dialect(text.encode())) == wanted


@given(values, st.sampled_from("'\""))
def test_documents_are_those_of_the_model(value, quote):
    text = "{{x:1,'y':" + 2 * quote + "}:" + in_dialect(value, quote) + "}"
    assert model_form(load_json(text)) == model.read_dialect(text.encode())


@given(st.text(alphabet="{}[]:,'\"\\ux01a$-.eE tn", max_size=40))
def test_noise(text):
    with suppress(RemoteProtocolError):
        load_json(text)


@given(st.binary(max_size=40))
def test_noise_of_bytes(data):
    with suppress(RemoteProtocolError):
        load_json(data)


def test_integer_names_are_read_as_text():
    assert load_json("{0:'a',-1:2}") == {"0": "a", "-1": 2}


def test_objects_as_names_are_hashable():
    with pytest.raises(RemoteProtocolError):
        load_json("{{'a':[1]}:2}")


def test_escapes():
    assert load_json(r"'\x41\u00e9\'\n\q\ud83d\ude00'") == "Aé'\nq😀"


@pytest.mark.parametrize(
    "text",
    ["", "{", "{'a':1", "[1", "'abc", "'\\", "'\\u12", "'\\u12g4'", "'\\ud800'",
     "'\\ud800\\u0041'", "{a}", "{a:}", "{:1}", "{,}", "[,]", "nope", "1 2", "{'a' 1}",
     "[1 2]", "'\\x+1'", "--1", "-", "9" * 5000 + "x"],
)  # fmt: skip
def test_what_is_no_json(text):
    with pytest.raises(RemoteProtocolError):
        load_json(text)


def test_an_object_inside_an_object_that_is_a_name():
    """Its escapes would double at each level."""
    with pytest.raises(RemoteProtocolError, match="no array"):
        load_json("{" * 30 + "a:1" + "}:1" * 29 + "}")


@pytest.mark.parametrize("text", ["[" * 100_000, "{a:" * 100_000, "{" * 100_000])
def test_nesting_is_limited(text):
    with pytest.raises(RemoteProtocolError):
        load_json(text)
