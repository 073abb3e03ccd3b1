"""Message: the message of a program, and the text of its properties."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from rmq.client.core.routes import MessageQueue
from rmq.core.errors import LocalProtocolError
from rmq.protocol import properties as names
from rmq.protocol.properties import MAX_PROPERTIES_SIZE, encode_properties

__all__ = ["Message", "MessageQueue", "properties_of"]

FREE: Final = frozenset(
    {
        names.CHECK_IMMUNITY_TIME_IN_SECONDS,
        names.INSTANCE_ID,
        names.PRIORITY,
        names.SHARDING_KEY,
    }
)
"""Names of properties with a meaning for brokers that programs may set."""

RESERVED: Final = (
    frozenset(
        value
        for name, value in vars(names).items()
        if name.isupper() and isinstance(value, str)
    )
    - FREE
)


class Message(msgspec.Struct, gc=False, frozen=True):
    """A message to send; ValueError if a field is invalid.

    Args:
        topic (str): the topic: letters, digits, "%", "|", "-" and "_", at most 127.
        body (bytes): the content. Brokers refuse an empty body. Exception: in a
            compaction topic, a message with a key and an empty body deletes this key.
        tags (str, default ''): a word that consumers can filter by.
        keys (Sequence[str], default ()): words by which tools find the message. The
            option `key` of `send` has another purpose: it keeps an order.
        properties (Mapping[str, str] | None, default None): texts by name, which are
            stored with the message.
        wait_stored (bool, default True): with False the broker answers before the
            message is on the disk, in any flush mode.
    """

    topic: str
    body: bytes
    tags: str = msgspec.field(default="")
    keys: Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    wait_stored: bool = True

    def __post_init__(self) -> None:
        """Check the fields that the broker would refuse, or change silently."""
        if (
            type(self.body) is not bytes
            or not self.topic
            or not (self.body or self.keys)
        ):
            raise ValueError(_describe_fault(self.topic, self.body))
        if self.keys:
            _check_keys(self.keys)
        if self.properties:
            _check_properties(self.properties)


def _describe_fault(topic: object, body: object) -> str:
    """Return the fault of a topic or a body, or None."""
    if not topic:
        return f"the topic of a message is {topic!r}: give it a name"
    if isinstance(body, bytes):
        return "the body of a message is empty: brokers refuse it"
    return (
        f"the body of a message is bytes, not {type(body).__name__}: "
        "encode a text with .encode()"
    )


def _check_keys(keys: Sequence[str]) -> None:
    if isinstance(keys, str):
        text = f"keys must be a list of keys, not the text {keys!r}"
        raise ValueError(text)  # noqa: TRY004 - as above
    for key in keys:
        if not isinstance(key, str):
            raise ValueError(f"the key {key!r} is not a text")  # noqa: TRY004 - as above
        if not key or key.split() != [key]:
            raise ValueError(f"the key {key!r} is empty or has a blank in it")


def _check_properties(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            text = f"the property {name!r} is {value!r}: both must be texts"
            raise ValueError(text)  # noqa: TRY004 - as above
        if name in RESERVED:
            raise ValueError(f"the property {name} is reserved for brokers and clients")
        if not name or not value:
            raise ValueError(
                f"the property {name!r} is {value!r}: brokers drop empty properties"
            )


def properties_of(
    message: Message, msg_id: str, extra: Mapping[str, str] | None = None
) -> bytes:
    """Return the properties of a message as its record has them.

    ValueError if they contain a separator, or are too large. The client itself adds
    `extra`.
    """
    is_plain = not (message.tags or message.keys or message.properties or extra)
    if is_plain and message.wait_stored:
        return b"UNIQ_KEY\x01%b\x02" % msg_id.encode()
    texts = {names.UNIQ_KEY: msg_id, **(message.properties or {})}
    if message.tags:
        texts[names.TAGS] = message.tags
    if message.keys:
        texts[names.KEYS] = " ".join(message.keys)
    if not message.wait_stored:
        texts[names.WAIT] = "false"
    if extra:
        texts.update(extra)
    text = _encode_texts(texts)
    if len(text) > MAX_PROPERTIES_SIZE:
        raise ValueError(
            f"the properties take {len(text)} bytes, a message may have "
            f"{MAX_PROPERTIES_SIZE}: put large values into the body"
        )
    return text


def _encode_texts(texts: dict[str, str]) -> bytes:
    for name, value in texts.items():
        if "\x01" in value:
            raise ValueError(f"the property {name!r} holds the separator 0x01")
    try:
        return encode_properties(texts).encode()
    except LocalProtocolError as error:
        raise ValueError(str(error)) from error
