import ssl
from enum import IntEnum
from typing import Self, final

class TlsState(IntEnum):
    TLS_OPEN = 0
    TLS_CLOSED = 1
    TLS_BROKEN = 2
    TLS_ABUSED = 3

@final
class Span: ...

@final
class TlsLayer:
    data_records: int
    empty_records: int
    small_records: int
    error: str
    selected_protocol: str | None
    def __new__(
        cls,
        ssl_object: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
    ) -> Self: ...
