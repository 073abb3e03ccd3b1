from typing import Self, final

@final
class Watermark:
    """An atomic offset; `value` is what is known, `advance` moves it."""

    def __new__(cls, value: int = 0) -> Self: ...
    @property
    def value(self) -> int:
        """The offset now."""

    def advance(self, value: int) -> bool:
        """Raise the offset to `value`; False if it was there already."""

    def reset(self, value: int) -> None:
        """Set the offset, also downwards: recovery only, before anybody reads."""

    @staticmethod
    def minimum_of(first: Watermark, second: Watermark) -> Watermark:
        """Give a watermark that is always at the lesser of two.

        Demands for it go to both.  Make it before anybody moves them; each can be part
        of one.
        """

    def request_advance(self) -> None:
        """Let `wait_for_request` return, now or when it is called."""

    def wait_for_request(self) -> bool:
        """Block without the GIL until somebody wants more; False after the end."""

    def end_wait(self) -> None:
        """Let `wait_for_request` return False, once."""

    def subscribe(self) -> int:
        """Give a new eventfd, readable after each move; `unsubscribe` closes it."""

    def unsubscribe(self, descriptor: int) -> None:
        """Close a descriptor that `subscribe` gave."""
