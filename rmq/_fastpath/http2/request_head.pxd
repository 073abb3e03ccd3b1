from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.http2.grpc_methods cimport Method
from rmq._fastpath.http2.hpack cimport Header
from rmq._fastpath.http2.proto_wire cimport Span

cdef enum:
    # maximum bytes of names and values, and 32 for each header
    HEADER_LIST_LIMIT = 16 * 1024
    METADATA_LIMIT = HEADER_LIST_LIMIT

cdef struct RequestHead:
    bint is_trailer
    bint is_malformed
    bint has_field              # a header that is no pseudo header has come
    uint8_t pseudo_headers      # a bit for each pseudo-header that has come
    bint is_post
    bint is_grpc                # the content-type names gRPC
    Method method
    int64_t list_size
    int64_t content_length      # length by content-length; -1: not given
    int32_t metadata_size
    uint8_t[METADATA_LIMIT] metadata    # metadata for Python: number, u16 size, value

cdef void begin_head(RequestHead *head, bint is_trailer) noexcept nogil
cdef void visit_header(void *context, const Header *header) noexcept nogil
cdef void find_metadata(
    const uint8_t *data, int64_t size, int name, Span *value
) noexcept nogil
cdef bint is_well_formed(const RequestHead *head) noexcept nogil
