from collections.abc import Callable
from typing import final

@final
class UniqueKeys:
    size: int

    def __init__(self, store_host: bytes, now_ms: Callable[[], int]) -> None: ...
    def next(self) -> str: ...
