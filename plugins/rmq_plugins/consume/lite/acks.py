"""Requests 200051 and 200053 with a `liteTopic`: acks, and a new invisible time.

The plugin pop serves these requests without a `liteTopic`. Late and repeated acks get
code 0. After a restart the broker does not know the POP of an ack. Such an ack advances
the group's offset only if it acks the next message, so the group skips no message.
"""

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.handles import ORDERED_REVIVE_QUEUE
from rmq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
)
from rmq.protocol.topics import lite_queue
from rmq_plugins.consume.answers import answer_invisible_time
from rmq_plugins.consume.checks import (
    ConsumeChecks,
    check_invisible_time,
    decode_handle,
)
from rmq_plugins.consume.lite.dispatch import LiteDispatch
from rmq_plugins.consume.lite.tables import LiteTables
from rmq_plugins.consume.queue_order import ANOTHER_POP, NOT_POPPED


class LiteAcks:
    """A part of Java's `AckMessageProcessor` and `ChangeInvisibleTimeProcessor`."""

    def __init__(
        self, broker: BrokerContext, tables: LiteTables, dispatch: LiteDispatch
    ) -> None:
        self._checks = ConsumeChecks(broker)
        self._offsets = broker.offsets
        self._clock = broker.clock
        self._rules, self._queues, _, self._orders = tables
        self._dispatch = dispatch

    def ack(self, request: Command, connection: Connection) -> Command:
        """Ack a message of a lite topic."""
        header = request.header(AckMessageRequestHeader)
        self._checks.check_ack(header, connection)
        group, queue = header.consumer_group, _queue(header)
        if self._rules.bound_topic(group) != header.topic:
            raise _invalid("group type or bind topic not match.")
        if header.offset > self._queues.end(queue):
            raise RequestRejected(ResponseCode.NO_MESSAGE, "ack offset illegal.")
        handle = decode_handle(header.extra_info)
        if header.queue_id != 0 or handle.revive_queue != ORDERED_REVIVE_QUEUE:
            raise _invalid("ack queue illegal.")
        if header.offset >= self._offsets.query(group, queue, 0):
            self._ack_offset(queue, group, header.offset, handle.pop_ms)
        return request.reply()

    def _ack_offset(self, queue: str, group: str, offset: int, pop_ms: int) -> None:
        committed = self._offsets.query(group, queue, 0)
        order = self._orders.get(queue, group)
        if order is None:
            next_offset = offset + 1 if offset == committed else ANOTHER_POP
        else:
            next_offset = order.ack(offset, pop_ms)
        if next_offset == NOT_POPPED:
            raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, "ack offset illegal.")
        if next_offset == ANOTHER_POP:
            return
        if next_offset > committed and not self._offsets.is_reset(group, queue, 0):
            self._offsets.commit("an ack", group, queue, 0, next_offset)
        if order is not None and order.blocked_until_ms(0) == 0:
            self._orders.drop(queue, group)
        elif order is not None:
            self._orders.refresh_time(queue, group)
            self._dispatch.update_alarm()
            if order.blocked_until_ms(0) > self._clock.now_ms():
                return
        if next_offset < self._queues.end(queue):
            self._dispatch.offer(queue, group)

    def change_invisible_time(
        self, request: Command, connection: Connection
    ) -> Command:
        """Hide a message of a lite topic longer.

        With `suspend` the whole POP is hidden, and does not count as a failure.
        """
        header = request.header(ChangeInvisibleTimeRequestHeader)
        self._checks.check_ack(header, connection)
        group, queue = header.consumer_group, _queue(header)
        if header.offset > self._queues.end(queue):
            return answer_invisible_time(request, 0, 0, 0, ResponseCode.NO_MESSAGE)
        check_invisible_time(header.invisible_time)
        handle = decode_handle(header.extra_info)
        if header.offset < self._offsets.query(group, queue, 0):
            return answer_invisible_time(request, 0, 0, 0)
        until_ms = self._clock.now_ms() + header.invisible_time
        order = self._orders.get(queue, group)
        if order is not None and (
            order.suspend(handle.pop_ms, until_ms)
            if header.suspend
            else order.extend(header.offset, handle.pop_ms, until_ms)
        ):
            self._orders.refresh_time(queue, group)
            self._dispatch.update_alarm()
        left_ms = until_ms - handle.pop_ms
        return answer_invisible_time(
            request, handle.pop_ms, left_ms, handle.revive_queue
        )


def _queue(header: AckMessageRequestHeader) -> str:
    return lite_queue(header.topic, header.lite_topic or "")


def _invalid(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
