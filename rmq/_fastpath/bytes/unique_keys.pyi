from collections.abc import Callable
from typing import final

@final
class UniqueKeys:
    """Makes unique keys. Known in Java as `MessageClientIDSetter`."""

    size: int

    def __init__(self, store_host: bytes, now_ms: Callable[[], int]) -> None:
        """`store_host` is this broker's address and port as records store them."""

    def next(self) -> str:
        """Return a new unique key; ValueError if the clock is no date."""
