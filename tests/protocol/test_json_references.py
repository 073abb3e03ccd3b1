import json

import pytest

from rmq.core.errors import RemoteProtocolError
from rmq.protocol.fastjson import load_json


def test_references_become_copies():
    value = load_json('{"a":{"x":[1,2]},"b":{"$ref":"$.a"},"c":[{"$ref":"$.a.x[1]"}]}')
    assert value == {"a": {"x": [1, 2]}, "b": {"x": [1, 2]}, "c": [2]}
    assert value["a"] is not value["b"]


def test_references_through_quoted_steps_and_references():
    value = load_json('{"%R":{"x":1},"b":{"$ref":"$[\'%R\']"},"c":{"$ref":"$.b"}}')
    assert value["b"] == value["c"] == {"x": 1}


@pytest.mark.parametrize(
    "path", ["$.nope", "$[7]", "$.a.b", "..", "$x", "@", "", "$.a["]
)
def test_references_to_nothing_are_null(path):
    assert load_json(json.dumps({"a": 1, "b": {"$ref": path}}))["b"] is None


@pytest.mark.parametrize(
    "text", ['{"a":{"$ref":"$"}}', '{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}']
)
def test_references_in_a_circle(text):
    with pytest.raises(RemoteProtocolError, match="nested more than"):
        load_json(text)


def test_references_that_multiply():
    layers = {f"l{n}": [{"$ref": f"$.l{n + 1}"}] * 10 for n in range(9)} | {"l9": [1]}
    with pytest.raises(RemoteProtocolError, match="expand to more"):
        load_json(json.dumps(layers))
