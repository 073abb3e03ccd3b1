from libc.stdint cimport int64_t

cdef class ReplyFields:
    cdef bytes json             # each field as `,"name":"value"`
    cdef const char *json_text
    cdef int64_t json_size
    cdef bytes binary           # each field as i16 n + name, i32 n + value
    cdef const char *binary_text
    cdef int64_t binary_size
