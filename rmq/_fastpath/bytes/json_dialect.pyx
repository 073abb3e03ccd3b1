"""Rewrites the JSON dialect of Java's fastjson as standard JSON.

| dialect | standard |
|---|---|
| a name without quotes: `{0:1}`, `{a:1}` | `{"0":1}`, `{"a":1}` |
| single quotes: `'it''s'`, `'\\x41\\v\\q'` | double quotes, standard escapes |
| a comma before the end: `[1,]` | `[1]` |
| numbers: `007`, `1.` | `7`, `1.0` |
| a control character inside a string | `\\u000a` |
| an object as a name: `{{"a":1}:2}` | `{"\\u0000{\\"a\\":1}":2}` |

One pass over the bytes; a byte of input becomes at most 14 bytes of output. An object
as a name holds scalars only, so that escapes cannot double at each level. The caller
limits the nesting and the number of objects as names, which cost the reader
microseconds. The strict parser checks the bytes of strings and the digits of numbers.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef enum:
    QUOTE = 34              # "
    APOSTROPHE = 39         # '
    BACKSLASH = 92
    ROOM_FOR_ONE = 16       # bytes of output that one byte of input can give


cdef struct Rewriter:
    const uint8_t *data
    int64_t size
    int64_t at
    uint8_t *out
    int64_t length
    int64_t capacity
    int64_t object_names    # number of objects as names that may still come
    int max_depth
    bint is_in_name         # inside an object that is a name
    const char *expected        # the missing element at `at`; NULL without an error


cdef bint fail(Rewriter *r, const char *expected) noexcept nogil:
    if r.expected is NULL:
        r.expected = expected
    return False


cdef bint reserve(Rewriter *r, int64_t size) noexcept nogil:
    cdef int64_t capacity = r.capacity
    cdef void *grown
    if r.length + size <= capacity:
        return True
    while r.length + size > capacity:
        capacity *= 2
    grown = realloc(r.out, <size_t>capacity)
    if grown is NULL:
        return fail(r, b"less text")
    r.out = <uint8_t *>grown
    r.capacity = capacity
    return True


cdef void put(Rewriter *r, uint8_t byte) noexcept nogil:
    """Write one byte; the caller has reserved its room."""
    r.out[r.length] = byte
    r.length += 1


cdef bint copy(Rewriter *r, int64_t start, int64_t end) noexcept nogil:
    """Write bytes of the input as they are."""
    if not reserve(r, end - start):
        return False
    memcpy(r.out + r.length, r.data + start, <size_t>(end - start))
    r.length += end - start
    return True


cdef void put_escaped(Rewriter *r, uint8_t byte) noexcept nogil:
    """Write a byte of a string; the caller has reserved ROOM_FOR_ONE."""
    cdef const char *digits = b"0123456789abcdef"
    if byte == QUOTE or byte == BACKSLASH:
        put(r, BACKSLASH)
        put(r, byte)
    elif byte >= 0x20:
        put(r, byte)
    else:
        put(r, BACKSLASH)
        put(r, c"u")
        put(r, c"0")
        put(r, c"0")
        put(r, digits[byte >> 4])
        put(r, digits[byte & 15])


cdef int peek(Rewriter *r) noexcept nogil:
    """Skip blanks; return the next byte, -1 at the end."""
    cdef uint8_t byte
    while r.at < r.size:
        byte = r.data[r.at]
        if byte != 0x20 and not 9 <= byte <= 13:
            return byte
        r.at += 1
    return -1


cdef inline bint is_digit(int byte) noexcept nogil:
    return 48 <= byte <= 57


cdef inline bint begins_word(int byte) noexcept nogil:
    return 65 <= (byte & ~32) <= 90 or byte == c"_" or byte == c"$" or byte == c"@"


cdef inline bint goes_on_in_word(int byte) noexcept nogil:
    return (
        begins_word(byte) or is_digit(byte) or byte >= 0x80
        or byte == c"." or byte == c"-"
    )


cdef int hex_value(uint8_t byte) noexcept nogil:
    if is_digit(byte):
        return byte - 48
    if 65 <= (byte & ~32) <= 70:
        return (byte & ~32) - 55
    return -1


cdef bint rewrite_string(Rewriter *r) noexcept nogil:
    """Rewrite a string that begins here, in either kind of quotes."""
    cdef uint8_t quote = r.data[r.at]
    cdef uint8_t byte
    r.at += 1
    if not reserve(r, 2):
        return False
    put(r, QUOTE)
    while r.at < r.size:
        byte = r.data[r.at]
        r.at += 1
        if not reserve(r, ROOM_FOR_ONE):
            return False
        if byte == quote:
            put(r, QUOTE)
            return True
        if byte != BACKSLASH:
            put_escaped(r, byte)
        elif not rewrite_escape(r):
            return False
    return fail(r, b"the end of a string")


cdef bint rewrite_escape(Rewriter *r) noexcept nogil:
    """Rewrite the characters after a backslash; ROOM_FOR_ONE is reserved."""
    cdef uint8_t byte
    cdef int count, digit, _i
    if r.at >= r.size:
        return fail(r, b"the rest of an escape")
    byte = r.data[r.at]
    r.at += 1
    if byte == c"v":
        put_escaped(r, 11)
    elif byte == c"u" or byte == c"x":
        count = 4 if byte == c"u" else 2
        put(r, BACKSLASH)
        put(r, c"u")
        for _i in range(4 - count):
            put(r, c"0")
        for _i in range(count):
            digit = hex_value(r.data[r.at]) if r.at < r.size else -1
            if digit < 0:
                return fail(r, b"a hexadecimal digit")
            put(r, r.data[r.at])
            r.at += 1
    elif byte == c"b" or byte == c"f" or byte == c"n" or byte == c"r" or byte == c"t":
        put(r, BACKSLASH)
        put(r, byte)
    else:
        put_escaped(r, byte)
    return True


cdef int64_t digits_end(Rewriter *r, int64_t at) noexcept nogil:
    while at < r.size and is_digit(r.data[at]):
        at += 1
    return at


cdef bint rewrite_number(Rewriter *r) noexcept nogil:
    """Rewrite a number: drop leading zeros, add a digit to a fraction without digits.
    """
    cdef int64_t end
    if not reserve(r, ROOM_FOR_ONE):
        return False
    if r.data[r.at] == c"-":
        put(r, c"-")
        r.at += 1
    end = digits_end(r, r.at)
    if end == r.at:
        return fail(r, b"a digit")
    while r.at + 1 < end and r.data[r.at] == c"0":
        r.at += 1
    if not copy(r, r.at, end):
        return False
    r.at = end
    if r.at < r.size and r.data[r.at] == c".":
        end = digits_end(r, r.at + 1)
        if not copy(r, r.at, end) or not reserve(r, ROOM_FOR_ONE):
            return False
        if end == r.at + 1:
            put(r, c"0")
        r.at = end
    if r.at < r.size and r.data[r.at] | 32 == c"e":
        end = r.at + 1
        if end < r.size and (r.data[end] == c"+" or r.data[end] == c"-"):
            end += 1
        if digits_end(r, end) == end:
            return fail(r, b"an exponent")
        end = digits_end(r, end)
        if not copy(r, r.at, end):
            return False
        r.at = end
    return True


cdef int64_t word_end(Rewriter *r) noexcept nogil:
    cdef int64_t end = r.at
    while end < r.size and goes_on_in_word(r.data[end]):
        end += 1
    return end


cdef bint is_word(Rewriter *r, int64_t end, const char *word, int size) noexcept nogil:
    cdef int i
    if end - r.at != size:
        return False
    for i in range(size):
        if r.data[r.at + i] != <uint8_t>word[i]:
            return False
    return True


cdef bint rewrite_value(Rewriter *r, int depth) noexcept nogil:
    cdef int byte = peek(r)
    cdef int64_t end
    if depth > r.max_depth:
        return fail(r, b"less nesting")
    if (byte == c"{" or byte == c"[") and r.is_in_name:
        return fail(r, b"no array or object inside an object that is a name")
    if byte == c"{":
        return rewrite_object(r, depth)
    if byte == c"[":
        return rewrite_array(r, depth)
    if byte == QUOTE or byte == APOSTROPHE:
        return rewrite_string(r)
    if byte == c"-" or is_digit(byte):
        return rewrite_number(r)
    end = word_end(r)
    if (
        is_word(r, end, b"true", 4) or is_word(r, end, b"false", 5)
        or is_word(r, end, b"null", 4)
    ):
        if not copy(r, r.at, end):
            return False
        r.at = end
        return True
    return fail(r, b"a value")


cdef bint rewrite_array(Rewriter *r, int depth) noexcept nogil:
    """Rewrite an array that begins here."""
    cdef bint is_first = True
    r.at += 1
    if not reserve(r, ROOM_FOR_ONE):
        return False
    put(r, c"[")
    while peek(r) != c"]":
        if not is_first:
            put(r, c",")
        is_first = False
        if not rewrite_value(r, depth + 1) or not skip_separator(r, c"]"):
            return False
    r.at += 1
    put(r, c"]")
    return True


cdef bint rewrite_object(Rewriter *r, int depth) noexcept nogil:
    """Rewrite an object that begins here."""
    cdef bint is_first = True
    r.at += 1
    if not reserve(r, ROOM_FOR_ONE):
        return False
    put(r, c"{")
    while peek(r) != c"}":
        if not is_first:
            put(r, c",")
        is_first = False
        if not rewrite_name(r, depth):
            return False
        if peek(r) != c":":
            return fail(r, b"a colon")
        r.at += 1
        put(r, c":")
        if not rewrite_value(r, depth + 1) or not skip_separator(r, c"}"):
            return False
    r.at += 1
    put(r, c"}")
    return True


cdef bint skip_separator(Rewriter *r, int end) noexcept nogil:
    """Skip a comma, or stop before the end; reserve room for the next element."""
    cdef int byte = peek(r)
    if byte == c",":
        r.at += 1
    elif byte != end:
        return fail(r, b"a comma or an end")
    return reserve(r, ROOM_FOR_ONE)


cdef bint rewrite_name(Rewriter *r, int depth) noexcept nogil:
    """Rewrite a name; room for the colon after it is reserved."""
    cdef int byte = peek(r)
    cdef int64_t end = r.at
    if byte == QUOTE or byte == APOSTROPHE:
        return rewrite_string(r) and reserve(r, ROOM_FOR_ONE)
    if byte == c"{":
        return rewrite_object_name(r, depth) and reserve(r, ROOM_FOR_ONE)
    if byte == c"-" or is_digit(byte):
        end = digits_end(r, r.at + 1)
        if end == r.at + 1 and byte == c"-":
            return fail(r, b"a name")
    elif begins_word(byte):
        end = word_end(r)
    if end == r.at:
        return fail(r, b"a name")
    if not reserve(r, ROOM_FOR_ONE):
        return False
    put(r, QUOTE)
    if not copy(r, r.at, end) or not reserve(r, ROOM_FOR_ONE):
        return False
    put(r, QUOTE)
    r.at = end
    return True


cdef bint rewrite_object_name(Rewriter *r, int depth) noexcept nogil:
    """Rewrite an object that is a name as a string that holds its text."""
    cdef int64_t start = r.length
    cdef int64_t i, end, quoted = 0
    cdef uint8_t byte
    if r.is_in_name or depth >= r.max_depth:
        return fail(r, b"no array or object inside an object that is a name")
    if r.object_names == 0:
        return fail(r, b"fewer objects as names")
    r.is_in_name = True
    if not rewrite_object(r, depth + 1):
        return False
    r.is_in_name = False
    r.object_names -= 1
    for i in range(start, r.length):
        byte = r.out[i]
        quoted += byte == QUOTE or byte == BACKSLASH
    if not reserve(r, quoted + 8):
        return False
    i = r.length
    r.length += quoted + 8
    end = r.length - 1
    r.out[end] = QUOTE
    while i > start:
        i -= 1
        byte = r.out[i]
        end -= 1
        r.out[end] = byte
        if byte == QUOTE or byte == BACKSLASH:
            end -= 1
            r.out[end] = BACKSLASH
    memcpy(r.out + start, b"\"\\u0000", 7)
    return True


def plain_json(bytes data not None, int max_depth, int64_t max_object_names):
    """Return (standard JSON, number of names in it that are objects).

    A name that is an object becomes a string: U+0000, then the object's JSON.
    ValueError names the expected element, and the position.
    """
    cdef Rewriter r
    r.data = data
    r.size = len(data)
    r.at = r.length = 0
    r.object_names = max_object_names
    r.max_depth = max_depth
    r.is_in_name = False
    r.expected = NULL
    r.capacity = r.size + ROOM_FOR_ONE
    r.out = <uint8_t *>realloc(NULL, <size_t>r.capacity)
    if r.out is NULL:
        raise MemoryError()
    try:
        if rewrite_value(&r, 0) and peek(&r) != -1:
            fail(&r, b"the end")
        if r.expected is not NULL:
            found = data[r.at:r.at + 10]
            raise ValueError(f"{r.expected.decode()} wanted at {r.at}, not {found!r}")
        return r.out[:r.length], max_object_names - r.object_names
    finally:
        free(r.out)
