"""Views of messages: lists by key, id, time and text, one message, dead letters.

They show data of users: `require` checks the right to read the topic.  Every list has
the number of messages that were read for the list.
"""

import heapq
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import trio

from rmq.core.errors import RequestRejected
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.core.threads import in_thread
from rmq.observe.monitored_broker import MonitoredBroker
from rmq.observe.queries import (
    MAX_ROWS,
    MAX_TEXT,
    Query,
    Require,
    Row,
    bad_query,
    large_number_of,
    name_of,
    number_of,
    raise_unknown,
    view_head,
)
from rmq.observe.record_reader import MAX_OPENED, Body, body_of, message_row, record_at
from rmq.protocol.codes import ResponseCode
from rmq.protocol.hosts import host_text
from rmq.protocol.properties import KEYS, TAGS
from rmq.protocol.records import StoredMessage, offset_of_message_id
from rmq.protocol.topics import DLQ_PREFIX
from rmq.remoting.turns import TurnTaker
from rmq.store.reader import StoreReader
from rmq.store.results import Boundary

MAX_LOOKED: Final = 20_000
"""Maximum number of messages that a search for a text reads."""

MAX_READ: Final = 64 << 20
"""Maximum bytes of messages that a list reads."""

MAX_BY_KEY: Final = 64
MAX_QUEUES: Final = 1_024
MAX_READERS: Final = 50
"""Maximum number of groups whose progress is shown with a message."""

MAX_DEAD: Final = 1_000
"""Maximum number of dead letters of a group that are sorted by topic and tag."""

SEARCHES: Final = 8
DEFAULT_MESSAGES: Final = 50

MessageView = Callable[[MonitoredBroker, Query, Require], Awaitable[dict[str, Any]]]

_searches = trio.CapacityLimiter(SEARCHES)
_index_reader = trio.CapacityLimiter(1)


async def messages_view(
    broker: MonitoredBroker, query: Query, require: Require
) -> dict[str, Any]:
    """Return messages: by `id`, `key`, from a time `at` on, or the newest.

    `queue` and `offset` set the first message, `q` selects messages that contain a
    text.
    """
    count = number_of(query, "n", DEFAULT_MESSAGES, MAX_ROWS)
    wanted_id = query.get("id", "")[:MAX_TEXT]
    record = _by_offset_id(broker, wanted_id)
    if record is not None:
        require(record.topic)
        return _message_list(broker, [message_row(record)], 1, is_complete=True)
    topic = _topic(broker, query)
    require(topic)
    key = wanted_id or query.get("key", "")[:MAX_TEXT]
    async with _searches:
        if key:
            return await _by_key(broker, topic, key, count)
        return await _search(broker, topic, query, count)


async def message_view(
    broker: MonitoredBroker, query: Query, require: Require
) -> dict[str, Any]:
    """Return one message: properties, the decompressed body, and the groups that have
    consumed it.
    """
    record = await placed_record(broker, query, require)
    return {
        **view_head(broker),
        "row": message_row(record),
        "properties": dict(record.properties),
        "born_host": host_text(record.born_host),
        "store_host": host_text(record.store_host),
        "offset_id": record.offset_msg_id,
        "physical": str(record.physical_offset),
        **body_of(record),
        "journey": list(_group_states(broker, record)),
    }


async def placed_record(
    broker: MonitoredBroker, query: Query, require: Require
) -> StoredMessage:
    """Return the message of a topic, queue and offset; raise RequestRejected if there
    is none.
    """
    topic = _topic(broker, query)
    require(topic)
    queue_id = number_of(query, "queue", 0, MAX_QUEUES)
    offset = large_number_of(query, "offset") or 0
    physical = broker.store.reads.physical_at(topic, queue_id, QueueOffset(offset))
    record = await record_at(broker, physical) if physical >= 0 else None
    if record is None:
        low = broker.store.reads.min_offset(topic, queue_id)
        high = broker.store.reads.max_offset(topic, queue_id)
        raise RequestRejected(
            ResponseCode.QUERY_NOT_FOUND,
            f"queue {queue_id} of {topic} has the offsets {low} to {high - 1}, not "
            f"{offset}"
            if high > low
            else f"queue {queue_id} of {topic} is empty",
        )
    return record


