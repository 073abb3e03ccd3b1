from typing import Self

from typing_extensions import disjoint_base

__pyx_capi__: dict[str, object]

@disjoint_base
class Extent:
    path: str
    size: int
    base_offset: int
    holders: int
    def __new__(cls) -> Self: ...
    def read(self, position: int, size: int) -> bytes: ...
