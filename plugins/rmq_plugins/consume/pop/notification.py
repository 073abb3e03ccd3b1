"""Request 200054 NOTIFICATION: whether a group has messages to pop.

`NotificationPath` holds the requests of registered views for all queues of a topic,
`HeldPops` the others.
"""

from collections.abc import Mapping
from functools import partial

import trio

from rmq.plugin import Alarm, BrokerContext, Connection, QueueKey, RequestRejected
from rmq.plugin.native import ReturnedPull
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.frames import decode
from rmq.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
)
from rmq_plugins.consume.answers import UNSET
from rmq_plugins.consume.held_pops import (
    ANY_QUEUE,
    MAX_POLL_MS,
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
        self._now_ms = broker.clock.steady_ms
        self.alarm = Alarm(self._now_ms)
        self.set_limits()

    def notify(self, request: Command, connection: Connection) -> Command | None:
        """Answer whether the group has messages to pop, or hold the request."""
        header = request.header(NotificationRequestHeader)
        pop = self._prepare(request, header, connection)
        return self._held.run_or_hold(pop, header.poll_time, header.born_time)

    def _prepare(
        self,
        request: Command,
        header: NotificationRequestHeader,
        connection: Connection,
    ) -> HeldPop:
        return HeldPop(
            connection,
            (header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE)),
            partial(self._run, request, header, connection),
            self._sources.retry_topics(header.topic, header.consumer_group),
        )

    # -- notifications that wait in compiled code

    def set_limits(self) -> None:
        """Limit the requests that wait as `HeldPops` limits those of its own."""
        config = self._broker.config
        self._native.notices.held.set_limits(
            total=config.max_pop_polling_size,
            per_connection=config.max_pop_polling_size,
            per_view=config.pop_polling_size + 1,
            suspend_ms=MAX_POLL_MS,
        )

    def on_arrivals(self, touched: Mapping[QueueKey, int]) -> None:
        """Wake the requests for topics whose messages are visible now."""
        if self._native.notices.held.waiting:
            self._native.report_arrivals({topic for topic, _ in touched})

    def drop(self, connection: Connection) -> None:
        """Remove the requests of a closed connection."""
        self._native.notices.held.drop_connection(connection.token)

    def end_all(self) -> None:
        """Answer every request and hold no more, because the broker stops."""
        self._native.notices.end_all(self._now_ms())

    async def run(self) -> None:
        """End the requests whose deadlines pass, and serve the requests that compiled
        code has returned, until cancelled.
        """
        while True:
            await self.alarm.wait()
            self.sweep()
            for returned in self._native.notices.held.take_returned():
                self.resume(returned)
                await self._broker.next_turn()

    def sweep(self) -> None:
        """Let the next poll end the requests whose deadlines have passed."""
        held = self._native.notices.held
        left_ms = held.next_deadline(int(trio.current_time() * 1_000))
        if left_ms >= 0:
            self.alarm.wake_at(self._now_ms() + left_ms)
        if held.wants_turn:
            self._broker.poll_soon()

    def resume(self, returned: ReturnedPull) -> None:
        """Run a request that compiled code has returned."""
        connection = self._broker.connection_of(returned.token)
        if connection is None:
            return
        request = decode(returned.frame)
        pop = self._prepare(
            request, request.header(NotificationRequestHeader), connection
        )
        outcome = pop.run(True)
        if not isinstance(outcome, Command):
            if returned.left_ms and self._held.hold_again(pop, returned.left_ms):
                return
            outcome = outcome(ResponseCode.POLLING_TIMEOUT)
        connection.send_nowait(outcome)

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
