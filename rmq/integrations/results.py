"""Results of Celery in the broker of the tasks: `result_backend = "rmq://"`.

A result is one message in the topic of the exchange `celery-results`. The tag of the
message is the caller, whose pull waits for the result. The key is the task id, by which
any process finds the result while the log has it.

The body of a chord may have the id of a task that it replaces, and its result has
another caller. So a process that gets no result for a second looks up a few of its own
tasks, too.

The parts of a chord are messages of the topic `celery-chords`: see `chords`.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import celery
from celery import states
from celery.backends.rpc import ResultConsumer, RPCBackend
from celery.exceptions import ChordError, ImproperlyConfigured
from celery.result import GroupResult
from kombu.serialization import loads

from rmq.core.errors import PeerError
from rmq.integrations.chords import (
    ChordCall,
    ChordLog,
    ChordPart,
    ChordReadings,
    ChordSize,
)
from rmq.integrations.kombu.channel import Channel
from rmq.integrations.kombu.envelope import unpack
from rmq.integrations.result_log import ResultLog
from rmq.integrations.task_link import RECONNECT_S

T = TypeVar("T")

RESULTS: Final = "celery-results"
CHORDS: Final = "celery-chords"
START: Final = "rmq_chord_start"
"""Field of a chord's body: the offset in the topic at which its parts begin."""

MAX_CALLS: Final = 10_000
"""Maximum number of own tasks that are remembered: their results arrive without a
query.
"""

MAX_LOOKED: Final = 10
"""Maximum number of own tasks that one pause looks up, in turns."""

POLL_S: Final = 1.0
"""Pause between queries for the results of tasks that another process has called."""


