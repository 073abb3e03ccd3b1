"""RegisterBrokerBody: the topics that a broker registers at a name server.

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
from rmq.protocol.bodies import Body, decode_quickly
from rmq.protocol.bodies.common import DataVersion
from rmq.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from rmq.protocol.codes import WIRE_VERSION, ResponseCode, Version
from rmq.protocol.headers import I32

T = TypeVar("T")

MAX_INFLATED_SIZE: Final = 32 * 1024 * 1024
"""Twice the largest frame."""

MAX_INFLATION: Final = 64
"""Bytes that one byte may inflate to: tables of like topics reach 32, bombs 1000."""

MAX_TEXT_TOPICS: Final = 100_000
"""Topics in a compressed body, 2 us each; distinct names need more than a byte each."""

_ZLIB_MARK: Final = b"\x78"
_SIZE: Final = struct.Struct(">i")
_LEAST_TOKENS: Final = 5
_decode_number = msgspec.json.Decoder(I32).decode
_SHOWN: Final = 100
"""Bytes of a wrong part that the remark repeats."""


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
        body = cls._read(data, version)
        wrapper = body.topic_config_serialize_wrapper
        try:
            fastjson.check_depth(wrapper.topic_queue_mapping_info_map)
        except RemoteProtocolError as error:
            raise _rejected(str(error)) from error
        return body

    @classmethod
    def _read(cls, data: bytes, version: int) -> Self:
        if data.startswith(_ZLIB_MARK):
            return cls._inflate(data)
        if version >= Version.V3_0_11:
            return super().decode(data)
        wrapper = TopicConfigAndMappingSerializeWrapper.decode(data)
        return cls(topic_config_serialize_wrapper=wrapper)

    @classmethod
    def _inflate(cls, data: bytes) -> Self:
        reader = _Reader(_inflate(data))
        budget = fastjson.StrangeBudget()
        data_version = DataVersion.decode(reader.take())
        count = reader.count()
        if count > min(MAX_TEXT_TOPICS, len(data)):
            raise _rejected(
                f"{count} topics in {len(data)} bytes: {MAX_TEXT_TOPICS} may be in one "
                "request, and not more than it has bytes; send them in parts"
            )
        topics = [_topic_from_text(reader.take(), budget) for _ in range(count)]
        servers = _load(reader.take(), list[str], budget)
        count = reader.count() if reader.has_more else 0
        mappings = [_load(reader.take(), dict[str, Any], budget) for _ in range(count)]
        wrapper = TopicConfigAndMappingSerializeWrapper(
            data_version=data_version,
            topic_config_table=dict(topics),
            topic_queue_mapping_info_map={str(m.get("topic")): m for m in mappings},
        )
        return cls(topic_config_serialize_wrapper=wrapper, filter_server_list=servers)


class _Reader:
    """Reads length-prefixed pieces; RequestRejected if a length is wrong."""

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


def _inflate(data: bytes) -> bytes:
    limit = min(MAX_INFLATED_SIZE, MAX_INFLATION * len(data))
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, limit)
    except zlib.error as error:
        raise _rejected(str(error)) from error
    if not inflater.eof:
        raise _rejected(f"cut short, or longer than {limit} bytes")
    return inflated


def _load(data: bytes, kind: type[T], budget: fastjson.StrangeBudget) -> T:
    """Read a part; text that the typed parser cannot read counts for the budget."""
    value = decode_quickly(kind, data)
    if value is not None:
        return value
    try:
        return msgspec.convert(budget.loads(data), kind)
    except (RemoteProtocolError, msgspec.ValidationError) as error:
        raise _rejected(str(error)) from error


def _topic_from_text(
    text: bytes, budget: fastjson.StrangeBudget
) -> tuple[str, TopicConfig]:
    tokens = text.split(b" ", _LEAST_TOKENS)
    if len(tokens) < _LEAST_TOKENS:
        raise _rejected(f"a topic has too few parts: {text[:_SHOWN]!r}")
    first, read_queues, write_queues, perm, filter_type, *attributes = tokens
    name = first.decode(errors="replace")
    topic = TopicConfig(
        topic_name=name,
        read_queue_nums=_number(read_queues),
        write_queue_nums=_number(write_queues),
        perm=_number(perm),
        topic_filter_type=filter_type.decode(errors="replace"),
        attributes=_attributes(attributes, budget),
    )
    return name, topic


def _attributes(texts: list[bytes], budget: fastjson.StrangeBudget) -> dict[str, str]:
    if not texts or texts[0] == b"{}":
        return {}
    return _load(texts[0], dict[str, str], budget)


def _number(text: bytes) -> int:
    try:
        return _decode_number(text)
    except msgspec.DecodeError as error:
        raise _rejected(f"a topic has {text[:_SHOWN]!r} for a number") from error


def _rejected(reason: str) -> RequestRejected:
    remark = f"RegisterBrokerBody: {reason}"
    return RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
