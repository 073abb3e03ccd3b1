"""Request 200050 POP_MESSAGE: messages of any queue of a topic and its retry topic.

The messages are invisible to the group until it acks them or the invisible time is
over. A POP that finds no message waits.  Request 200056 POP_ROLLBACK is here, too.
"""

from functools import partial

from rmq.plugin import BrokerContext, Connection, InnerCaller, RequestRejected
from rmq.plugin.native import Checkpoint, PopQueue, PopView
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.handles import ORDERED_REVIVE_QUEUE, PopHandle
from rmq.protocol.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from rmq_plugins.consume.answers import FOUND, NOTHING
from rmq_plugins.consume.checks import MAX_INVISIBLE_MS
from rmq_plugins.consume.filters import MessageFilter
from rmq_plugins.consume.held_pops import (
    ANY_QUEUE,
    EmptyAnswer,
    HeldPop,
    HeldPops,
)
from rmq_plugins.consume.pop.checkpoints import Checkpoints
from rmq_plugins.consume.pop.checks import PopChecks, PopPlan
from rmq_plugins.consume.pop.compiled_waits import CompiledWaits
from rmq_plugins.consume.pop.native import NativePops
from rmq_plugins.consume.pop.notification import NotificationHandler
from rmq_plugins.consume.pop.orders import Orders
from rmq_plugins.consume.pop.peek import PeekHandler
from rmq_plugins.consume.pop.polling_info import PollingInfoHandler
from rmq_plugins.consume.pop.reading import (
    FROM_NEWEST,
    Found,
    PopReader,
    readdress_retry,
)
from rmq_plugins.consume.pop.revive import Reviver
from rmq_plugins.consume.pop.sources import PopSources, Source


class _Collected:
    """The messages that a POP has collected."""

    def __init__(self, pop_ms: int, revive_queue: int, room: int) -> None:
        self.pop_ms = pop_ms
        self.revive_queue = revive_queue
        self.room = room
        self.records: list[bytes] = []
        self.starts: list[str] = []
        self.offsets: list[str] = []
        self.counts: list[str] = []
        self.remaining = 0

    def add(self, flag: str, queue_id: int, start: int, found: Found) -> None:
        self.starts.append(f"{flag} {queue_id} {start}")
        self.room -= len(found.offsets)
        joined = ",".join(map(str, found.offsets))
        self.offsets.append(f"{flag} {queue_id} {joined}")

    def build_header(self, header: PopMessageRequestHeader) -> PopMessageResponseHeader:
        return PopMessageResponseHeader(
            pop_time=self.pop_ms,
            invisible_time=header.invisible_time,
            revive_qid=self.revive_queue,
            rest_num=self.remaining,
            start_offset_info=";".join(self.starts),
            msg_offset_info=";".join(self.offsets),
            order_count_info=";".join(self.counts) if header.order else None,
        )


