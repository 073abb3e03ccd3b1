"""Selector: an SQL92 expression as a flat program over the stored text of properties.

`rmq.filters.parser` writes the program, a list of (op, flag, operands):

    CONSTANT value                  push a value
    PROPERTY name                   push a text, or null
    CAST name                       push null without the property, else false
    NEGATE                          the number on top; null of a text or a boolean
    NOT                             the condition on top; null stays
    IS_NULL                         true or false
    BRANCH flag, distance           jump if the top is `flag`; for OR and AND
    BRANCH_NULL distance            jump if the top is null
    JOIN flag                       two conditions by OR (flag 1) or AND (flag 0)
    EQUAL                           of two values: true, false or null
    ORDER sign                      of two values that are not null
    AMONG flag, texts               the text on top is (1) or is not (0) one of them
    SEARCH flag, part               the text on top contains (or begins, ends with) it

Three-valued logic as in Java. A comparison reads a text as a number of the other side's
type. If it is no such number, or a text meets a boolean, the evaluation ends and the
message does not match. Texts are compared as UTF-8.
A selector has the values of one record at a time: it belongs to one thread.
Bounds: a program has about one instruction for each word of its expression.
"""

cimport cython
from libc.math cimport INFINITY, NAN, isnan, signbit
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memset

from rmq._fastpath.bytes.ascii cimport is_literal
from rmq._fastpath.bytes.find_byte cimport find_byte
from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.bytes.utf8 cimport is_utf8, skip_character

import re

cdef extern from "Python.h" nogil:
    int digit_value "Py_UNICODE_TODECIMAL"(Py_UCS4 character) noexcept

cdef extern from "string.h":
    const void *memmem(
        const void *text, size_t size, const void *part, size_t part_size
    ) noexcept nogil

cdef enum:
    INCOMPARABLE = 2            # a result of a comparison; the others are -1, 0, 1
    EXACT_DIGITS = 15           # numbers with fewer digits are exact in a double
    EXACT_POWER = 22            # these powers of ten are exact, too

cpdef enum Op:
    CONSTANT = 0
    PROPERTY = 1
    CAST = 2
    NEGATE = 3
    NOT = 4
    IS_NULL = 5
    BRANCH = 6
    BRANCH_NULL = 7
    JOIN = 8
    EQUAL = 9
    ORDER = 10
    AMONG = 11
    SEARCH = 12

cpdef enum Sign:
    LESS = 0
    LESS_OR_EQUAL = 1
    GREATER = 2
    GREATER_OR_EQUAL = 3

cpdef enum Part:
    CONTAINS = 0
    STARTS_WITH = 2
    ENDS_WITH = 4               # kind of SEARCH; the flag adds 1 if the part must occur

cdef double *POWERS = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14,
    1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
]
_HEXADECIMAL = (
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)


class Long(int):
    """A constant of 64 bits; a plain `int` has 32."""


# -- texts as numbers


cdef inline bint _is_digit(uint8_t character) noexcept nogil:
    return 48 <= character <= 57


cdef int _digit_of(const uint8_t *p, int64_t size) noexcept nogil:
    """Return the value of a character outside of ASCII, as Java's digits; -1: none."""
    cdef Py_UCS4 character
    if size == 2:
        character = (p[0] & 0x1F) << 6 | p[1] & 0x3F
    elif size == 3:
        character = (p[0] & 0x0F) << 12 | (p[1] & 0x3F) << 6 | p[2] & 0x3F
    else:
        return -1
    return digit_value(character)


cdef bint _read_integer(
    const Name *text, uint64_t largest, int64_t *number
) noexcept nogil:
    """Read a number as `Integer.valueOf` and `Long.valueOf` do; False: no such number.
    """
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef const uint8_t *next_one
    cdef uint64_t value = 0
    cdef bint is_negative = False
    cdef int digit
    if p < end and (p[0] == 43 or p[0] == 45):
        is_negative = p[0] == 45
        p += 1
    if p == end:
        return False
    if is_negative:
        largest += 1
    while p < end:
        if p[0] < 0x80:
            digit = p[0] - 48 if _is_digit(p[0]) else -1
            p += 1
        else:
            next_one = skip_character(p, end)
            digit = -1 if next_one == NULL else _digit_of(p, next_one - p)
            p = next_one
        if digit < 0 or value > (largest - <uint64_t>digit) // 10:
            return False
        value = 10 * value + <uint64_t>digit
    number[0] = <int64_t>(0 - value if is_negative else value)
    return True


