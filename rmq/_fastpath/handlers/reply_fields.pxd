from libc.stdint cimport int64_t

cdef class ReplyFields:
    cdef bytes json             # `,"name":"value"` of each
    cdef const char *json_text
    cdef int64_t json_size
    cdef bytes binary           # i16 n + name, i32 n + value of each
    cdef const char *binary_text
    cdef int64_t binary_size