async def dead_letters_view(
    broker: MonitoredBroker, query: Query, require: Require
) -> dict[str, Any]:
    """Return groups with dead letters; for `name`, counts by topic and tag."""
    if query.get("name"):
        return await _dead_letters_of(broker, name_of(query), require)
    turns = TurnTaker(broker.next_turn)
    new = dict(broker.monitor.dead_letters.of_hour(broker.clock.now_ms()))
    rows: list[Row] = []
    for name in broker.topics.all():
        if name.startswith(DLQ_PREFIX) and len(rows) < MAX_ROWS:
            low, high = _offset_range(broker.store.reads, name, 0)
            times = [
                broker.store.reads.store_time_at(name, 0, QueueOffset(at))
                for at in (low, high - 1)
            ]
            rows.append({
                "name": name.removeprefix(DLQ_PREFIX), "kept": high - low,
                "hour": new.get(name.removeprefix(DLQ_PREFIX), 0),
                "first": times[0] if high > low else None,
                "last": times[1] if high > low else None,
            })  # fmt: skip
        await turns()
    rows.sort(key=lambda row: (-row["hour"], -row["kept"], row["name"]))
    return {**view_head(broker), "rows": rows}


async def _dead_letters_of(
    broker: MonitoredBroker, group: str, require: Require
) -> dict[str, Any]:
    topic = DLQ_PREFIX + group
    if broker.topics.get(topic) is None:
        raise_unknown("group with dead letters", group, ())
    require(topic)
    low, high = _offset_range(broker.store.reads, topic, 0)
    kinds: dict[tuple[str, str], int] = {}
    turns, looked = TurnTaker(broker.next_turn), 0
    for at in range(high - 1, max(low, high - MAX_DEAD) - 1, -1):
        place = topic, 0, QueueOffset(at)
        record = await record_at(broker, broker.store.reads.physical_at(*place))
        looked += 1
        if record is not None:
            kind = record.origin_topic, record.properties.get(TAGS, "")
            kinds[kind] = kinds.get(kind, 0) + 1
        await turns()
    ordered = sorted(kinds.items(), key=lambda kind: -kind[1])[:MAX_ROWS]
    rows = [{"topic": t, "tag": tag, "count": n} for (t, tag), n in ordered]
    return {
        **view_head(broker), "name": group, "topic": topic, "kept": high - low,
        "looked": looked, "kinds": rows,
    }  # fmt: skip


MESSAGE_VIEWS: Final[dict[str, MessageView]] = {
    "messages": messages_view, "message": message_view, "dead": dead_letters_view,
}  # fmt: skip


# -- searches


async def _by_key(
    broker: MonitoredBroker, topic: str, key: str, count: int
) -> dict[str, Any]:
    steps = broker.store.reads.query(
        topic, key, MAX_BY_KEY, 0, broker.clock.now_ms() + 1
    )
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            found: list[PhysicalOffset] = end.value
            break
        await in_thread(step, limiter=_index_reader)
    turns, rows = TurnTaker(broker.next_turn), list[Row]()
    for physical in reversed(found):
        record = await record_at(broker, physical)
        if record is not None and len(rows) < count:
            rows.append(message_row(record))
        await turns()
    return _message_list(broker, rows, len(found), is_complete=len(found) < MAX_BY_KEY)


async def _search(
    broker: MonitoredBroker, topic: str, query: Query, count: int
) -> dict[str, Any]:
    """Look at messages in the order of their time until enough are found."""
    text = query.get("q", "")[:MAX_TEXT]
    turns, rows = TurnTaker(broker.next_turn), list[Row]()
    looked = size = 0
    is_complete, until = True, None
    walk = _Walk(broker, topic, query)
    await walk.begin(turns)
    for physical in walk:
        if len(rows) >= count or looked >= MAX_LOOKED or size >= MAX_READ:
            is_complete = False
            break
        record = await record_at(broker, physical)
        looked += 1
        if record is not None:
            until, size = record.store_timestamp, size + record.size
            if not text or _contains(record, text):
                rows.append(message_row(record))
        await turns()
    found = _message_list(broker, rows, looked, is_complete=is_complete)
    return found | {"until": until}


