"""Results of sends, deliveries and received messages, as programs see them.

`decode_messages` reads the body of an answer to a pull: a sequence of records with the
layout of `layout.pyx`. It copies each message, so that one message does not keep the
other messages of its pull in memory. It compares tags again, because brokers compare
only their hashes. `properties`, `keys` and the times are computed at the first use.
"""

import logging
import struct
from datetime import UTC as _UTC, datetime
from socket import AF_INET, AF_INET6, inet_ntop

cimport cython
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from rmq._fastpath.client.packing cimport PackedMessage
from rmq._fastpath.log.decode cimport OK, RecordParts, RecordStatus, split_record
from rmq._fastpath.bytes.endian cimport get32, get64
from rmq._fastpath.log.layout cimport RecordLayout
from rmq._fastpath.log.decode import RecordStatus as STATUSES
from rmq._fastpath.bytes.properties import decode_properties

logger = logging.getLogger(__name__)

cdef enum:
    NAME_END = 1
    PAIR_END = 2
    COMPRESSED = 1
    PORT_SIZE = 4
    IPV4_SIZE = 4


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class SendResult:
    """A stored message: its ids, its queue and its queue offset."""

    def __init__(
        self, int32_t code, str msg_id not None, str offset_msg_id not None, queue,
        int64_t queue_offset, str transaction_id=None, str recall_handle=None,
    ):
        self.code = code
        self.msg_id = msg_id
        self.offset_msg_id = offset_msg_id
        self.queue = queue
        self.queue_offset = queue_offset
        self.transaction_id = transaction_id
        self.recall_handle = recall_handle

    @property
    def status(self):
        """Whether the broker has waited for the disk and its slaves; the message is
        stored with every status.
        """
        return SendStatus(self.code)

    def __repr__(self):
        return (
            f"SendResult({self.status.name}, msg_id={self.msg_id!r}, "
            f"queue={self.queue!r}, queue_offset={self.queue_offset})"
        )


@cython.final
@cython.freelist(1024)
cdef class Delivery:
    """A message that `enqueue` has accepted, and the result that comes later.

    Await it, or use `done` and `result`; the message is sent in any case. `packed` is
    the message. `on_end`, if it is not None, is called first when the delivery ends.
    """

    def __init__(self, packed, on_end, new_waiter):
        self.packed = packed
        self.on_end = on_end
        self.new_waiter = new_waiter

    def done(self):
        """Whether the broker has answered, or all attempts have failed."""
        return self.outcome is not None

    def result(self):
        """Return the result or raise the error; RuntimeError before the end."""
        if self.outcome is None:
            raise RuntimeError("this delivery is not done: await it")
        if type(self.outcome) is SendResult:
            return self.outcome
        raise self.outcome

    def exception(self):
        """Return the error of a delivery that has ended; None without one."""
        return None if type(self.outcome) is SendResult else self.outcome

    def __repr__(self):
        state = "in flight" if self.outcome is None else repr(self.outcome)
        return f"Delivery({self.packed.topic!r}, {state})"

    def add_done_callback(self, function):
        """Call a function with this delivery at its end, or now if it has on_end."""
        if self.outcome is not None:
            function(self)
        elif self.callbacks is None:
            self.callbacks = [function]
        else:
            self.callbacks.append(function)

    def set_result(self, result):
        """End the delivery with a result; for the producer."""
        self._end(result)

    def set_exception(self, error):
        """End the delivery with an error; for the producer."""
        self._end(error)

    cdef int _end(self, outcome) except -1:
        self.outcome = outcome
        if self.on_end is not None:
            self.on_end(self)
        self._wake()
        return 0

    cdef int _wake(self) except -1:
        cdef list called
        if self.waiters is not None:
            called, self.waiters = self.waiters, None
            for waiter in called:
                if not waiter.done():
                    waiter.set_result(None)
        if self.callbacks is not None:
            called, self.callbacks = self.callbacks, None
            for function in called:
                try:
                    function(self)
                except Exception:  # the other messages of the batch continue
                    logger.exception("a callback of a delivery failed")
        return 0

    def __await__(self):
        """Wait for the result."""
        if self.outcome is None:
            waiter = self.new_waiter()
            if self.waiters is None:
                self.waiters = []
            self.waiters.append(waiter)
            yield from waiter.__await__()
        return self.result()


