from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rmq._fastpath.bytes.name_table cimport Name

cdef enum Kind:
    NULL_VALUE = 0
    BOOLEAN = 1
    INT = 2                     # 32 bits; the kind decides how a text is read
    LONG = 3
    DOUBLE = 4
    TEXT = 5

cdef struct Value:
    Kind kind
    Name text
    int64_t number              # the number; of a boolean 0 or 1
    double real

cdef struct Instruction:
    uint8_t op
    uint8_t flag
    int32_t first
    int32_t count

cdef class Selector:
    cdef readonly int32_t size      # number of instructions
    cdef Instruction *code
    cdef Value *constants
    cdef list texts                 # keeps the texts of constants and names alive
    cdef int32_t constant_count
    cdef Name *names                # names of the properties that the code reads
    cdef Name *values               # values in the tested record; no data: null
    cdef int32_t name_count
    cdef uint64_t name_bits  # one bit per name: most other names have another bit
    cdef Value *stack               # has the depth that the program needs

    cdef int add_constant(self, value) except -1
    cdef int add_name(self, bytes name) except -1
    cdef bint match_text(self, const uint8_t *text, int64_t size) noexcept nogil
    cdef bint match_repaired(
        self, const uint8_t *text, int64_t size
    ) noexcept with gil
    cdef void read_values(self, const uint8_t *text, int64_t size) noexcept nogil
    cdef bint run(self) noexcept nogil