class RmqResultConsumer(ResultConsumer):
    """Waits for results of this process; requests results of other processes."""

    _looked = 0
    """Number of own tasks that were looked up."""

    _look_s = 0.0
    """Time of the next look for results that do not arrive."""

    def on_wait_for_pending(self, result: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Celery
        """Look for results that were stored before."""
        super().on_wait_for_pending(result, **kwargs)
        self._look_s = time.monotonic() + POLL_S
        for each in getattr(result, "results", None) or [result]:
            if not self.backend.is_own_call(each.id):
                self._look_up(each.id)

    def drain_events(self, timeout: float | None = None) -> Any:  # noqa: ANN401 - Celery
        """Wait for results; look for them once a second while none arrive."""
        wait_s = POLL_S if timeout is None else min(timeout, POLL_S)
        try:
            return super().drain_events(timeout=wait_s)
        except TimeoutError:
            if time.monotonic() >= self._look_s:
                self._look_for_results()
                self._look_s = time.monotonic() + POLL_S
            raise

    def _look_for_results(self) -> None:
        """Look up the results of other processes, and of a few own tasks."""
        waiting = [id_ for pending in self._pending_results for id_ in list(pending)]
        own = [each for each in waiting if self.backend.is_own_call(each)]
        for task_id in set(waiting).difference(own):
            self._look_up(task_id)
        for _ in range(min(len(own), MAX_LOOKED)):
            self._looked += 1
            self._look_up(own[self._looked % len(own)])

    def _look_up(self, task_id: str) -> None:
        meta = self.backend.find_meta(task_id)
        if meta is not None and meta["status"] in states.READY_STATES:
            self.on_state_change(meta, None)


class RmqBackend(RPCBackend):
    """The result backend `rmq`."""

    ResultConsumer = RmqResultConsumer
    supports_native_join = True

    def __init__(self, app: Any, url: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - Celery
        if url is not None and url.removeprefix("rmq:").strip("/"):
            raise ImproperlyConfigured(
                f"result_backend={url}: results are in the broker of the tasks; "
                'the setting is "rmq://"'
            )
        self._own_calls: OrderedDict[str, None] = OrderedDict()
        self._chords = ChordReadings()
        super().__init__(app, **kwargs)

    def as_uri(self, include_password: bool = True) -> str:
        """Return the setting."""
        return "rmq://"

    def _create_exchange(self, *arguments: object, **options: object) -> Any:  # noqa: ANN401 - Celery
        return self.Exchange(RESULTS, type="direct", durable=True)

    # -- results

    def on_task_call(self, producer: Any, task_id: str) -> None:  # noqa: ANN401 - Celery
        """Begin to read results before the task is sent."""
        super().on_task_call(producer, task_id)
        self._own_calls[task_id] = None
        if len(self._own_calls) > MAX_CALLS:
            self._own_calls.popitem(last=False)

    def is_own_call(self, task_id: str) -> bool:
        """Whether this process has called a task."""
        return task_id in self._own_calls

    def store_result(
        self,
        task_id: str,
        result: Any,  # noqa: ANN401 - Celery
        state: str,
        traceback: str | None = None,
        request: Any = None,  # noqa: ANN401 - Celery
        **kwargs: Any,  # noqa: ANN401 - Celery
    ) -> Any:  # noqa: ANN401 - Celery
        """Store a state and a result; the caller gets it at once."""
        reply_to = getattr(request, "reply_to", None) or task_id
        with self.app.amqp.producer_pool.acquire(block=True) as producer:
            producer.publish(
                self._to_result(task_id, state, result, traceback, request),
                exchange=self.exchange,
                routing_key=reply_to,
                correlation_id=task_id,
                headers={"id": task_id},
                serializer=self.serializer,
                retry=True,
                retry_policy=self.retry_policy,
                delivery_mode=self.delivery_mode,
            )
        return result

    def find_meta(self, task_id: str) -> dict[str, Any] | None:
        """Return the last state of a task in the log; None without one."""
        with self.app.pool.acquire(block=True) as connection:
            channel = connection.default_channel
            topic = channel.names.exchange(RESULTS)
            found = ResultLog(channel.link, channel.topics, topic).find(task_id)
        if found is None:
            return None
        raw = unpack(found.body)
        payload = loads(
            raw["body"], raw["content-type"], raw["content-encoding"], self.accept
        )
        meta: dict[str, Any] = self.meta_from_decoded(payload)
        return meta

    def get_task_meta(self, task_id: str, backlog_limit: int = 0) -> dict[str, Any]:
        """Return the state of a task, PENDING if there is none."""
        known: dict[str, Any] | None = self._cache.get(task_id)
        if known is not None:
            return known
        meta = self.find_meta(task_id)
        if meta is None:
            return {"status": states.PENDING, "result": None}
        if meta["status"] in states.READY_STATES:
            self._cache[task_id] = meta
        return meta

    poll = get_task_meta

    def reload_task_result(self, task_id: str) -> None:
        """Look a result up again."""
        self._cache.pop(task_id, None)
        self.get_task_meta(task_id)

    # -- chords

    def ensure_chords_allowed(self) -> None:
        """Chords are allowed."""

    def apply_chord(
        self,
        header_result_args: tuple[Any, ...],
        body: Any,  # noqa: ANN401 - Celery
        **kwargs: Any,  # noqa: ANN401 - Celery
    ) -> None:
        """Record in the body the offset at which the parts of a chord will begin."""
        results = self.app.GroupResult(*header_result_args).results
        if any(isinstance(each, GroupResult) for each in results):
            raise NotImplementedError(
                "the header of a chord on rmq:// may have tasks, but no group results"
            )
        body[START] = self._with_chords(ChordLog.end)

    def on_chord_part_return(
        self,
        request: Any,  # noqa: ANN401 - Celery
        state: str,
        result: Any,  # noqa: ANN401 - Celery
        propagate: object = None,
        **kwargs: Any,  # noqa: ANN401 - Celery
    ) -> None:
        """Store a part of a chord; call the body with the last part."""
        group, chord = request.group, request.chord
        if not group or not chord or request.group_index is None:
            return
        callback = celery.signature(chord, app=self.app)
        part = ChordPart(
            request.group_index, request.id, state, self.encode_result(result, state)
        )
        start = chord.get(START, 0)
        parts = self._with_chords(partial(self._store_part, group, start, part))
        if parts:
            self._call_body(callback, parts)
            self._with_chords(lambda log: log.store(group, ChordCall()))

    def _with_chords(self, action: Callable[[ChordLog], T]) -> T:
        """Return the result of an action, which is repeated while the broker is away.

        The connection goes back to the pool first, because the call of a body needs a
        connection, too.
        """
        with self.app.pool.acquire(block=True) as connection:
            log = _chord_log(connection)
            end_s = time.monotonic() + connection.transport.options.recover_s
            while True:
                try:
                    return action(log)
                except PeerError:
                    if time.monotonic() > end_s:
                        raise
                    time.sleep(RECONNECT_S)

    def _store_part(
        self, group: str, start: int, part: ChordPart, log: ChordLog
    ) -> list[ChordPart]:
        """Store a part of a chord; return all parts if it calls the body."""
        offset = log.store(group, part)
        reading = self._chords.read(log, group, start, offset)
        if not reading.may_call(offset, part.task_id):
            return []
        parts = {
            each.task_id: each
            for _, each in log.read(group, start, offset)
            if isinstance(each, ChordPart)
        }
        return list(parts.values())

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Store the number of parts of a chord, before its last task is sent."""
        self._with_chords(lambda log: log.store(group_id, ChordSize(chord_size)))

    def _call_body(self, callback: Any, parts: list[ChordPart]) -> None:  # noqa: ANN401 - Celery
        ordered = sorted(parts, key=lambda each: each.index)
        failed = [each for each in ordered if each.state != states.SUCCESS]
        if failed:
            cause = self.exception_to_python(failed[0].result)
            text = f"Dependency {failed[0].task_id} raised {cause!r}"
            self._fail_body(callback, text, cause)
            return
        try:
            callback.delay([each.result for each in ordered])
        except Exception as error:
            self._fail_body(callback, f"Callback error: {error!r}", None)

    def _fail_body(self, callback: Any, text: str, cause: Any) -> None:  # noqa: ANN401 - Celery
        """Store the failure of a body; the tasks of a group get the cause."""
        try:
            raise ChordError(text) from cause  # noqa: TRY301 - Celery reads its traceback
        except ChordError as error:
            self.chord_error_from_stack(callback, error)


def _chord_log(connection: Any) -> ChordLog:  # noqa: ANN401 - kombu
    channel: Channel = connection.default_channel
    return ChordLog(channel.link, channel.topics, channel.names.exchange(CHORDS))
