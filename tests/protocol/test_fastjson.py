import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.core.errors import LocalProtocolError
from rmq.protocol import fastjson
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.fastjson import ObjectKey, dump_json, dumps_pretty, load_json

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


@settings(max_examples=50)
@given(values.filter(lambda value: not refers(value)))
def test_round_trip(value):
    assert load_json(dump_json(value)) == model_without_nulls(value)
    assert load_json(dumps_pretty(value)) == model_without_nulls(value)


@settings(max_examples=50)
@given(values)
def test_what_is_written_is_standard(value):
    assert json.loads(dump_json(value)) == model_without_nulls(value)
    assert json.loads(dumps_pretty(value)) == model_without_nulls(value)


def test_compact_and_sorted():
    assert dump_json({"b": [1, None, True], "a": {"y": 0.0, "x": "é"}}) == (
        '{"a":{"x":"é","y":0.0},"b":[1,null,true]}'.encode()
    )


def test_integer_names_are_quoted_and_in_order():
    assert dump_json({10: "b", 9: "a"}) == b'{"9":"a","10":"b"}'


def test_sets_are_sorted():
    assert dump_json({"set": {"b", "a"}}) == b'{"set":["a","b"]}'


def test_objects_as_names():
    text = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"max":1}}}'
    value = load_json(text)
    ((name, item),) = value["offsetTable"].items()
    assert name == ObjectKey({"topic": "t", "queueId": 0, "brokerName": "b"})
    assert name["topic"] == "t"
    assert item == {"max": 1}
    assert dump_json(value) == text


def test_structs_as_names():
    queue = MessageQueue(topic="t", broker_name="b", queue_id=0)
    assert dump_json({queue: 5}) == b'{{"brokerName":"b","queueId":0,"topic":"t"}:5}'


def test_pretty_form_is_that_of_java():
    assert dumps_pretty({"b": {}, "a": [], "t": {"x": [1, {"y": 2}]}}) == (
        b'{\n\t"a":[],\n\t"b":{},\n\t"t":{\n\t\t"x":[\n\t\t\t1,\n\t\t\t{\n\t\t\t\t"y":2\n'
        b"\t\t\t}\n\t\t]\n\t}\n}"
    )


@pytest.mark.parametrize("value", [object(), {True: 1}, {(1, 2): 3}, {"a": object()}])
def test_values_that_are_no_json_are_our_mistake(value):
    with pytest.raises(LocalProtocolError):
        dump_json(value)


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
        dump_json([Part(1), Part(2, "x")])
        == b'[{"someName":1},{"gone":"x","someName":2}]'
    )