def end_all(list deliveries not None, list results not None):
    """End the deliveries of one batch with their results, without calling `on_end`.

    Return the count and the bytes of the deliveries that have an `on_end`.
    """
    cdef Delivery delivery
    cdef PackedMessage packed
    cdef Py_ssize_t i, count = 0, size = 0
    if len(deliveries) != len(results):
        raise ValueError(f"{len(results)} results of {len(deliveries)} messages")
    for i in range(len(deliveries)):
        delivery = deliveries[i]
        delivery.outcome = results[i]
        if delivery.on_end is not None:
            packed = delivery.packed
            count += 1
            size += packed.size
        delivery._wake()
    return count, size


cdef bytes _find_property(bytes text, const char *name, Py_ssize_t size):
    """Return the value of a property in the stored text; the last of equal names."""
    cdef const char *p = PyBytes_AS_STRING(text)
    cdef const char *end = p + PyBytes_GET_SIZE(text)
    cdef const char *stop
    cdef bytes found = None
    while p < end:
        stop = <const char *>memchr(p, PAIR_END, end - p)
        if stop == NULL:
            stop = end
        if stop - p > size + 1 and p[size] == NAME_END and memcmp(p, name, size) == 0:
            found = PyBytes_FromStringAndSize(p + size + 1, stop - p - size - 1)
        p = stop + 1
    return found


@cython.final
cdef class AckResult:
    """The result of an `ack`: true or false, for code that awaits it and for code that
    does not.
    """

    cdef bint is_acked

    def __init__(self, bint is_acked):
        self.is_acked = is_acked

    def __bool__(self):
        return self.is_acked

    def __eq__(self, other):
        return self.is_acked == bool(other)

    def __hash__(self):
        return hash(bool(self.is_acked))

    def __await__(self):
        """Return the result without a wait."""
        yield from ()
        return self.is_acked

    def __repr__(self):
        return repr(bool(self.is_acked))


cdef object ACKED = AckResult(True)
cdef object NOT_ACKED = AckResult(False)


@cython.final
@cython.freelist(1024)
cdef class ReceivedMessage:
    """A message from a broker; `lease` handles its `ack` and `nack`."""

    @property
    def properties(self):
        """All properties by name, in a dictionary of this message alone."""
        if self._properties is None:
            self._properties = decode_properties(self.text.decode(errors="replace"))
        return self._properties

    @property
    def keys(self):
        """The keys for look-ups, one after another."""
        return tuple(self.properties.get("KEYS", "").split())

    @property
    def msg_id(self):
        """The id that the producer gave to the message; without such an id,
        `offset_msg_id`.
        """
        cdef bytes found = _find_property(self.text, "UNIQ_KEY", 8)
        return self.offset_msg_id if found is None else found.decode(errors="replace")

    @property
    def offset_msg_id(self):
        """The id by which the broker finds the record."""
        host = self.store_host[:self.store_host_size]
        packed = host + struct.pack(">q", self.physical_offset)
        return packed.hex().upper()

    @property
    def attempt(self):
        """Number of the attempt: 1 at the first delivery, one more after each failure.
        """
        return self.reconsume_times + self.local_attempts + 1

    @property
    def born_at(self):
        """Time when the producer sent the message, by the producer's clock."""
        return datetime.fromtimestamp(self.born_ms / 1e3, _UTC)

    @property
    def stored_at(self):
        """Time when the broker stored the message."""
        return datetime.fromtimestamp(self.stored_ms / 1e3, _UTC)

    @property
    def born_host(self):
        """The address of the producer, `ip:port`."""
        cdef Py_ssize_t size = self.born_size - PORT_SIZE
        host = self.born[:self.born_size]
        (port,) = struct.unpack_from(">i", host, size)
        family = AF_INET if size == IPV4_SIZE else AF_INET6
        return f"{inet_ntop(family, host[:size])}:{port}"

    def ack(self):
        """Mark the message as consumed; false if its queue now belongs to another
        consumer.

        The mark is set at once; a program need not await the result.
        """
        return ACKED if self.lease.ack(self) else NOT_ACKED

    def nack(self, delay_s=None, *, bint dead_letter=False):
        """Let the broker deliver the message again later, or move it to the dead-letter
        queue.
        """
        return self.lease.nack(self, delay_s, dead_letter=dead_letter)

    def __repr__(self):
        return (
            f"ReceivedMessage({self.queue!r}, queue_offset={self.queue_offset}, "
            f"msg_id={self.msg_id!r}, {len(self.body)} bytes)"
        )


