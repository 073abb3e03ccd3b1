from collections.abc import Collection
from typing import Self, final

@final
class MessageEncoder:
    def __new__(cls, broker_name: str, *, reserved_names: Collection[str]) -> Self: ...
    def encode(
        self,
        records: bytes,
        topic: str,
        starts: dict[int, int],
        *,
        pop_ms: int,
        invisible_ms: int,
        revive_queue: int,
        is_padded: bool,
    ) -> list[tuple[int, bytes | None, str, int]]: ...

__pyx_capi__: dict[str, object]