class PopHandler:
    """Known in Java as `PopMessageProcessor`."""

    def __init__(
        self,
        broker: BrokerContext,
        checkpoints: Checkpoints,
        reviver: Reviver,
        orders: Orders,
        native: NativePops,
    ) -> None:
        self._broker_name = broker.config.broker_name
        self._config = broker.config
        self._clock = broker.clock
        self._statistics = broker.statistics
        self._broker = broker
        self._checks = PopChecks(broker)
        self._reader = PopReader(broker, checkpoints)
        self._sources = PopSources(broker, self._reader)
        self._checkpoints = checkpoints
        self._reviver = reviver
        self._orders = orders
        self.held = HeldPops(broker, native)
        self.notifications = NotificationHandler(
            broker,
            self._checks,
            self._reader,
            self._sources,
            orders,
            self.held,
            native,
        )
        self.waits = CompiledWaits(
            broker, self.held, native, self._prepare, self.notifications.prepare
        )
        self.peeks = PeekHandler(self._checks, self._reader, self._sources)
        self.polling_info = PollingInfoHandler(self._checks, self.held, native)
        orders.on_blocked = self._wake_later
        self._native = native

    # -- POP

    def pop(self, request: Command, connection: Connection) -> Command | None:
        """Answer with messages, or hold the request until some arrive."""
        header = request.header(PopMessageRequestHeader)
        pop = self._prepare(request, connection)
        if isinstance(connection, InnerCaller) and connection.pop_again is not None:
            pop.serve = connection.pop_again
            if self.held.hold_new(pop, header.poll_time, header.born_time):
                return None
        return self.held.run_or_hold(pop, header.poll_time, header.born_time)

    def _prepare(self, request: Command, connection: Connection) -> HeldPop:
        """Return a POP that may wait."""
        header = request.header(PopMessageRequestHeader)
        return HeldPop(
            connection,
            (header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE)),
            partial(self._run, request, header, connection),
            self._sources.retry_topics(header.topic, header.consumer_group),
        )

    def _run(
        self,
        request: Command,
        header: PopMessageRequestHeader,
        connection: Connection,
        is_resumed: bool,
    ) -> Command | EmptyAnswer:
        """Check the request and collect messages; return an answer with messages, or an
        empty answer.
        """
        try:
            if is_resumed:
                self._broker.rights.check_request(request, connection)
            plan = self._checks.plan_pop(header, connection)
        except RequestRejected as refusal:
            return _refuse(request, refusal)
        answer = self._collect(header, plan)
        shown = answer.build_header(header)
        if not answer.records and not request.is_oneway:
            return partial(self._answer_empty, request, shown)
        self._native.table.count_pop()
        body = b"".join(answer.records)
        return request.reply(header=shown, body=body, remark=FOUND)

    def _answer_empty(
        self, request: Command, header: PopMessageResponseHeader, code: ResponseCode
    ) -> Command:
        self._native.table.count_pop()
        return request.reply(code, NOTHING, header=header)

    def _collect(self, header: PopMessageRequestHeader, plan: PopPlan) -> _Collected:
        """Read queue after queue until the answer is full."""
        revive_queue = ORDERED_REVIVE_QUEUE
        if not header.order:
            revive_queue = self._native.table.next_revive_queue()
        answer = _Collected(self._clock.now_ms(), revive_queue, header.max_msg_nums)
        read: list[PopQueue] = []
        for source in self._order_sources(header, plan):
            if header.order:
                self._pop_in_order(source, header, plan, answer)
            else:
                self._pop_queue(source, header, plan, answer, read)
        self._register(header, plan, read)
        if answer.remaining > 0 and answer.records:
            self.held.wake(header.topic, header.consumer_group, header.queue_id)
            self._native.wake_waiting(header.topic, header.consumer_group)
        return answer

    def _order_sources(
        self, header: PopMessageRequestHeader, plan: PopPlan
    ) -> list[Source]:
        """Return the queues in the order in which the POP reads them."""
        start = self._native.table.draw_start()
        config = self._config
        chance = config.pop_from_retry_probability
        if not header.order and start < plan.priority:
            start, chance = 0, config.pop_from_retry_probability_for_priority
        if header.queue_id >= 0:
            queues = [header.queue_id]
        else:
            queues = self._sources.order_queues(plan.topic.read_queue_nums, start)
        own = [Source(header.topic, queue_id, "0") for queue_id in queues]
        if header.order:
            return own
        retries = self._sources.retry_sources(
            header.topic, header.consumer_group, start
        )
        return retries + own if start < chance else own + retries

    def _pop_queue(
        self,
        source: Source,
        header: PopMessageRequestHeader,
        plan: PopPlan,
        answer: _Collected,
        read: list[PopQueue],
    ) -> None:
        """Collect messages of one queue, and add their checkpoint."""
        topic, queue_id, flag = source
        is_newest = header.init_mode == FROM_NEWEST and flag == "0"
        group = header.consumer_group
        if not answer.room:
            position = self._reader.find_position(topic, group, queue_id)
            answer.remaining += self._reader.count_remaining(topic, queue_id, position)
            return
        queue = self._reader.open_queue(topic, group, queue_id, from_newest=is_newest)
        read.append(queue)
        start = queue.next_offset
        if self._checkpoints.is_taken(queue, start, answer.pop_ms) or (
            self._config.enable_pop_message_threshold
            and self._checkpoints.has_too_many(
                queue, self._config.pop_inflight_message_threshold
            )
        ):
            answer.remaining += self._reader.count_remaining(topic, queue_id, start)
            return
        wanted = plan.filter if flag == "0" else MessageFilter()
        found = self._reader.read(topic, queue_id, start, answer.room, wanted)
        if found.offsets:
            checkpoint = Checkpoint(
                queue,
                start,
                answer.pop_ms,
                min(header.invisible_time, MAX_INVISIBLE_MS),
                answer.revive_queue,
                tuple(found.offsets),
                self._broker.log.end_offset,
            )
            before, queue.next_offset = queue.next_offset, found.next_offset
            if not self._reviver.add_checkpoint(checkpoint):
                queue.next_offset = before
                answer.remaining += self._reader.count_remaining(
                    topic, queue_id, before
                )
                return
            self._add_found(source, header, answer, start, found)
        elif found.next_offset != queue.next_offset:
            queue.next_offset = found.next_offset
            self._checkpoints.commit(queue)
        answer.remaining += found.remaining

    def _register(
        self, header: PopMessageRequestHeader, plan: PopPlan, read: list[PopQueue]
    ) -> None:
        """Let compiled code serve POPs like this one, which has read these queues."""
        view = self._native.find_view(
            header,
            plan.filter,
            self._sources.retry_topics(header.topic, header.consumer_group),
            plan.priority,
        )
        if view is None:
            return
        for queue in read:
            self._native.register_queue(view, queue)

    def wake_pops(self, view: PopView, queue_id: int) -> None:
        """Wake the requests that wait for the messages that a compiled POP has left."""
        group, topic, *_ = view.key
        self.held.wake(topic, group, queue_id)

    def _add_found(
        self,
        source: Source,
        header: PopMessageRequestHeader,
        answer: _Collected,
        start: int,
        found: Found,
    ) -> None:
        """Add the found messages to the answer."""
        topic, queue_id, flag = source
        answer.add(flag, queue_id, start, found)
        if flag == "0" or self._config.pop_response_return_actual_retry_topic:
            answer.records += found.records
        else:
            handle = PopHandle(
                start,
                answer.pop_ms,
                header.invisible_time,
                answer.revive_queue,
                flag,
                self._broker_name,
            )
            answer.records += [
                readdress_retry(record, header.topic, handle.encode(queue_id, offset))
                for offset, record in zip(
                    found.offsets, found.split_records(), strict=True
                )
            ]
        self._statistics.count_get(
            header.consumer_group,
            topic,
            queue_id,
            1,
            len(found.offsets),
            sum(map(len, found.records)),
            found.next_offset,
        )

    def _pop_in_order(
        self,
        source: Source,
        header: PopMessageRequestHeader,
        plan: PopPlan,
        answer: _Collected,
    ) -> None:
        """Collect messages of a queue if its last POP is acked or visible again."""
        topic, queue_id, flag = source
        group, now_ms = header.consumer_group, answer.pop_ms
        is_newest = header.init_mode == FROM_NEWEST
        was_known = self._checkpoints.find_queue(topic, group, queue_id) is not None
        queue = self._reader.open_queue(topic, group, queue_id, from_newest=is_newest)
        if (
            was_known
            and self._checkpoints.find_queue(topic, group, queue_id) is not queue
        ):
            self._orders.reset(topic, group, queue_id)
        until_ms = self._orders.blocked_until_ms(
            topic,
            group,
            queue_id,
            attempt=header.attempt_id,
            invisible_ms=header.invisible_time,
        )
        if until_ms > now_ms or not answer.room:
            return
        committed = queue.next_offset
        found = self._reader.read(topic, queue_id, committed, answer.room, plan.filter)
        queue.next_offset = found.offsets[0] if found.offsets else found.next_offset
        self._checkpoints.commit(queue)
        if found.offsets:
            counts = self._orders.record_pop(
                (topic, group, queue_id),
                found.offsets,
                attempt=header.attempt_id,
                pop_ms=now_ms,
                invisible_ms=header.invisible_time,
            )
            self._add_found(source, header, answer, committed, found)
            answer.counts += [
                f"{flag} qo{queue_id}%{offset} {count}"
                for offset, count in counts.items()
            ]
            least = min((counts.get(each, 0) for each in found.offsets), default=0)
            answer.counts.append(f"{flag} {queue_id} {least}")
        answer.remaining += found.remaining

    def _wake_later(self, topic: str, group: str, queue_id: int, at_ms: int) -> None:
        """Wake a POP at the time when an ordered queue is not blocked any more."""
        delay_ms = at_ms - self._clock.now_ms()
        self.held.wake_later(delay_ms, topic, group, queue_id)

    def roll_back(self, request: Command, _connection: Connection) -> Command:
        """Answer code 0: the state of POP always has the form after a rollback."""
        return request.reply()


def _refuse(request: Command, refusal: RequestRejected) -> Command:
    header = PopMessageResponseHeader(
        pop_time=0, invisible_time=0, revive_qid=0, rest_num=0
    )
    return request.reply(refusal.code, refusal.remark, header=header)