cdef ReceivedMessage _make_message(const uint8_t *p, const RecordParts *parts):
    cdef ReceivedMessage m = ReceivedMessage.__new__(ReceivedMessage)
    cdef int64_t born_at = RecordLayout.BORN_HOST_AT
    m.size = <int32_t>parts.size
    m.flag = <int32_t>get32(p + RecordLayout.FLAG_AT)
    m.sys_flag = parts.sys_flag
    m.queue_offset = parts.queue_offset
    m.physical_offset = parts.physical_offset
    m.born_ms = <int64_t>get64(p + RecordLayout.BORN_MS_AT)
    m.stored_ms = parts.store_ms
    m.reconsume_times = <int32_t>get32(p + parts.body_at - 16)
    m.prepared_offset = <int64_t>get64(p + parts.body_at - 12)
    m.born_size = <uint8_t>parts.born_host_size
    m.store_host_size = <uint8_t>parts.store_host_size
    memcpy(m.born, p + born_at, m.born_size)
    memcpy(
        m.store_host, p + parts.body_at - 16 - m.store_host_size, m.store_host_size
    )
    m.body = p[parts.body_at:parts.body_at + parts.body_size]
    m.text = p[parts.properties_at:parts.properties_at + parts.properties_size]
    return m


def decode_messages(
    bytes data not None, str topic not None, queue, lease=None, *, tags=None,
    inflate=None, origin_of=None, queue_of=None, on_damage=None,
):
    """Return the messages in the body of an answer.

    They end before a damaged record. `on_damage` gets the reason and the offset after
    the last good record, or -1; without `on_damage` a ValueError is raised.

    Messages with other tags than `tags` are left out; `tags` None means all messages.
    `inflate` gets a compressed body and the flags with its compression, and must not
    raise. `origin_of` maps the property RETRY_TOPIC to the topic of a message.
    `queue_of` maps the queue id of a message to its queue, for answers with messages of
    several queues.
    """
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef int64_t left = PyBytes_GET_SIZE(data)
    cdef RecordParts parts
    cdef RecordStatus status
    cdef ReceivedMessage message
    cdef bytes found
    cdef list messages = []
    cdef int64_t next_offset = -1
    while left > 0:
        status = split_record(p, left, False, &parts)
        if status != OK:
            reason = (
                f"record {len(messages)} of a pull of {len(data)} bytes is damaged: "
                f"{STATUSES(status).name}"
            )
            if on_damage is None:
                raise ValueError(reason)
            on_damage(reason, next_offset)
            break
        next_offset = parts.queue_offset + 1
        message = _make_message(p, &parts)
        p += parts.size
        left -= parts.size
        found = _find_property(message.text, "TAGS", 4)
        message.tags = "" if found is None else found.decode(errors="replace")
        if tags is not None and message.tags not in tags:
            continue
        if message.sys_flag & COMPRESSED and inflate is not None:
            message.body = inflate(message.body, message.sys_flag)
        message.queue = queue if queue_of is None else queue_of(parts.queue_id)
        message.lease = lease
        message.topic = topic
        if origin_of is not None:
            found = _find_property(message.text, "RETRY_TOPIC", 11)
            if found is not None:
                message.topic = origin_of(found.decode(errors="replace"))
        messages.append(message)
    return messages
