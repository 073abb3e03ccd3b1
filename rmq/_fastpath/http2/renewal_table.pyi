from collections.abc import Callable
from typing import Any, final

RENEWED_INVISIBLE_MS: int

@final
class Renewal:
    client_id: str
    owner: Any
    began_ms: int
    renewed_ms: int
    receipt: Any
    waiting: list[Callable[[Any], None]] | None

@final
class RenewalTable:
    limit: int
    client_limit: int
    def __init__(
        self, steady_ms: Callable[[], int], *, limit: int, client_limit: int
    ) -> None: ...
    @property
    def entries(self) -> dict[str, Renewal]: ...
    def __len__(self) -> int: ...
    def add(self, client_id: str, owner: object, handles: list[str]) -> int: ...
    def remove(self, handle: str) -> Renewal: ...
    def handles_of(self, client_id: str) -> list[str]: ...
    def move_to_end(self, handle: str) -> None: ...
