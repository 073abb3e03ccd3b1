"""Requests 200052, 200054, 200055 and 200056: queries about messages to pop."""

from functools import partial

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)
from rmq_plugins.consume.answers import FOUND, NOTHING
from rmq_plugins.consume.checks import MAX_MESSAGES
from rmq_plugins.consume.filters import MessageFilter
from rmq_plugins.consume.held_pops import ANY_QUEUE, EmptyAnswer, HeldPop, HeldPops
from rmq_plugins.consume.pop.checks import PopChecks, PopPlan
from rmq_plugins.consume.pop.orders import Orders
from rmq_plugins.consume.pop.reading import PopReader
from rmq_plugins.consume.pop.sources import PopSources, Source


class QueryHandler:
    """Known in Java as `NotificationProcessor`, `PeekMessageProcessor` and others."""

    def __init__(
        self,
        broker: BrokerContext,
        checks: PopChecks,
        reader: PopReader,
        sources: PopSources,
        orders: Orders,
        held: HeldPops,
    ) -> None:
        self._broker = broker
        self._clock = broker.clock
        self._checks = checks
        self._reader = reader
        self._sources = sources
        self._orders = orders
        self._held = held

    def notify(self, request: Command, connection: Connection) -> Command | None:
        """Answer whether the group has messages to pop, or hold the request."""
        header = request.header(NotificationRequestHeader)
        pop = HeldPop(
            connection,
            (header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE)),
            partial(self._run, request, header, connection),
            self._sources.retry_topics(header.topic, header.consumer_group),
        )
        return self._held.run_or_hold(pop, header.poll_time, header.born_time)

    def _run(
        self,
        request: Command,
        header: NotificationRequestHeader,
        connection: Connection,
        is_resumed: bool,
    ) -> Command | EmptyAnswer:
        try:
            if is_resumed:
                self._broker.rights.check_request(request, connection)
            expression = header.exp, header.exp_type
            plan = self._checks.plan_query(header, connection, expression)
        except RequestRejected as refusal:
            return request.reply(refusal.code, refusal.remark)
        if self._has_messages(header, plan):
            return request.reply(header=NotificationResponseHeader(has_msg=True))
        return partial(_answer_empty, request)

    def _has_messages(self, header: NotificationRequestHeader, plan: PopPlan) -> bool:
        group = header.consumer_group
        queues = range(plan.topic.read_queue_nums)
        for queue_id in [header.queue_id] if header.queue_id >= 0 else queues:
            position = self._reader.find_position(header.topic, group, queue_id)
            if not self._reader.count_remaining(header.topic, queue_id, position):
                continue
            if header.order:
                until_ms = self._orders.blocked_until_ms(
                    header.topic, group, queue_id,
                    attempt=header.attempt_id, invisible_ms=0,
                )  # fmt: skip
                if until_ms > self._clock.now_ms():
                    continue
            return True
        return not header.order and bool(
            self._sources.retry_sources(header.topic, group)
        )

    def report_polling(self, request: Command, connection: Connection) -> Command:
        """Answer how many POPs of a queue wait."""
        header = request.header(PollingInfoRequestHeader)
        self._checks.plan_query(header, connection)
        key = header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE)
        answer = PollingInfoResponseHeader(polling_num=self._held.count(key))
        return request.reply(header=answer)

    def peek(self, request: Command, connection: Connection) -> Command:
        """Answer with messages that stay visible."""
        header = request.header(PeekMessageRequestHeader)
        plan = self._checks.plan_query(header, connection)
        most, rest = max(1, min(header.max_msg_nums, MAX_MESSAGES)), 0
        queues = range(plan.topic.read_queue_nums)
        own = [header.queue_id] if header.queue_id >= 0 else queues
        sources = [Source(header.topic, queue_id, "0") for queue_id in own]
        records: list[bytes] = []
        room = most
        for source in sources + self._sources.retry_sources(
            header.topic, header.consumer_group
        ):
            topic, queue_id, _flag = source
            position = self._reader.find_position(
                topic, header.consumer_group, queue_id
            )
            if room:
                found = self._reader.read(
                    topic, queue_id, position, room, MessageFilter()
                )
                records += found.records
                room -= len(found.offsets)
                position = found.next_offset
            rest += self._reader.count_remaining(topic, queue_id, position)
        shown = PopMessageResponseHeader(
            pop_time=0, invisible_time=0, revive_qid=0, rest_num=rest
        )
        if not records:
            code = ResponseCode.PULL_NOT_FOUND
            return request.reply(code, NOTHING, header=shown)
        return request.reply(header=shown, body=b"".join(records), remark=FOUND)

    def roll_back(self, request: Command, connection: Connection) -> Command:
        """Answer code 0: the state of POP always has the form after a rollback."""
        return request.reply()


def _answer_empty(request: Command, code: ResponseCode) -> Command:
    is_full = code is ResponseCode.POLLING_FULL
    return request.reply(header=NotificationResponseHeader(polling_full=is_full))
