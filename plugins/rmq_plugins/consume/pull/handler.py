# tidy: long — one request, and all ways in which it waits
"""Requests 11 and 361: stored messages of a queue, or the reason for an empty answer.

The answer contains the records in their stored form, one after another. After code 0
the client processes the records. After 19 it pulls again later, after 20 at once, after
21 at another offset. The remark names the store's status.
"""

from collections.abc import Coroutine, Mapping
from typing import Any, Final, NamedTuple

import trio

from rmq.plugin import (
    BrokerContext,
    Connection,
    GetResult,
    GetStatus,
    NotInMemory,
    QueueKey,
    QueueOffset,
    RequestRejected,
    StoreError,
)
from rmq.plugin.native import PullPath, PullView, ReturnedPull
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PULL_COMMIT_OFFSET, PULL_SUSPEND
from rmq.protocol.frames import decode
from rmq.protocol.headers.pull import PullMessageRequestHeader
from rmq_plugins.consume.filters import MessageFilter, matching_records
from rmq_plugins.consume.pull.broadcast import BroadcastOffsets
from rmq_plugins.consume.pull.checks import PullChecks, PullForbidden, PullPlan
from rmq_plugins.consume.pull.cold_reads import HOLD_S, ColdReads, PullLater
from rmq_plugins.consume.pull.held_pulls import (
    MAX_SUSPEND_MS,
    HeldPull,
    HeldPullLimits,
    HeldPulls,
    QueueAccess,
)
from rmq_plugins.consume.pull.native import NativePulls

MASTER_ID: Final = 0
"""Id of the only broker that compiled pulls suggest to clients, because their messages
are in memory.
"""

COLD_READERS: Final = 2
"""Number of threads that read cold messages from the disk; further cold pulls wait for
a thread.
"""

COLD_TRIES: Final = 8
"""Number of loads after which a pull reads the disk itself.

Usually two loads are enough: of the entries, then of the records.
"""

CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}
"""The status of an empty queue is missing: the requested offset decides."""

_PLAIN: Final = GetStatus.FOUND, GetStatus.OFFSET_OVERFLOW_ONE
"""After these statuses the compiled path serves the next pull of the same kind."""


class PullOutcome(NamedTuple):
    """The answer to a pull; without a result it is a refusal."""

    answer: Command
    result: GetResult | None = None
    tag_codes: tuple[int, ...] | None = None
    view: PullView | None = None
    """The view with which the compiled path serves such pulls, if it can."""


