from libc.stdint cimport int64_t, uint8_t

cdef enum:
    STATIC_COUNT = 61           # entries of HPACK's static table, from index 1 on

cdef enum HeaderName:
    OTHER_NAME = 0
    BAD_NAME = 1                # a request must not have it
    AUTHORITY = 2
    METHOD = 3
    PATH = 4
    SCHEME = 5
    PSEUDO_NAME = 6             # another name with a colon before it
    CONTENT_LENGTH = 7
    CONTENT_TYPE = 8
    TE = 9
    GRPC_ENCODING = 10
    GRPC_TIMEOUT = 11           # Python gets this header and the next ones
    AUTHORIZATION = 12
    USER_AGENT = 13
    CLIENT_ID = 14
    CLIENT_VERSION = 15
    DATE_TIME = 16
    LANGUAGE = 17
    NAMESPACE = 18
    PROTOCOL = 19
    REQUEST_ID = 20
    SESSION_TOKEN = 21

cdef struct StaticHeader:
    const uint8_t *name
    int64_t name_size
    const uint8_t *value
    int64_t value_size
    HeaderName id

cdef StaticHeader[STATIC_COUNT + 1] STATIC_TABLE

cdef HeaderName find_name(const uint8_t *name, int64_t size) noexcept nogil
cdef HeaderName check_name(const uint8_t *name, int64_t size) noexcept nogil
cdef bint is_value(const uint8_t *value, int64_t size) noexcept nogil
