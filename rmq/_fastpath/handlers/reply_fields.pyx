"""ReplyFields: ext fields that every reply of a compiled handler has.

They are encoded once, in both forms of a header:
JSON    `,"name":"value"` of each, to be put after another field, escaped as the Python
        path escapes them
binary  u16 n + name, i32 n + value of each
"""

cimport cython

import msgspec

cdef enum:
    FIELDS_LIMIT = 256          # bytes in either form, so that a reply fits its room


@cython.final
cdef class ReplyFields:
    """The encoded fields; ValueError if they are too long for a reply."""

    def __cinit__(self, dict fields not None):
        self.json = b"".join(
            b"," + msgspec.json.encode(name) + b":" + msgspec.json.encode(value)
            for name, value in fields.items()
        )
        self.binary = b"".join(
            len(name).to_bytes(2, "big") + name
            + len(value).to_bytes(4, "big") + value
            for name, value in (
                (name.encode(), value.encode()) for name, value in fields.items()
            )
        )
        if max(len(self.json), len(self.binary)) > FIELDS_LIMIT:
            raise ValueError(f"{fields} are too long for a reply")
        self.json_text, self.json_size = self.json, len(self.json)
        self.binary_text, self.binary_size = self.binary, len(self.binary)
