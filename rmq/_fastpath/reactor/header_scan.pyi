from typing import NamedTuple

__pyx_capi__: dict[str, object]

class ScannedHeader(NamedTuple):
    code: int
    flag: int
    version: int
    opaque: int
    language: int
    fields: dict[bytes, bytes]

def scan(header: bytes, serialize_type: int) -> ScannedHeader | None: ...