class _Walk:
    """The messages of a topic from a time or an offset on; without time and offset, the
    newest first.
    """

    def __init__(self, broker: MonitoredBroker, topic: str, query: Query) -> None:
        self._reads = broker.store.reads
        self._topic = topic
        self._at_ms, self._offset = (
            large_number_of(query, "at"),
            large_number_of(query, "offset"),
        )
        is_forward = self._at_ms is not None or self._offset is not None
        self._step = 1 if is_forward else -1
        self._heap: list[tuple[int, int, int]] = []
        config = broker.topics.get(topic)
        assert config is not None, "the message was there a moment ago"
        number = max(config.read_queue_nums, config.write_queue_nums)
        self._queue_ids = range(min(MAX_QUEUES, number))
        if query.get("queue"):
            queue_id = number_of(query, "queue", 0, MAX_QUEUES)
            self._queue_ids = range(queue_id, queue_id + 1)
        elif self._offset is not None:
            raise bad_query("offset needs queue: each queue has offsets of its own")

    async def begin(self, turns: TurnTaker) -> None:
        """Find the first message of each queue."""
        for queue_id in self._queue_ids:
            low, high = _offset_range(self._reads, self._topic, queue_id)
            at = high - 1
            if self._at_ms is not None:
                place = self._topic, queue_id, self._at_ms
                at = self._reads.offset_by_time(*place, Boundary.LOWER)
            elif self._offset is not None:
                at = max(low, self._offset)
            self._push(queue_id, at)
            await turns()

    def __iter__(self) -> Iterator[int]:
        """Yield the physical offsets of the messages, in the order of their time."""
        while self._heap:
            _, queue_id, offset = heapq.heappop(self._heap)
            place = self._topic, queue_id, QueueOffset(offset)
            yield self._reads.physical_at(*place)
            self._push(queue_id, offset + self._step)

    def _push(self, queue_id: int, offset: int) -> None:
        low, high = _offset_range(self._reads, self._topic, queue_id)
        if low <= offset < high:
            place = self._topic, queue_id, QueueOffset(offset)
            time_ms = self._reads.store_time_at(*place)
            heapq.heappush(self._heap, (self._step * time_ms, queue_id, offset))


def _contains(record: StoredMessage, text: str) -> bool:
    properties = record.properties
    if text in properties.get(KEYS, "") or text in properties.get(TAGS, ""):
        return True
    return text.encode("utf-8", "replace") in Body(record, MAX_OPENED).content


def _by_offset_id(broker: MonitoredBroker, text: str) -> StoredMessage | None:
    offset = offset_of_message_id(text)
    if offset is None or offset < 0:
        return None
    record = broker.store.reads.verified_message_at(offset)
    return record if record and record.offset_msg_id == text.upper() else None


def _message_list(
    broker: MonitoredBroker, rows: list[Row], looked: int, *, is_complete: bool
) -> dict[str, Any]:
    return {
        **view_head(broker),
        "rows": rows,
        "looked": looked,
        "complete": is_complete,
    }


# -- one message


def _group_states(broker: MonitoredBroker, record: StoredMessage) -> Iterator[Row]:
    """Yield the state of each group: it has consumed the message, waits for it, or
    filters it out.
    """
    topic, queue_id = record.topic, record.queue_id
    for group in broker.offsets.groups_of(topic)[:MAX_READERS]:
        committed = broker.offsets.query(group, topic, queue_id)
        wants = broker.consumers.subscription(group, topic)
        state = "waits"
        if committed > record.queue_offset:
            state = "passed"
        elif (
            wants is not None
            and wants.expression_type == "TAG"
            and wants.tags_set
            and record.properties.get(TAGS, "") not in wants.tags_set
        ):
            state = "not wanted"
        before = record.queue_offset - committed if committed >= 0 else None
        yield {
            "group": group, "state": state,
            "before": before if state == "waits" else None,
        }  # fmt: skip


# -- queries


def _topic(broker: MonitoredBroker, query: Query) -> str:
    name = query.get("topic", "")
    if not 0 < len(name) <= MAX_TEXT:
        raise bad_query("topic is missing, or longer than 255 characters")
    if broker.topics.get(name) is None:
        raise_unknown("topic", name, broker.topics.all())
    return name


def _offset_range(reads: StoreReader, topic: str, queue_id: int) -> tuple[int, int]:
    return int(reads.min_offset(topic, queue_id)), int(
        reads.max_offset(topic, queue_id)
    )
