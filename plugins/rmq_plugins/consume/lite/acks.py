"""Requests 200051 and 200053 with a `liteTopic`: acks, and another invisible time.

They go around the handler of the plugin pop, which serves all others.  A late or double
ack is answered 0.  An ack that the broker knows no POP of, after a restart, moves the
group's offset only if it is of the next message, so that none is passed over.
"""

from typing import Final

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import FAQ, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.handles import ORDERED_REVIVE_QUEUE, PopHandle
from rmq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from rmq.protocol.topics import lite_queue
from rmq_plugins.consume.lite.dispatch import LiteDispatch
from rmq_plugins.consume.lite.orders import LiteOrders
from rmq_plugins.consume.lite.popping import MAX_INVISIBLE_MS
from rmq_plugins.consume.lite.queues import LiteQueues
from rmq_plugins.consume.lite.rules import LiteRules
from rmq_plugins.consume.queue_order import ANOTHER_POP, NOT_POPPED

CHANGED: Final = "not set any response code"


class LiteAcks:
    """The part for lite topics of Java's `AckMessageProcessor` and another."""

    def __init__(
        self,
        broker: BrokerContext,
        rules: LiteRules,
        queues: LiteQueues,
        orders: LiteOrders,
        dispatch: LiteDispatch,
    ) -> None:
        self._topics = broker.topics
        self._offsets = broker.offsets
        self._clock = broker.clock
        self._rules = rules
        self._queues = queues
        self._orders = orders
        self._dispatch = dispatch

    def ack(self, request: Command, connection: Connection) -> Command:
        """Ack a message of a lite topic."""
        header = request.header(AckMessageRequestHeader)
        self._check_topic(header, connection)
        group, queue = header.consumer_group, _queue(header)
        if self._rules.bound_topic(group) != header.topic:
            raise _invalid("group type or bind topic not match.")
        if header.offset > self._queues.end(queue):
            raise RequestRejected(ResponseCode.NO_MESSAGE, "ack offset illegal.")
        handle = _handle(header)
        if header.queue_id != 0 or handle.revive_queue != ORDERED_REVIVE_QUEUE:
            raise _invalid("ack queue illegal.")
        if header.offset >= self._offsets.query(group, queue, 0):
            self._ack_offset(queue, group, header.offset, handle.pop_ms)
        return request.reply()

    def _ack_offset(self, queue: str, group: str, offset: int, pop_ms: int) -> None:
        committed = self._offsets.query(group, queue, 0)
        order = self._orders.get(queue, group)
        if order is None:
            following = offset + 1 if offset == committed else ANOTHER_POP
        else:
            following = order.ack(offset, pop_ms)
        if following == NOT_POPPED:
            raise RequestRejected(ResponseCode.MESSAGE_ILLEGAL, "ack offset illegal.")
        if following == ANOTHER_POP:
            return
        if following > committed and not self._offsets.is_reset(group, queue, 0):
            self._offsets.commit("an ack", group, queue, 0, following)
        if order is not None and order.blocked_until_ms(0) == 0:
            self._orders.drop(queue, group)
        elif order is not None:
            self._orders.refresh_time(queue, group)
            self._dispatch.update_alarm()
            if order.blocked_until_ms(0) > self._clock.now_ms():
                return
        if following < self._queues.end(queue):
            self._dispatch.offer(queue, group)

    def change_invisible_time(
        self, request: Command, connection: Connection
    ) -> Command:
        """Hide a message of a lite topic longer.

        With `suspend` the whole POP is hidden, and it does not count as a failure.
        """
        header = request.header(ChangeInvisibleTimeRequestHeader)
        self._check_topic(header, connection)
        group, queue = header.consumer_group, _queue(header)
        if header.offset > self._queues.end(queue):
            return _changed(request, 0, 0, 0, ResponseCode.NO_MESSAGE)
        if not 0 <= header.invisible_time <= MAX_INVISIBLE_MS:
            raise _invalid(
                f"invisibleTime {header.invisible_time} is not within 0 and "
                f"{MAX_INVISIBLE_MS}"
            )
        handle = _handle(header)
        if header.offset < self._offsets.query(group, queue, 0):
            return _changed(request, 0, 0, 0)
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
        return _changed(request, handle.pop_ms, left_ms, handle.revive_queue)

    def _check_topic(
        self, header: AckMessageRequestHeader, connection: Connection
    ) -> None:
        """Make the checks that all acks have."""
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please! {FAQ}",
            )
        _check_queue_id(header, topic, connection)


def _queue(header: AckMessageRequestHeader) -> str:
    return lite_queue(header.topic, header.lite_topic or "")


def _handle(header: AckMessageRequestHeader) -> PopHandle:
    handle = PopHandle.decode(header.extra_info)
    if handle is None:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            "extraInfo is no receipt handle: it has start, time, invisible time, "
            "revive queue, flag and broker, joined by blanks",
        )
    return handle


def _check_queue_id(
    header: AckMessageRequestHeader, topic: TopicConfig, connection: Connection
) -> None:
    if not 0 <= header.queue_id < topic.read_queue_nums:
        raise RequestRejected(
            ResponseCode.MESSAGE_ILLEGAL,
            f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
            f"consumer:[{connection.remote_address}]",
        )


def _changed(
    request: Command,
    pop_ms: int,
    invisible_ms: int,
    revive_queue: int,
    code: ResponseCode = ResponseCode.SUCCESS,
) -> Command:
    header = ChangeInvisibleTimeResponseHeader(
        pop_time=pop_ms, invisible_time=invisible_ms, revive_qid=revive_queue
    )
    return request.reply(code, CHANGED, header=header)


def _invalid(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
