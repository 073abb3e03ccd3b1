"""Request 200054 NOTIFICATION: whether a group has messages to pop.

`NotificationPath` holds the requests of registered views for all queues of a topic,
`HeldPops` the others.
"""

from functools import partial

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
)
from rmq_plugins.consume.answers import UNSET
from rmq_plugins.consume.held_pops import (
    ANY_QUEUE,
    EmptyAnswer,
    HeldPop,
    HeldPops,
)
from rmq_plugins.consume.pop.checks import PopChecks, PopPlan
from rmq_plugins.consume.pop.native import NativePops
from rmq_plugins.consume.pop.orders import Orders
from rmq_plugins.consume.pop.reading import PopReader
from rmq_plugins.consume.pop.sources import PopSources


class NotificationHandler:
    """Known in Java as `NotificationProcessor`."""

    def __init__(
        self,
        broker: BrokerContext,
        checks: PopChecks,
        reader: PopReader,
        sources: PopSources,
        orders: Orders,
        held: HeldPops,
        native: NativePops,
    ) -> None:
        self._broker = broker
        self._clock = broker.clock
        self._checks = checks
        self._reader = reader
        self._sources = sources
        self._orders = orders
        self._held = held
        self._native = native

    def notify(self, request: Command, connection: Connection) -> Command | None:
        """Answer whether the group has messages to pop, or hold the request."""
        header = request.header(NotificationRequestHeader)
        pop = self.prepare(request, connection)
        return self._held.run_or_hold(pop, header.poll_time, header.born_time)

    def prepare(self, request: Command, connection: Connection) -> HeldPop:
        """Return a request that may wait."""
        header = request.header(NotificationRequestHeader)
        return HeldPop(
            connection,
            (header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE)),
            partial(self._run, request, header, connection),
            self._sources.retry_topics(header.topic, header.consumer_group),
        )

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
        self._native.find_view(
            header,
            plan.filter,
            self._sources.retry_topics(header.topic, header.consumer_group),
            plan.priority,
        )
        if self._has_messages(header, plan):
            answer = NotificationResponseHeader(has_msg=True)
            return request.reply(header=answer, remark=UNSET)
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


def _answer_empty(request: Command, code: ResponseCode) -> Command:
    is_full = code is ResponseCode.POLLING_FULL
    header = NotificationResponseHeader(polling_full=is_full)
    return request.reply(header=header, remark=UNSET)
