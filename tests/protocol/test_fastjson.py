import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.errors import LocalProtocolError, RemoteProtocolError
from rmq.protocol import fastjson
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.fastjson import ObjectKey, dumps, dumps_pretty, loads

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
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def model_without_nulls(value):
    """What a document says: a member that is null says nothing."""
    if isinstance(value, dict):
        pairs = value.items()
        return {k: model_without_nulls(v) for k, v in pairs if v is not None}
    if isinstance(value, list):
        return [model_without_nulls(item) for item in value]
    return value


def refers(value):
    return "$ref" in json.dumps(value)


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
@given(values.filter(lambda value: not refers(value)))
def test_round_trip(value):
    assert loads(dumps(value)) == model_without_nulls(value)
    assert loads(dumps_pretty(value)) == model_without_nulls(value)


@settings(max_examples=50)
@given(values)
def test_what_is_written_is_standard(value):
    assert json.loads(dumps(value)) == model_without_nulls(value)
    assert json.loads(dumps_pretty(value)) == model_without_nulls(value)


@settings(max_examples=50)
@given(values.filter(lambda value: not refers(value)), st.sampled_from("'\""))
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


def test_compact_and_sorted():
    assert dumps({"b": [1, None, True], "a": {"y": 0.0, "x": "é"}}) == (
        '{"a":{"x":"é","y":0.0},"b":[1,null,true]}'.encode()
    )


def test_integer_names_are_quoted_and_in_order():
    assert dumps({10: "b", 9: "a"}) == b'{"9":"a","10":"b"}'


def test_integer_names_are_read_as_text():
    assert loads("{0:'a',-1:2}") == {"0": "a", "-1": 2}


def test_sets_are_sorted():
    assert dumps({"set": {"b", "a"}}) == b'{"set":["a","b"]}'


def test_objects_as_names():
    text = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"max":1}}}'
    value = loads(text)
    ((name, item),) = value["offsetTable"].items()
    assert name == ObjectKey({"topic": "t", "queueId": 0, "brokerName": "b"})
    assert name["topic"] == "t"
    assert item == {"max": 1}
    assert dumps(value) == text


def test_structs_as_names():
    queue = MessageQueue(topic="t", broker_name="b", queue_id=0)
    assert dumps({queue: 5}) == b'{{"brokerName":"b","queueId":0,"topic":"t"}:5}'


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


def test_references_become_copies():
    value = loads('{"a":{"x":[1,2]},"b":{"$ref":"$.a"},"c":[{"$ref":"$.a.x[1]"}]}')
    assert value == {"a": {"x": [1, 2]}, "b": {"x": [1, 2]}, "c": [2]}
    assert value["a"] is not value["b"]


def test_references_through_quoted_steps_and_references():
    value = loads('{"%R":{"x":1},"b":{"$ref":"$[\'%R\']"},"c":{"$ref":"$.b"}}')
    assert value["b"] == value["c"] == {"x": 1}


@pytest.mark.parametrize(
    "path", ["$.nope", "$[7]", "$.a.b", "..", "$x", "@", "", "$.a["]
)
def test_references_to_nothing_are_null(path):
    assert loads(json.dumps({"a": 1, "b": {"$ref": path}}))["b"] is None


@pytest.mark.parametrize(
    "text", ['{"a":{"$ref":"$"}}', '{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}']
)
def test_references_in_a_circle(text):
    with pytest.raises(RemoteProtocolError, match="deeper"):
        loads(text)


def test_references_that_multiply():
    layers = {f"l{n}": [{"$ref": f"$.l{n + 1}"}] * 10 for n in range(9)} | {"l9": [1]}
    with pytest.raises(RemoteProtocolError, match="stand for more"):
        loads(json.dumps(layers))


def test_pretty_form_is_that_of_java():
    assert dumps_pretty({"b": {}, "a": [], "t": {"x": [1, {"y": 2}]}}) == (
        b'{\n\t"a":[],\n\t"b":{},\n\t"t":{\n\t\t"x":[\n\t\t\t1,\n\t\t\t{\n\t\t\t\t"y":2\n'
        b"\t\t\t}\n\t\t]\n\t}\n}"
    )


@pytest.mark.parametrize("value", [object(), {True: 1}, {(1, 2): 3}, {"a": object()}])
def test_values_that_are_no_json_are_our_mistake(value):
    with pytest.raises(LocalProtocolError):
        dumps(value)


def test_java_text():
    assert fastjson.java_text("x") == "x"
    assert fastjson.java_text(4) == "4"
    assert fastjson.java_text(value=False) == "false"
    assert fastjson.java_text({"a": 1}) == '{"a":1}'


class Part(msgspec.Struct, rename="camel"):
    some_name: int
    gone: str | None = None


def test_structs_leave_out_none():
    assert (
        dumps([Part(1), Part(2, "x")]) == b'[{"someName":1},{"gone":"x","someName":2}]'
    )
