"""Texts that the protocol cannot have are named in a ConfigError."""

import pytest

from rmq.client import Consumer, Message, Producer
from rmq.core.errors import ConfigError

BAD = "a\udcff"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"topic": BAD}, "topic"),
        ({"keys": ["good", BAD]}, "keys"),
        ({"tags": BAD}, "tags"),
        ({"properties": {"colour": BAD}}, "property colour"),
        ({"properties": {BAD: "red"}}, "properties"),
    ],
)
def test_a_message_names_the_text_that_is_no_utf_8(broker, loop, fields, name):
    message = Message(**{"topic": "T", "body": b"x"} | fields)

    async def scenario():
        async with Producer(broker.name_server) as producer:
            with pytest.raises(ConfigError, match=rf"{name}: 'a\\udcff' is no UTF-8"):
                await producer.send(message)
            await producer.send(Message("T", b"good"))

    loop(scenario)


@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_a_group_is_checked(kind):
    with pytest.raises(ConfigError, match="group: "):
        kind("127.0.0.1:9876", group=BAD)
