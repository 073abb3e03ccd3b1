"""What a client gets: the result of a send, and received messages.

`decode_messages` reads the body of an answer to a pull: records one after another, as
`layout.pyx` has them. A message is copied out of its pull, so that one that is kept
holds no neighbours. Tags are compared again here, because brokers compare their hashes.
`properties`, `keys` and the times are made at first use.
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
    """A stored message: its ids and its place."""

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
        """Which copies the broker has waited for; the message is stored with any."""
        return SendStatus(self.code)

    def __repr__(self):
        return (
            f"SendResult({self.status.name}, msg_id={self.msg_id!r}, "
            f"queue={self.queue!r}, queue_offset={self.queue_offset})"
        )


@cython.final
@cython.freelist(1024)
cdef class Delivery:
    """A message that `enqueue` has taken; its result comes later.

    Await it, or ask `done` and `result`; nothing is lost if you do neither. `packed` is
    the message; `ended`, if it is not None, learns of the end before all others.
    """

    def __init__(self, packed, ended, new_waiter):
        self.packed = packed
        self.ended = ended
        self.new_waiter = new_waiter

    def done(self):
        """Whether the broker has answered, or the message has failed for good."""
        return self.outcome is not None

    def result(self):
        """Return the result, or raise the failure; only when done."""
        if self.outcome is None:
            raise RuntimeError("this delivery is not done: await it")
        if type(self.outcome) is SendResult:
            return self.outcome
        raise self.outcome

    def error(self):
        """Return the failure, if there is one."""
        return None if type(self.outcome) is SendResult else self.outcome

    def add_done_callback(self, function):
        """Call a function with this delivery when it is done, or now if it is."""
        if self.outcome is not None:
            function(self)
        elif self.callbacks is None:
            self.callbacks = [function]
        else:
            self.callbacks.append(function)

    def set_result(self, result):
        """End it; for the producer."""
        self._end(result)

    def set_exception(self, error):
        """End it with a failure; for the producer."""
        self._end(error)

    cdef int _end(self, outcome) except -1:
        self.outcome = outcome
        if self.ended is not None:
            self.ended(self)
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
                except Exception:  # the other messages of the batch go on
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
    """End deliveries that left together, with their results; `ended` is not called.

    Return how many have an `ended`, and the bytes of these.
    """
    cdef Delivery delivery
    cdef PackedMessage packed
    cdef Py_ssize_t i, count = 0, size = 0
    if len(deliveries) != len(results):
        raise ValueError(f"{len(results)} results of {len(deliveries)} messages")
    for i in range(len(deliveries)):
        delivery = deliveries[i]
        delivery.outcome = results[i]
        if delivery.ended is not None:
            packed = delivery.packed
            count += 1
            size += packed.size
        delivery._wake()
    return count, size


cdef bytes _property(bytes text, const char *name, Py_ssize_t size):
    """Return the value of a property in the stored text; of equal names the last."""
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
@cython.freelist(1024)
cdef class ReceivedMessage:
    """A message from a broker. `lease` is what `ack` and `nack` are passed to."""

    @property
    def properties(self):
        """All properties by name; the dictionary is this message's own."""
        if self._properties is None:
            self._properties = decode_properties(self.text.decode(errors="replace"))
        return self._properties

    @property
    def keys(self):
        """The keys for look-ups, one after another."""
        return tuple(self.properties.get("KEYS", "").split())

    @property
    def msg_id(self):
        """The id that the producer gave it; without one, `offset_msg_id`."""
        cdef bytes found = _property(self.text, "UNIQ_KEY", 8)
        return self.offset_msg_id if found is None else found.decode(errors="replace")

    @property
    def offset_msg_id(self):
        """The id by which the broker finds the record."""
        host = self.store_host[:self.store_host_size]
        packed = host + struct.pack(">q", self.physical_offset)
        return packed.hex().upper()

    @property
    def attempt(self):
        """1 at the first delivery; one more after each failure."""
        return self.reconsume_times + self.local_attempts + 1

    @property
    def born_at(self):
        """When the producer sent it, by the producer's clock."""
        return datetime.fromtimestamp(self.born_ms / 1e3, _UTC)

    @property
    def stored_at(self):
        """When the broker stored it."""
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
        """Mark it consumed; False if its queue now belongs to another consumer."""
        return self.lease.ack(self)

    def nack(self, delay_s=None, *, bint dead_letter=False):
        """Have it delivered again later, or put into the dead-letter queue."""
        return self.lease.nack(self, delay_s, dead_letter=dead_letter)

    def __repr__(self):
        return (
            f"ReceivedMessage({self.queue!r}, queue_offset={self.queue_offset}, "
            f"msg_id={self.msg_id!r}, {len(self.body)} bytes)"
        )


cdef ReceivedMessage _message(const uint8_t *p, const RecordParts *parts):
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
    inflate=None, origin_of=None, queue_of=None,
):
    """Return the messages in the body of an answer; ValueError if it is damaged.

    `tags` are those that are wanted, None for all. `inflate` gets a compressed body and
    the flag that names its compression. `origin_of` gives the topic of a message of a
    retry topic, from the name that the message has with it. `queue_of` gives the queue
    of a message by its number, where messages of several queues come together.
    """
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef int64_t left = PyBytes_GET_SIZE(data)
    cdef RecordParts parts
    cdef RecordStatus status
    cdef ReceivedMessage message
    cdef bytes found
    cdef list messages = []
    while left > 0:
        status = split_record(p, left, False, &parts)
        if status != OK:
            raise ValueError(
                f"record {len(messages)} of a pull of {len(data)} bytes is damaged: "
                f"{STATUSES(status).name}"
            )
        message = _message(p, &parts)
        p += parts.size
        left -= parts.size
        found = _property(message.text, "TAGS", 4)
        message.tags = "" if found is None else found.decode(errors="replace")
        if tags is not None and message.tags not in tags:
            continue
        if message.sys_flag & COMPRESSED and inflate is not None:
            message.body = inflate(message.body, message.sys_flag)
        message.queue = queue if queue_of is None else queue_of(parts.queue_id)
        message.lease = lease
        message.topic = topic
        if origin_of is not None:
            found = _property(message.text, "RETRY_TOPIC", 11)
            if found is not None:
                message.topic = origin_of(found.decode(errors="replace"))
        messages.append(message)
    return messages