class PullHandler:
    """Known in Java as `PullMessageProcessor`."""

    def __init__(
        self,
        broker: BrokerContext,
        broadcasts: BroadcastOffsets,
        cold_reads: ColdReads,
    ) -> None:
        messages = broker.messages
        self._cold = cold_reads
        self._broadcasts = broadcasts
        access = QueueAccess(messages.max_offset, messages.tag_codes, self._watch)
        self.held = HeldPulls(self.resume, access, self._limits, broker.clock.steady_ms)
        self._broker = broker
        self._next_turn = broker.next_turn
        self._checks = PullChecks(broker)
        self.native: NativePulls | None = None
        self._cold_readers = trio.CapacityLimiter(COLD_READERS)
        self._messages = messages
        self._queues = broker.queues
        self._offsets = broker.offsets
        self._statistics = broker.statistics
        self._max_examined = broker.store_config.filter_scan_entries
        self._now_ms = broker.clock.steady_ms
        self._config = broker.config
        self._read_broker = broker.replicas.read_broker

    @property
    def _short_poll_ms(self) -> int | None:
        """Time to hold a pull without messages; None: the time in its header."""
        config = self._config
        return None if config.long_polling_enable else config.short_polling_time_mills

    def enable_native(self) -> PullPath:
        """Return the compiled path; from now on it serves plain pulls."""
        if self.native is None:
            self.native = NativePulls(
                self._broker, self._wake_service, self._broadcasts
            )
            self._limit_compiled(self.native)
        return self.native.path

    def config_changed(self, _keys: object) -> None:
        """Apply new values of configuration keys."""
        if self.native is not None:
            self.native.remove_all()
            self._limit_compiled(self.native)

    def _limits(self) -> HeldPullLimits:
        """Return the limits of pulls held in Python, which share the total."""
        config, native = self._config, self.native
        compiled = 0 if native is None else native.table.held.waiting
        return HeldPullLimits(
            max(0, config.max_held_pulls - compiled),
            config.max_held_pulls_per_connection,
            config.max_held_pulls_per_group,
            config.max_held_pulls_per_queue,
        )

    def _limit_compiled(self, native: NativePulls) -> None:
        config = self._config
        native.table.limit_window(self._cold.hot_window)
        native.table.held.set_limits(
            total=config.max_held_pulls,
            per_connection=config.max_held_pulls_per_connection,
            per_view=config.max_held_pulls_per_queue,
            suspend_ms=MAX_SUSPEND_MS,
            short_poll_ms=self._short_poll_ms or 0,
        )

    # -- the end of held pulls

    def on_arrivals(self, queues: Mapping[QueueKey, int]) -> None:
        """Wake the pulls of queues with new messages."""
        self.held.on_arrivals(queues)
        if self.native is not None and self.native.table.held.wants_turn:
            self._broker.poll_soon()

    def drop(self, connection: Connection) -> None:
        """Remove the pulls of a closed connection."""
        self.held.drop(connection)
        if self.native is not None:
            self.native.table.held.drop_connection(connection.token)

    def end_all(self) -> None:
        """Answer every pull and hold no more, because the broker stops."""
        if self.native is not None:
            self.native.path.end_all(self._now_ms())
        self.held.end_all()

    async def serve_held_pulls(self) -> None:
        """Run and end held pulls, one turn at a time, until cancelled."""
        while True:
            await self.held.alarm.wait()
            self.held.sweep()
            self._sweep_compiled()
            for returned in self.take_returned():
                self.resume_returned(returned)
                await self._next_turn()
            while self.held.has_more:
                await self._next_turn()
                self.held.run_turn()
            self.held.set_alarm()

    def _sweep_compiled(self) -> None:
        """Let the compiled path end the pulls whose deadlines have passed."""
        if self.native is None:
            return
        compiled = self.native.table.held
        left_ms = compiled.next_deadline(int(trio.current_time() * 1_000))
        if left_ms >= 0:
            self.held.alarm.wake_at(self._now_ms() + left_ms)
        if compiled.wants_turn:
            self._broker.poll_soon()

    def _wake_service(self) -> None:
        """Wake the service, because the compiled path has returned pulls, or the first
        deadline has changed.
        """
        self.held.alarm.wake_at(0)

    def take_returned(self) -> list[ReturnedPull]:
        """Return the pulls that the compiled path could not answer."""
        return [] if self.native is None else self.native.table.held.take_returned()

    def resume_returned(self, returned: ReturnedPull) -> None:
        """Run a pull that the compiled path could not answer."""
        connection = self._broker.connection_of(returned.token)
        if connection is None:
            return
        request = decode(returned.frame)
        header = request.header(PullMessageRequestHeader)
        header.queue_offset = max(header.queue_offset, returned.tested_offset)
        deadline_ms = self._now_ms() + returned.left_ms
        pull = HeldPull(request, header, connection, deadline_ms)
        answer = self.resume(pull, returned.left_ms == 0)
        if answer is None and not self.held.hold_pull(pull):
            answer = self._refuse_to_hold(request, header)
        if answer is not None:
            connection.send_nowait(answer)

    # -- requests

    def pull(
        self, request: Command, connection: Connection
    ) -> Command | Coroutine[Any, Any, Command | None] | None:
        """Answer with messages, or hold the request until some arrive.

        A worker thread first reads messages that are only on the disk.
        """
        header = request.header(PullMessageRequestHeader)
        try:
            ran = self._run(request, header, connection, may_wait=False)
        except NotInMemory as cold:
            return self._pull_cold(cold, request, header, connection)
        except PullLater:
            return self._pull_later(request, header, connection)
        return self._finish(ran, request, header, connection)

    async def _pull_later(
        self,
        request: Command,
        header: PullMessageRequestHeader,
        connection: Connection,
    ) -> Command | None:
        """Pull one message after a pause: the group reads too many cold messages."""
        await trio.sleep(HOLD_S)
        header.max_msg_nums = 1
        try:
            ran = self._run(request, header, connection, may_wait=False, is_slowed=True)
        except NotInMemory as cold:
            return await self._pull_cold(cold, request, header, connection)
        return self._finish(ran, request, header, connection)

    async def _pull_cold(
        self,
        cold: NotInMemory,
        request: Command,
        header: PullMessageRequestHeader,
        connection: Connection,
    ) -> Command | None:
        tries = COLD_TRIES
        while True:
            await trio.to_thread.run_sync(cold.load, limiter=self._cold_readers)
            tries -= 1
            try:
                ran = self._run(
                    request, header, connection, may_wait=not tries, was_loaded=True
                )
            except NotInMemory as missing:
                cold = missing
            else:
                return self._finish(ran, request, header, connection)

    def _finish(
        self,
        ran: PullOutcome,
        request: Command,
        header: PullMessageRequestHeader,
        connection: Connection,
    ) -> Command | None:
        """Commit the offset in the pull, and hold the pull if it found no message."""
        answer, result, tag_codes, view = ran
        commits = header.sys_flag & PULL_COMMIT_OFFSET
        if result is not None and commits and not _is_reset(result):
            self._commit(header, connection)
        if (
            answer.code != ResponseCode.PULL_NOT_FOUND
            or not header.sys_flag & PULL_SUSPEND
            or request.is_oneway
        ):
            return answer
        if view is not None:
            assert self.native is not None, "only the compiled path has views"
            if self.native.hold_pull(view, request, header, connection.token):
                return None
        deadline_ms = self._now_ms() + self._suspend_ms(header)
        pull = HeldPull(request, header, connection, deadline_ms, tag_codes)
        if self.held.hold_pull(pull):
            return None
        return self._refuse_to_hold(request, header)

    def resume(self, pull: HeldPull, is_over: bool) -> Command | None:
        """Run a held pull again; None if it may wait longer and no message matched."""
        answer, result, *_ = self._run(
            pull.request, pull.header, pull.connection, held=pull
        )
        if is_over or result is None:
            return answer
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return None
        if (
            result.status is GetStatus.NO_MATCHED_MESSAGE
            and result.next_begin_offset == result.max_offset
        ):
            assert result.next_begin_offset > pull.header.queue_offset, result.status
            pull.header.queue_offset = result.next_begin_offset
            return None
        return answer

    def _run(
        self,
        request: Command,
        header: PullMessageRequestHeader,
        connection: Connection,
        *,
        may_wait: bool = True,
        held: HeldPull | None = None,
        is_slowed: bool = False,
        was_loaded: bool = False,
    ) -> PullOutcome:
        """Check and read; a held pull continues after the entries tested meanwhile.

        Raise PullLater once if the group reads too many cold messages; the next run of
        this pull has `is_slowed`.
        """
        try:
            if held is not None:
                self._broker.rights.check_request(request, connection)
            plan = self._checks.plan(request, header, connection)
            tag_codes = plan.filter.tag_codes
            is_first = held is None and not (is_slowed or was_loaded)
            if is_first and self._cold.is_enabled:
                self._cold.check_pull(header)
            if held is not None and held.tag_codes == tag_codes is not None:
                header.queue_offset = max(header.queue_offset, held.tested_offset)
            result = self._read(header, plan, connection, may_wait=may_wait)
        except PullForbidden as refusal:
            forbidden = {"forbiddenType": str(int(refusal.forbidden_type))}
            return PullOutcome(
                request.reply(refusal.code, refusal.remark, ext_fields=forbidden)
            )
        except RequestRejected as refusal:
            return PullOutcome(request.reply(refusal.code, refusal.remark))
        if result.message_count:
            self._count_found(header, result, connection, was_loaded=was_loaded)
        suggested, view = MASTER_ID, None
        if result.is_far_behind:
            suggested = self._read_broker(plan.slow_broker_id)
        may_leave = result.is_far_behind and self._config.slave_read_enable
        is_plain = result.status in _PLAIN and not header.lite_topic
        if self.native is not None and is_plain and not may_leave:
            view = self.native.register_view(header, plan)
        answer = _build_answer(request, header, plan, result, suggested)
        is_moved = answer.code == ResponseCode.PULL_OFFSET_MOVED
        moved = result.next_begin_offset if is_moved else -1
        self._broadcasts.record_pull(header, connection, moved)
        return PullOutcome(answer, result, tag_codes, view)

    def _count_found(
        self,
        header: PullMessageRequestHeader,
        result: GetResult,
        connection: Connection,
        *,
        was_loaded: bool,
    ) -> None:
        """Count the messages of a pull in the statistics, and as cold reads."""
        if self._cold.is_enabled:
            self._cold.count(header, len(result.body), was_loaded=was_loaded)
        self._statistics.count_get(
            header.consumer_group,
            header.topic,
            header.queue_id,
            1,
            result.message_count,
            len(result.body),
            result.next_begin_offset,
            connection.token,
        )

    def _read(
        self,
        header: PullMessageRequestHeader,
        plan: PullPlan,
        connection: Connection,
        *,
        may_wait: bool,
    ) -> GetResult:
        """Read messages, unless the client has to continue at another offset."""
        queue_key = header.read_topic, header.queue_id
        reset = self._offsets.take_reset(header.consumer_group, *queue_key)
        if reset is None:
            start = self._broadcasts.find_start(header, connection)
            reset = start if start >= 0 else None
        if reset is not None:
            low, high = (
                self._messages.min_offset(*queue_key),
                self._messages.max_offset(*queue_key),
            )
            return GetResult(GetStatus.OFFSET_RESET, QueueOffset(reset), low, high)
        max_bytes = header.max_msg_bytes
        if max_bytes is not None and max_bytes <= 0:
            max_bytes = None
        try:
            if plan.filter.predicate is not None:
                return self._read_matching(header, plan.filter, max_bytes, may_wait)
            return self._messages.get(
                *queue_key,
                QueueOffset(header.queue_offset),
                max(1, header.max_msg_nums),
                max_bytes=max_bytes,
                tag_codes=plan.filter.tag_codes,
                may_wait=may_wait,
            )
        except StoreError as error:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"store getMessage return null: {error}"
            ) from error

    def _read_matching(
        self,
        header: PullMessageRequestHeader,
        wanted: MessageFilter,
        max_bytes: int | None,
        may_wait: bool,
    ) -> GetResult:
        """Read batches until one has matching messages, or `filter_scan_entries` end.

        The method also stops before messages that are only on the disk, unless they are
        the first batch.
        """
        assert wanted.predicate is not None, wanted
        offset = QueueOffset(header.queue_offset)
        end = offset + max(self._max_examined, header.max_msg_nums)
        found: GetResult | None = None
        while True:
            try:
                found = self._messages.get(
                    header.read_topic,
                    header.queue_id,
                    offset,
                    max(1, min(header.max_msg_nums, end - offset)),
                    max_bytes=max_bytes,
                    tag_codes=wanted.tag_codes,
                    may_wait=may_wait,
                )
            except NotInMemory:
                if found is None:
                    raise
                return _build_no_match(found, offset)
            if found.status is not GetStatus.FOUND:
                return (
                    found
                    if offset == header.queue_offset
                    else _build_no_match(found, offset)
                )
            offset = found.next_begin_offset
            records = list(matching_records(found.body, wanted.predicate))
            if records:
                return found._replace(
                    message_count=len(records), body=b"".join(records)
                )
            if offset >= min(end, found.max_offset):
                return _build_no_match(found, offset)

    def _commit(self, header: PullMessageRequestHeader, connection: Connection) -> None:
        """Commit the group's offset, which is in the pull's header."""
        if header.commit_offset >= 0:
            self._offsets.commit(
                connection.remote_address,
                header.consumer_group,
                header.topic,
                header.queue_id,
                header.commit_offset,
            )

    def _watch(self, key: QueueKey, is_watched: bool) -> None:
        """Let the reactor report new messages of a queue at once while pulls wait."""
        queue = self._queues.get(*key)
        if queue is not None:
            queue.is_watched = is_watched

    def _refuse_to_hold(
        self, request: Command, header: PullMessageRequestHeader
    ) -> Command:
        """Answer with code 2: clients wait for a while before the next pull."""
        reason = (
            "the broker stops"
            if self.held.is_stopping
            else "too many pulls wait: in this broker, for this connection, for group "
            f"{header.consumer_group}, or of {header.topic} queue {header.queue_id}"
        )
        remark = "[OVERLOAD]system busy, start flow control for a while: " + reason
        return request.reply(ResponseCode.SYSTEM_BUSY, remark)

    def _suspend_ms(self, header: PullMessageRequestHeader) -> int:
        """Return the time to hold a pull."""
        if self._short_poll_ms is not None:
            return self._short_poll_ms
        return min(header.suspend_timeout_millis, MAX_SUSPEND_MS)


