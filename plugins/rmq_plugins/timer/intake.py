"""Intake: addresses timed messages to the timer's queue.

The out time of a message is the last multiple of the precision before its time. The
slot begins there, and the timer delivers the message after the end of the slot: never
before its time.
"""

import random
from collections.abc import Collection, Mapping
from typing import Final

from rmq.plugin import BrokerContext, RequestRejected
from rmq.plugin.native import TimedSends
from rmq.protocol import properties as names
from rmq.protocol.codes import ResponseCode
from rmq.protocol.handles import RecallHandle
from rmq.protocol.message import Message
from rmq.protocol.topics import RETRY_PREFIX, TIMER_TOPIC

TIMES: Final = frozenset(
    {names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS}
)
_MAX_DIGITS: Final = 19


class Intake:
    """Known in Java as the part of `HookUtils` for timer messages."""

    def __init__(self, broker: BrokerContext) -> None:
        self._config = config = broker.store_config
        self._clock = broker.clock
        self._timer = timer = broker.timer
        self._queues = broker.queues
        self._broker_name = broker.config.broker_name
        self.native: TimedSends | None = None
        """The form of `divert_timed` in compiled sends."""

        if timer.is_open:
            self.native = TimedSends(
                count_of=timer.wheel.count_of,
                broker_name=self._broker_name.encode(),
                precision_ms=timer.precision_ms,
                max_delay_ms=config.timer_max_delay_s * 1_000,
                most_in_slot=config.timer_most_in_slot,
            )

    def config_changed(self, _keys: Collection[str]) -> None:
        """Apply new values of the limits."""
        if self.native is not None:
            self.native.max_delay_ms = self._config.timer_max_delay_s * 1_000
            self.native.most_in_slot = self._config.timer_most_in_slot

    def divert_timed(self, message: Message) -> None:
        """Address a timed message to the timer's queue, unless it is a half message or
        already due.
        """
        properties = message.properties
        if message.topic == TIMER_TOPIC or names.TIMER_OUT_MS in properties:
            return
        if message.is_half or _delay_level(properties) > 0:
            return
        config = self._config
        if not config.timer_wheel_enable:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled, timerWheelEnable is false",
            )
        now_ms = self._clock.now_ms()
        due_ms = due_time(properties, now_ms)
        recalls = names.TIMER_DEL_UNIQKEY in properties
        max_ms = config.timer_max_delay_s * 1_000
        if due_ms is None or due_ms - now_ms > max_ms or (recalls and due_ms <= now_ms):
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                "timer message illegal, the delay time should not be bigger than the "
                f"max delay {max_ms}ms; or if set del msg, the delay time should be "
                "bigger than the current time",
            )
        if due_ms <= now_ms:
            return
        out_ms = out_time(due_ms, config.timer_precision_ms)
        self._check_congestion(out_ms // config.timer_precision_ms)
        message.set_property(names.TIMER_OUT_MS, str(out_ms))
        message.set_property(names.REAL_TOPIC, message.topic)
        message.set_property(names.REAL_QID, str(message.queue_id))
        message.topic, message.queue_id = TIMER_TOPIC, 0
        if self.native is not None and self.native.queue is None:
            self._register_queue(self.native)

    def recall_handle(self, message: Message) -> dict[str, str]:
        """Return the answer's field with which the producer can recall the message."""
        topic = message.properties[names.REAL_TOPIC]
        if topic.startswith(RETRY_PREFIX):
            return {}
        due_ms = int(message.properties[names.TIMER_OUT_MS]) + 1
        unique_key = message.properties[names.UNIQ_KEY]
        handle = RecallHandle(topic, self._broker_name, due_ms, unique_key)
        return {"recallHandle": handle.encode()}

    def _register_queue(self, native: TimedSends) -> None:
        """Let compiled sends write the timer's queue, after its first message."""
        queue = self._queues.get(TIMER_TOPIC, 0)
        if queue is not None and not queue.is_batch:
            native.register(queue)

    def _check_congestion(self, slot: int) -> None:
        """Refuse some of the messages for a slot that is over its limit; refuse all
        messages from twice the limit on.
        """
        limit = self._config.timer_most_in_slot
        count = self._timer.wheel.count_of(slot)
        if count < limit:
            return
        share = 1_000 * (count - limit) / (limit + 0.1)
        if count >= 2 * limit or random.randrange(1_000) > share:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control, max num limit is {2 * limit} or "
                f"the current value is greater than {limit} and less than {2 * limit}, "
                "trigger random flow control",
            )


def due_time(properties: Mapping[str, str], now_ms: int) -> int | None:
    """Return the time at which a message is due; None without a valid number.

    >>> due_time({"TIMER_DELAY_SEC": "2", "TIMER_DELIVER_MS": "7"}, 1_000)
    3000
    """
    for name, unit_ms, start_ms in (
        (names.TIMER_DELAY_SEC, 1_000, now_ms),
        (names.TIMER_DELAY_MS, 1, now_ms),
        (names.TIMER_DELIVER_MS, 1, 0),
    ):
        text = properties.get(name)
        if text is not None:
            number = _parse_integer(text)
            return None if number is None else start_ms + number * unit_ms
    return None


def out_time(due_ms: int, precision_ms: int) -> int:
    """Return the begin of the slot after whose end the message is delivered.

    >>> out_time(5_000, 1_000), out_time(5_001, 1_000)
    (4000, 5000)
    """
    return (due_ms - 1) // precision_ms * precision_ms


def _parse_integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS):
        return None
    return int(text)


def _delay_level(properties: Mapping[str, str]) -> int:
    return _parse_integer(properties.get(names.DELAY, "0")) or 0
