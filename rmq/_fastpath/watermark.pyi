from typing import final

@final
class Watermark:
    """An atomic offset; `value` is what is known, `advance` moves it."""

    def __init__(self, value: int = 0) -> None: ...
    @property
    def value(self) -> int:
        """The offset now."""

    def advance(self, value: int) -> bool:
        """Raise the offset to `value`; False if it was there already."""

    def reset(self, value: int) -> None:
        """Set the offset, also downwards: recovery only, before anybody reads."""

    def subscribe(self) -> int:
        """A new eventfd that is readable after each move; `unsubscribe` closes it."""

    def unsubscribe(self, descriptor: int) -> None:
        """Close a descriptor that `subscribe` gave."""
