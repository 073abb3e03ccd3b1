"""RegisterBrokerBody: the topics that a broker registers at a name server.

A body has one of three forms. Up to version 36 it is the bare table of topics. Later
versions send a JSON document, or its compressed form. Java sends `compressed=false`
with both later forms, so the first byte decides: 0x78 opens a zlib stream. In the zlib
stream:

    i32 n · data version as JSON
    i32 count, then per topic: i32 n · text
    i32 n · filter servers as JSON
    from version 413: i32 count, then per mapping: i32 n · mapping as JSON

The text of a topic is `name readQueues writeQueues perm filterType attributes`, the
last as JSON; topicSysFlag and order are lost. rmq writes only the JSON document.

A host that is not trusted may send a large body. So it is read in steps, between which
the loop serves other requests: `inflate`, in a worker thread, then `inflated_steps` for
the compressed form, `document_steps` for a document. `document_steps` removes the
members of the two tables of topics from the text if they have the form that brokers
write. Then it decodes the remaining text.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final, Self, TypeVar

import msgspec
from msgspec import field

from rmq.core.errors import RemoteProtocolError, RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.bodies import MAX_OBJECTS, Body, decode_quickly
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from rmq.protocol.codes import WIRE_VERSION, ResponseCode, Version
from rmq.protocol.headers import I32

T = TypeVar("T")

MAX_INFLATED_SIZE: Final = 16 * 1024 * 1024
"""Maximum bytes after inflation: the largest frame, which is the limit without
compression.
"""

MAX_INFLATION: Final = 64
"""Maximum bytes that one byte may inflate to: tables of similar topics reach 32, bombs
1000.
"""

MAX_TEXT_TOPICS: Final = 100_000
"""Maximum number of topics in a compressed body, 2 us each."""

_PIECE_SIZE: Final = 64 * 1024
_HEAD_START: Final = 1024 * 1024
"""Number of bytes that a body may inflate to in addition to the limit by
`MAX_INFLATION`.
"""

MAX_PART_SIZE: Final = 256 * 1024
"""Maximum bytes of one topic or mapping, and of a step: 1 ms of the loop."""

PARTS_OF_STEP: Final = 100
"""Topics or mappings of a step, 0.4 ms of the loop."""

MAX_REST_SIZE: Final = 1024 * 1024
"""Maximum bytes of a document after its topics were removed: 5 ms of the loop."""

_MEMBER: Final = re.compile(
    rb"""
    "[^"\\]*+" : \{ (?: [^{}"\\]++ | "[^"\\]*+" |
        \{ (?: [^{}"\\]++ | "[^"\\]*+" )*+ \}
    )*+ \}
    """,
    re.VERBOSE,
)
"""A name and an object without escapes; its inner objects contain no objects."""

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
        if cls.is_compressed(data):
            return next(filter(None, cls.inflated_steps(inflate(data), len(data))))
        if version >= Version.V3_0_11:
            body = super().decode(data)
        else:
            wrapper = TopicConfigAndMappingSerializeWrapper.decode(data)
            body = cls(topic_config_serialize_wrapper=wrapper)
        _check_depth(body.topic_config_serialize_wrapper.topic_queue_mapping_info_map)
        return body

    @staticmethod
    def is_compressed(data: bytes) -> bool:
        """Whether `inflate` and `inflated_steps` read this form."""
        return data.startswith(_ZLIB_MARK)

    @classmethod
    def document_steps(cls, data: bytes, version: int) -> Iterator[Self | None]:
        """Read a large document; yield None after each step, and finally the body."""
        objects = 0
        for start in range(0, len(data), MAX_PART_SIZE):
            objects += data.count(b"{", start, start + MAX_PART_SIZE)
            if objects > MAX_OBJECTS:
                raise _registration_rejection(
                    f"more than {MAX_OBJECTS} objects: send them in parts"
                )
            yield None
        budget = fastjson.StrangeBudget()
        cut = _Cut(data)
        topics: dict[str, TopicConfig] = {}
        for text in cut.members(b'"topicConfigTable":{'):
            topics |= _load(text, dict[str, TopicConfig], budget)
            yield None
        mappings: dict[str, dict[str, Any]] = {}
        for text in cut.members(b'"topicQueueMappingInfoMap":{'):
            mappings |= _load(text, dict[str, dict[str, Any]], budget)
            yield None
        if len(cut.rest) > MAX_REST_SIZE:
            raise _registration_rejection(
                f"{len(cut.rest)} bytes outside of plain topics (without escapes and "
                f"blanks): {MAX_REST_SIZE} are allowed"
            )
        body = cls.decode(cut.rest, version)
        wrapper = body.topic_config_serialize_wrapper
        topics |= wrapper.topic_config_table
        mappings |= wrapper.topic_queue_mapping_info_map or {}
        wrapper.topic_config_table = topics
        wrapper.topic_queue_mapping_info_map = mappings
        yield body

    @classmethod
    def inflated_steps(
        cls, inflated: bytes, compressed_size: int
    ) -> Iterator[Self | None]:
        """Read the inflated form; yield None after each step, and finally the body."""
        reader = _Reader(inflated)
        budget = fastjson.StrangeBudget()
        data_version = DataVersion.decode(reader.read_field())
        count = reader.count()
        if count > min(MAX_TEXT_TOPICS, compressed_size):
            raise _registration_rejection(
                f"{count} topics in {compressed_size} bytes: one request may have "
                f"{MAX_TEXT_TOPICS} topics, and not more topics than bytes; send them "
                "in parts"
            )
        topics: dict[str, TopicConfig] = {}
        for _ in range(count):
            name, topic = _topic_from_text(reader.read_field(), budget)
            topics[name] = topic
            if reader.ends_step():
                yield None
        servers = _load(reader.read_field(), list[str], budget)
        mappings: dict[str, dict[str, Any]] = {}
        for _ in range(reader.count() if reader.has_more else 0):
            mapping = _read_mapping(reader.read_field(), budget)
            mappings[str(mapping.get("topic"))] = mapping
            if reader.ends_step():
                yield None
        wrapper = TopicConfigAndMappingSerializeWrapper(
            data_version=data_version,
            topic_config_table=topics,
            topic_queue_mapping_info_map=mappings,
        )
        yield cls(topic_config_serialize_wrapper=wrapper, filter_server_list=servers)


class _Cut:
    """A document, and its remaining text after members were removed."""

    def __init__(self, rest: bytes) -> None:
        self.rest = rest

    def members(self, opening: bytes) -> Iterator[bytes]:
        """Remove the members after this text; yield them as objects, one step each."""
        text = self.rest
        begin = end = text.find(opening) + len(opening)
        if begin < len(opening):
            return
        while True:
            start = end
            for _ in range(PARTS_OF_STEP):
                found = _MEMBER.match(text, end, start + MAX_PART_SIZE)
                after = found and text[found.end() : found.end() + 1]
                if found is None or after not in (b",", b"}"):
                    break
                end = found.end() + (after == b",")
                if after == b"}":
                    break
            if end == start:
                break
            yield b"{" + text[start:end].rstrip(b",") + b"}"
            if text[end - 1 : end] != b",":
                break
        self.rest = text[:begin] + text[end:]


class _Reader:
    """Reads length-prefixed pieces; RequestRejected if a length is wrong."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = self._step_begin = self._step_parts = 0

    @property
    def has_more(self) -> bool:
        return self._position < len(self._data)

    def count(self) -> int:
        if len(self._data) - self._position < _SIZE.size:
            raise _registration_rejection("the body ends before a length")
        (number,) = _SIZE.unpack_from(self._data, self._position)
        self._position += _SIZE.size
        if not 0 <= number <= len(self._data) - self._position:
            raise _registration_rejection(f"a length of {number} exceeds the body")
        return int(number)

    def read_field(self) -> bytes:
        size = self.count()
        if size > MAX_PART_SIZE:
            raise _registration_rejection(
                f"a part of {size} bytes: a part may have {MAX_PART_SIZE}"
            )
        self._position += size
        self._step_parts += 1
        return self._data[self._position - size : self._position]

    def ends_step(self) -> bool:
        """Whether other tasks should run now, before the next step."""
        size = self._position - self._step_begin
        if size < MAX_PART_SIZE and self._step_parts < PARTS_OF_STEP:
            return False
        self._step_begin, self._step_parts = self._position, 0
        return True