cdef bint _read_slowly(
    const uint8_t *p, int64_t size, double *number
) noexcept with gil:
    """Read a decimal number of many digits, or one in hexadecimal form."""
    cdef bytes text = p[:size]
    try:
        number[0] = float(text)
        return True
    except ValueError:
        pass
    found = re.fullmatch(_HEXADECIMAL, text.decode("utf-8", "replace"), re.ASCII)
    if found is None:
        return False
    try:
        number[0] = float.fromhex(found[1])
    except OverflowError:
        number[0] = -INFINITY if text[0] == 45 else INFINITY
    return True


cdef bint _read_double(const Name *text, double *number) noexcept nogil:
    """Read a number as `Double.valueOf` does; False: no number."""
    cdef const uint8_t *start = text.data
    cdef const uint8_t *end = start + text.size
    cdef const uint8_t *p
    cdef int64_t value = 0
    cdef int32_t digits = 0, fraction = 0, exponent = 0
    cdef bint is_negative = False, is_small = False, is_exact = True
    while start < end and start[0] <= 32:
        start += 1
    while end > start and (end - 1)[0] <= 32:
        end -= 1
    p = start
    if p < end and (p[0] == 43 or p[0] == 45):
        is_negative = p[0] == 45
        p += 1
    if is_literal(p, end - p, b"NaN"):
        number[0] = NAN
        return True
    if is_literal(p, end - p, b"Infinity"):
        number[0] = -INFINITY if is_negative else INFINITY
        return True
    if end - p > 1 and p[0] == 48 and (p[1] | 32) == 120:
        return _read_slowly(start, end - start, number)
    if end > p and (
        (end - 1)[0] | 32 == 100 or (end - 1)[0] | 32 == 102
    ):
        end -= 1                # Java's suffix of a type
    while p < end and (_is_digit(p[0]) or (p[0] == 46 and not is_small)):
        if p[0] == 46:
            is_small = True
        else:
            digits += 1
            if digits <= EXACT_DIGITS:
                value = 10 * value + (p[0] - 48)
                fraction += is_small
            else:
                is_exact = False
        p += 1
    if not digits:
        return False
    if p < end:
        if p[0] | 32 != 101:
            return False
        p += 1
        if not _read_exponent(p, end, &exponent):
            return False
    exponent -= fraction
    if not is_exact or not -EXACT_POWER <= exponent <= EXACT_POWER:
        return _read_slowly(start, end - start, number)
    number[0] = <double>value
    if exponent < 0:
        number[0] /= POWERS[-exponent]
    else:
        number[0] *= POWERS[exponent]
    if is_negative:
        number[0] = -number[0]
    return True


cdef bint _read_exponent(
    const uint8_t *p, const uint8_t *end, int32_t *exponent
) noexcept nogil:
    """Read the digits after an E; a large number is as large as a small limit."""
    cdef bint is_negative = False
    cdef int32_t value = 0
    if p < end and (p[0] == 43 or p[0] == 45):
        is_negative = p[0] == 45
        p += 1
    if p == end:
        return False
    while p < end:
        if not _is_digit(p[0]):
            return False
        if value < 10_000:
            value = 10 * value + (p[0] - 48)
        p += 1
    exponent[0] = -value if is_negative else value
    return True


# -- comparisons


cdef inline int _rank(double number) noexcept nogil:
    return 2 if isnan(number) else 0 if signbit(number) else 1


cdef inline int _order(int64_t left, int64_t right) noexcept nogil:
    return (left > right) - (left < right)


