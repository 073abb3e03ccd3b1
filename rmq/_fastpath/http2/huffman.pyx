"""Huffman codes of header texts, as in appendix B of RFC 7541.

A code has 5 to 30 bits, and a text ends with up to 7 bits of 1. The codes are
canonical: codes of one length are consecutive numbers in the order of their symbols,
after the codes of shorter lengths. So the lengths determine the codes.

A step looks at 12 bits and finds one or two letters. Longer codes are found by length.
Nothing here touches a Python object, except `decode_text` for tests.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc

from rmq._fastpath.bytes.endian cimport get64

cdef enum:
    STEP_BITS = 12
    SYMBOLS = 257
    END_OF_TEXT = 256           # a symbol that a text must not contain
    PADDING_LIMIT = 8           # maximum bits of padding

cdef struct Step:               # letters at the start of the next 12 bits
    uint8_t first               # letters
    uint8_t second
    uint8_t first_bits          # 0: a longer code
    uint8_t bits                # bits of both letters, or of a single letter

cdef uint8_t[SYMBOLS] CODE_LENGTHS = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
]

cdef Step[1 << STEP_BITS] STEPS
cdef uint32_t[LONGEST_CODE + 1] FIRST_CODES     # by length
cdef uint32_t[LONGEST_CODE + 1] CODE_LIMITS     # after the last code; 0: no code
cdef uint16_t[LONGEST_CODE + 1] SYMBOL_STARTS   # in SYMBOLS_BY_CODE
cdef uint16_t[SYMBOLS] SYMBOLS_BY_CODE


cdef void fill_codes() noexcept:
    """Derive the codes from their lengths."""
    cdef uint32_t code = 0
    cdef int bits, symbol, count = 0
    for bits in range(SHORTEST_CODE, LONGEST_CODE + 1):
        FIRST_CODES[bits] = code
        SYMBOL_STARTS[bits] = count
        for symbol in range(SYMBOLS):
            if CODE_LENGTHS[symbol] == bits:
                SYMBOLS_BY_CODE[count] = symbol
                count += 1
                code += 1
        if code > FIRST_CODES[bits]:
            CODE_LIMITS[bits] = code
        code <<= 1


cdef void fill_steps() noexcept:
    """Fill the table of 12 bits: all pairs of short codes, then codes alone."""
    cdef int bits, other, rest
    cdef uint32_t code, next_code, i, start
    cdef Step step
    for bits in range(SHORTEST_CODE, STEP_BITS + 1):
        rest = STEP_BITS - bits
        for code in range(FIRST_CODES[bits], CODE_LIMITS[bits]):
            step.first = SYMBOLS_BY_CODE[SYMBOL_STARTS[bits] + code - FIRST_CODES[bits]]
            step.second = 0
            step.first_bits = step.bits = bits
            start = code << rest
            for i in range(1 << rest):
                STEPS[start + i] = step
            for other in range(SHORTEST_CODE, rest + 1):
                step.bits = bits + other
                for next_code in range(FIRST_CODES[other], CODE_LIMITS[other]):
                    step.second = SYMBOLS_BY_CODE[
                        SYMBOL_STARTS[other] + next_code - FIRST_CODES[other]
                    ]
                    for i in range(1 << (rest - other)):
                        STEPS[start + (next_code << (rest - other)) + i] = step


cdef int64_t decode_huffman(
    const uint8_t *p, int64_t size, uint8_t *out
) noexcept nogil:
    """Decode `size` bytes into `out`; return the number of letters, or -1.

    `out` has the room that `decoded_room` returns. A text is wrong if it contains the
    symbol of its end. Its padding has less than 8 bits, which are 1.
    """
    cdef const uint8_t *end = p + size
    cdef uint8_t *start = out
    cdef uint64_t bits = 0      # the next bits, from the highest on
    cdef int have = 0, taken
    cdef Step *step
    while True:
        if end - p >= 8:
            bits |= get64(p) >> have
            taken = (63 - have) >> 3
            p += taken
            have += taken * 8
        else:
            while have <= 56 and p < end:
                bits |= <uint64_t>p[0] << (56 - have)
                p += 1
                have += 8
        while have >= LONGEST_CODE or (p == end and have > 0):
            step = &STEPS[bits >> (64 - STEP_BITS)]
            if 0 < step.bits <= have:
                out[0] = step.first
                out[1] = step.second
                out += 1 + (step.bits != step.first_bits)
                bits <<= step.bits
                have -= step.bits
                continue
            if 0 < step.first_bits <= have:
                out[0] = step.first
                out += 1
                bits <<= step.first_bits
                have -= step.first_bits
                continue
            if have < PADDING_LIMIT and bits >> (64 - have) == (1 << have) - 1:
                return out - start
            taken = decode_long(bits, have, out)
            if taken == 0:
                return -1
            out += 1
            bits <<= taken
            have -= taken
        if p == end:
            return out - start


cdef inline int decode_long(uint64_t bits, int have, uint8_t *out) noexcept nogil:
    """Decode one code of more than 12 bits; return its bits, 0 if there is none."""
    cdef int length
    cdef uint32_t code
    cdef uint16_t symbol
    for length in range(STEP_BITS + 1, min(have, <int>LONGEST_CODE) + 1):
        code = <uint32_t>(bits >> (64 - length))
        if code < CODE_LIMITS[length]:
            symbol = SYMBOLS_BY_CODE[
                SYMBOL_STARTS[length] + code - FIRST_CODES[length]
            ]
            if symbol == END_OF_TEXT:
                return 0
            out[0] = <uint8_t>symbol
            return length
    return 0


def decode_text(bytes coded not None):
    """Return the decoded text, or None if the bytes are no valid code."""
    cdef int64_t size = len(coded)
    cdef uint8_t *out = <uint8_t *>PyMem_Malloc(decoded_room(size))
    if out == NULL:
        raise MemoryError
    size = decode_huffman(coded, size, out)
    text = PyBytes_FromStringAndSize(<const char *>out, size) if size >= 0 else None
    PyMem_Free(out)
    return text


fill_codes()
fill_steps()
