"""Packer: converts messages and batches to the form of their request."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.client.packing import PackedMessage, join, pack_plain
from rmq.client.compression import FLAGS, Compression, make_compressor
from rmq.client.message import Message, properties_of
from rmq.client.options import check_text
from rmq.protocol import properties as names
from rmq.protocol.topics import RETRY_PREFIX

MAX_LEVEL: Final = 18
MAX_MESSAGE_BYTES: Final = 4 << 20
"""Java's default of `maxMessageSize`, for producers and for brokers."""


class Packer:
    """Packs messages of one producer."""

    def __init__(
        self,
        keys: UniqueKeys,
        now_ms: Callable[[], int],
        compress_over: int | None,
        compression: Compression,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._max_message_bytes = max_message_bytes
        self._keys = keys
        self._now_ms = now_ms
        self._compress_over = compress_over
        self._compress = make_compressor(compression)
        self._compressed_flag = FLAGS[compression]
        self._plain_limit = self._joining_limit = max_message_bytes
        if compress_over is not None:
            self._plain_limit = min(max_message_bytes, compress_over)

    def pack(
        self,
        message: Message,
        extra: Mapping[str, str] | None = None,
        *,
        sys_flag: int = 0,
        joins: bool = False,
    ) -> PackedMessage:
        """Pack one message, with `joins` for a batch; ValueError if invalid."""
        try:
            if extra is None and not sys_flag:
                limit = self._joining_limit if joins else self._plain_limit
                plain = pack_plain(self._keys, message, limit)
                if plain is not None:
                    return plain
            msg_id = self._keys.next()
            properties = properties_of(message, msg_id, extra)
        except UnicodeEncodeError:
            _check_texts(message)
            raise
        body = message.body
        if len(body) > self._max_message_bytes:
            raise ValueError(
                f"a body has {len(body)} bytes, more than {self._max_message_bytes}: "
                "send a reference to large data, or raise max_message_bytes here and "
                "maxMessageSize of the brokers"
            )
        over = self._compress_over
        if over is not None and len(body) > over and not joins:
            body = self._compress(body)
            sys_flag |= self._compressed_flag
        return PackedMessage(
            message.topic,
            msg_id,
            properties,
            body,
            sys_flag,
            message.wait_stored,
            extra is not None
            or sys_flag != 0
            or message.topic.startswith(RETRY_PREFIX),
        )

    def join(self, messages: list[PackedMessage]) -> PackedMessage:
        """Pack messages of one topic as a batch."""
        is_waited_for = "true" if messages[0].wait_stored else "false"
        return join(messages, f"{names.WAIT}\x01{is_waited_for}\x02".encode())

    def delay_properties(
        self,
        delay: timedelta | None,
        deliver_at: datetime | None,
        delay_level: int | None,
    ) -> dict[str, str] | None:
        """Return the properties of a delayed delivery; ValueError if it is invalid."""
        given = [each for each in (delay, deliver_at, delay_level) if each is not None]
        if not given:
            return None
        _check_type("delay", delay, timedelta)
        _check_type("deliver_at", deliver_at, datetime)
        _check_type("delay_level", delay_level, int)
        if len(given) > 1:
            raise ValueError("give one of delay, deliver_at and delay_level")
        if delay_level is not None:
            if not 1 <= delay_level <= MAX_LEVEL:
                raise ValueError(
                    f"delay_level {delay_level} is not in 1 to {MAX_LEVEL}"
                )
            return {names.DELAY: str(delay_level)}
        if delay is not None:
            ms = round(delay / timedelta(milliseconds=1))
            if ms <= 0:
                raise ValueError(f"the delay {delay} is not positive")
            return {names.TIMER_DELAY_MS: str(ms)}
        assert deliver_at is not None
        if deliver_at.tzinfo is None:
            raise ValueError(f"deliver_at {deliver_at} has no time zone")
        return {names.TIMER_DELIVER_MS: str(int(deliver_at.timestamp() * 1_000))}


def _check_texts(message: Message) -> None:
    """Raise ConfigError for the first text that is not UTF-8."""
    check_text("tags", message.tags)
    for key in message.keys:
        check_text("keys", key)
    for name, value in (message.properties or {}).items():
        check_text("properties", name)
        check_text(f"property {name}", value)


def _check_type(name: str, value: object, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"{name} {value!r} is not a {kind.__name__}")
