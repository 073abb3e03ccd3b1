from collections.abc import Callable
from typing import final

@final
class UniqueKeys:
    """Makes unique keys. Known in Java as `MessageClientIDSetter`."""

    size: int

    def __init__(self, store_host: bytes, now_ms: Callable[[], int]) -> None:
        """`store_host` is the maker as records hold it, with its port."""

    def next(self) -> str:
        """Return a key that nobody made before; ValueError if the clock is no date."""
