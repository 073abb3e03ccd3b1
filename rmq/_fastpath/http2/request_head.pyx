"""RequestHead: collects the headers of a request, and checks their rules.

Pseudo headers come first and once; `:method`, `:scheme` and `:path` are necessary. A
request is malformed with any other pseudo header, and with a header of HTTP/1.1.
Trailers with a pseudo header are malformed, too (section 8.3 of RFC 9113). The values
that Python needs follow each other as: number of the name (1 byte), size (2 bytes,
big-endian), value.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from rmq._fastpath.bytes.endian cimport get16, put16
from rmq._fastpath.http2.grpc_methods cimport NO_METHOD, find_method
from rmq._fastpath.http2.header_names cimport (
    AUTHORITY, BAD_NAME, CONTENT_LENGTH, CONTENT_TYPE, GRPC_TIMEOUT, METHOD, PATH,
    PSEUDO_NAME, SCHEME, TE,
)
from rmq._fastpath.http2.hpack cimport ENTRY_OVERHEAD, Header
from rmq._fastpath.http2.proto_wire cimport Span

cdef enum:
    HAS_METHOD = 1
    HAS_SCHEME = 2
    HAS_PATH = 4
    HAS_AUTHORITY = 8
    NECESSARY = HAS_METHOD | HAS_SCHEME | HAS_PATH
    VALUE_OVERHEAD = 3
    LENGTH_DIGITS = 15

cdef const uint8_t *TRAILERS = b"trailers"
cdef const uint8_t *GRPC = b"application/grpc"


cdef void begin_head(RequestHead *head, bint is_trailer) noexcept nogil:
    """Begin the headers of a request, or its trailers."""
    head.is_trailer = is_trailer
    head.is_malformed = head.has_field = head.is_post = head.is_grpc = False
    head.pseudo_headers = 0
    head.method = NO_METHOD
    head.list_size = head.metadata_size = 0
    head.content_length = -1


cdef bint is_well_formed(const RequestHead *head) noexcept nogil:
    """True if all headers together are allowed."""
    if head.is_malformed:
        return False
    return head.is_trailer or head.pseudo_headers & NECESSARY == NECESSARY


cdef void visit_header(void *context, const Header *header) noexcept nogil:
    """Add one header; a `Visitor`."""
    cdef RequestHead *head = <RequestHead *>context
    head.list_size += header.name.size + header.value.size + ENTRY_OVERHEAD
    if header.id == BAD_NAME or header.id == PSEUDO_NAME:
        head.is_malformed = True
    elif AUTHORITY <= header.id <= SCHEME:
        visit_pseudo_header(head, header)
    else:
        head.has_field = True
        if head.is_trailer:
            return
        if header.id >= GRPC_TIMEOUT:
            add_metadata(head, header)
        elif header.id == CONTENT_TYPE:
            head.is_grpc = starts_with(header, GRPC, 16)
        elif header.id == CONTENT_LENGTH:
            visit_content_length(head, header)
        elif header.id == TE:
            if header.value.size != 8 or not starts_with(header, TRAILERS, 8):
                head.is_malformed = True


cdef inline bint starts_with(
    const Header *header, const uint8_t *text, int64_t size
) noexcept nogil:
    """True if the value begins with `text`."""
    return header.value.size >= size and memcmp(header.value.data, text, size) == 0


cdef inline void visit_pseudo_header(
    RequestHead *head, const Header *header
) noexcept nogil:
    cdef uint8_t bit = HAS_AUTHORITY
    if header.id == METHOD:
        bit = HAS_METHOD
        head.is_post = header.value.size == 4 and starts_with(header, b"POST", 4)
    elif header.id == SCHEME:
        bit = HAS_SCHEME
    elif header.id == PATH:
        bit = HAS_PATH
        if header.value.size == 0:
            head.is_malformed = True
        head.method = find_method(header.value.data, header.value.size)
    if head.is_trailer or head.has_field or head.pseudo_headers & bit:
        head.is_malformed = True
    head.pseudo_headers |= bit


cdef inline void visit_content_length(
    RequestHead *head, const Header *header
) noexcept nogil:
    cdef int64_t length = 0, i
    if not 1 <= header.value.size <= LENGTH_DIGITS or head.content_length >= 0:
        head.is_malformed = True
        return
    for i in range(header.value.size):
        if not 48 <= header.value.data[i] <= 57:
            head.is_malformed = True
            return
        length = 10 * length + header.value.data[i] - 48
    head.content_length = length


cdef inline void add_metadata(RequestHead *head, const Header *header) noexcept nogil:
    """Keep a value for Python; `list_size` is over its limit if it does not fit."""
    cdef uint8_t *p = head.metadata + head.metadata_size
    if head.list_size > HEADER_LIST_LIMIT:
        return
    p[0] = <uint8_t>header.id
    put16(p + 1, header.value.size)
    memcpy(p + VALUE_OVERHEAD, header.value.data, header.value.size)
    head.metadata_size += VALUE_OVERHEAD + header.value.size


cdef void find_metadata(
    const uint8_t *data, int64_t size, int name, Span *value
) noexcept nogil:
    """Find the last value of a header; an empty text without one."""
    cdef const uint8_t *end = data + size
    value.data, value.size = b"", 0
    while data < end:
        if data[0] == name:
            value.data, value.size = data + VALUE_OVERHEAD, get16(data + 1)
        data += VALUE_OVERHEAD + get16(data + 1)