cdef int _order_doubles(double left, double right) noexcept nogil:
    """Order as `Double.compareTo`: NaN last, -0.0 before 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left != 0:
        return 0
    return _order(_rank(left), _rank(right))


cdef inline double _as_double(const Value *value) noexcept nogil:
    return value.real if value.kind == DOUBLE else <double>value.number


cdef int _compare_with_text(const Value *number, const Name *text) noexcept nogil:
    """Compare a number with a text, which is read as the number's kind."""
    cdef double real
    cdef int64_t whole
    if number.kind == DOUBLE:
        if not _read_double(text, &real):
            return INCOMPARABLE
        return _order_doubles(number.real, real)
    if not _read_integer(
        text, INT32_MAX if number.kind == INT else INT64_MAX, &whole
    ):
        return INCOMPARABLE
    return _order(number.number, whole)


cdef bint _is_true(const Name *text) noexcept nogil:
    """Whether a text is `true`, in letters of any size."""
    return (
        text.size == 4
        and (text.data[0] | 32) == 116
        and (text.data[1] | 32) == 114
        and (text.data[2] | 32) == 117
        and (text.data[3] | 32) == 101
    )


cdef int _compare_texts(const Name *left, const Name *right) noexcept nogil:
    cdef int order = memcmp(left.data, right.data, min(left.size, right.size))
    return _order(order, 0) if order else _order(left.size, right.size)


cdef int _compare(const Value *left, const Value *right) noexcept nogil:
    """Return -1, 0, 1 or INCOMPARABLE; neither side is null."""
    cdef int order
    if left.kind == TEXT:
        if right.kind == TEXT:
            return _compare_texts(&left.text, &right.text)
        if right.kind == BOOLEAN:
            return _order(_is_true(&left.text), right.number)
        order = _compare_with_text(right, &left.text)
        return order if order == INCOMPARABLE else -order
    if left.kind == BOOLEAN:
        if right.kind == TEXT:
            return INCOMPARABLE
        return _order(left.number, right.number) if right.kind == BOOLEAN else -1
    if right.kind == BOOLEAN:
        return -1
    if right.kind == TEXT:
        return _compare_with_text(left, &right.text)
    if left.kind == DOUBLE or right.kind == DOUBLE:
        return _order_doubles(_as_double(left), _as_double(right))
    return _order(left.number, right.number)


cdef int _order_of(const Value *left, const Value *right) noexcept nogil:
    """Compare for `<` and others: two texts are doubles."""
    cdef double first, second
    if left.kind != TEXT or right.kind != TEXT:
        return _compare(left, right)
    if not _read_double(&left.text, &first) or not _read_double(&right.text, &second):
        return INCOMPARABLE
    return _order_doubles(first, second)


cdef inline bint _is_order(uint8_t sign, int order) noexcept nogil:
    if sign == LESS:
        return order < 0
    if sign == LESS_OR_EQUAL:
        return order <= 0
    return order > 0 if sign == GREATER else order >= 0


cdef bint _has_part(uint8_t place, const Name *text, const Name *part) noexcept nogil:
    """Whether a text contains, begins or ends with a part."""
    if part.size > text.size:
        return False
    if place == CONTAINS:
        return memmem(text.data, text.size, part.data, part.size) != NULL
    if place == STARTS_WITH:
        return memcmp(text.data, part.data, part.size) == 0
    return memcmp(text.data + text.size - part.size, part.data, part.size) == 0


cdef bint _is_among(
    const Value *texts, int32_t count, const Name *wanted
) noexcept nogil:
    """Whether one of the texts, which are sorted, is the wanted text."""
    cdef int32_t low = 0, high = count, middle
    cdef int order
    while low < high:
        middle = (low + high) // 2
        order = _compare_texts(&texts[middle].text, wanted)
        if order == 0:
            return True
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return False


# -- programs


cdef inline uint64_t _name_bit(const Name *name) noexcept nogil:
    """Return a bit by which most other names differ from the wanted ones."""
    return <uint64_t>1 << ((name.size + 31 * name.data[name.size - 1]) & 63)


