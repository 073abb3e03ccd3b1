from libc.stdint cimport int64_t, uint8_t

cdef enum:
    # maximum tags of one subscription; with more tags, all entries match
    TAG_LIMIT = 64
    RUN_LIMIT = 1024    # maximum runs of one reply: more than any message limit in use

cpdef enum ScanStop:
    SCAN_END = 0        # the end of the readable entries
    SCAN_FULL = 1       # the message or byte limit
    SCAN_LIMIT = 2      # the number of entries that may be read

cdef struct ScanQuery:          # a pull's filter and limits
    const int64_t *codes
    int64_t code_count          # -1: every tag
    int64_t max_messages
    int64_t max_bytes
    int64_t max_examined
    int64_t confirm_offset
    int64_t min_physical_offset

cdef struct ScanResult:
    int64_t messages
    int64_t bytes
    int64_t examined
    int64_t removed
    int run_count
    int64_t starts[RUN_LIMIT]   # offsets of runs of neighbouring records in the log
    int64_t sizes[RUN_LIMIT]

cdef void clear_result(ScanResult *found) noexcept nogil
cdef void add_record(ScanResult *found, int64_t offset, int64_t size) noexcept nogil
cdef ScanStop scan_entries(
    const uint8_t *p, const uint8_t *end, const ScanQuery *wanted, ScanResult *found
) noexcept nogil
