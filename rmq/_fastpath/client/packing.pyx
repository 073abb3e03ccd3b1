"""PackedMessage: a message or a batch in the form of its request.

The body of a batch is a sequence of items, as in `rmq/protocol/batch.py`:

| bytes | item |
|---|---|
| 4 | size of the item |
| 4, 4 | magic and CRC, both 0 |
| 4 | flag, 0 |
| 4, n | size and bytes of the body |
| 2, n | size and bytes of the properties |
"""

cimport cython
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_READ_CHAR
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

from rmq._fastpath.bytes.endian cimport put16, put32
from rmq._fastpath.bytes.unique_keys cimport UniqueKeys
from rmq.core.errors import LocalProtocolError

cdef enum:
    ITEM_SIZE = 22              # without body and properties
    MAX_PROPERTIES = 32_767
    NAME_SIZE = 9               # bytes of `UNIQ_KEY` and its separator
    PAIR_END = 2

cdef const char *NAME = b"UNIQ_KEY\x01"


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class PackedMessage:
    """A message or a batch, packed once for all attempts to send it.

    `msg_ids` is one id, or the ids of a batch. All attempts have the same id, by which
    consumers find duplicates. A message with `alone` is not sent in a batch.
    """

    def __init__(
        self, str topic not None, msg_ids not None, bytes properties not None,
        bytes body not None, int32_t sys_flag, bint wait_stored, bint alone=False,
    ):
        self.topic = topic
        self.msg_ids = msg_ids
        self.properties = properties
        self.body = body
        self.sys_flag = sys_flag
        self.wait_stored = wait_stored
        self.alone = alone
        self.size = PyBytes_GET_SIZE(body) + PyBytes_GET_SIZE(properties)

    @property
    def is_batch(self):
        """Whether the request has several messages."""
        return type(self.msg_ids) is list


def pack_plain(UniqueKeys keys not None, message, Py_ssize_t limit):
    """Pack a plain message with a body of at most `limit` bytes; None for others.

    A plain message has no tags, keys and properties. It waits for the disk, and its
    topic does not belong to the system.
    """
    cdef PackedMessage packed
    cdef str topic = message.topic
    cdef bytes body = message.body
    cdef Py_ssize_t size = keys.size
    cdef uint8_t *p
    if (
        PyBytes_GET_SIZE(body) > limit
        or message.tags or message.keys or message.properties
        or not message.wait_stored
        or not topic or PyUnicode_READ_CHAR(topic, 0) == u"%"
    ):
        return None
    packed = PackedMessage.__new__(PackedMessage)
    packed.topic = topic
    packed.body = body
    packed.properties = PyBytes_FromStringAndSize(NULL, NAME_SIZE + size + 1)
    p = <uint8_t *>PyBytes_AS_STRING(packed.properties)
    memcpy(p, NAME, NAME_SIZE)
    keys.write_next(p + NAME_SIZE)
    p[NAME_SIZE + size] = PAIR_END
    packed.msg_ids = PyUnicode_DecodeASCII(<char *>p + NAME_SIZE, size, NULL)
    packed.wait_stored = True
    packed.size = PyBytes_GET_SIZE(body) + NAME_SIZE + size + 1
    return packed


def join(list messages not None, bytes properties not None):
    """Pack messages of one topic as a batch with these properties.

    The batch has no id of its own: brokers of 4.9 would give it to all messages of the
    batch.
    """
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t body_size, text_size
    cdef PackedMessage each
    cdef PackedMessage first = messages[0]
    cdef list msg_ids = []
    cdef bytes body
    cdef uint8_t *p
    for each in messages:
        size += ITEM_SIZE + each.size
        msg_ids.append(each.msg_ids)
    body = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t *>PyBytes_AS_STRING(body)
    for each in messages:
        body_size = PyBytes_GET_SIZE(each.body)
        text_size = PyBytes_GET_SIZE(each.properties)
        if text_size > MAX_PROPERTIES:
            raise LocalProtocolError(
                f"properties of {text_size} bytes, not {MAX_PROPERTIES}"
            )
        put32(p, <uint32_t>(ITEM_SIZE + body_size + text_size))
        put32(p + 4, 0)
        put32(p + 8, 0)
        put32(p + 12, 0)
        put32(p + 16, <uint32_t>body_size)
        memcpy(p + 20, PyBytes_AS_STRING(each.body), body_size)
        p += 20 + body_size
        put16(p, <unsigned short>text_size)
        memcpy(p + 2, PyBytes_AS_STRING(each.properties), text_size)
        p += 2 + text_size
    return PackedMessage(
        first.topic, msg_ids, properties, body, 0, first.wait_stored, True
    )
