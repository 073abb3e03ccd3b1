"""Names of headers by number, and the static table of HPACK (appendix A of RFC 7541).

`find_name` compares the names of one length. A name with capital letters, blanks or
control characters is BAD_NAME, and so are names that belong to HTTP/1.1. A request with
such a header is malformed (section 8.2 of RFC 9113).
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

cdef enum:
    NAME_LIMIT = 24             # bytes of the longest known name
    KNOWN_LIMIT = 32
    COLON = 58

KNOWN_NAMES = {
    b":authority": AUTHORITY,
    b":method": METHOD,
    b":path": PATH,
    b":scheme": SCHEME,
    b"authorization": AUTHORIZATION,
    b"connection": BAD_NAME,
    b"content-length": CONTENT_LENGTH,
    b"content-type": CONTENT_TYPE,
    b"grpc-encoding": GRPC_ENCODING,
    b"grpc-timeout": GRPC_TIMEOUT,
    b"keep-alive": BAD_NAME,
    b"proxy-connection": BAD_NAME,
    b"te": TE,
    b"transfer-encoding": BAD_NAME,
    b"upgrade": BAD_NAME,
    b"user-agent": USER_AGENT,
    b"x-mq-client-id": CLIENT_ID,
    b"x-mq-client-version": CLIENT_VERSION,
    b"x-mq-date-time": DATE_TIME,
    b"x-mq-language": LANGUAGE,
    b"x-mq-namespace": NAMESPACE,
    b"x-mq-protocol": PROTOCOL,
    b"x-mq-request-id": REQUEST_ID,
    b"x-mq-session-token": SESSION_TOKEN,
}

STATIC_TEXTS = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
)

cdef struct KnownName:
    const uint8_t *text         # borrowed from KNOWN_NAMES
    int64_t size
    HeaderName id

cdef KnownName[KNOWN_LIMIT] NAMES               # by length
cdef int[NAME_LIMIT + 2] NAME_STARTS            # by length, in NAMES


cdef HeaderName find_name(const uint8_t *name, int64_t size) noexcept nogil:
    """Return the number of a name that is one of KNOWN_NAMES, else OTHER_NAME."""
    cdef int i
    if size > NAME_LIMIT:
        return OTHER_NAME
    for i in range(NAME_STARTS[size], NAME_STARTS[size + 1]):
        if NAMES[i].text[size - 1] == name[size - 1] and (
            memcmp(NAMES[i].text, name, size) == 0
        ):
            return NAMES[i].id
    return OTHER_NAME


cdef HeaderName check_name(const uint8_t *name, int64_t size) noexcept nogil:
    """Return the number of a name that the peer sent as text."""
    cdef HeaderName found
    cdef int64_t i
    cdef uint8_t letter
    if size == 0:
        return BAD_NAME
    found = find_name(name, size)
    if found != OTHER_NAME:
        return found
    for i in range(size):
        letter = name[i]
        if letter <= 32 or letter >= 127 or 65 <= letter <= 90:
            return BAD_NAME
        if letter == COLON and i:
            return BAD_NAME
    return PSEUDO_NAME if name[0] == COLON else OTHER_NAME


cdef bint is_value(const uint8_t *value, int64_t size) noexcept nogil:
    """True if a value has no end of a line and no zero byte."""
    cdef int64_t i
    cdef uint8_t bad = 0
    for i in range(size):
        bad |= (value[i] == 0) | (value[i] == 10) | (value[i] == 13)
    return bad == 0


cdef int fill_tables() except -1:
    cdef int i = 0, size
    assert len(KNOWN_NAMES) <= KNOWN_LIMIT and len(STATIC_TEXTS) == STATIC_COUNT
    for size in range(NAME_LIMIT + 1):
        NAME_STARTS[size] = i
        for name, number in KNOWN_NAMES.items():
            if len(name) == size:
                NAMES[i].text = name
                NAMES[i].size = size
                NAMES[i].id = number
                i += 1
    NAME_STARTS[NAME_LIMIT + 1] = i
    assert i == len(KNOWN_NAMES)
    for i, (name, value) in enumerate(STATIC_TEXTS, start=1):
        STATIC_TABLE[i].name = name
        STATIC_TABLE[i].name_size = len(name)
        STATIC_TABLE[i].value = value
        STATIC_TABLE[i].value_size = len(value)
        STATIC_TABLE[i].id = check_name(STATIC_TABLE[i].name, len(name))
    return 0


fill_tables()