def _build_no_match(result: GetResult, offset: QueueOffset) -> GetResult:
    """Return the result of a read in which no message before `offset` matched."""
    return result._replace(
        status=GetStatus.NO_MATCHED_MESSAGE,
        next_begin_offset=offset,
        message_count=0,
        body=b"",
    )


def _is_reset(result: GetResult) -> bool:
    """Whether a reset has replaced the offset in the pull."""
    return result.status is GetStatus.OFFSET_RESET


def _build_answer(
    request: Command,
    header: PullMessageRequestHeader,
    plan: PullPlan,
    result: GetResult,
    suggested: int,
) -> Command:
    """Return the answer, which also names the broker for the next pull."""
    code = CODES.get(result.status)
    if code is None:
        code = (
            ResponseCode.PULL_OFFSET_MOVED
            if header.queue_offset
            else ResponseCode.PULL_NOT_FOUND
        )
    fields = {
        "suggestWhichBrokerId": str(suggested),
        "nextBeginOffset": str(result.next_begin_offset),
        "minOffset": str(result.min_offset),
        "maxOffset": str(result.max_offset),
        "topicSysFlag": str(plan.topic_sys_flag),
        "groupSysFlag": str(plan.group_sys_flag),
    }
    return request.reply(code, result.status.name, ext_fields=fields, body=result.body)
