"""The JSON files of Java's stores: read with their types, written in Java's form."""

import pytest

from rmq.protocol import fastjson
from rmq.protocol.bodies.groups import SubscriptionGroupWrapper
from rmq.protocol.bodies.queues import ConsumerOffsetSerializeWrapper
from rmq.protocol.bodies.topics import TopicConfigSerializeWrapper

TABLES = {
    "topics.json": TopicConfigSerializeWrapper,
    "subscriptionGroup.json": SubscriptionGroupWrapper,
    "consumerOffset.json": ConsumerOffsetSerializeWrapper,
}


@pytest.fixture(scope="module")
def files(golden):
    """The configuration files of one store, by name."""
    folder = golden / "stores" / "store-plain" / "config"
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_all_are_read(files):
    names = [name for name in files if name.endswith(".json")]
    assert len(names) >= 6
    for name in names:
        assert isinstance(fastjson.load_json(files[name]), dict)


@pytest.mark.parametrize("name", TABLES)
def test_nothing_is_lost(files, name):
    table = TABLES[name].decode(files[name])
    assert fastjson.load_json(table.encode()) == fastjson.load_json(files[name])
    assert TABLES[name].decode(fastjson.dumps_pretty(table)) == table


@pytest.mark.parametrize("name", TABLES)
def test_the_pretty_form_has_the_same_lines(files, name):
    def lines(text):
        unquoted = (line.replace(b'"', b"").rstrip(b",") for line in text.splitlines())
        return sorted(unquoted)

    table = TABLES[name].decode(files[name])
    assert lines(fastjson.dumps_pretty(table)) == lines(files[name])
