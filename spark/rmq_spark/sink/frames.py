"""Packs the rows of Arrow batches into frames, the bodies of send requests.

The maker checks all rows of a batch before it yields the first frame.  A frame has one
topic and one queue: the queue of `queueId`, of the hash of `shardingKey`, or any.  A
message with a delay or a delivery time has its own frame, because brokers refuse such a
message in a batch. A compressed message has its own frame, too.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rmq._fastpath.arrow.items import ItemWriter, MapBuffers, RowFault
from rmq._fastpath.bytes.hashing import java_hash
from rmq.client.admin import Queue
from rmq.client.compression import FLAGS, make_compressor
from rmq.client.message import RESERVED
from rmq.core.errors import RmqError
from rmq.protocol import properties as names
from rmq.protocol.batch import decode_batch
from rmq_spark.sink.columns import Columns, Faults
from rmq_spark.sink.options import BadRows, topic_fault

PROPERTIES: Final = {
    "tags": names.TAGS,
    "keys": names.KEYS,
    "delayTimeLevel": names.DELAY,
    "deliverTimestamp": names.TIMER_DELIVER_MS,
    "msgId": names.UNIQ_KEY,
}
"""Text columns and their properties, in the order of the stored pairs."""

PLACING: Final = {"queueId", "shardingKey", "delayTimeLevel", "deliverTimestamp"}
"""Columns that select the queue of a row, or that give a row its own frame.
"""

KNOWN: Final = {
    name.encode(): name not in (names.WAIT, names.CLUSTER, names.MSG_REGION)
    for name in RESERVED - {names.KEYS, names.TAGS}
} | {name.encode(): False for name in (names.UNIQ_KEY, names.TRACE_ON)}
"""Names that a map may not have: True refuses the row, False drops the pair."""

FAULTS: Final = {
    RowFault.NO_BODY: "its body is null or empty",
    RowFault.LARGE_BODY: "its body is larger than maxMessageSize",
    RowFault.SEPARATOR: "a property has byte 1 or 2, which separate properties",
    RowFault.NOT_UTF8: "a property is not UTF-8",
    RowFault.NO_NAME: "a property has no name",
    RowFault.RESERVED_NAME: "a property has a name that brokers and clients use: "
    "remove it from the map, or use its column",
    RowFault.LARGE_PROPERTIES: "its properties are larger than 32,767 bytes",
}
BATCH_ROWS: Final = 1 << 16
"""Maximum number of rows of a batch; larger batches are split."""

_BATCH_CODES: Final = 1 << 17  # more than the different texts in a batch
_QUEUE_IDS: Final = 1 << 17  # more than the queue ids; the last one means no such queue
_HASHES: Final = 1 << 32
_TARGETS: Final = 1 << 32  # more than the queues of a topic on all brokers
ANY_QUEUE: Final = -1
NO_QUEUE: Final = -2
ERROR_PROPERTY: Final = "RMQ_SPARK_ERROR"
_log: Final = logging.getLogger(__name__)


class BadRow(RmqError):
    """A row cannot be sent, and `badRows` is `fail`."""


class Frame(NamedTuple):
    """The body of a send request; `queue` None is any queue.

    `first_row` and `last_row` are numbers of rows in the task.
    """

    topic: str
    queue: Queue | None
    first_row: int
    last_row: int
    rows: int
    body: bytes
    properties: bytes = b""
    sys_flag: int = 0
    flag: int = 0
    is_batch: bool = True


class FrameSettings(NamedTuple):
    """How to make frames, pickled for workers; `topic` is empty for a column."""

    topic: str
    batch_bytes: int
    body_limit: int
    compress_from: int | None
    bad_rows: BadRows


class FrameMaker:
    """Makes the frames of one task.

    `task` has 20 digits for the keys of rows; without it rows get no key.
    """

    def __init__(
        self,
        settings: FrameSettings,
        queues_of: Callable[[str], Sequence[Queue]],
        task: bytes | None,
    ) -> None:
        """`queues_of` returns writable queues of a topic, sorted by broker and id."""
        self._settings = settings
        self._queues_of = queues_of
        self._task = task
        self._next_row = 0
        self._compress = make_compressor("zlib")

    def make_frames(self, columns: Columns, faults: Faults) -> Iterator[Frame]:
        """Check all rows of a batch, then yield its frames.

        `faults` has the faults that are known already, by row of the batch.
        """
        rows = len(columns["body"])
        first, self._next_row = self._next_row, self._next_row + rows
        if rows == 0:
            return
        present = [name for name in PROPERTIES if name in columns]
        writer = ItemWriter(
            [PROPERTIES[name].encode() for name in present],
            task=self._task,
            known=KNOWN,
            body_limit=self._settings.body_limit,
        )
        found = writer.measure(
            rows,
            body=_text_buffers(columns["body"]),
            texts=[_text_buffers(columns[name]) for name in present],
            flags=_number_buffers(columns.get("flag")),
            pairs=_map_buffers(columns.get("properties")),
            first_row=first,
        )
        bad = dict(faults) | {row: FAULTS[fault] for row, fault in found}
        if self._has_one_group(columns) and not bad:
            groups = iter([Group(self._settings.topic, None, False, rows)])
        else:
            places = _RowTargets(self._settings.topic, columns, self._queues_of, bad)
            groups = places.groups(
                _must_be_alone(columns, rows, self._settings.compress_from)
            )
        if bad:
            yield from self._bad_frames(bad, columns["body"], first)
        yield from self._good_frames(writer, groups, first)

    def _has_one_group(self, columns: Columns) -> bool:
        """Return whether all rows go to one topic, to any queue, in batches."""
        settings = self._settings
        is_plain = bool(settings.topic) and settings.compress_from is None
        return is_plain and not PLACING.intersection(columns)

    def _good_frames(
        self, writer: ItemWriter, groups: Iterator["Group"], first: int
    ) -> Iterator[Frame]:
        for group in groups:
            at = 0
            limit = 0 if group.is_alone else self._settings.batch_bytes
            while at < group.size:
                body, stop = writer.write(group.order_address, at, group.size, limit)
                frame = Frame(
                    group.topic,
                    group.queue,
                    first + group.row_number(at),
                    first + group.row_number(stop - 1),
                    stop - at,
                    body,
                )
                yield frame if frame.rows > 1 else self._single_message(frame)
                at = stop

    def _single_message(self, frame: Frame) -> Frame:
        """Convert a batch of one row to a single message."""
        (item,) = decode_batch(frame.body)
        body, sys_flag, limit = item.body, 0, self._settings.compress_from
        if limit is not None and len(body) >= limit:
            body, sys_flag = self._compress(body), FLAGS["zlib"]
        return frame._replace(
            body=body,
            properties=item.properties_text.encode(),
            sys_flag=sys_flag,
            flag=item.flag,
            is_batch=False,
        )

    def _bad_frames(self, bad: Faults, body: pa.Array, first: int) -> Iterator[Frame]:
        """Apply option badRows: raise, skip rows, or yield them for another topic."""
        row, reason = min(bad.items())
        text = f"row {first + row} of the task cannot be sent: {reason}"
        policy = self._settings.bad_rows
        if policy.word == "fail":
            raise BadRow(f"{text} (option badRows can skip such rows)")
        _log.warning("%d rows are skipped; %s", len(bad), text)
        if not policy.topic:
            return
        for row in sorted(bad):
            data = body[row].as_py() or bad[row].encode()
            yield Frame(
                policy.topic,
                None,
                first + row,
                first + row,
                1,
                data[: self._settings.body_limit],
                f"{ERROR_PROPERTY}\x01{bad[row]}\x02".encode(),
                is_batch=False,
            )


class Group(NamedTuple):
    """Rows for one topic and queue; `order` has their numbers, as u64.

    Without `order` the group has all rows of the batch, in their order.
    """

    topic: str
    queue: Queue | None
    is_alone: bool
    size: int
    order: pa.Array | None = None

    @property
    def order_address(self) -> int:
        """The memory address of the row numbers; 0 without them."""
        if self.order is None:
            return 0
        return int(self.order.buffers()[1].address + 8 * self.order.offset)

    def row_number(self, at: int) -> int:
        """Return the number of a row in the batch."""
        return at if self.order is None else int(self.order[at].as_py())


class _RowTargets:
    """Topic and queue of each row of a batch; adds rows without a queue to `bad`."""

    def __init__(
        self,
        topic: str,
        columns: Columns,
        queues_of: Callable[[str], Sequence[Queue]],
        bad: Faults,
    ) -> None:
        self._rows = len(columns["body"])
        self._queues_of = queues_of
        self._queues: dict[int, Sequence[Queue]] = {}
        self._bad = bad
        if topic:
            self._topics, self._topic = [topic.encode()], self._constant_column(0)
        else:
            self._topics, self._topic = _encode_column(columns["topic"])
            self._check_topics()
        self._target = self._constant_column(ANY_QUEUE)
        if "shardingKey" in columns:
            self._set_targets(self._hash_targets(columns["shardingKey"]))
        if "queueId" in columns:
            self._set_targets(
                self._named_targets(columns["queueId"], columns.get("brokerName"))
            )
        for row in _rows_where(pc.equal(self._target, NO_QUEUE)):
            bad.setdefault(
                row, "its topic has no such queue, or has it on several brokers"
            )

    def groups(self, alone: pa.Array) -> Iterator[Group]:
        """Yield the good rows; rows of one queue in the order of the batch."""
        target = pc.subtract(self._target, NO_QUEUE)
        key = _combine_codes(
            _combine_codes(self._topic, target, _TARGETS), alone.cast(pa.int64()), 2
        )
        order = pc.sort_indices(key)
        if self._bad:
            is_good = pa.array([row not in self._bad for row in range(self._rows)])
            order = order.filter(is_good.take(order))
        runs = pc.run_end_encode(key.take(order))
        start = 0
        for value, end in zip(runs.values, runs.run_ends, strict=True):
            packed, is_alone = divmod(value.as_py(), 2)
            code, target = divmod(packed, _TARGETS)
            target += NO_QUEUE
            topic = self._topics[code].decode()
            queue = None if target == ANY_QUEUE else self._queues_of_topic(code)[target]
            stop = end.as_py()
            numbers = order[start:stop]
            yield Group(topic, queue, bool(is_alone), stop - start, numbers)
            start = stop

    def _constant_column(self, number: int) -> pa.Array:
        return pa.repeat(pa.scalar(number, pa.int64()), self._rows)

    def _set_targets(self, targets: pa.Array) -> None:
        self._target = pc.coalesce(targets, self._target)

    def _check_topics(self) -> None:
        for code, name in enumerate(self._topics):
            if (fault := topic_fault(name.decode(errors="replace"))) is not None:
                for row in _rows_where(pc.equal(self._topic, code)):
                    self._bad.setdefault(row, fault)

    def _hash_targets(self, keys: pa.Array) -> pa.Array:
        """Return the queue of each key, as Java's SelectMessageQueueByHash does."""
        hashes = _map_values(
            keys, lambda key: abs(java_hash(key.decode(errors="replace")))
        )

        def target(packed: int) -> int:
            code, key_hash = divmod(packed, _HASHES)
            queues = self._queues_of_topic(code)
            return key_hash % len(queues) if queues else NO_QUEUE

        return _map_values(_combine_codes(self._topic, hashes, _HASHES), target)

    def _named_targets(self, queue_id: pa.Array, broker: pa.Array | None) -> pa.Array:
        """Return the queue that the columns name; a null queueId is any queue."""
        brokers, codes = [b""], self._constant_column(0)
        if broker is not None:
            brokers, codes = _encode_column(broker)
        wanted = queue_id.cast(pa.int64())
        is_known = pc.and_(pc.greater_equal(wanted, 0), pc.less(wanted, _QUEUE_IDS))
        wanted = pc.if_else(is_known, wanted, _QUEUE_IDS - 1)

        def target(packed: int) -> int:
            rest, number = divmod(packed, _QUEUE_IDS)
            code, broker_code = divmod(rest, _BATCH_CODES)
            name = brokers[broker_code].decode(errors="replace")
            found = [
                i
                for i, queue in enumerate(self._queues_of_topic(code))
                if queue.queue_id == number and name in ("", queue.broker)
            ]
            return found[0] if len(found) == 1 else NO_QUEUE

        pair = _combine_codes(self._topic, codes, _BATCH_CODES)
        return _map_values(_combine_codes(pair, wanted, _QUEUE_IDS), target)

    def _queues_of_topic(self, code: int) -> Sequence[Queue]:
        """Return the queues of a topic, the same for the whole batch."""
        if code not in self._queues:
            name = self._topics[code].decode(errors="replace")
            is_good = topic_fault(name) is None
            self._queues[code] = self._queues_of(name) if is_good else ()
        return self._queues[code]


