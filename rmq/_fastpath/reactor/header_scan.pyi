from typing import NamedTuple

__pyx_capi__: dict[str, object]

class ScannedHeader(NamedTuple):
    """A scanned header as Python values; JSON escapes are still in the field values."""

    code: int
    flag: int
    version: int
    opaque: int
    language: int
    fields: dict[bytes, bytes]

def scan(header: bytes, serialize_type: int) -> ScannedHeader | None:
    """Scan one header; None if it is not plain. For tests and benchmarks."""
