"""The methods of `apache.rocketmq.v2.MessagingService`, by the path of a request."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

cdef bytes SERVICE_PATH = b"/apache.rocketmq.v2.MessagingService/"
SERVICE = SERVICE_PATH

METHOD_NAMES = (
    b"SendMessage",
    b"AckMessage",
    b"ReceiveMessage",
    b"Heartbeat",
    b"Telemetry",
    b"QueryRoute",
    b"QueryAssignment",
    b"ChangeInvisibleDuration",
    b"ForwardMessageToDeadLetterQueue",
    b"EndTransaction",
    b"NotifyClientTermination",
    b"RecallMessage",
    b"SyncLiteSubscription",
    b"PullMessage",
    b"UpdateOffset",
    b"GetOffset",
    b"QueryOffset",
)
"""Names of the methods by number; grpc_methods.pxd names the methods that compiled code
knows.
"""

cdef const uint8_t *PREFIX = SERVICE_PATH
cdef int64_t PREFIX_SIZE = len(SERVICE_PATH)

cdef struct KnownMethod:
    const uint8_t *name         # borrowed from METHOD_NAMES
    int64_t size

cdef KnownMethod[METHOD_LIMIT] METHODS


cdef Method find_method(const uint8_t *path, int64_t size) noexcept nogil:
    """Return the number of the method of a path, or NO_METHOD."""
    cdef int i
    cdef int64_t rest = size - PREFIX_SIZE
    if rest <= 0 or memcmp(path, PREFIX, PREFIX_SIZE):
        return NO_METHOD
    for i in range(METHOD_LIMIT):
        if METHODS[i].size == rest and (
            memcmp(METHODS[i].name, path + PREFIX_SIZE, rest) == 0
        ):
            return <Method>i
    return NO_METHOD


cdef int fill_methods() except -1:
    """Fill the table of the methods, by number."""
    cdef int i
    cdef bytes name
    for i, name in enumerate(METHOD_NAMES):
        METHODS[i].name = name
        METHODS[i].size = len(name)
    return 0


fill_methods()
