from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.endian cimport get32, get64
from rmq._fastpath.log.layout cimport QueueEntryLayout, RecordLayout

# A queue entry is right if its record names the entry: it has its own physical offset,
# size, queue id and queue offset. Queue files have no checksum, so readers compare an
# entry from a file before they send the bytes that it names.

cdef enum:
    COMPARED_BYTES = 36     # the first bytes of a record, up to the system flag


cdef inline bint is_own_record(
    const uint8_t *record, const uint8_t *entry, int64_t queue_id, int64_t queue_offset
) noexcept nogil:
    """Return whether a record in memory is the record of a queue entry.

    Without `queue_id` (-1) its place in a queue is not compared: light message queues
    have records of other queues.
    """
    if (
        get32(record + RecordLayout.SIZE_AT)
        != get32(entry + QueueEntryLayout.ENTRY_SIZE_AT)
        or get64(record + RecordLayout.PHYSICAL_OFFSET_AT)
        != get64(entry + QueueEntryLayout.ENTRY_OFFSET_AT)
    ):
        return False
    return queue_id < 0 or (
        <int32_t>get32(record + RecordLayout.QUEUE_ID_AT) == queue_id
        and <int64_t>get64(record + RecordLayout.QUEUE_OFFSET_AT) == queue_offset
    )
