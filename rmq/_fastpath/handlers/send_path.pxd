from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rmq._fastpath.handlers.diversion cimport Place
from rmq._fastpath.handlers.send_table cimport UNIQUE_KEY_LIMIT, Properties, SendTable
from rmq._fastpath.log.encode cimport RecordFields
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

cdef struct SendRequest:        # one request on its way through `serve`
    RecordFields fields         # the fields of its record, one record after the other
    void *queue                 # NULL: not known, for a diverted message only
    int32_t queue_id            # that it was sent to
    int32_t topic_flags         # system flags that the broker adds
    void *watch                 # TopicWatch of its topic; NULL: it goes elsewhere
    int64_t properties_size     # size in the header, as received
    bint is_batch
    int64_t first               # index of its first record, in the poll's records
    int64_t count
    int64_t end_offset          # end of the last record
    const uint8_t *unique_key   # NULL: a batch without one
    int32_t unique_key_size
    uint8_t batch_key[UNIQUE_KEY_LIMIT]     # copy of a batch's key
    bint waits                  # for the disk
    void *diversion             # NULL: it goes to its own queue
    Place place                 # where it goes else
    int64_t once_window_ms      # window of the topic; 0 also without a key
    uint64_t topic_hash         # hash of the topic, if it has a window
    uint64_t once_hash          # hash of topic and key

cdef class SendPath(NativeHandler):
    cdef SendTable table
    cdef readonly bint takes_batches    # as request 320 does, without the batch flag
    cdef int64_t key_at         # position of the last key in its frame, with a window
    cdef bint read_numbers(
        self, const Frame *frame, RecordFields *fields
    ) noexcept nogil
    cdef Verdict check_request(
        self, const Frame *frame, Conn *conn, SendRequest *message
    ) noexcept nogil
    cdef Verdict stage(
        self, const Frame *frame, Conn *conn, SendRequest *message
    ) noexcept nogil
    cdef void load_key(
        self, SendRequest *message, const uint8_t *key, int64_t size
    ) noexcept nogil
    cdef void load_next_key(
        self, const Frame *frame, Conn *conn, const SendRequest *message,
        const Properties *properties,
    ) noexcept nogil
    cdef bint add_key(self, const SendRequest *message) noexcept nogil
    cdef Verdict find_place(
        self, Conn *conn, SendRequest *message, const Properties *properties
    ) noexcept nogil
    cdef void divert_record(
        self, const Frame *frame, SendRequest *message, Properties *properties
    ) noexcept nogil
    cdef void end_diversion(
        self, const Frame *frame, const SendRequest *message
    ) noexcept nogil
    cdef Verdict stage_batch(
        self, const Frame *frame, Conn *conn, SendRequest *message
    ) noexcept nogil
    cdef int64_t measure_batch(
        self, const uint8_t *p, const uint8_t *end, SendRequest *message
    ) noexcept nogil
    cdef bint read_batch_properties(
        self, const Frame *frame, SendRequest *message
    ) noexcept nogil
    cdef void fill_common(
        self, const Frame *frame, Conn *conn, SendRequest *message
    ) noexcept nogil
    cdef int64_t record_size(self, const RecordFields *fields) noexcept nogil
    cdef void stage_record(
        self, SendRequest *message, int64_t size, int64_t tags_code
    ) noexcept nogil
    cdef Verdict reply(
        self, const Frame *frame, Conn *conn, const SendRequest *message
    ) noexcept nogil
    cdef int64_t queue_offset(self, const SendRequest *message) noexcept nogil
    cdef int64_t reply_size(self, int64_t count) noexcept nogil
    cdef uint8_t *put_reply(
        self, uint8_t *out, const Frame *frame, const SendRequest *message
    ) noexcept nogil
    cdef uint8_t *put_recall_handle(
        self, uint8_t *out, const Frame *frame, const SendRequest *message
    ) noexcept nogil
    cdef uint8_t *put_message_ids(
        self, uint8_t *out, const SendRequest *message
    ) noexcept nogil
    cdef uint8_t *put_json(
        self, uint8_t *out, const Frame *frame, const SendRequest *message
    ) noexcept nogil
    cdef uint8_t *put_binary(
        self, uint8_t *out, const Frame *frame, const SendRequest *message
    ) noexcept nogil
