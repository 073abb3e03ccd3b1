from libc.stdint cimport int64_t, uint8_t

cdef enum Method:
    NO_METHOD = -1              # the service has no such method
    NO_GRPC = -2                # the request is no call of gRPC
    SEND_MESSAGE = 0
    TELEMETRY = 4

cdef enum:
    METHOD_LIMIT = 17

cdef Method find_method(const uint8_t *path, int64_t size) noexcept nogil
