"""Results of Celery in the broker of the tasks: `result_backend = "rmq://"`.

A result is one message in the topic of the exchange `celery-results`. Its tag is the
caller, whose pull waits for it. Its key is the task id, by which any process finds it
as long as the log has it. No process polls for the results of its own tasks.

The parts of a chord are messages of the topic `celery-chords`, with the group as tag.
The worker that stores a part reads the parts from the start of the chord to its own.
The part with which the last task is there calls the body: the order of the log decides,
so that exactly one part does it.
"""

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import celery
import msgspec
from celery import states
from celery.backends.rpc import ResultConsumer, RPCBackend
from celery.exceptions import ChordError, ImproperlyConfigured
from celery.result import GroupResult
from kombu.serialization import loads

from rmq._fastpath.client.codec import PullResult, PullTemplate
from rmq.integrations.kombu.channel import Channel
from rmq.integrations.kombu.envelope import unpack
from rmq.integrations.result_log import ResultLog, decode_all
from rmq.integrations.sources import MAX_MESSAGES, READER_GROUP
from rmq.integrations.task_link import Refused
from rmq.protocol.codes import ResponseCode
from rmq.protocol.properties import TAGS

RESULTS: Final = "celery-results"
CHORDS: Final = "celery-chords"
START: Final = "rmq_chord_start"
"""Field of a chord's body: where its parts begin in the topic."""

MAX_CALLS: Final = 10_000
"""Number of own tasks that are remembered: their results arrive without a query."""

VISIBLE_S: Final = 10.0
"""How long to wait until a part is visible: a group replicates it first."""

POLL_S: Final = 1.0
"""Pause between queries for the results of tasks that another process has called."""

_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)


class ChordPart(msgspec.Struct, array_like=True, tag="part"):
    """The result of one task of a chord's header."""

    index: int
    task_id: str
    state: str
    result: Any


class ChordSize(msgspec.Struct, array_like=True, tag="size"):
    """The number of tasks of a chord's header; stored before the last is sent."""

    size: int


_DECODER: Final = msgspec.json.Decoder(ChordPart | ChordSize)


class RmqResultConsumer(ResultConsumer):
    """Waits for the results of this process; asks for those of others."""

    def on_wait_for_pending(self, result: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Celery
        """Look for results that were stored before."""
        super().on_wait_for_pending(result, **kwargs)
        for each in getattr(result, "results", None) or [result]:
            self._look_up(each.id)

    def drain_events(self, timeout: float | None = None) -> Any:  # noqa: ANN401 - Celery
        """Wait for results; look for the results of foreign tasks once a second."""
        try:
            return super().drain_events(timeout=min(timeout or POLL_S, POLL_S))
        except TimeoutError:
            for pending in self._pending_results:
                for task_id in list(pending):
                    self._look_up(task_id)
            raise

    def _look_up(self, task_id: str) -> None:
        if self.backend.is_own_call(task_id):
            return
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
        """Record in the body where the parts of a chord will begin."""
        results = self.app.GroupResult(*header_result_args).results
        if any(isinstance(each, GroupResult) for each in results):
            raise NotImplementedError(
                "a chord on rmq:// has tasks in its header, and no groups of results"
            )
        with self.app.pool.acquire(block=True) as connection:
            channel = connection.default_channel
            topic = channel.names.exchange(CHORDS)
            channel.topics.ensure(topic)
            body[START] = channel.topics.end_of(topic)

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
        with self.app.pool.acquire(block=True) as connection:
            channel = connection.default_channel
            offset = _store(channel, group, part)
            messages = _read_chord(channel, group, chord.get(START, 0), offset)
            parts = find_complete(messages, offset)
        if parts is not None:
            self._call_body(callback, parts)

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Store how many parts a chord has, before its last task is sent."""
        with self.app.pool.acquire(block=True) as connection:
            _store(connection.default_channel, group_id, ChordSize(chord_size))

    def _call_body(self, callback: Any, parts: list[ChordPart]) -> None:  # noqa: ANN401 - Celery
        ordered = sorted(parts, key=lambda each: each.index)
        failed = [each for each in ordered if each.state != states.SUCCESS]
        if failed:
            cause = self.exception_to_python(failed[0].result)
            self._fail_body(
                callback, f"Dependency {failed[0].task_id} raised {cause!r}"
            )
            return
        try:
            callback.delay([each.result for each in ordered])
        except Exception as error:
            self._fail_body(callback, f"Callback error: {error!r}")

    def _fail_body(self, callback: Any, text: str) -> None:  # noqa: ANN401 - Celery
        try:
            raise ChordError(text)  # noqa: TRY301 - Celery reads its traceback
        except ChordError as error:
            self.chord_error_from_stack(callback, error)


def find_complete(
    messages: Iterable[tuple[int, ChordPart | ChordSize]], last: int
) -> list[ChordPart] | None:
    """Return the parts of a chord if the message at `last` has completed it.

    None if a part is missing, or an earlier message has completed the chord.

    >>> def part(name): return ChordPart(0, name, "SUCCESS", 1)
    >>> stored = [(0, part("a")), (1, ChordSize(2)), (2, part("b")), (3, part("b"))]
    >>> [find_complete(stored[: at + 1], at) is not None for at in range(4)]
    [False, False, True, False]
    """
    parts: dict[str, ChordPart] = {}
    size: int | None = None
    for offset, message in messages:
        if offset > last:
            break
        if size is not None and len(parts) >= size:
            return None
        if isinstance(message, ChordSize):
            size = message.size
        else:
            parts[message.task_id] = message
    return list(parts.values()) if size is not None and len(parts) >= size else None


def _store(channel: Channel, group: str, message: ChordPart | ChordSize) -> int:
    """Store a message of a chord; return its offset."""
    topic = channel.names.exchange(CHORDS)
    log = ResultLog(channel.link, channel.topics, topic)
    return log.store(group, _ENCODER.encode(message), {TAGS: group})


def _read_chord(
    channel: Channel, group: str, start: int, last: int
) -> Iterator[tuple[int, ChordPart | ChordSize]]:
    """Yield the offsets and the messages of a chord up to an offset."""
    topic = channel.names.exchange(CHORDS)
    template = PullTemplate(READER_GROUP, topic, 0, expression=group)
    at, end_s = start, time.monotonic() + VISIBLE_S
    while at <= last and time.monotonic() < end_s:
        answer = channel.link.pull(template, offset=at, count=MAX_MESSAGES)
        if not isinstance(answer, PullResult):
            what = f"cannot read the parts of the chord {group}"
            raise Refused(channel.link.address, answer, what, "")
        if answer.code == ResponseCode.SUCCESS:
            for message in decode_all(answer.body, topic):
                if message.tags == group and message.queue_offset <= last:
                    yield message.queue_offset, _DECODER.decode(message.body)
        if answer.next_offset <= at:
            time.sleep(0.01)  # its own part is not visible yet
        at = max(at, answer.next_offset)
