"""The text of a message's properties: name, 0x01, value, 0x02, for each of them.

The separator after the last pair may be missing. Texts that are not a pair, and pairs
with an empty name or value, are skipped. If a name occurs twice, the last value is
used.
"""

from cpython.unicode cimport (
    PyUnicode_FindChar,
    PyUnicode_GET_LENGTH,
    PyUnicode_Join,
    PyUnicode_Substring,
)

cdef enum:
    NAME_END = 1
    PAIR_END = 2


def decode_properties(str text not None):
    """Read the stored text as Java does (0.3 us for four properties)."""
    cdef dict properties = {}
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t size = len(text)
    cdef Py_ssize_t middle, stop
    while start < size:
        stop = PyUnicode_FindChar(text, PAIR_END, start, size, 1)
        if stop < 0:
            stop = size
        middle = PyUnicode_FindChar(text, NAME_END, start, stop, 1)
        if middle > start and middle + 1 < stop:
            properties[PyUnicode_Substring(text, start, middle)] = PyUnicode_Substring(
                text, middle + 1, stop
            )
        start = stop + 1
    return properties


def encode_properties(dict properties not None):
    """Write the stored text (1 us for twelve properties).

    ValueError for a name or value with a separator in it, which Java would not escape.
    """
    cdef list parts = []
    cdef str name, value
    for name, value in properties.items():
        if name is None or value is None:
            raise TypeError(f"{name!r}: {value!r} cannot be a property")
        if (
            _contains(name, NAME_END)
            or _contains(name, PAIR_END)
            or _contains(value, PAIR_END)
        ):
            raise ValueError(f"{name!r}: {value!r} holds a separator")
        parts.append(name)
        parts.append("\x01")
        parts.append(value)
        parts.append("\x02")
    return PyUnicode_Join("", parts)


cdef bint _contains(str text, Py_UCS4 character) except -1:
    return PyUnicode_FindChar(text, character, 0, PyUnicode_GET_LENGTH(text), 1) >= 0
