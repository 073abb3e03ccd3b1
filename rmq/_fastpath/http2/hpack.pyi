from typing import Self, final

__pyx_capi__: dict[str, object]

@final
class HeaderDecoder:
    used_size: int
    count: int
    def __new__(cls, announced: int = 4096) -> Self: ...
    def decode(self, block: bytes) -> list[tuple[bytes, bytes, int]]: ...