def inflate(data: bytes) -> bytes:
    """Return the text of a compressed body; RequestRejected if it is too long.

    It blocks, without the GIL: call it from a worker thread.
    """
    limit = min(MAX_INFLATED_SIZE, MAX_INFLATION * len(data))
    inflater, pieces, size = zlib.decompressobj(), [], 0
    for start in range(0, len(data), _PIECE_SIZE):
        rest = data[start : start + _PIECE_SIZE]
        allowed = min(limit, MAX_INFLATION * (start + len(rest)) + _HEAD_START)
        while rest and not inflater.eof:
            try:
                pieces.append(inflater.decompress(rest, _PIECE_SIZE))
            except zlib.error as error:
                raise _registration_rejection(str(error)) from error
            rest = inflater.unconsumed_tail
            size += len(pieces[-1])
            if size > allowed:
                pieces.clear()  # the traceback keeps it
                raise _registration_rejection(f"longer than {limit} bytes")
    pieces.append(inflater.flush())
    if not inflater.eof:
        raise _registration_rejection("truncated")
    return b"".join(pieces)


def _read_mapping(data: bytes, budget: fastjson.StrangeBudget) -> dict[str, Any]:
    mapping = _load(data, dict[str, Any], budget)
    _check_depth(mapping)
    return mapping


