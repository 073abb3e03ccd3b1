"""RegisterBrokerBody: what a broker tells a name server about its topics.

Three forms are read. Up to version 36 the body is the bare table of topics. From then
on it is a JSON document, or its compressed form, recognised by its first byte because
Java sends `compressed=false` for it (0x78 opens a zlib stream). In the zlib stream:

    i32 n · data version as JSON
    i32 count, then per topic: i32 n · text
    i32 n · filter servers as JSON
    from version 413: i32 count, then per mapping: i32 n · mapping as JSON

The text of a topic is `name readQueues writeQueues perm filterType attributes`, the
last as JSON; topicSysFlag and order are lost. We write only the JSON document.
"""

import struct
import zlib
from typing import Any, Final, Self, TypeVar

import msgspec
from msgspec import field

from rmq.errors import RemoteProtocolError, RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.bodies import Body
from rmq.protocol.bodies.common import DataVersion
from rmq.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from rmq.protocol.codes import WIRE_VERSION, ResponseCode, Version
from rmq.protocol.headers import I32

T = TypeVar("T")

MAX_INFLATED_SIZE: Final = 32 * 1024 * 1024
"""Twice the largest frame: attributes compress well, bombs far better."""

MAX_TEXT_TOPICS: Final = 100_000
"""Topics in a compressed body; each costs some microseconds."""

_ZLIB_MARK: Final = b"\x78"
_SIZE: Final = struct.Struct(">i")
_LEAST_TOKENS: Final = 5


class RegisterBrokerBody(Body, kw_only=True):
    """Request 103."""

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )
    filter_server_list: list[str] = field(default_factory=list)

    @classmethod
    def decode(cls, data: bytes, version: int = WIRE_VERSION) -> Self:
        """Read any of the three forms; an empty body registers no topics."""
        if not data:
            return cls()
        if data.startswith(_ZLIB_MARK):
            return cls._inflate(data)
        if version >= Version.V3_0_11:
            return super().decode(data)
        wrapper = TopicConfigAndMappingSerializeWrapper.decode(data)
        return cls(topic_config_serialize_wrapper=wrapper)

    @classmethod
    def _inflate(cls, data: bytes) -> Self:
        reader = _Reader(_inflate(data))
        data_version = DataVersion.decode(reader.take())
        count = reader.count()
        if count > MAX_TEXT_TOPICS:
            raise _rejected(
                f"{count} topics are more than {MAX_TEXT_TOPICS}: send them in parts"
            )
        topics = [_topic_from_text(reader.take_text()) for _ in range(count)]
        servers = _load(reader.take(), list[str])
        count = reader.count() if reader.has_more else 0
        mappings = [_load(reader.take(), dict[str, Any]) for _ in range(count)]
        wrapper = TopicConfigAndMappingSerializeWrapper(
            data_version=data_version,
            topic_config_table=dict(topics),
            topic_queue_mapping_info_map={str(m.get("topic")): m for m in mappings},
        )
        return cls(topic_config_serialize_wrapper=wrapper, filter_server_list=servers)


class _Reader:
    """Takes length-prefixed pieces; a length that lies rejects the request."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def has_more(self) -> bool:
        return self._position < len(self._data)

    def count(self) -> int:
        if len(self._data) - self._position < _SIZE.size:
            raise _rejected("it ends before a length")
        (number,) = _SIZE.unpack_from(self._data, self._position)
        self._position += _SIZE.size
        if not 0 <= number <= len(self._data) - self._position:
            raise _rejected(f"a length of {number} leads beyond its end")
        return int(number)

    def take(self) -> bytes:
        size = self.count()
        self._position += size
        return self._data[self._position - size : self._position]

    def take_text(self) -> str:
        return self.take().decode(errors="replace")


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, MAX_INFLATED_SIZE)
    except zlib.error as error:
        raise _rejected(str(error)) from error
    if not inflater.eof:
        raise _rejected(f"cut short, or longer than {MAX_INFLATED_SIZE} bytes")
    return inflated


def _load(data: bytes | str, kind: type[T]) -> T:
    try:
        return msgspec.convert(fastjson.loads_strange(data), kind)
    except (RemoteProtocolError, msgspec.ValidationError) as error:
        raise _rejected(str(error)) from error


def _topic_from_text(text: str) -> tuple[str, TopicConfig]:
    tokens = text.split(" ", _LEAST_TOKENS)
    if len(tokens) < _LEAST_TOKENS:
        raise _rejected(f"a topic has too few parts: {text!r}")
    name, read_queues, write_queues, perm, filter_type, *attributes = tokens
    topic = TopicConfig(
        topic_name=name,
        read_queue_nums=_number(read_queues),
        write_queue_nums=_number(write_queues),
        perm=_number(perm),
        topic_filter_type=filter_type,
        attributes=_load(attributes[0], dict[str, str]) if attributes else {},
    )
    return name, topic


def _number(text: str) -> int:
    try:
        return msgspec.convert(text, I32, strict=False)
    except msgspec.ValidationError as error:
        raise _rejected(f"a topic has {text!r} for a number") from error


def _rejected(reason: str) -> RequestRejected:
    remark = f"compressed RegisterBrokerBody: {reason}"
    return RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