cdef inline void _set_truth(Value *value, bint is_true) noexcept nogil:
    value.kind = BOOLEAN
    value.number = is_true


@cython.final
cdef class Selector:
    """A compiled expression."""

    def __cinit__(self, list program not None):
        """`program` is a list of (op, flag, operands), see the module's head. Its run
        must leave one value.
        """
        cdef Instruction *at
        cdef int32_t i = 0, depth = 0, deepest = 0
        self.texts = []
        constants, names = [], {}
        for op, _, operands in program:
            if op in (CONSTANT, AMONG, SEARCH):
                constants += operands
            elif op in (PROPERTY, CAST):
                names.setdefault(operands, len(names))
        self.size = <int32_t>len(program)
        self.code = <Instruction *>calloc(self.size + 1, sizeof(Instruction))
        self.constants = <Value *>calloc(len(constants) + 1, sizeof(Value))
        self.names = <Name *>calloc(len(names) + 1, sizeof(Name))
        self.values = <Name *>calloc(len(names) + 1, sizeof(Name))
        if (
            self.code == NULL or self.constants == NULL
            or self.names == NULL or self.values == NULL
        ):
            raise MemoryError
        for name in names:
            self.add_name(name.encode())
        for op, flag, operands in program:
            at = &self.code[i]
            at.op, at.flag = op, flag
            if op in (CONSTANT, AMONG, SEARCH):
                at.first, at.count = self.constant_count, <int32_t>len(operands)
                for value in operands:
                    self.add_constant(value)
            elif op in (PROPERTY, CAST):
                at.first = names[operands]
            elif op in (BRANCH, BRANCH_NULL):
                at.first = operands
            depth += op in (CONSTANT, PROPERTY, CAST)
            deepest = max(deepest, depth)
            depth -= op in (JOIN, EQUAL, ORDER)
            i += 1
        assert depth == 1, f"a program that leaves {depth} values"
        self.stack = <Value *>calloc(deepest, sizeof(Value))
        if self.stack == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.code)
        free(self.constants)
        free(self.names)
        free(self.values)
        free(self.stack)

    cdef int add_constant(self, value) except -1:
        cdef Value *added = &self.constants[self.constant_count]
        _set_value(added, value, self.texts)
        self.constant_count += 1
        return 0

    cdef int add_name(self, bytes name) except -1:
        cdef Name *added = &self.names[self.name_count]
        self.texts.append(name)
        added.data, added.size = name, len(name)
        self.name_bits |= _name_bit(added)
        self.name_count += 1
        return 0

    def matches(self, bytes properties not None):
        """Return whether the expression is true for the stored text of properties."""
        return self.match_text(properties, len(properties))

    cdef bint match_text(self, const uint8_t *text, int64_t size) noexcept nogil:
        """Return whether the expression is true for the properties of a record."""
        if not is_utf8(text, size):
            return self.match_repaired(text, size)
        self.read_values(text, size)
        return self.run()

    cdef bint match_repaired(self, const uint8_t *text, int64_t size) noexcept with gil:
        """Test a text of a foreign store that is no UTF-8, as Java decodes it."""
        return self.matches(text[:size].decode("utf-8", "replace").encode())

    cdef void read_values(self, const uint8_t *text, int64_t size) noexcept nogil:
        """Find the values of the properties that the program reads.

        As `decode_properties` does: a pair without name or value is skipped, and the
        last value of a name is used.
        """
        cdef const uint8_t *end = text + size
        cdef const uint8_t *middle
        cdef const uint8_t *stop
        cdef Name name
        cdef int32_t i
        memset(self.values, 0, self.name_count * sizeof(Name))
        while text < end:
            stop = find_byte(text, end, 2)
            middle = find_byte(text, stop, 1)
            if middle > text and middle + 1 < stop:
                name.data, name.size = text, middle - text
                for i in range(
                    self.name_count if self.name_bits & _name_bit(&name) else 0
                ):
                    if self.names[i].size == name.size and (
                        memcmp(self.names[i].data, name.data, name.size) == 0
                    ):
                        self.values[i].data = middle + 1
                        self.values[i].size = stop - middle - 1
                        break
            text = stop + 1

    cdef bint run(self) noexcept nogil:  # tidy: long — one switch over the operations
        """Evaluate the expression for the values that `read_values` found."""
        cdef Value *top = self.stack - 1
        cdef const Instruction *at = self.code
        cdef const Instruction *end = at + self.size
        cdef const Name *value
        cdef int order
        while at < end:
            if at.op == CONSTANT:
                top += 1
                top[0] = self.constants[at.first]
            elif at.op == PROPERTY:
                value = &self.values[at.first]
                top += 1
                top.kind = NULL_VALUE if value.data == NULL else TEXT
                top.text = value[0]
            elif at.op == CAST:
                top += 1
                _set_truth(top, False)
                if self.values[at.first].data == NULL:
                    top.kind = NULL_VALUE
            elif at.op == NEGATE:
                if top.kind == DOUBLE:
                    top.real = -top.real
                elif top.kind == INT or top.kind == LONG:
                    top.number = -top.number
                else:
                    top.kind = NULL_VALUE
            elif at.op == NOT:
                top.number = not top.number
            elif at.op == IS_NULL:
                _set_truth(top, top.kind == NULL_VALUE)
            elif at.op == BRANCH:
                if top.kind == BOOLEAN and top.number == at.flag:
                    at += at.first
            elif at.op == BRANCH_NULL:
                if top.kind == NULL_VALUE:
                    at += at.first
            elif at.op == JOIN:
                top -= 1
                if top[1].kind == BOOLEAN and top[1].number == at.flag:
                    top[0] = top[1]
                elif top[1].kind == NULL_VALUE:
                    top.kind = NULL_VALUE
            elif at.op == EQUAL:
                top -= 1
                if top.kind == NULL_VALUE:
                    if top[1].kind == NULL_VALUE:
                        _set_truth(top, True)
                elif top[1].kind == NULL_VALUE:
                    _set_truth(top, False)
                else:
                    order = _compare(top, top + 1)
                    if order == INCOMPARABLE:
                        return False
                    _set_truth(top, order == 0)
            elif at.op == ORDER:
                top -= 1
                if top[1].kind == NULL_VALUE:
                    top.kind = NULL_VALUE
                else:
                    order = _order_of(top, top + 1)
                    if order == INCOMPARABLE:
                        return False
                    _set_truth(top, _is_order(at.flag, order))
            elif at.op == AMONG:
                if top.kind == TEXT:
                    _set_truth(top, at.flag == _is_among(
                        &self.constants[at.first], at.count, &top.text
                    ))
            elif top.kind == TEXT:
                _set_truth(top, (at.flag & 1) == _has_part(
                    at.flag & 6, &top.text, &self.constants[at.first].text
                ))
            else:
                _set_truth(top, False)
            at += 1
        return top.kind == BOOLEAN and top.number


cdef int _set_value(Value *value, source, list texts) except -1:
    """Set a value from a constant of Python; `texts` keeps its text alive."""
    cdef bytes text
    value.kind = NULL_VALUE
    if isinstance(source, str):
        text = source.encode("utf-8", "surrogatepass")
        texts.append(text)
        value.kind = TEXT
        value.text.data, value.text.size = text, len(text)
    elif isinstance(source, bool):
        _set_truth(value, source)
    elif isinstance(source, float):
        value.kind = DOUBLE
        value.real = source
    elif source is not None:
        value.kind = LONG if isinstance(source, Long) else INT
        value.number = source
    return 0


def compare_constants(left, right):
    """Return -1, 0 or 1 as a comparison does, None if it refuses; neither is null."""
    cdef Value first, second
    cdef int order
    texts = []
    _set_value(&first, left, texts)
    _set_value(&second, right, texts)
    order = _compare(&first, &second)
    return None if order == INCOMPARABLE else order