def _encode_column(column: pa.Array) -> tuple[list[bytes], pa.Array]:
    """Return the different texts of a column, and the code of each row."""
    encoded = pc.fill_null(column, b"").dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.cast(pa.int64())


def _combine_codes(high: pa.Array, low: pa.Array, base: int) -> pa.Array:
    return pc.add(pc.multiply(high, base), low)


def _map_values(values: pa.Array, function: Callable[[Any], int]) -> pa.Array:
    """Apply a function once to each different value; null stays null."""
    encoded = values.dictionary_encode()
    results = [function(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(results, pa.int64()).take(encoded.indices)


def _rows_where(mask: pa.Array) -> list[int]:
    return list(pc.indices_nonzero(mask).to_pylist())


def _must_be_alone(columns: Columns, rows: int, compress_from: int | None) -> pa.Array:
    """Return which rows need a frame of their own."""
    alone = pa.repeat(pa.scalar(False), rows)
    for name in ("delayTimeLevel", "deliverTimestamp"):
        if name in columns:
            alone = pc.or_(alone, columns[name].is_valid())
    if compress_from is not None:
        sizes = pc.fill_null(pc.binary_length(columns["body"]), 0)
        alone = pc.or_(alone, pc.greater_equal(sizes, compress_from))
    return alone


def _buffer_address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else buffer.address


def _text_buffers(array: pa.Array) -> tuple[int, int, int, int]:
    validity, offsets, values = map(_buffer_address, array.buffers())
    return array.offset, validity, offsets, values


def _number_buffers(array: pa.Array | None) -> tuple[int, int, int] | None:
    if array is None:
        return None
    validity, values = map(_buffer_address, array.buffers())
    return array.offset, validity, values


def _map_buffers(array: pa.Array | None) -> MapBuffers | None:
    if array is None:
        return None
    validity, offsets = map(_buffer_address, array.buffers()[:2])
    names, values = array.keys, array.items
    return array.offset, validity, offsets, _text_buffers(names), _text_buffers(values)
