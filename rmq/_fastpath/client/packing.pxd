from libc.stdint cimport int32_t

cdef class PackedMessage:
    cdef readonly str topic
    cdef readonly object msg_ids
    cdef readonly bytes properties
    cdef readonly bytes body
    cdef readonly int32_t sys_flag
    cdef readonly bint wait_stored
    cdef readonly bint alone
    cdef readonly Py_ssize_t size       # size of body and properties
