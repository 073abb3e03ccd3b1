"""Request 200070 POP_LITE_MESSAGE: messages of the lite topics of a client's events.

Clients consume each lite topic in order. A POP gets no messages of a lite topic until
all messages of its last POP are acked or visible again. A POP that finds no message
waits. Known in Java as `PopLiteMessageProcessor`.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from rmq.plugin import (
    BrokerContext,
    Connection,
    GetResult,
    GetStatus,
    QueueOffset,
    RequestRejected,
)
from rmq.protocol.codes import FAQ, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import is_readable
from rmq.protocol.handles import ORDERED_REVIVE_QUEUE
from rmq.protocol.headers.lite import (
    PopLiteMessageRequestHeader,
    PopLiteMessageResponseHeader,
)
from rmq.protocol.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from rmq.protocol.records import decode_stored
from rmq.protocol.topics import split_lite_queue
from rmq_plugins.consume.answers import FOUND, NOTHING
from rmq_plugins.consume.checks import MAX_INVISIBLE_MS, MAX_MESSAGES
from rmq_plugins.consume.held_pops import ANY_QUEUE, EmptyAnswer, HeldPop, HeldPops
from rmq_plugins.consume.lite.dispatch import LiteDispatch
from rmq_plugins.consume.lite.rules import bound_topic, is_lite
from rmq_plugins.consume.lite.tables import LiteTables
from rmq_plugins.consume.queue_order import QueueOrder

_MOVED: Final = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.NO_MATCHED_MESSAGE,
    GetStatus.MESSAGE_WAS_REMOVING,
)


class _Collected:
    """The messages that a POP has collected."""

    def __init__(self, header: PopLiteMessageRequestHeader, pop_ms: int) -> None:
        self.header = header
        self.pop_ms = pop_ms
        self.room = header.max_msg_num
        self.records: list[bytes] = []
        self.counts: list[str] = []

    def add(self, found: GetResult, order: QueueOrder) -> None:
        offsets = order.offsets()
        self.room -= len(offsets)
        self.records.append(found.body)
        self.counts += [str(order.counts.get(offset, 0)) for offset in offsets]


class LitePops:
    """POPs of lite topics."""

    def __init__(
        self,
        broker: BrokerContext,
        tables: LiteTables,
        dispatch: LiteDispatch,
        held: HeldPops,
    ) -> None:
        self._broker = broker
        self._config = broker.config
        self._clock = broker.clock
        self._topics = broker.topics
        self._groups = broker.groups
        self._offsets = broker.offsets
        self._messages = broker.messages
        self._statistics = broker.statistics
        self._name = broker.config.broker_ip1 or broker.address
        _, self._queues, self._subscriptions, self._orders = tables
        self._dispatch = dispatch
        self._held = held

    def pop(self, request: Command, connection: Connection) -> Command | None:
        """Answer with messages, or hold the request until some arrive."""
        header = request.header(PopLiteMessageRequestHeader)
        pop = HeldPop(
            connection,
            (header.client_id, header.consumer_group, ANY_QUEUE),
            partial(self._run, request, header, connection),
        )
        return self._held.run_or_hold(pop, header.poll_time, header.born_time)

    def _run(
        self,
        request: Command,
        header: PopLiteMessageRequestHeader,
        connection: Connection,
        is_resumed: bool,
    ) -> Command | EmptyAnswer:
        """Check the request and collect messages; return an answer with messages, or an
        empty answer.
        """
        try:
            if is_resumed:
                self._broker.rights.check_request(request, connection)
            self._check_request(header, connection)
            answer = self._collect(header)
        except RequestRejected as refusal:
            empty = PopLiteMessageResponseHeader()
            return request.reply(refusal.code, refusal.remark, header=empty)
        shown = PopLiteMessageResponseHeader(
            pop_time=answer.pop_ms,
            invisible_time=header.invisible_time,
            revive_qid=ORDERED_REVIVE_QUEUE,
            order_count_info=";".join(answer.counts),
        )
        if not answer.records and not request.is_oneway:
            return lambda code: request.reply(code, NOTHING, header=shown)
        body = b"".join(answer.records)
        return request.reply(header=shown, body=body, remark=FOUND)

    # -- checks, in Java's order

    def _check_request(
        self, header: PopLiteMessageRequestHeader, connection: Connection
    ) -> None:
        if not is_readable(self._config.broker_permission):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._name}] pop message is forbidden",
            )
        if header.max_msg_num > MAX_MESSAGES:
            raise _invalid(
                f"the broker[{self._name}] pop message's num is greater than "
                f"{MAX_MESSAGES}"
            )
        if header.max_msg_num < 1 or not 0 < header.invisible_time <= MAX_INVISIBLE_MS:
            raise _invalid(
                "maxMsgNum must be greater than 0 and invisibleTime within 1 and "
                f"{MAX_INVISIBLE_MS}, they are {header.max_msg_num} and "
                f"{header.invisible_time}"
            )
        self._check_topic(header.topic)
        self._check_group(header, connection)

    def _check_topic(self, name: str) -> None:
        topic = self._topics.get(name)
        if topic is None:
            raise RequestRejected(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic [{name}] not exist, apply first please! {FAQ}",
            )
        if not is_readable(topic.perm):
            raise RequestRejected(
                ResponseCode.NO_PERMISSION,
                f"the topic [{name}] peeking message is forbidden",
            )
        if not is_lite(topic):
            raise _invalid(f"the topic [{name}] message type not match")

    def _check_group(
        self, header: PopLiteMessageRequestHeader, connection: Connection
    ) -> None:
        name = header.consumer_group
        group = self._groups.find(name, connection.remote_address)
        if group is None:
            raise RequestRejected(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{name}] not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}"
            )
        if bound_topic(group) != header.topic:
            raise _invalid(f"subscription bind topic not match, {name}")

    # -- messages

    def _collect(self, header: PopLiteMessageRequestHeader) -> _Collected:
        """Collect messages of the client's lite topics until the answer is full.

        A request with the client id of another group gets no events of that client.
        """
        answer = _Collected(header, self._clock.now_ms())
        client_id, group = header.client_id, header.consumer_group
        events = self._dispatch.events.get(client_id)
        if events is None or events.group != group:
            return answer
        while answer.room > 0:
            queue = events.take_oldest(answer.pop_ms)
            if queue is None:
                break
            if not self._subscriptions.is_subscribed(client_id, queue):
                self._dispatch.offer(queue, group)
            elif (split_lite_queue(queue) or ("", ""))[0] == header.topic:
                self._pop_queue(queue, answer)
        return answer

    def _pop_queue(self, queue: str, answer: _Collected) -> None:
        """Collect messages of one lite topic, unless its last POP blocks it."""
        header, group = answer.header, answer.header.consumer_group
        if self._offsets.take_reset(group, queue, 0) is not None:
            self._orders.drop(queue, group)
        last_pop = self._orders.get(queue, group)
        if last_pop is None and self._orders.is_full:
            self._dispatch.dispatch_later(header.client_id, group)
            return
        if (
            last_pop is not None
            and (header.attempt_id is None or header.attempt_id != last_pop.attempt_id)
            and last_pop.blocked_until_ms(header.invisible_time) > answer.pop_ms
        ):
            return
        found = self._read(queue, group, answer.room)
        if found is None:
            return
        order = QueueOrder.from_pop(
            list(_offsets_in(found, queue)),
            last_pop,
            attempt_id=header.attempt_id,
            invisible_ms=header.invisible_time,
            last_ms=answer.pop_ms,
            pop_ms=answer.pop_ms,
        )
        self._orders.put(queue, group, order)
        self._dispatch.update_alarm()
        answer.add(found, order)
        self._statistics.count_get(
            group,
            header.topic,
            0,
            1,
            found.message_count,
            len(found.body),
            self._messages.max_offset(header.topic, 0),
        )

    def _read(self, queue: str, group: str, limit: int) -> GetResult | None:
        """Return the messages from the group's offset on; None without messages.

        If the queue no longer has this offset, the group continues at the next existing
        offset.
        """
        offset = self._find_start(queue, group)
        for _ in range(2):
            found = self._messages.get(queue, 0, QueueOffset(offset), limit)
            if found.status is GetStatus.FOUND:
                return found
            if found.status not in _MOVED:
                return None
            offset = found.next_begin_offset
            self._offsets.commit("a POP", group, queue, 0, offset)
        return None

    def _find_start(self, queue: str, group: str) -> int:
        """Return the group's offset.

        A new group begins at 0 if message 0 is in memory, and at the last message if it
        is not.
        """
        offset = self._offsets.query(group, queue, 0)
        if offset < 0:
            offset = 0
            low = self._messages.min_offset(queue, 0)
            if low > 0 or not self._messages.is_in_memory(queue, 0, QueueOffset(0)):
                offset = max(self._queues.end(queue) - 1, 0)
            self._offsets.commit("a POP", group, queue, 0, offset)
        return offset


def _offsets_in(found: GetResult, queue: str) -> Iterator[int]:
    """Yield the offsets of the messages in their lite topic."""
    for message in decode_stored(found.body):
        names = message.properties[INNER_MULTI_DISPATCH].split(",")
        offsets = message.properties[INNER_MULTI_QUEUE_OFFSET].split(",")
        yield int(offsets[names.index(queue)])


def _invalid(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