def _check_depth(value: object) -> None:
    try:
        fastjson.check_depth(value)
    except RemoteProtocolError as error:
        raise _registration_rejection(str(error)) from error


def _load(data: bytes, kind: type[T], budget: fastjson.StrangeBudget) -> T:
    """Read a part; text that the typed parser cannot read counts for the budget."""
    value = decode_quickly(kind, data)
    if value is not None:
        return value
    try:
        return msgspec.convert(budget.load_json(data), kind)
    except (RemoteProtocolError, msgspec.ValidationError) as error:
        raise _registration_rejection(str(error)) from error


def _topic_from_text(
    text: bytes, budget: fastjson.StrangeBudget
) -> tuple[str, TopicConfig]:
    tokens = text.split(b" ", _LEAST_TOKENS)
    if len(tokens) < _LEAST_TOKENS:
        raise _registration_rejection(f"a topic has too few parts: {text[:_SHOWN]!r}")
    first, read_queues, write_queues, perm, filter_type, *attributes = tokens
    name = first.decode(errors="replace")
    topic = TopicConfig(
        topic_name=name,
        read_queue_nums=_read_number(read_queues),
        write_queue_nums=_read_number(write_queues),
        perm=_read_number(perm),
        topic_filter_type=filter_type.decode(errors="replace"),
        attributes=_read_attributes(attributes, budget),
    )
    return name, topic


def _read_attributes(
    texts: list[bytes], budget: fastjson.StrangeBudget
) -> dict[str, str]:
    if not texts or texts[0] == b"{}":
        return {}
    return _load(texts[0], dict[str, str], budget)


def _read_number(text: bytes) -> int:
    try:
        return _decode_number(text)
    except msgspec.DecodeError as error:
        raise _registration_rejection(
            f"a topic has {text[:_SHOWN]!r} for a number"
        ) from error


def _registration_rejection(reason: str) -> RequestRejected:
    remark = f"RegisterBrokerBody: {reason}"
    return RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
